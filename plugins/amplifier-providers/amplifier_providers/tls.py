"""Share one TLS context among the clients of a process."""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

_contexts: dict[str, SSLContext] = {}
_lock = Lock()


def share_tls_context(library: str) -> SSLContext:
    """Return the context of an HTTP library, `httpx` or `httpx2`, made at the first call; it reads the certificates.

    That takes 15 to 40 ms: 200 clients with a context each took 5 s of it.
    """
    with _lock:
        if library not in _contexts:
            _contexts[library] = import_module(library).create_ssl_context()
        return _contexts[library]
