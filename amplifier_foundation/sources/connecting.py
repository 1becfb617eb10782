"""Connect to web servers, and keep fetches off this machine and its network where nobody named it.

A name is resolved once: what was checked is what is connected to.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from amplifier_core.permissions import is_internal_address, is_internal_host
from amplifier_core.permissions.hosts import is_loopback_address, is_loopback_host

from .errors import SourceRefused

if TYPE_CHECKING:
    from .uris import ParsedURI

_REMEDY = "Only a bundle of your own may name one: copy the bundle into a folder, or use a public address"


class Reach:
    """The servers within reach of one fetch.

    With `public_only`, addresses of this machine and of the networks around it are refused. Without it, redirects lead
    no further inside than the servers before: after a public one, those addresses are refused; after any server but one
    at loopback, loopback is.
    """

    def __init__(self, source: ParsedURI, *, public_only: bool) -> None:
        self._source = source
        self.public_only = public_only
        self._has_left = False
        """Whether a server was asked that is not at loopback."""
        self.addresses: list[str] = []
        """The addresses of the last server that was asked, without a proxy."""

    def check_url(self, url: str, *, is_proxied: bool = False) -> None:
        """Refuse a URL with a host that is out of reach, whoever resolves it. Raises `SourceRefused`."""
        host = urlsplit(url).hostname or ""
        if (self.public_only and is_internal_host(host)) or (self._has_left and is_loopback_host(host)):
            raise self._refuse(host)
        if is_proxied:  # what the host stands for, only the proxy knows
            self._has_left = self._has_left or not is_loopback_host(host)

    def connect(self, address: tuple[str, int], timeout: Any = None, source_address: Any = None) -> socket.socket:
        """Return a socket, as `socket.create_connection` does. Raises `SourceRefused` for an internal address."""
        host, port = address
        self.addresses = self.resolve(host, port)
        errors = []
        for found in self.addresses:
            try:
                connection = socket.create_connection((found, port), timeout, source_address)
            except OSError as error:
                errors.append(error)
            else:
                self.public_only = self.public_only or not is_internal_address(_parse(found))
                self._has_left = self._has_left or not is_loopback_address(_parse(found))
                return connection
        raise errors[0]

    def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host that may be asked. Raises `SourceRefused` if there is none, and `OSError`."""
        found = dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        allowed = [each for each in found if self._may_ask(_parse(each))]
        if not allowed:
            raise self._refuse(host)
        return allowed

    def _may_ask(self, address: Any) -> bool:
        is_internal = self.public_only and is_internal_address(address)
        return not (is_internal or (self._has_left and is_loopback_address(address)))

    def _refuse(self, host: str) -> SourceRefused:
        return SourceRefused(self._source, f"leads to {host}, on this machine or its own network", _REMEDY)


def _parse(address: str) -> Any:
    return ip_address(address.partition("%")[0])
