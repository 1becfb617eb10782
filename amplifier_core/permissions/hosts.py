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
_AROUND_IPV4 = ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")
"""IPv6 addresses that end with one of IPv4: a gateway or a system translates (RFC 6052, 7915, 4291)."""
_LOCAL = ("192.0.0.0/24", "64:ff9b:1::/48")
"""Networks that are nobody's on the internet (RFC 6890, RFC 8215), which Python knew late."""
_OF_THE_CLOUD = "168.63.129.16"
"""A public address by its number; in Azure, the machine below answers there."""


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

    address = _innermost(address)
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return True
    is_local = any(address in ipaddress.ip_network(each) for each in _LOCAL)
    return is_local or not address.is_global or address.is_multicast or str(address) == _OF_THE_CLOUD


def is_loopback_host(host: str) -> bool:
    """Return whether a host says by itself that it is this machine."""
    name = fold(host).rstrip(".")
    address = parse_address(name.strip("[]"))
    return name == "localhost" or name.endswith(".localhost") or (address is not None and is_loopback_address(address))


def is_loopback_address(address: Address) -> bool:
    """Return whether an address leads back to this machine; the unspecified ones, `0.0.0.0` and `::`, do.

    An IPv4 address inside of an IPv6 one counts as itself.
    """
    return any(each.is_loopback or each.is_unspecified for each in (address, _innermost(address)))


def _innermost(address: Address) -> Address:
    """Return the IPv4 address inside of an IPv6 one; any other address is returned as it is."""
    import ipaddress

    if not isinstance(address, ipaddress.IPv6Address):
        return address
    if any(address in ipaddress.IPv6Network(each) for each in _AROUND_IPV4):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


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
