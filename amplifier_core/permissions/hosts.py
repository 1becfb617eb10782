"""Tell hosts on this machine, and in the networks around it, from those of the internet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .protected import fold

if TYPE_CHECKING:
    import ipaddress

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# A pattern is a text: most sessions reach no host, and to compile one takes as long as to import a module.
_NUMERIC = r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+)){0,3}"
_TRANSLATED = "64:ff9b::/96"
"""The IPv4 addresses that a gateway of the network translates (RFC 6052)."""


def is_internal_host(host: str) -> bool:
    """Return whether a host says by itself that it is this machine, or in a network around it.

    A host is a name or an address without a port; the spellings of systems count: `0x7f.1`, `2130706433`, `localhost.`.
    """
    name = fold(host).rstrip(".")
    if name == "localhost" or name.endswith((".localhost", ".local", ".internal")):
        return True
    address = parse_address(name.strip("[]"))
    return address is not None and is_internal_address(address)


def is_internal_address(address: Address) -> bool:
    """Return whether an address is no public one: loopback, private, link-local, shared, reserved or multicast.

    An IPv4 address inside of an IPv6 one counts as itself.
    """
    import ipaddress

    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in ipaddress.IPv6Network(_TRANSLATED):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_internal_address(inner)
    return not address.is_global or address.is_multicast


def parse_address(host: str) -> Address | None:
    """Return the address that a system makes of a host, also of `0x7f.1` and `2130706433`; None for a name."""
    import ipaddress
    import socket

    try:
        if ":" in host:
            return ipaddress.IPv6Address(host.partition("%")[0])
        return ipaddress.IPv4Address(socket.inet_aton(host)) if re.fullmatch(_NUMERIC, host) else None
    except (OSError, ValueError):
        return None
