"""Sources: where bundles and modules come from, fetched once and kept.

Nothing that is fetched is executed here.
"""

from __future__ import annotations

from .cache import SourceCache, SourceStatus, default_cache
from .errors import SourceNotFound, SourceRefused
from .resolver import (
    ResolvedSource,
    SimpleSourceResolver,
    SourceHandlerProtocol,
    SourceResolverProtocol,
    resolve_source,
)
from .uris import ParsedURI, normalize_path, parse_uri, shown
from .values import DiskCache, SimpleCache

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
    "resolve_source",
    "shown",
]
