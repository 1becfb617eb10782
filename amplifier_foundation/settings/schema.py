"""Define the schema of a settings file. Importing this imports pydantic."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from amplifier_core.model_drafts import new_list
from amplifier_core.permissions.hidden import is_printable

from ..documents.fields import MODULE_ID, PermissionsSection, Seconds, Section, Size
from ..documents.positions import Positions
from ..documents.secrets import find_secrets

HOUR = 3600
"""Seconds."""
Text = Annotated[str, Field(min_length=1)]


def _check_event_name(name: str) -> str:
    if "*" in name[:-1]:
        raise ValueError("a * may only be the last character, as in 'work:*'")
    return name


EventName = Annotated[Text, AfterValidator(_check_event_name)]


class Override(Section):
    """Values merged over the entries of one module in all bundles."""

    source: Text = ""
    """The path or address of its code."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Merged over the bundle's."""


class Fetching(Section):
    """Limits on fetching remote bundles and modules."""

    timeout: Annotated[float, AfterValidator(lambda seconds: min(seconds, 1_000_000.0))] = Field(
        default=0, gt=0, allow_inf_nan=False
    )
    """Seconds for one source; a million count for more: waiting for a process longer overflows."""


class Storage(Section):
    """A storage and its configuration."""

    name: str = Field(pattern=MODULE_ID)
    config: dict[str, Any] = Field(default_factory=dict)
    """The factory of the storage is called with it; without `folder` and `path`, it is given the data folder."""


class Transport(Section):
    """A transport of events between this site and others."""

    name: str = Field(pattern=MODULE_ID)
    site: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """The name of this site: small letters, digits and -. Each site has its own."""
    publish: list[EventName] = Field(default_factory=new_list)
    """Events that other sites may receive: names, prefixes ('work:*') or '*'."""
    subscribe: list[EventName] = Field(default_factory=new_list)
    """Events of other sites that come into the log here."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The transport is made with it; secrets as secret://NAME."""

    @model_validator(mode="after")
    def _check(self) -> Transport:
        if not self.publish and not self.subscribe:
            raise ValueError("needs events: publish: [NAME, …], subscribe: [NAME, …], or both")
        if secrets := find_secrets(self.config, Positions(""), in_arguments=False):
            raise ValueError(f"config: {secrets[0].path}: {secrets[0].message}")
        return self


class Approvals(Section):
    """The questions of background sessions about their tool calls."""

    timeout: Seconds = 0
    """Time until an unanswered question counts as denied, unless the bundle says it."""


class Retention(Section):
    """Limits on kept data."""

    sessions: Seconds = 0
    """Time to keep a session after its last change; 0: for ever."""
    max_size: Size = 0
    """Limit on the size of the store in bytes: older data goes first; 0: unlimited."""
    keep: int = Field(default=0, ge=0)
    """Sessions of each background session kept at any age."""
    undo: Size = 0
    """Limit on the earlier contents of changed files in bytes: the oldest go first; 0: none are kept."""
    prompts: int = Field(default=0, ge=0, le=1_000_000)
    """Lines typed in conversations that are kept for the next ones; 0: none, only your own settings count."""

    @field_validator("sessions", mode="before")
    @classmethod
    def _has_unit(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < HOUR:
            raise ValueError(f"{value:g} without a unit is seconds; write '{value:g}d' for days, or '{value:g}s'")
        return value


class Hosts(Section):
    """Work on a storage that several hosts share; the same on all of them."""

    lease: float = Field(default=30.0, ge=1, le=3600)
    """Seconds without a sign after which other hosts take over the work of a host."""


class Notification(Section):
    """A target that is told when background sessions need a person."""

    on: list[Literal["given_up", "approval", "budget", "degraded"]] = Field(min_length=1)
    """An event is given up, a question waits, a budget is spent, a background session is degraded for a minute."""
    desktop: bool = False
    """Show it on the desktop, with notify-send."""
    command: list[Text] = Field(default_factory=new_list)
    """A program and its arguments, run without a shell; it reads JSON."""
    webhook: Text = ""
    """The address of a POST with the same JSON, or secret://NAME."""
    token: str = Field(default="", pattern=r"^secret://[A-Za-z0-9_.-]+$")
    """The secret for the header of the webhook: secret://NAME."""
    header: str = Field(default="Authorization", pattern=r"^[A-Za-z0-9-]+$")
    """The header with the token; Authorization gets it as `Bearer`."""
    insecure: bool = False
    """Allow http to other machines."""

    @model_validator(mode="after")
    def _one_target(self) -> Notification:
        if sum(map(bool, (self.desktop, self.command, self.webhook))) != 1:
            raise ValueError("needs one target: desktop: true, command: [program, …] or webhook: URL")
        if self.webhook and not self.webhook.startswith("secret://"):
            check_webhook(self.webhook, insecure=self.insecure)
        return self


def check_webhook(url: str, *, insecure: bool) -> None:
    """Raise `ValueError` for an address that is not https, nor http on this machine or with `insecure`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("a webhook is an http or https address without a user")
    if parts.scheme == "http" and not insecure and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError("a webhook on another machine needs https, or insecure: true")


ModelName = Annotated[
    Annotated[dict[str, Text], Tag("dict")] | Annotated[Text, Tag("str")],
    Discriminator(lambda value: "dict" if isinstance(value, dict) else "str"),
]


class SettingsFile(Section):
    """A whole settings file. An empty key counts as missing."""

    bundle: Text = ""
    """The bundle for folders without one: a registered name, a path or a URI."""
    bundles: dict[str, Text] = Field(default_factory=dict)
    """Paths and addresses of bundles by name."""
    storage: Annotated[
        Annotated[Storage, Tag("Storage")] | Annotated[str, Field(pattern=MODULE_ID), Tag("str")],
        Discriminator(lambda value: "Storage" if isinstance(value, dict) else "str"),
    ] = ""
    """The storage of sessions: its name, or its name and its configuration."""
    overrides: dict[str, Override] = Field(default_factory=dict)
    """By module."""
    models: dict[str, ModelName] = Field(default_factory=dict)
    """Models by alias: one for every provider, or one for each by its name."""
    permissions: PermissionsSection = Field(default_factory=PermissionsSection)
    """Only those of your own settings may allow what is asked or protected by default; a project's can only tighten."""
    fetch: Fetching = Field(default_factory=Fetching)
    approvals: Approvals = Field(default_factory=Approvals)
    retention: Retention = Field(default_factory=Retention)
    notify: list[Notification] = Field(default_factory=new_list)
    """Who is told when background sessions need a person."""
    hosts: Hosts = Field(default_factory=Hosts)
    transports: list[Transport] = Field(default_factory=new_list)
    """Brokers that carry events between sites; each transport once. Only your own settings may name them."""
    servers: dict[Text, dict[str, Any] | None] = Field(default_factory=dict)
    """Servers beside `up`, each with its config; secrets as secret://NAME. Only your own settings may name them."""
    disabled_plugins: list[Text] = Field(default_factory=new_list)
    """Plugins and modules that are not loaded, by the names of their entry points. Only your own settings name them."""
    max_subprocess: int = Field(default=0, ge=1)
    """Sessions in processes of their own that run at a time (`runner: subprocess`)."""

    @field_validator("transports")
    @classmethod
    def _each_once(cls, transports: list[Transport]) -> list[Transport]:
        names = [each.name for each in transports]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"'{name}' stands here twice; give one entry more servers or events")
        return transports

    @field_validator("servers")
    @classmethod
    def _without_secrets(cls, servers: dict[str, dict[str, Any] | None]) -> dict[str, dict[str, Any] | None]:
        if secrets := find_secrets(servers, Positions(""), in_arguments=False):
            raise ValueError(f"{secrets[0].path}: {secrets[0].message}")
        return servers

    @field_validator("bundles")
    @classmethod
    def _names(cls, bundles: dict[str, str]) -> dict[str, str]:
        for name in bundles:
            if not name.strip() or not is_printable(name) or set(name) & set(":/\\"):
                raise ValueError(f"'{name}' is not a name; use printable characters without ':', '/' and '\\'")
        return bundles
