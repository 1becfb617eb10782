"""Share one TLS context among the clients of a process, and give them the proxies of the environment."""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssl import SSLContext

_contexts: dict[str, SSLContext] = {}
_lock = Lock()


def share_tls_context(library: str) -> SSLContext:
    """Return the context of an HTTP library, `httpx` or `httpx2`; the first call reads the certificates.

    That takes 15 to 40 ms: 200 clients with a context each took 5 s of it.
    """
    with _lock:
        if library not in _contexts:
            _contexts[library] = import_module(library).create_ssl_context()
        return _contexts[library]


def forget_tls_contexts() -> None:
    """Have the next clients read the certificates anew: a file that was mended counts without a restart."""
    with _lock:
        _contexts.clear()


def make_transport(library: str, *, uses_proxies: bool = True, context: SSLContext | None = None) -> dict[str, Any]:
    """Return the TLS context and the transport as arguments of an asynchronous client of `httpx` or `httpx2`.

    On the published kernel there is no transport: the library makes its own. Raises `ValueError` for an unreadable
    address of a proxy.
    """
    context = context or share_tls_context(library)
    try:
        from amplifier_core.http_transport import EnvironmentTransport
    except ModuleNotFoundError:
        return {"verify": context, "trust_env": uses_proxies}
    transport = EnvironmentTransport(import_module(library), context, uses_proxies=uses_proxies)
    return {"verify": context, "trust_env": False, "transport": transport}
