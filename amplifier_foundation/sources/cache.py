"""What was fetched, kept on disk: one folder a source.

What is there is used, so that a start without a network works. Nothing is fetched again unless asked for, and a commit
never is.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, StoreUnavailable

from ..paths import data_home, make_private
from .entries import Entry, Facts
from .errors import SourceNotFound, out_of_time
from .fetching import fetch_content, fetchable, inside, size_of
from .limits import Deadline, fetch_seconds
from .uris import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from .uris import ParsedURI


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What the cache has of a source.

    `uri` is without secrets. `pinned` says that the source is one commit, and so never changes. `commit`, `fetched_at`
    (UTC) and `path`, the folder of its files, are None for what is not there or not known.
    """

    uri: str
    cached: bool
    pinned: bool
    commit: str | None = None
    fetched_at: datetime | None = None
    path: Path | None = None


class SourceCache:
    """Fetched sources below one folder, which several processes may share. `timeout` limits a fetch, in seconds.

    Methods take a URI as text or parsed. What is no place to fetch from (a path, a name) is a `SourceRefused`, a folder
    that cannot be used a `StoreUnavailable`.
    """

    def __init__(self, folder: Path | str, *, timeout: float | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._timeout = timeout

    def get(self, uri: str | ParsedURI) -> Path | None:
        """Return where the file or folder that `uri` names is; None when its source is not here.

        Raises `SourceNotFound` when the source is here and has no such subdirectory.
        """
        source = fetchable(uri)
        entry = Entry.of(self.folder, source)
        with self._disk():
            with suppress(SourceNotFound):
                if entry.exists() and not entry.is_torn():
                    return inside(source, entry.path)
            if not entry.is_known():
                return None
            with self._locked(entry, source, self._deadline()):  # somebody may be exchanging its files at this moment
                return inside(source, entry.path) if entry.exists() else None

    def fetch(self, uri: str | ParsedURI, *, refresh: bool = False, stop: Event | None = None) -> Path:
        """Return where the file or folder that `uri` names is, fetched now if it is not here.

        `refresh` fetches it again, unless it is one commit; when that fails, what was here stays. Who asks for a source
        that another thread or process is fetching waits for it. `stop` ends the fetch early.

        Raises `SourceNotFound` (does not exist, needs a sign-in, cannot be reached), `SourceRefused` (makes no sense,
        exceeds a limit, leads out of its folder) and `StoreUnavailable`.
        """
        source = fetchable(uri)
        renew = refresh and not source.commit
        found = None if renew else self.get(source)
        if found is not None:
            return found
        deadline = self._deadline(stop)
        entry = Entry.of(make_private(self.folder), source)
        with self._disk(), self._locked(entry, source, deadline):
            if renew or not entry.exists():
                _fetch_into(entry, source, deadline)
            return inside(source, entry.path)

    def status(self, uri: str | ParsedURI) -> SourceStatus:
        """Return what is here of a source, all its subdirectories included."""
        source = fetchable(uri)
        entry = Entry.of(self.folder, source)
        with self._disk():
            found = _status_of(entry) if entry.exists() else SourceStatus("", cached=False, pinned=False)
        return replace(found, uri=str(source), pinned=bool(source.commit))

    def entries(self) -> list[SourceStatus]:
        """Return what is here, by name; the `uri` of one whose facts were lost is the name of its folder."""
        with self._disk():
            return [_status_of(entry) for entry in Entry.all(self.folder) if entry.exists()]

    def clear(self) -> None:
        """Remove all that is here, when nobody is fetching it."""
        with self._disk():
            for entry in Entry.all(self.folder):
                with self._locked(entry, entry.name, self._deadline()), entry.workplace() as work:
                    entry.remove(work)

    def _deadline(self, stop: Event | None = None) -> Deadline:
        return Deadline(self._timeout or fetch_seconds(), stop)

    @contextmanager
    def _locked(self, entry: Entry, source: ParsedURI | str, deadline: Deadline) -> Iterator[None]:
        try:
            with entry.locked(deadline):
                yield
        except TimeoutError:
            raise out_of_time(source, deadline) from None

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Turn what goes wrong on the disk into an error that names the folder."""
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
    """Return the cache in its user's data folder."""
    return SourceCache(data_home() / "cache" / "sources")


def _fetch_into(entry: Entry, source: ParsedURI, deadline: Deadline) -> None:
    known = entry.facts()
    with entry.workplace() as work:
        content = work / "content"
        content.mkdir()
        fetched_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        commit = fetch_content(source, work, content, deadline)
        facts = Facts(str(replace(source, subpath="")), source.ref, commit, fetched_at, size_of(content))
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
