"""Keep fetched sources on disk, in one folder per source.

A kept source is used as it is: a start needs no network. It is fetched again on request only, and a commit never.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, StoreUnavailable
from amplifier_core.frozen import frozen

from ..documents.times import format_time
from ..paths import make_private, sources_home
from .entries import Entry, Facts
from .errors import SourceNotFound, out_of_time
from .fetching import fetch_content, fetchable, inside, size_of
from .limits import Deadline, fetch_seconds
from .uris import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from .uris import ParsedURI


@frozen
class SourceStatus:
    """The state of one source in the cache.

    `uri` has no secrets. A `pinned` source is one commit and never changes. `commit`, `fetched_at` (UTC) and `path`
    (the folder of its files) are None when missing or unknown.
    """

    uri: str
    cached: bool
    pinned: bool
    commit: str | None = None
    fetched_at: datetime | None = None
    path: Path | None = None


class SourceCache:
    """Fetched sources below one folder; several processes may share it. `timeout` limits a fetch, in seconds.

    Methods take a URI as text or parsed. They raise `SourceRefused` for a path or a name, and `StoreUnavailable` for an
    unusable folder.
    """

    def __init__(self, folder: Path | str, *, timeout: float | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._timeout = timeout

    def get(self, uri: str | ParsedURI) -> Path | None:
        """Return the path of the file or folder named by `uri`; None when its source is not in the cache.

        Raises `SourceNotFound` when the source is kept and has no such subdirectory.
        """
        source = fetchable(uri)
        entry = Entry.of(self.folder, source)
        with self._disk():
            with suppress(SourceNotFound):
                if entry.exists() and not entry.is_torn():
                    return inside(source, entry.path)
            if not entry.is_known():
                return None
            with self._lock(entry, source, self._deadline()):  # another process may be replacing the files now
                return inside(source, entry.path) if entry.exists() else None

    def fetch(
        self, uri: str | ParsedURI, *, refresh: bool = False, stop: Event | None = None, public_only: bool = False
    ) -> Path:
        """Return the path of the file or folder named by `uri`, fetched now if needed.

        `refresh` fetches again, except a commit; a failure keeps the old files. A caller waits while another thread or
        process fetches the same source. `stop` ends the fetch early. With `public_only`, nothing on this machine or in
        the networks around it is asked: a fetched bundle named the source. No public server redirects there, either.

        Raises `SourceNotFound` (missing, sign-in needed, unreachable), `SourceRefused` (invalid, beyond a limit,
        outside its folder) and `StoreUnavailable`.
        """
        source = fetchable(uri)
        renew = refresh and not source.commit
        found = None if renew else self.get(source)
        if found is not None:
            return found
        deadline = self._deadline(stop)
        entry = Entry.of(make_private(self.folder), source)
        with self._disk(), self._lock(entry, source, deadline):
            if renew or not entry.exists():
                _fetch_into(entry, source, deadline, public_only=public_only)
            return inside(source, entry.path)

    def status(self, uri: str | ParsedURI) -> SourceStatus:
        """Return the state of a source, all its subdirectories included."""
        source = fetchable(uri)
        entry = Entry.of(self.folder, source)
        with self._disk():
            found = _status_of(entry) if entry.exists() else SourceStatus("", cached=False, pinned=False)
        return replace(found, uri=str(source), pinned=bool(source.commit))

    def entries(self) -> list[SourceStatus]:
        """Return all kept sources by name; without facts, the `uri` is the name of the folder."""
        with self._disk():
            return [_status_of(entry) for entry in Entry.all(self.folder) if entry.exists()]

    def clear(self) -> None:
        """Remove all kept sources, each once no fetch holds it."""
        with self._disk():
            for entry in Entry.all(self.folder):
                with self._lock(entry, entry.name, self._deadline()), entry.workplace() as work:
                    entry.remove(work)

    def _deadline(self, stop: Event | None = None) -> Deadline:
        return Deadline(self._timeout or fetch_seconds(), stop)

    @contextmanager
    def _lock(self, entry: Entry, source: ParsedURI | str, deadline: Deadline) -> Iterator[None]:
        try:
            with entry.lock(deadline):
                yield
        except TimeoutError:
            raise out_of_time(source, deadline) from None

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Turn disk errors into an error with the folder."""
        try:
            yield
        except AmplifierError:
            raise
        except OSError as error:
            raise StoreUnavailable(
                self.folder,
                f"fetched sources cannot be kept here ({error.strerror or error}). "
                f"Free some space, make it writable, or set AMPLIFIER_HOME to another folder",
            ) from error


def default_cache() -> SourceCache:
    """Return the cache in the user's data folder."""
    return SourceCache(sources_home())


def _fetch_into(entry: Entry, source: ParsedURI, deadline: Deadline, *, public_only: bool) -> None:
    known = entry.facts()
    with entry.workplace() as work:
        content = work / "content"
        content.mkdir()
        fetched_at = format_time()
        commit = fetch_content(source, work, content, deadline, public_only=public_only)
        facts = Facts(str(replace(source, subpath="")), source.written_ref, commit, fetched_at, size_of(content))
        if commit and entry.exists() and known and known.commit == commit:
            entry.remember(facts, work)
        else:
            entry.install(content, facts, work)


def _status_of(entry: Entry) -> SourceStatus:
    facts = entry.facts()
    if facts is None:
        return SourceStatus(entry.name, cached=True, pinned=False, path=entry.path)
    moment = datetime.fromisoformat(facts.fetched_at)
    return SourceStatus(facts.uri, True, bool(parse_uri(facts.uri).commit), facts.commit, moment, entry.path)
