"""Read the `config` of the transport in the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from amplifier_core.durations import LONGEST, seconds_of

from . import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

Text = Annotated[str, Field(min_length=1)]
Server = Annotated[str, Field(pattern=r"^(nats|tls|ws|wss)://[^/\s]+$")]

WAYS = (("token",), ("user", "password"), ("nkey",), ("nkey_file",), ("credentials",), ("credentials_file",))
"""The ways to say who one is; a client has one of them."""


class Tls(BaseModel):
    """How the connection is encrypted; the system's authorities count without `ca_file`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ca_file: Text | None = None
    cert_file: Text | None = None
    """The certificate of this site, with `key_file`."""
    key_file: Text | None = None
    hostname: Text | None = None
    """The name in the broker's certificate, unless it is that of its address."""
    first: bool = False
    """Encrypt before the broker says anything: `handshake_first` there."""


class NatsConfig(BaseModel):
    """The broker, the stream, and who this site is to the broker."""

    model_config = ConfigDict(extra="forbid", strict=True)

    servers: Annotated[list[Server], Field(min_length=1)]
    stream: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "amplifier"
    """The name of the stream; its subjects begin with it. It is made where it is missing."""
    max_age: float | str = "7d"
    """How long a new stream keeps events, in seconds or as 36h or 7d."""
    max_bytes: Annotated[int, Field(ge=1)] | None = None
    """The size of a new stream: beyond it the oldest events go."""
    replicas: Annotated[int, Field(ge=1, le=5)] = 1
    """Copies of a new stream in a cluster."""
    token: Text | None = None
    user: Text | None = None
    password: Text | None = None
    nkey: Text | None = None
    """The seed of an NKey."""
    nkey_file: Text | None = None
    credentials: Text | None = None
    """The content of a .creds file."""
    credentials_file: Text | None = None
    tls: Tls | None = None

    @model_validator(mode="after")
    def _check(self) -> NatsConfig:
        given = [" and ".join(way) for way in WAYS if any(getattr(self, key) is not None for key in way)]
        if len(given) > 1:
            raise ValueError(f"{given[0]} or {given[1]}: a site has one of them")
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together")
        if self.tls is not None and (self.tls.cert_file is None) != (self.tls.key_file is None):
            raise ValueError("tls: cert_file and key_file belong together")
        if self.age <= 0:
            raise ValueError("max_age: must be more than 0")
        if self.age > LONGEST:
            raise ValueError(f"max_age: must be at most {LONGEST:.0f}")
        return self

    @property
    def age(self) -> float:
        """The age in seconds at which a new stream forgets events."""
        return float(seconds_of(self.max_age))


def read_config(config: Mapping[str, Any]) -> NatsConfig:
    """Return the checked configuration. Raises `ValueError` with the key, and without the value: it may be a secret."""
    try:
        return NatsConfig.model_validate(dict(config))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            fields = Tls.model_fields if key.startswith("tls.") else NatsConfig.model_fields
            raise ValueError(f"{NAME}: unknown key '{key}'. Known: {', '.join(fields)}") from None
        text = first["msg"].removeprefix("Value error, ")
        if key.startswith("servers."):
            text = "an address is nats://HOST:PORT, tls://HOST:PORT, ws://… or wss://…"
        raise ValueError(f"{NAME}: {key}{': ' if key else ''}{text}") from None
