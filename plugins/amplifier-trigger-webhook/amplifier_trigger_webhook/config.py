"""Read the `config:` of a webhook in a bundle."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from amplifier_core.errors import TriggerConfigError
from amplifier_core.trigger_config import read_trigger_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Scheme = Literal["github", "gitlab", "slack", "stripe", "standard", "plain", "none"]
MEBIBYTE = 1024 * 1024
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|[0-9a-f:.]*:[0-9a-f:.]*:[0-9a-f:.]*")
"""A name or an address as it stands in a Host header, where a name with other letters is written as `xn--…`."""


class WebhookConfig(BaseModel):
    """The address of a webhook, its callers, and its limits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: Annotated[
        str | None,
        Field(
            pattern=r"^/[A-Za-z0-9._~/-]{0,255}$",
            description="The path of its address; default: '/' and the name of the background session.",
        ),
    ] = None
    port: Annotated[int, Field(ge=0, le=65535, description="The port; 0 takes any free one, and logs it.")] = 8787
    host: Annotated[
        str,
        Field(description="The address to listen at; one besides loopback needs a secret."),
    ] = "127.0.0.1"
    hosts: Annotated[
        list[str],
        Field(description="Its other names, such as a tunnel's."),
    ] = []
    secret_env: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="The environment variable with the secret."),
    ] = None
    signature: Annotated[
        Scheme | None,
        Field(description="How senders sign requests; default: 'github' with a secret_env, else 'none'."),
    ] = None
    tolerance: Annotated[
        float, Field(gt=0, le=86_400, description="Seconds that the time of a signature may be away.")
    ] = 300.0
    max_bytes: Annotated[int, Field(ge=1, le=64 * MEBIBYTE, description="Bytes of the largest body.")] = MEBIBYTE
    events: Annotated[
        list[str] | None, Field(min_length=1, description="Kinds of events that count; default: all.")
    ] = None
    rate: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="The most requests a minute; null: any number.")
    ] = 600

    @field_validator("host")
    @classmethod
    def _read_address(cls, host: str) -> str:
        if host == "localhost":
            return "127.0.0.1"
        try:
            return str(ip_address(host))
        except ValueError:
            raise ValueError(f"{host!r} is not an address; write one such as 127.0.0.1, or localhost") from None

    @field_validator("hosts")
    @classmethod
    def _read_names(cls, hosts: list[str]) -> list[str]:
        """Return names and addresses as the Host header is compared with them."""
        names = [host.lower().removeprefix("[").removesuffix("]") for host in hosts]
        for host, name in zip(hosts, names, strict=True):
            if not _HOST.fullmatch(name):
                remedy = "write each name alone, as hooks.example.com: without a scheme, a port, a path or *"
                raise ValueError(f"{host!r} is no name of a host; {remedy}")
        return names

    @property
    def scheme(self) -> Scheme:
        """How senders sign requests."""
        return self.signature or ("github" if self.secret_env else "none")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        return ip_address(self.host).is_loopback

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Names for the Host header; an empty set allows any: an unspecified address has no name of its own."""
        if not self.hosts and ip_address(self.host).is_unspecified:
            return frozenset()
        own = ("localhost", "127.0.0.1", "::1") if self.is_loopback else ()
        return frozenset((*own, self.host, *self.hosts))


def read_config(trigger: str, config: Mapping[str, Any]) -> WebhookConfig:
    """Return the checked configuration. Raises `TriggerConfigError`."""
    if "secret" in config:
        remedy = "a bundle holds no secrets; put it into an environment variable, and name that in secret_env"
        raise TriggerConfigError(trigger, "secret", remedy)
    checked = read_trigger_config(trigger, WebhookConfig, config)
    for key, message in _contradictions(checked):
        raise TriggerConfigError(trigger, key, message)
    return checked


def _contradictions(config: WebhookConfig) -> Iterator[tuple[str, str]]:
    """Yield keys that do not go together, each with the remedy."""
    if config.scheme == "none" and config.secret_env is not None:
        yield (
            "signature",
            "'none' checks no secret; remove secret_env, or say how senders sign: 'github' is the default",
        )
    if config.scheme != "none" and config.secret_env is None:
        yield "signature", f"'{config.scheme}' needs a secret_env, the environment variable with the secret"
    if config.scheme == "none" and not config.is_loopback:
        yield "host", f"other machines can reach {config.host}; give a secret_env, or listen at 127.0.0.1"
