"""Fetch anew what bundles are made of: themselves, what they include, and what their background sessions run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, BundleError

from ..sources import parse_uri, shown
from .load import read_bundle
from .references import find_bundle, names_in, remote_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..sources import ParsedURI
    from .model import Bundle


@dataclass(frozen=True, slots=True)
class Refreshed:
    """One source that was asked for anew: the commits, or dates, before and after.

    With an `error`, it stays as it was.
    """

    source: str
    """Without secrets, and without the part of it that is meant."""
    name: str = ""
    """The bundle that it was asked for as; empty for what is included."""
    before: str = ""
    after: str = ""
    error: AmplifierError | None = None

    @property
    def changed(self) -> bool:
        """Whether something else is here now."""
        return self.before != self.after and self.error is None


def refresh_bundle(
    source: str, names: Mapping[str, str | Path], done: dict[ParsedURI, Refreshed] | None = None
) -> list[Refreshed]:
    """Fetch a bundle and everything below it anew; return what was asked for, each source once.

    What `done` has is not asked for again; what is asked for is put there. One that fails takes nothing from the rest.
    """
    return list(_Refreshing(names, {} if done is None else done).bundle(source, None, {}, name=source))


def refresh_source(uri: str | ParsedURI) -> Refreshed:
    """Fetch one source anew, unless it is one commit. Raises what `SourceCache.fetch` raises."""
    from ..sources import default_cache

    cache = default_cache()
    before = cache.status(uri)
    cache.fetch(uri, refresh=True)
    after = cache.status(uri)
    return Refreshed(
        after.uri,
        before=str(before.commit or before.fetched_at or ""),
        after=str(after.commit or after.fetched_at or ""),
    )


class _Refreshing:
    """One walk over bundles, and the files it came by."""

    def __init__(self, names: Mapping[str, str | Path], done: dict[ParsedURI, Refreshed]) -> None:
        self._names = names
        self._done = done
        self._seen: set[Path] = set()

    def bundle(self, source: str, base: Path | None, own: Mapping[str, Path], *, name: str = "") -> Iterator[Refreshed]:
        """Yield every source of the bundle that `source` stands for, fetched by then; nothing of those done before."""
        names = names_in(source, own, self._names)
        place = remote_place(source, base, names)
        remote = None if place is None else _whole(place)
        if remote is not None and remote not in self._done:
            self._done[remote] = _refreshed(remote, name)
            yield self._done[remote]
        try:
            file = find_bundle(source, base=base, names=names).absolute()
            if file.resolve() not in self._seen:
                self._seen.add(file.resolve())
                yield from self._below(read_bundle(file, auto_include=False), own)
        except BundleError as error:
            if remote is None or self._done[remote].error is None:
                yield Refreshed(shown(source), name, error=error)

    def _below(self, bundle: Bundle, outer: Mapping[str, Path]) -> Iterator[Refreshed]:
        run = [config.bundle for config in bundle.background_sessions if config.bundle]
        for each in dict.fromkeys([*bundle.includes, *run]):
            yield from self.bundle(each, bundle.base_path, {**outer, **bundle.source_base_paths})


def _refreshed(uri: ParsedURI, name: str) -> Refreshed:
    try:
        return replace(refresh_source(uri), name=name)
    except AmplifierError as error:
        return Refreshed(str(uri), name, error=error)


def _whole(place: str) -> ParsedURI:
    """Return the source of which `place` may be a part: all parts of one are fetched together."""
    parsed = parse_uri(place)
    return parsed if parsed.is_http else replace(parsed, subpath="")
