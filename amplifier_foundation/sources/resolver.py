"""Resolve the name of a source to its path on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from amplifier_core.contracts import Contract
from amplifier_core.frozen import frozen

from .cache import SourceCache, default_cache
from .errors import SourceNotFound, SourceRefused
from .fetching import inside
from .uris import ParsedURI, parse_uri

if TYPE_CHECKING:
    from threading import Event


@frozen
class ResolvedSource:
    """The place of a source: `active_path` is the named file or folder, `source_root` the folder of all its files."""

    active_path: Path
    source_root: Path

    @property
    def is_subdirectory(self) -> bool:
        """Whether a part of the source is named."""
        return self.active_path != self.source_root


@runtime_checkable
class SourceResolverProtocol(Protocol, metaclass=Contract):
    """A resolver of sources."""

    async def resolve(self, uri: str) -> ResolvedSource:
        """Return the place of the source `uri` on this machine. Raises `BundleNotFoundError`."""
        ...


@runtime_checkable
class SourceHandlerProtocol(Protocol, metaclass=Contract):
    """A resolver of one kind of source."""

    def can_handle(self, parsed: ParsedURI) -> bool:
        """Return whether this handler resolves `parsed`."""
        ...

    async def resolve(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource:
        """Return the place of `parsed` on this machine; fetched files stay below `cache_dir`."""
        ...


class SimpleSourceResolver:
    """Resolves every kind of source; added handlers come first."""

    def __init__(self, cache_dir: Path | str | None = None, base_path: Path | str | None = None) -> None:
        self._cache = default_cache() if cache_dir is None else SourceCache(cache_dir)
        self._base_path = None if base_path is None else Path(base_path)
        self._handlers: list[SourceHandlerProtocol] = []

    def add_handler(self, handler: SourceHandlerProtocol) -> None:
        """Ask `handler` before all others."""
        self._handlers.insert(0, handler)

    async def resolve(self, uri: str) -> ResolvedSource:
        """Return the place of the source `uri` on this machine, fetched if needed.

        Cancellation ends the fetch. Raises `SourceNotFound`, `SourceRefused` and `StoreUnavailable`.
        """
        parsed = parse_uri(uri)
        for handler in self._handlers:
            if handler.can_handle(parsed):
                return await handler.resolve(parsed, self._cache.folder)
        import asyncio
        from threading import Event

        stop = Event()
        try:
            return await asyncio.to_thread(
                resolve_source, parsed, base_path=self._base_path, cache=self._cache, stop=stop
            )
        finally:
            stop.set()


def resolve_source(
    uri: str | ParsedURI,
    *,
    base_path: Path | None = None,
    cache: SourceCache | None = None,
    refresh: bool = False,
    stop: Event | None = None,
) -> ResolvedSource:
    """Return the place of the source `uri` on this machine, fetched if needed.

    Relative paths start at `base_path`, or at the current folder. `refresh` and `stop` work as in `SourceCache.fetch`.
    Raises `SourceNotFound`, `SourceRefused` and `StoreUnavailable`.
    """
    source = parse_uri(uri) if isinstance(uri, str) else uri
    if source.is_package:
        raise SourceNotFound(source, "is a name, not a place", "Use a path, or a URL such as git+https://host/org/repo")
    if source.is_file:
        from ..documents.local_paths import local_path  # bundles are read from sources: each may be imported first

        if source.host not in ("", "localhost"):
            raise SourceRefused(source, "is a path of another machine", "Write file:///folder/bundle.md")
        try:
            path, _ = local_path(source.path, base_path)
        except ValueError as error:
            raise SourceRefused(source, str(error), "Use another path") from None
        if not path.exists():
            raise SourceNotFound(source, "no such file or folder", "Check the path")
        return ResolvedSource(inside(source, path), path if path.is_dir() else path.parent)
    cache = cache or default_cache()
    if source.is_http:
        file = cache.fetch(source, refresh=refresh, stop=stop)
        return ResolvedSource(file, file.parent)
    root = cache.fetch(replace(source, subpath=""), refresh=refresh, stop=stop)
    return ResolvedSource(inside(source, root), root)
