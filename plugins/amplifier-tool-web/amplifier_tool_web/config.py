"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from .urls import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-web"


def _check_hosts(hosts: list[str]) -> list[str]:
    for host in hosts:
        if not HOST.fullmatch(host.removeprefix("*.").strip("[]")):
            raise ValueError(f"{host!r} is no host; write one as docs.example.com, without a scheme, port or path")
    return [host.removeprefix("*.").strip("[]").rstrip(".").lower() for host in hosts]


Hosts = Annotated[list[str], AfterValidator(_check_hosts)]


class WebConfig(BaseModel):
    """The hosts and the limits of the tool. A host stands for those below it, too."""

    model_config = ConfigDict(extra="forbid", strict=True)

    allow: Annotated[Hosts, Field(description="The hosts that may be fetched from; default: every public one.")] = []
    deny: Annotated[Hosts, Field(description="Hosts that may not be fetched from.")] = []
    internal: Annotated[
        Hosts, Field(description="Hosts on this machine or its network that may be fetched from all the same.")
    ] = []
    timeout: Annotated[float, Field(gt=0, le=600, description="Seconds for one fetch, redirects included.")] = 30.0
    max_bytes: Annotated[int, Field(ge=1, le=64 * 1024**2, description="Bytes of a page, unpacked.")] = 5 * 1024**2
    max_chars: Annotated[int, Field(ge=100, le=200_000, description="Characters of text for one call.")] = 20_000
    max_redirects: Annotated[int, Field(ge=0, le=20, description="Redirects of one fetch.")] = 5
    cache_seconds: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="Seconds that the session keeps a page.")
    ] = 300.0


def read_config(config: Mapping[str, Any]) -> WebConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return WebConfig.model_validate(config)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = list(WebConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
