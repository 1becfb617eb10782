"""Share one TLS context among the clients of a process, and give them the proxies of the environment."""

from __future__ import annotations

import os
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssl import SSLContext

_contexts: dict[str, tuple[list[object], SSLContext]] = {}
_lock = Lock()


def share_tls_context(library: str) -> SSLContext:
    """Return the context of an HTTP library, `httpx` or `httpx2`; the first call reads the certificates.

    That takes 15 to 40 ms: 200 clients with a context each took 5 s of it. Certificates of the environment that have
    changed are read anew: a file that was mended counts without a restart.
    """
    with _lock:
        read = _look_at_certificates()
        if library not in _contexts or _contexts[library][0] != read:
            _contexts[library] = read, import_module(library).create_ssl_context()
        return _contexts[library][1]


def _look_at_certificates() -> list[object]:
    found: list[object] = []
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        path = os.environ.get(name)
        try:
            state = os.stat(path) if path else None  # noqa: PTH116 - before every client
        except OSError:
            state = None
        found += [path, state and (state.st_mtime_ns, state.st_size, state.st_ino)]
    return found


def make_transport(library: str, *, uses_proxies: bool = True, context: SSLContext | None = None) -> dict[str, Any]:
    """Return the TLS context and the transport as arguments of an asynchronous client of `httpx` or `httpx2`.

    On the published kernel there is no transport: the library makes its own.
    """
    context = context or share_tls_context(library)
    try:
        from amplifier_core.http_transport import EnvironmentTransport
    except ModuleNotFoundError:
        return {"verify": context, "trust_env": uses_proxies}
    transport = EnvironmentTransport(import_module(library), context, uses_proxies=uses_proxies)
    return {"verify": context, "trust_env": False, "transport": transport}
