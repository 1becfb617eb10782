"""Read URLs, and know which hosts may be asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from amplifier_core.permissions.hosts import is_internal_host, parse_address

from .failures import FetchError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .config import WebConfig

HOST = re.compile(r"[A-Za-z0-9_]([\w.-]*[A-Za-z0-9_])?\.?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", re.ASCII)
LONGEST = 8_000
"""Characters of a URL."""
_AS_WRITTEN = "!$%&'()*+,/:;=?@~[]"


class Url(NamedTuple):
    """An address of the web in ASCII; the host is in small letters, the target has a path and a query."""

    scheme: str
    host: str
    port: int | None
    target: str

    @property
    def server(self) -> str:
        """The host with its port, as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address without its query: there are secrets in queries."""
        return f"{self.scheme}://{self.server}{self.target.partition('?')[0]}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.server}{self.target}"


def read_url(given: str) -> Url:
    """Return the parts of a URL. Raises `FetchError` for one that programs may read in different ways."""
    if len(given) > LONGEST or not given.isprintable() or any(each in given for each in " \\"):
        raise FetchError("InvalidInput", "the URL is too long, or has spaces or characters that do not show")
    try:
        parts = urlsplit(given)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise FetchError("InvalidInput", f"not a URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise FetchError(
            "InvalidInput", f"the scheme must be http or https, as in https://example.com, not {parts.scheme!r}"
        )
    if "@" in parts.netloc:
        raise FetchError("InvalidInput", "the URL names a user before the host; leave out everything up to the @")
    if not HOST.fullmatch(host) or (":" not in host and not all(0 < len(each) < 64 for each in host.split("."))):
        raise FetchError("InvalidInput", f"not a host: {host!r}; write it in ASCII (xn--…)")
    query = f"?{parts.query}" if parts.query else ""
    return Url(parts.scheme, host, port, quote((parts.path or "/") + query, safe=_AS_WRITTEN))


def follow(url: Url, location: str) -> Url:
    """Return where a redirect leads. Raises `FetchError`, also for one from https to http."""
    try:
        target = read_url(urljoin(str(url), location.strip()))
    except ValueError as error:
        raise FetchError("InvalidInput", f"{url.shown} redirects to what is not a URL: {error}") from None
    if url.scheme == "https" and target.scheme == "http":
        raise FetchError("Refused", f"{url.shown} redirects from https to http, which anybody can change on the way")
    return target


def covers(hosts: Iterable[str], host: str) -> bool:
    """Return whether one of `hosts` is a host, or above it; addresses are compared as numbers."""
    address = parse_address(host)
    if address is not None:
        return any(parse_address(each) == address for each in hosts)
    return any(host == each or host.endswith(f".{each}") for each in hosts)


def check_host(host: str, config: WebConfig) -> None:
    """Raise `FetchError` for a host that the configuration denies, and for an internal one that it does not name."""
    if covers(config.deny, host):
        raise FetchError("Refused", f"{host} is denied by the configuration of tool-web")
    if config.allow and not covers(config.allow, host) and not covers(config.internal, host):
        raise FetchError("Refused", f"{host} is none of the hosts that the configuration of tool-web allows")
    check_internal(host, host, config)


def check_internal(host: str, address: str, config: WebConfig) -> None:
    """Raise `FetchError` for an address of this machine or its network, unless the configuration names the host."""
    if is_internal_host(address) and not covers(config.internal, host):
        remedy = f"a person may add it to `internal` in the config of tool-web: [{host}]"
        raise FetchError("Refused", f"{host} is this machine, or its own network; {remedy}")
