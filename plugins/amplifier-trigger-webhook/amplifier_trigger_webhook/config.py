"""What a bundle may say in the `config:` of a webhook."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Scheme = Literal["github", "plain", "none"]
MEBIBYTE = 1024 * 1024


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    return ip_address(host).is_loopback


def _address(host: str) -> str:
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ip_address(host))
    except ValueError:
        raise ValueError(f"{host!r} is no address; write one such as 127.0.0.1, or localhost") from None


def _lower(names: list[str]) -> list[str]:
    return [name.lower() for name in names]


class WebhookConfig(BaseModel):
    """Where the webhook is, who may call it, and how often."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: Annotated[
        str | None,
        Field(
            pattern=r"^/[A-Za-z0-9._~/-]{0,255}$",
            description="The path of its address; default: '/' and the name of the background session.",
        ),
    ] = None
    port: Annotated[int, Field(ge=0, le=65535, description="The port; 0 takes any that is free, and logs it.")] = 8787
    host: Annotated[
        str,
        AfterValidator(_address),
        Field(description="The address to listen at; others than loopback need a secret."),
    ] = "127.0.0.1"
    hosts: Annotated[
        list[str], AfterValidator(_lower), Field(description="Names that it is called by besides, such as a tunnel's.")
    ] = []
    secret_env: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="The environment variable that holds the secret."),
    ] = None
    signature: Annotated[
        Scheme | None,
        Field(description="How requests are signed; default: 'github' with a secret_env, else 'none'."),
    ] = None
    tolerance: Annotated[
        float, Field(gt=0, le=86_400, description="Seconds that a signature is good for, and known again.")
    ] = 300.0
    max_bytes: Annotated[int, Field(ge=1, le=64 * MEBIBYTE, description="Bytes of the largest body.")] = MEBIBYTE
    events: Annotated[
        list[str] | None, Field(min_length=1, description="Values of X-GitHub-Event that count; default: all.")
    ] = None
    rate: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="Requests a minute that are accepted; null: any number.")
    ] = 600

    @property
    def scheme(self) -> Scheme:
        """How requests are signed."""
        return self.signature or ("github" if self.secret_env else "none")

    @model_validator(mode="after")
    def _signed_where_it_must_be(self) -> WebhookConfig:
        if self.scheme == "none" and self.secret_env is not None:
            raise ValueError("signature 'none' checks no secret; drop secret_env, or say 'github' or 'plain'")
        if self.scheme != "none" and self.secret_env is None:
            raise ValueError(f"signature '{self.scheme}' needs a secret_env, the environment variable with the secret")
        if self.scheme == "none" and not is_loopback(self.host):
            raise ValueError(f"{self.host} can be reached from elsewhere; give a secret_env, or listen at 127.0.0.1")
        return self
