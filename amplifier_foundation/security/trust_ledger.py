"""Keep what the person trusts: `trust.json` in the data folder, private and written whole.

An entry is known by its place, the real path of a bundle's file or of a project's settings folder, and holds the owner
and the SHA-256 of every file. The trusted texts are kept beside it, compressed, to show what changed.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import AmplifierError

from ..paths import data_home, is_mapped, make_private, unusable_error
from .trust_files import Seen, find_code, owner_of, read_seen, read_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FILE = "trust.json"
TEXTS = "trust"
"""The folder of the trusted texts."""
MAX_TEXTS = 1 << 20
"""Bytes of text kept of one bundle; changes of a larger one are shown as names."""
_BEFORE_ALL = 1.0
"""The time of the first use where the file does not count: no session is older, and no bundle is trusted for one."""
_told: set[tuple[Path, int, int]] = set()
"""Files that a warning was given of."""
logger = logging.getLogger(__name__)


class TrustUnreadable(AmplifierError, ValueError):
    """The file of trusted bundles is damaged, or of another user; nothing counts as trusted."""

    def __init__(self, file: Path, cause: str | OSError) -> None:
        damaged = f"{file}: {cause}. Repair it, or remove it and trust your bundles again with: amplifier trust"
        super().__init__(damaged if isinstance(cause, str) else str(unusable_error(file, cause)))


class Entry(NamedTuple):
    """What was trusted at one place: the owner, the files by path, and the folders with nothing else in them.

    An entry without files was taken back: it is asked for again whatever was before.
    """

    uid: int
    files: Mapping[str, Seen]
    folders: tuple[str, ...] = ()
    since: float = 0.0
    """The time of the answer, in seconds since 1970."""


class Ledger:
    """The entries of one data folder; `folder` is private."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or data_home()
        self._read: tuple[Any, dict[str, Any]] | None = None
        """The stamp and the content of the file at the last reading."""

    @property
    def file(self) -> Path:
        """Return the path of `trust.json`."""
        return self.folder / FILE

    @property
    def begun(self) -> float:
        """Return the time of the first use, now if there was none: older sessions are of an older version."""
        return float(self._load().get("begun") or time.time())

    def begin(self) -> float:
        """Store the time of the first use, once; return it."""
        if "begun" not in self._load():
            with self._changing():
                pass
        return self.begun

    def find(self, place: str) -> Entry | None:
        """Return the entry of a place, or None. Raises `TrustUnreadable`."""
        found = self._load()["trusted"].get(place)
        try:
            return None if found is None else _parse(found)
        except (TypeError, ValueError, KeyError, AttributeError):
            raise TrustUnreadable(self.file, f"the entry of {place} is damaged") from None

    def places(self) -> list[str]:
        """Return the trusted places, sorted. Raises `TrustUnreadable`."""
        return sorted(place for place, each in self._load()["trusted"].items() if each.get("files"))

    def digests_of(self, path: str) -> set[str]:
        """Return what a file may hold, as it was trusted at any place: SHA-256 in hex. Raises `TrustUnreadable`."""
        entries = (each.get("files") for each in self._load()["trusted"].values())
        found = [files.get(path) for files in entries if isinstance(files, dict)]
        return {str(each[0]) for each in found if isinstance(each, list) and each}

    def put(self, place: str, entry: Entry) -> None:
        """Trust a place, and keep its texts. Raises `TrustUnreadable`, `StoreUnavailable` and `OSError`."""
        with self._changing() as trusted:
            self._keep_texts(place, entry)
            trusted[place] = _dump(entry)

    def remove(self, place: str) -> bool:
        """Take the trust in a place back; return whether there was any."""
        with self._changing() as trusted:
            had = bool((trusted.get(place) or {}).get("files"))
            trusted[place] = _dump(Entry(-1, {}, (), time.time()))
            self._texts_of(place).unlink(missing_ok=True)
        return had

    def refresh(self, place: str, entry: Entry) -> None:
        """Keep newer stamps of unchanged files, if that is possible: they only save time."""
        with suppress(OSError, AmplifierError), self._changing() as trusted:
            if place in trusted and _parse(trusted[place]).since == entry.since:
                trusted[place] = _dump(entry)

    def texts(self, place: str) -> dict[str, str]:
        """Return the trusted texts of a place by file, as far as they are kept."""
        import zlib

        with suppress(OSError, ValueError, zlib.error):
            unpacking = zlib.decompressobj()
            found = json.loads(unpacking.decompress(self._texts_of(place).read_bytes(), 8 * MAX_TEXTS))
            return {str(path): str(text) for path, text in found.items()}
        return {}

    def _keep_texts(self, place: str, entry: Entry) -> None:
        import zlib

        from ..documents.files import replace_file

        texts: dict[str, str] = {}
        left = MAX_TEXTS
        for path, (digest, _) in entry.files.items():
            with suppress(OSError, UnicodeDecodeError):
                if (stamp := read_stamp(path)) is None or stamp[0] > left:
                    continue
                with Path(path).open("rb") as file:
                    raw = file.read(left)
                if sha256(raw).hexdigest() == digest:
                    texts[path] = raw.decode("utf-8")
                    left -= len(raw)
        kept = self._texts_of(place)
        make_private(kept.parent)
        replace_file(kept, zlib.compress(json.dumps(texts).encode()), 0o600, is_durable=False)

    def _texts_of(self, place: str) -> Path:
        return self.folder / TEXTS / f"{sha256(os.fsencode(place)).hexdigest()[:32]}.z"

    def _load(self) -> dict[str, Any]:
        """Return the content of the file, read again when it has changed."""
        try:
            status = self.file.stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            if self._read is not None and self._read[0] == stamp:
                return self._read[1]
            is_own = status.st_uid == os.getuid() or (self.folder == data_home() and is_mapped())
            if not stat.S_ISREG(status.st_mode) or not is_own:
                raise TrustUnreadable(self.file, "is not a file of this user")
            if status.st_mode & 0o077 and not self._close(status):  # who could write it may have named any bundle
                return {"begun": _BEFORE_ALL, "trusted": {}}
            data: dict[str, Any] = json.loads(self.file.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {"trusted": {}}
        except OSError as error:
            raise TrustUnreadable(self.file, error) from None
        except (ValueError, RecursionError) as error:
            if isinstance(error, TrustUnreadable):
                raise
            raise TrustUnreadable(self.file, "is not JSON") from None
        trusted = data.get("trusted") if isinstance(data, dict) else None
        if not isinstance(trusted, dict) or not all(isinstance(each, dict) for each in trusted.values()):
            raise TrustUnreadable(self.file, 'is not {"trusted": {PLACE: {…}}}')
        self._read = stamp, data
        return data

    def _close(self, status: os.stat_result) -> bool:
        """Make the file private, and return True; False if others could write it: the next change replaces it."""
        mode, seen = stat.S_IMODE(status.st_mode), (self.file, status.st_ino, status.st_ctime_ns)
        is_believed = not mode & 0o022
        if is_believed:
            with suppress(OSError):  # it is read all the same
                self.file.chmod(0o600)
        if seen not in _told:
            _told.add(seen)
            lost = "so nothing in it counts. Trust your bundles again with: amplifier trust"
            outcome = "is now private (0600)" if is_believed else lost
            logger.warning("%s: was open to others (mode %04o), %s", self.file, mode, outcome)
        return is_believed

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """Yield the entries to change, and write them at the end; other processes wait meanwhile."""
        from ..documents.files import locked_folder, replace_file

        with locked_folder(make_private(self.folder)):
            self._read = None
            data = self._load()
            yield data["trusted"]
            whole = {"version": 1, "begun": data.get("begun") or time.time(), "trusted": data["trusted"]}
            replace_file(self.file.resolve(), json.dumps(whole, separators=(",", ":")).encode(), 0o600)
            self._read = None


def changed_files(entry: Entry) -> tuple[list[str], Entry]:
    """Return the trusted files that are not as they were, and the entry with the stamps of now."""
    changed, files = [], dict(entry.files)
    for path, seen in entry.files.items():
        if seen.stamp is not None and read_stamp(path) == seen.stamp:
            continue
        files[path] = now = read_seen(path)
        if now.digest != seen.digest:
            changed.append(path)
    return changed, Entry(entry.uid, files, entry.folders, entry.since)


def find_problem(ledger: Ledger, place: str) -> list[str] | None:
    """Return None if everything at a place is as it was trusted, else the changed files; [] when it never was."""
    entry = ledger.find(place)
    if entry is None or not entry.files:
        return []
    changed, fresh = changed_files(entry)
    changed += [path for folder in entry.folders for path in find_code(folder) if path not in entry.files]
    if owner_of(place) != entry.uid and place not in changed:
        changed.append(place)
    if changed:
        return changed
    if fresh.files != entry.files:
        ledger.refresh(place, fresh)
    return None


def find_whole(ledger: Ledger, file: str, runs: Callable[[str, str], bool]) -> str:
    """Return another place where everything is as it was trusted, a bundle's `file` too; '' without one.

    Such a place is a bundle that `runs` the file in a background session: a skill or an included bundle was shown as
    something else. Where trust in the file itself was taken back, there is none. Raises `TrustUnreadable`.
    """
    own, owner = ledger.find(file), owner_of(file)
    if own is not None and not own.files:
        return ""
    for place in ledger.places():
        entry = ledger.find(place) if place != file else None
        if entry is None or not {place, file} <= set(entry.files) or entry.uid != owner:
            continue
        if find_problem(ledger, place) is None and runs(place, file):
            return place
    return ""


def _dump(entry: Entry) -> dict[str, Any]:
    return {
        "uid": entry.uid,
        "since": entry.since,
        "files": {path: [seen.digest, seen.stamp] for path, seen in entry.files.items()},
        "folders": list(entry.folders),
    }


def _parse(data: Mapping[str, Any]) -> Entry:
    files = {
        str(path): Seen(str(digest), None if stamp is None else tuple(map(int, stamp)))  # type: ignore[arg-type]
        for path, (digest, stamp) in data["files"].items()
    }
    return Entry(int(data["uid"]), files, tuple(map(str, data.get("folders") or ())), float(data.get("since") or 0))
