"""Decide what may run, and what sessions may do: trust in bundles, and permissions.

The engine of permissions is the kernel's (`amplifier_core.permissions`). Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .policies import OWN_SOURCES, read_policy
    from .trust import NotTrusted, load_trusted
    from .trust_ledger import TrustUnreadable

_HOME_OF = {
    "NotTrusted": ".trust",
    "OWN_SOURCES": ".policies",
    "TrustUnreadable": ".trust_ledger",
    "load_trusted": ".trust",
    "read_policy": ".policies",
}

__all__ = ["OWN_SOURCES", "NotTrusted", "TrustUnreadable", "load_trusted", "read_policy"]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
