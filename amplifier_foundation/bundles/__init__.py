"""Bundles: what a `bundle.md` declares, read, checked and made into sessions.

Importing this imports none of it; a name is when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .check import check_bundle, problems_of
    from .load import load_bundle, load_bundle_sync
    from .merge import deep_merge, merge_module_lists
    from .model import Bundle
    from .names import check_names
    from .prepared import PreparedBundle
    from .problems import CODES, BrokenInclude, BundleProblems, InvalidBundle, Problem, UnreadableBundle
    from .resolver import BundleModuleResolver

_HOMES = {
    "check": "check_bundle problems_of",
    "load": "load_bundle load_bundle_sync",
    "merge": "deep_merge merge_module_lists",
    "model": "Bundle",
    "names": "check_names",
    "prepared": "PreparedBundle",
    "problems": "CODES BrokenInclude BundleProblems InvalidBundle Problem UnreadableBundle",
    "resolver": "BundleModuleResolver",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "CODES",
    "BrokenInclude",
    "Bundle",
    "BundleModuleResolver",
    "BundleProblems",
    "InvalidBundle",
    "PreparedBundle",
    "Problem",
    "UnreadableBundle",
    "check_bundle",
    "check_names",
    "deep_merge",
    "load_bundle",
    "load_bundle_sync",
    "merge_module_lists",
    "problems_of",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value
