"""Read how the page is served: the options of the command, or the setting `servers: {dashboard: {…}}`."""

from __future__ import annotations

from difflib import get_close_matches
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from amplifier_core.errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class PageConfigError(AmplifierError, ValueError):
    """The page cannot be served so; the message names the option and the remedy."""


class PageConfig(BaseModel):
    """Where the page is, and who may see it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    host: Annotated[str, Field(description="The address to listen at.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="The port; 0 takes any free one.")] = 8790
    names: Annotated[list[str], Field(description="Other names of this host, such as a proxy's, without a port.")] = []
    read_only: Annotated[bool, Field(description="Whether the page changes nothing.")] = False
    password: Annotated[str, Field(description="The password, as secret://NAME.")] = ""
    tls_cert: Annotated[str, Field(description="The file with the certificate, for HTTPS.")] = ""
    tls_key: Annotated[str, Field(description="The file with its private key.")] = ""
    insecure: Annotated[bool, Field(description="Whether other machines may come without TLS.")] = False

    @field_validator("host")
    @classmethod
    def _read_address(cls, host: str) -> str:
        if host == "localhost":
            return "127.0.0.1"
        try:
            return str(ip_address(host))
        except ValueError:
            raise ValueError(f"{host!r} is not an address; write one such as 127.0.0.1") from None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        return ip_address(self.host).is_loopback

    @property
    def scheme(self) -> str:
        """How browsers reach it: `https` with a certificate."""
        return "https" if self.tls_cert else "http"

    def addresses(self, port: int) -> frozenset[str]:
        """Return the values of the Host header that name this server."""
        own = [*LOOPBACK] if self.is_loopback else []
        names = [f"[{name}]" if ":" in name else name.lower() for name in (*own, self.host, *self.names)]
        standard = {"http": 80, "https": 443}[self.scheme]
        return frozenset([f"{name}:{port}" for name in names] + ([*names] if port == standard or self.names else []))


def read_config(given: Mapping[str, Any]) -> PageConfig:
    """Return the checked configuration. Raises `PageConfigError`."""
    try:
        config = PageConfig(**given)
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = sorted(PageConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise PageConfigError(f"dashboard: {key}: {message}") from None
    for key, message in _contradictions(config):
        raise PageConfigError(f"dashboard: {key}: {message}")
    return config


def _contradictions(config: PageConfig) -> Iterator[tuple[str, str]]:
    """Yield keys that do not go together, each with the remedy."""
    if bool(config.tls_cert) != bool(config.tls_key):
        yield "tls_cert", "a certificate and its key go together; give both tls_cert and tls_key"
    if config.is_loopback:
        return
    if not config.password:
        yield (
            "password",
            f"other machines can reach {config.host}; give a password (--password-env NAME), or listen at 127.0.0.1",
        )
    if not config.tls_cert and not config.insecure:
        remedy = "give tls_cert and tls_key, or say insecure where something else encrypts"
        yield (
            "tls_cert",
            f"other machines can reach {config.host}, and passwords would be readable on the way; {remedy}",
        )
    if ip_address(config.host).is_unspecified and not config.names:
        yield "names", f"{config.host} is no name; give the names by which browsers reach this host"
