"""Fetch bundles again, with their includes and the bundles of their background sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, BundleError
from amplifier_core.frozen import frozen

from ..documents.local_paths import is_remote
from ..paths import fetched_root
from ..sources import parse_uri, redact_uris
from .load import read_bundle
from .references import find_bundle, names_in, remote_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..sources import ParsedURI
    from .model import Bundle


@frozen
class Refreshed:
    """One source fetched again: the commits, or dates, before and after.

    After an `error`, the old files stay.
    """

    source: str
    """Without secrets and subdirectory."""
    name: str = ""
    """The name or address of a requested bundle; `` for an include."""
    before: str = ""
    after: str = ""
    error: AmplifierError | None = None

    @property
    def has_changed(self) -> bool:
        """Whether the files are different now."""
        return self.before != self.after and self.error is None


def refresh_bundle(
    source: str, names: Mapping[str, str | Path], done: dict[ParsedURI, Refreshed] | None = None
) -> list[Refreshed]:
    """Fetch a bundle and everything below it again; return each source once.

    Sources in `done` are skipped, fetched ones are added to it. A failure does not affect the rest.
    """
    return list(_Refreshing(names, {} if done is None else done).bundle(source, None, {}, name=source))


def refresh_source(uri: str | ParsedURI, *, public_only: bool = False) -> Refreshed:
    """Fetch one source again, except a commit. `public_only`, and the errors, are those of `SourceCache.fetch`."""
    from ..sources import default_cache

    cache = default_cache()
    before = cache.status(uri)
    cache.fetch(uri, refresh=True, public_only=public_only)
    after = cache.status(uri)
    return Refreshed(
        after.uri,
        before=str(before.commit or before.fetched_at or ""),
        after=str(after.commit or after.fetched_at or ""),
    )


class _Refreshing:
    """One walk over bundles, with the files visited so far."""

    def __init__(self, names: Mapping[str, str | Path], done: dict[ParsedURI, Refreshed]) -> None:
        self._names = names
        self._done = done
        self._seen: set[Path] = set()

    def bundle(self, source: str, base: Path | None, own: Mapping[str, Path], *, name: str = "") -> Iterator[Refreshed]:
        """Yield every source of the bundle `source` after it is fetched, except those done before."""
        names = names_in(source, own, self._names, base)
        place = remote_place(source, base, names)
        remote = None if place is None else parse_uri(place)
        if remote is not None and not remote.is_http:
            remote = replace(remote, subpath="")  # all parts of a source are fetched together
        if remote is not None and remote not in self._done:
            public_only = is_remote(source) and fetched_root(base) is not None  # a name is the person's
            try:
                self._done[remote] = replace(refresh_source(remote, public_only=public_only), name=name)
            except AmplifierError as error:
                self._done[remote] = Refreshed(str(remote), name, error=error)
            yield self._done[remote]
        try:
            file = find_bundle(source, base=base, names=names).absolute()
            if file.resolve() not in self._seen:
                self._seen.add(file.resolve())
                yield from self._below(read_bundle(file, auto_include=False), own)
        except BundleError as error:
            if remote is None or self._done[remote].error is None:
                yield Refreshed(redact_uris(source), name, error=error)

    def _below(self, bundle: Bundle, outer: Mapping[str, Path]) -> Iterator[Refreshed]:
        run = [config.bundle for config in bundle.background_sessions if config.bundle]
        for each in dict.fromkeys([*bundle.includes, *run]):
            yield from self.bundle(each, bundle.base_path, {**outer, **bundle.source_base_paths})
