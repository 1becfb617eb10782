"""Read bundles, check them, and make sessions of them.

Every name is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..documents.dicts import deep_merge
    from ..documents.problems import CODES, BrokenInclude, BundleProblemsError, InvalidBundle, Problem, UnreadableBundle
    from .check import check_bundle, problems_of
    from .load import load_bundle, load_bundle_sync
    from .merge import merge_module_lists
    from .model import Bundle
    from .module_resolver import BundleModuleResolver
    from .names import check_names
    from .prepared import PreparedBundle

_HOMES = {
    ".check": "check_bundle problems_of",
    ".load": "load_bundle load_bundle_sync",
    ".merge": "merge_module_lists",
    ".model": "Bundle",
    ".names": "check_names",
    ".prepared": "PreparedBundle",
    "..documents.dicts": "deep_merge",
    "..documents.problems": "CODES BrokenInclude BundleProblemsError InvalidBundle Problem UnreadableBundle",
    ".module_resolver": "BundleModuleResolver",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "CODES",
    "BrokenInclude",
    "Bundle",
    "BundleModuleResolver",
    "BundleProblemsError",
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
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value
