"""One source in the cache's folder: its files, what is known of them, and the lock that guards both."""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from time import sleep
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .limits import Deadline
    from .uris import ParsedURI

_NAME = re.compile(r".+-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of what was fetched: `uri` without secrets, `fetched_at` in RFC 3339 UTC, `size` in bytes."""

    uri: str
    ref: str
    commit: str | None
    fetched_at: str
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of one source below `folder`.

    `<name>/` holds its files and `<name>.json` the facts. Whoever changes them holds `<name>.lock` and works in
    `<name>.tmp-*/`; `<name>.was/` is there only while new files take the place of old ones.
    """

    folder: Path
    name: str

    @classmethod
    def of(cls, folder: Path, source: ParsedURI) -> Entry:
        """Return the entry of a source: the same for all its subdirectories, and whoever signs in."""
        host = source.host if source.transport == "ssh" else source.host.rpartition("@")[2]
        ref = source.commit or source.ref
        normal = f"{source.scheme}://{host.lower()}{source.path.rstrip('/')}" + (f"@{ref}" if ref else "")
        last = last_name(source).removesuffix(".git").removesuffix(".zip")
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:60].strip(".-") or "source"
        return cls(folder, f"{readable}-{sha256(normal.encode('utf-8', 'replace')).hexdigest()[:16]}")

    @classmethod
    def all(cls, folder: Path) -> list[Entry]:
        """Return the entries of a cache's folder, by name; also those that were begun and hold no files."""
        if not folder.is_dir():
            return []
        names = {path.name.removesuffix(".lock") for path in folder.iterdir()}
        return [cls(folder, name) for name in sorted(names) if _NAME.fullmatch(name)]

    @property
    def path(self) -> Path:
        """Return the folder with the files."""
        return self.folder / self.name

    @property
    def _facts(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def _lock(self) -> Path:
        return self.folder / f"{self.name}.lock"

    @property
    def _was(self) -> Path:
        return self.folder / f"{self.name}.was"

    def exists(self) -> bool:
        """Whether the files are there."""
        return self.path.is_dir()

    def is_known(self) -> bool:
        """Whether anything of it is there."""
        return any(path.exists() for path in (self.path, self._facts, self._was))

    def is_torn(self) -> bool:
        """Whether new files are taking the place of old ones, or somebody was killed who did that."""
        return self._was.exists()

    def facts(self) -> Facts | None:
        """Return what is known; None when nothing is, or the file is damaged."""
        try:
            facts = Facts(**json.loads(self._facts.read_text(encoding="utf-8")))
            datetime.fromisoformat(facts.fetched_at)
        except (OSError, ValueError, TypeError):
            return None
        return facts

    @contextmanager
    def locked(self, deadline: Deadline) -> Iterator[None]:
        """Be the only one, of all threads and processes, who changes this entry; what killed ones left is put right.

        Raises `TimeoutError`.
        """
        descriptor = self._acquire(deadline)
        try:
            self._put_right()
            for path in self.folder.glob(f"{self.name}.tmp-*"):
                _remove(path)
            yield
        finally:
            if not self.exists():
                self._lock.unlink(missing_ok=True)
            os.close(descriptor)

    def _acquire(self, deadline: Deadline) -> int:
        while True:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _wait_for(descriptor, deadline)
                if os.fstat(descriptor).st_nlink:  # else its owner removed it, and the next one made another
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _put_right(self) -> None:
        if self._was.exists() and self.exists():
            self._facts.unlink(missing_ok=True)  # they may be those of the old files
            _remove(self._was)
        elif self._was.exists():
            self._was.rename(self.path)

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """Yield an empty folder beside the entry; it is removed at the end."""
        folder = self.folder / f"{self.name}.tmp-{os.urandom(8).hex()}"
        folder.mkdir(0o700)
        try:
            yield folder
        finally:
            _remove(folder)

    def install(self, content: Path, facts: Facts, work: Path) -> None:
        """Put the folder `content` in the place of the files that were there; `work` is the workplace."""
        written = _write(facts, work)
        if self.exists():
            self.path.rename(self._was)
        try:
            content.rename(self.path)
        except OSError:
            self._put_right()
            raise
        written.replace(self._facts)
        if self._was.exists():
            self._was.rename(work / "was")

    def remember(self, facts: Facts, work: Path) -> None:
        """Write down what is known; `work` is the workplace."""
        _write(facts, work).replace(self._facts)

    def remove(self, work: Path) -> None:
        """Remove the files and the facts; `work` is the workplace, with which the files go."""
        self._facts.unlink(missing_ok=True)
        if self.exists():
            self.path.rename(work / "gone")


def last_name(source: ParsedURI) -> str:
    """Return the last part of a source's path, decoded: the name of a file or a repository; may be empty."""
    return PurePosixPath(unquote(source.path.partition("?")[0])).name


def _write(facts: Facts, work: Path) -> Path:
    path = work / "facts.json"
    path.write_text(json.dumps(asdict(facts), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _wait_for(descriptor: int, deadline: Deadline) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not deadline.left():
                raise TimeoutError from None
            sleep(deadline.step() / 2)


def _remove(path: Path) -> None:
    """Remove a folder; what cannot be removed now is in nobody's way and is tried again by the next."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
