"""Keep one source in the cache's folder: its files, its facts, and the lock on both."""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from time import sleep
from typing import TYPE_CHECKING
from urllib.parse import unquote

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .limits import Deadline
    from .uris import ParsedURI

_NAME = re.compile(r".+-[0-9a-f]{16}")


@frozen
class Facts:
    """Facts about a fetch: `uri` without secrets, `fetched_at` in RFC 3339 UTC, `size` in bytes."""

    uri: str
    ref: str
    commit: str | None
    fetched_at: str
    size: int


@frozen
class Entry:
    """The place of one source below `folder`.

    `<name>/` has the files, `<name>.json` the facts. A writer holds `<name>.lock` and works in `<name>.tmp-*/`;
    `<name>.was/` has the old files while new ones replace them.
    """

    folder: Path
    name: str

    @classmethod
    def of(cls, folder: Path, source: ParsedURI) -> Entry:
        """Return the entry of a source: the same for all subdirectories and users."""
        host = source.host if source.transport == "ssh" else source.host.rpartition("@")[2]
        ref = source.commit or source.written_ref
        normal = f"{source.scheme}://{host.lower()}{source.path.rstrip('/')}" + (f"@{ref}" if ref else "")
        last = last_name(source).removesuffix(".git").removesuffix(".zip")
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:60].strip(".-") or "source"
        return cls(folder, f"{readable}-{sha256(normal.encode('utf-8', 'replace')).hexdigest()[:16]}")

    @classmethod
    def all(cls, folder: Path) -> list[Entry]:
        """Return the entries of a cache's folder by name, unfinished ones included."""
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
        """Whether any part of the entry exists."""
        return any(path.exists() for path in (self.path, self._facts, self._was))

    def is_torn(self) -> bool:
        """Whether new files are replacing old ones, or a killed process left that unfinished."""
        return self._was.exists()

    def facts(self) -> Facts | None:
        """Return the facts; None when they are missing or damaged."""
        try:
            facts = Facts(**json.loads(self._facts.read_text(encoding="utf-8")))
            datetime.fromisoformat(facts.fetched_at)
        except (OSError, ValueError, TypeError):
            return None
        return facts

    @contextmanager
    def lock(self, deadline: Deadline) -> Iterator[None]:
        """Exclude all other threads and processes from this entry; repair the traces of killed ones first.

        Raises `TimeoutError`.
        """
        descriptor = self._acquire(deadline)
        try:
            self._repair()
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
                while True:
                    with suppress(BlockingIOError):
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    if not deadline.seconds_left():
                        raise TimeoutError
                    sleep(deadline.step() / 2)
                if os.fstat(descriptor).st_nlink:  # else its owner removed the file: a new one is the lock now
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _repair(self) -> None:
        if self._was.exists() and self.exists():
            self._facts.unlink(missing_ok=True)  # these may describe the old files
            _remove(self._was)
        elif self._was.exists():
            self._was.rename(self.path)

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """Yield an empty folder beside the entry, and remove it at the end."""
        folder = self.folder / f"{self.name}.tmp-{os.urandom(8).hex()}"
        folder.mkdir(0o700)
        try:
            yield folder
        finally:
            _remove(folder)

    def install(self, content: Path, facts: Facts, work: Path) -> None:
        """Replace the files by the folder `content`; `work` is the workplace."""
        written = _write(facts, work)
        if self.exists():
            self.path.rename(self._was)
        try:
            content.rename(self.path)
        except OSError:
            self._repair()
            raise
        written.replace(self._facts)
        if self._was.exists():
            self._was.rename(work / "was")

    def remember(self, facts: Facts, work: Path) -> None:
        """Write the facts; `work` is the workplace."""
        _write(facts, work).replace(self._facts)

    def remove(self, work: Path) -> None:
        """Remove the facts, and move the files into the workplace `work`."""
        self._facts.unlink(missing_ok=True)
        if self.exists():
            self.path.rename(work / "gone")


def last_name(source: ParsedURI) -> str:
    """Return the decoded last part of a source's path: the name of a file or a repository, or ``."""
    return PurePosixPath(unquote(source.path.partition("?")[0])).name


def _write(facts: Facts, work: Path) -> Path:
    path = work / "facts.json"
    path.write_text(json.dumps(asdict(facts), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _remove(path: Path) -> None:
    """Remove a folder; the next writer retries failed removals."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
