"""Bundles: what a `bundle.md` declares, read, checked and made into sessions.

Importing this imports neither YAML nor pydantic; loading a bundle does.
"""

from __future__ import annotations

from .check import check_bundle, problems_of
from .load import load_bundle, load_bundle_sync
from .merge import deep_merge, merge_module_lists
from .model import Bundle
from .names import check_names
from .prepared import PreparedBundle
from .problems import CODES, BrokenInclude, BundleProblems, InvalidBundle, Problem, UnreadableBundle
from .resolver import BundleModuleResolver

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
