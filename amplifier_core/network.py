"""Read the variables of the environment for the network, and explain errors of connections.

`HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY` name proxies, `NO_PROXY` the hosts to ask without one, and `SSL_CERT_FILE`
the certificates of trusted authorities. All connections are made by them as read here. A fault is told by the name of
its variable and never with its value, for the addresses of proxies have passwords.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from .errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFICATES = "SSL_CERT_FILE"
OTHER_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables of other programs, without effect here."""
_SCHEMES = ("http", "https", "socks", "socks4", "socks4a", "socks5", "socks5h")
_PORTS = {"http": 80, "https": 443}
_SOCKS_PORT = 1080
_ADDRESS = "Write it as http://HOST:PORT, and # / ? @ in a password as %23 %2F %3F %40"
ADD_AUTHORITY = (
    f"If your network inspects TLS, set {CERTIFICATES} to a file that holds its authority's certificate, too"
)
_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED\][^:]*(?:: ([^(]*[^( ]))?")
_CHAIN = ("self-signed", "self signed", "local issuer", "first certificate", "issuer certificate")
"""Words about an unknown authority; others are about the certificate itself."""


class NetworkMisconfigured(AmplifierError, ValueError):
    """A variable of the network cannot be used. Its value is not told: it may hold a password."""

    is_of_environment = True

    def __init__(self, variable: str, problem: str, remedy: str) -> None:
        self.variable, self.problem, self.remedy = variable, problem, remedy
        super().__init__(f"{problem}. {remedy}")


class Proxy(NamedTuple):
    """A proxy, and the variable with its address."""

    variable: str
    scheme: str
    host: str
    port: int | None
    user: str
    password: str

    @classmethod
    def parse(cls, variable: str, address: str) -> Proxy:
        """Return the parts of an address. Raises `NetworkMisconfigured`, without the address."""
        try:
            parts = urlsplit(address if "://" in address else f"http://{address}")
            host, port = parts.hostname, parts.port
            beyond = f"{parts.path}{parts.query}{parts.fragment}"
            is_valid = bool(host) and port != 0 and "@" not in beyond and not re.search(r"\s", address)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise NetworkMisconfigured(variable, f"{variable} is no address of a proxy that can be read", _ADDRESS)
        if parts.scheme not in _SCHEMES:
            raise NetworkMisconfigured(variable, f"{variable} is of no scheme that proxies have", _ADDRESS)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(variable, parts.scheme, host or "", port, user, password)

    @property
    def server(self) -> str:
        """The host with its port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port to connect to."""
        return self.host, self.port or _PORTS.get(self.scheme, _SOCKS_PORT)

    @property
    def url(self) -> str:
        """The address, quoted."""
        signed = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user or self.password else ""
        scheme = "socks5" if self.scheme == "socks" else self.scheme  # as GNOME means it
        return f"{scheme}://{signed}{self.server}"

    @property
    def remedy(self) -> str:
        """What to do about a proxy that cannot be used."""
        return f"Check {self.variable} and the network"

    @property
    def sign_in_remedy(self) -> str:
        """What to do about one that wants a password (407)."""
        return f"Put your user and password before the host in {self.variable}"

    def __str__(self) -> str:
        return f"the proxy {self.server} of {self.variable}"

    def require(self, *schemes: str) -> None:
        """Raise `NetworkMisconfigured` for a proxy of another scheme than these."""
        if self.scheme not in schemes:
            problem = f"{self.variable} names a proxy of the scheme {self.scheme}, which cannot be used here"
            raise NetworkMisconfigured(self.variable, problem, f"Name one of {' or '.join(schemes)}")


class Proxies(NamedTuple):
    """The proxies of one moment by the scheme of a request, or `all`; and the exceptions from them.

    A proxy is its variable and the address as it is written: one that no request uses may be unreadable. The exceptions
    are None for those of the system; to look at them may ask for the address of a host, and block.
    """

    by_scheme: Mapping[str, tuple[str, str]]
    exceptions: str | None

    def find(self, scheme: str, host: str, port: int | None = None) -> Proxy | None:
        """Return the proxy for requests to a host; None: it is asked without, as this machine is.

        Raises `NetworkMisconfigured`.
        """
        from .permissions.hosts import is_loopback_host

        found = self.by_scheme.get(scheme) or self.by_scheme.get("all")
        if found is None or is_loopback_host(host):
            return None
        if self.exceptions is None:
            from urllib.request import proxy_bypass

            is_excepted = bool(proxy_bypass(host))
        else:
            is_excepted = self.excepts(host, port or _PORTS.get(scheme))
        return None if is_excepted else Proxy.parse(*found)

    def excepts(self, host: str, port: int | None) -> bool:
        """Return whether `NO_PROXY` names a host; an unreadable entry names none, as with curl."""
        host = _encode(host.strip("[]").partition("%")[0].rstrip(".").lower())
        try:
            address = ip_address(host)
        except ValueError:
            address = None
        for each in re.split(r"[,\s]+", (self.exceptions or "").lower()):
            entry = each.rpartition("://")[2].rstrip("/")
            found = re.fullmatch(r"\[(?P<six>.+)\](?::(?P<port>\d+))?|(?P<name>[^:]+):(?P<other>\d+)", entry)
            name = (found["six"] or found["name"]) if found else entry
            only = (found["port"] or found["other"]) if found else None
            if only and int(only) != port:
                continue
            if name == "*":
                return True
            if address is not None:
                try:
                    is_named = address in ip_network(name, strict=False)
                except ValueError:
                    continue
            else:
                name = _encode(name.removeprefix("*").strip("."))
                is_named = bool(name) and (host == name or host.endswith(f".{name}"))
            if is_named:
                return True
        return False


def _encode(name: str) -> str:
    """Return the name of a host as servers of names know it."""
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        return name


def read_proxies() -> Proxies:
    """Return the proxies of the environment, or of the system."""
    from urllib.request import getproxies, getproxies_environment  # as long to import as Python takes to start

    found = getproxies()
    by_scheme = {}
    for scheme in ("http", "https", "all"):
        if address := found.get(scheme):
            names = [name for name in os.environ if name.lower() == f"{scheme}_proxy" and os.environ[name]]
            variable = max(names, key=str.islower, default="the system's settings")  # small letters come first
            by_scheme[scheme] = (variable, address.strip())
    return Proxies(by_scheme, found.get("no", "" if found == getproxies_environment() else None))


def check_certificates() -> None:
    """Raise `NetworkMisconfigured` for unreadable certificates; Python's own TLS would go without them."""
    file = os.environ.get(CERTIFICATES)
    if not file:
        return
    try:
        with open(file, "rb"):  # noqa: PTH123 - of any kind, as /dev/null
            pass
    except OSError as error:
        raise certificates_misconfigured(error) from None


def certificates_misconfigured(error: OSError) -> NetworkMisconfigured:
    """Return the error for unreadable certificates of `SSL_CERT_FILE`."""
    file = os.environ.get(CERTIFICATES, "")
    problem = f"{CERTIFICATES}={file} holds no certificates that can be read ({error.strerror or error})"
    return NetworkMisconfigured(CERTIFICATES, problem, f"Correct or unset {CERTIFICATES}")


def explain_certificate(text: str) -> tuple[str, str] | None:
    """Return the problem and its remedy if the text of an error is about a certificate; None for another error."""
    found = _UNTRUSTED.search(text)
    if found is None:
        return None
    why = found[1] or "certificate verify failed"
    if not any(words in why for words in _CHAIN):
        return f"the certificate is not valid ({why})", "Check the address, and the clock of this machine"
    others = [name for name in OTHER_CERTIFICATES if os.environ.get(name)]
    if others and not os.environ.get(CERTIFICATES):
        return f"the certificate is not trusted ({why})", f"{ADD_AUTHORITY}: {others[0]} does not count here"
    return f"the certificate is not trusted ({why})", ADD_AUTHORITY
