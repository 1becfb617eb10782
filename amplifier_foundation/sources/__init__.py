"""Fetch the sources of bundles and modules once, and keep them. Nothing fetched is executed here.

Every name is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cache import SourceCache, SourceStatus, default_cache
    from .errors import SourceNotFound, SourceRefused
    from .resolver import (
        ResolvedSource,
        SimpleSourceResolver,
        SourceHandlerProtocol,
        SourceResolverProtocol,
        resolve_source,
    )
    from .uris import ParsedURI, normalize_path, parse_uri, redact_uris
    from .values import DiskCache, SimpleCache

_HOMES = {
    ".cache": "SourceCache SourceStatus default_cache",
    ".errors": "SourceNotFound SourceRefused",
    ".resolver": ("ResolvedSource SimpleSourceResolver SourceHandlerProtocol SourceResolverProtocol resolve_source"),
    ".uris": "ParsedURI normalize_path parse_uri redact_uris",
    ".values": "DiskCache SimpleCache",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "DiskCache",
    "ParsedURI",
    "ResolvedSource",
    "SimpleCache",
    "SimpleSourceResolver",
    "SourceCache",
    "SourceHandlerProtocol",
    "SourceNotFound",
    "SourceRefused",
    "SourceResolverProtocol",
    "SourceStatus",
    "default_cache",
    "normalize_path",
    "parse_uri",
    "redact_uris",
    "resolve_source",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
