"""Keep what files held before a session changed them, so that a person can undo it: the capability `session.undo`.

The folder `undo/SESSION` of the data folder has `changes.jsonl`, a line for each change, and the earlier contents by
their digest, small ones compressed. Both are durable before the file changes. A line names the digests of the file
before and after, so it needs no second line: after a kill, the file itself tells whether it was changed.

The contents of files whose names say that they hold secrets are never kept, nor those larger than `LARGEST`. Of a large
file, those that the turn itself wrote are left out: a turn is undone as a whole. When all contents exceed the setting
`retention.undo`, the oldest go; a session that loses some of its own says so.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING

from amplifier_core.frozen import frozen, slotted

from ..paths import data_home, make_private, unusable_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message

LARGEST = 64 * 1024 * 1024
"""Bytes of the largest file whose content is kept."""
LARGEST_PACKED = 1024 * 1024
"""Bytes of the largest content that is compressed: the session waits, and 10 MB of text take 0.3 s."""
LARGEST_STEP = 200_000
"""Bytes of the largest content that is kept between two changes of one turn: for the page, which compares no larger."""
SWEEP_AFTER = 16 * 1024 * 1024
"""Bytes that a session keeps between two looks at the bound."""
JOURNAL = "changes.jsonl"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


@frozen
class FileChange:
    """One change of a file; digests are SHA-256 in hex, None where there is no file."""

    id: str
    session_id: str
    path: str
    before: str | None
    after: str | None
    mode: int | None = None
    """The permissions before."""
    time: str = ""
    """UTC, ISO 8601."""
    at: int = 0
    """The number of messages of the session at that time."""
    undoes: tuple[str, ...] = ()
    """The ids of the changes that this one takes back."""
    batch: str = ""
    """The undo that this change is a part of."""
    lost: str = ""
    """Why the content before is not kept."""


@slotted
class FileChanges:
    """The changes that one session makes; `read_history` returns its messages."""

    session_id: str
    read_history: Callable[[], Sequence[Message]] = tuple
    _last: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """The last change of each file: the number of messages at that time, and the digest of what it left."""
    _limit: int | None = None
    _bound: int = 0
    """Bytes that all sessions may keep: a project may keep nothing for its own, but takes nothing from others."""
    _fresh: int = SWEEP_AFTER
    """Bytes since the last look at the bound; the first change looks."""
    _is_failing: bool = False
    _has_lost: bool = False

    async def keep(self, path: str, after: str | None, before: bytes | None = None) -> None:
        """Keep what the file at a real path holds now, durably; `after` is the digest of what it becomes.

        `before` is given by an editor with text that is not on disk. A failure is logged once, and changes nothing.
        """
        import asyncio

        from .history import is_user_turn

        if not _ID.fullmatch(self.session_id):
            return
        try:
            history = self.read_history()
            at, (last, own) = len(history), self._last.get(path, (0, None))
            if any(map(is_user_turn, history[last:at])):  # of an earlier turn
                own = None
            await asyncio.shield(asyncio.to_thread(self._keep, path, after, before, at, own))
            self._last[path] = at, after
        except Exception as error:
            if not self._is_failing:
                import logging

                logging.getLogger(__name__).warning("changes of files cannot be undone from now on: %s", error)
            self._is_failing = True

    def _keep(self, path: str, after: str | None, before: bytes | None, at: int, own: str | None) -> None:
        if self._limit is None:
            from ..documents.sizes import size_of
            from ..settings import read_settings, read_user_settings

            own, users = (each.get("retention.undo") for each in (read_settings(), read_user_settings()))
            self._limit, self._bound = size_of(own), max(size_of(own), size_of(users))
        if not self._limit:
            return
        self._fresh += record(self.session_id, path, after, before=before, at=at, own=own)
        if self._fresh >= SWEEP_AFTER:
            self._fresh = 0
            if self.session_id in bound_contents(self._bound) and not self._has_lost:
                import logging

                self._has_lost = True
                logging.getLogger(__name__).warning(
                    "the first changes of session %s cannot be undone any more: what files held before all changes "
                    "takes more than %d bytes. Raise retention.undo in your settings to keep more",
                    self.session_id,
                    self._bound,
                )


def record(
    session_id: str,
    path: str,
    after: str | None,
    *,
    before: bytes | None = None,
    at: int = 0,
    undoes: Sequence[str] = (),
    batch: str = "",
    own: str | None = None,
) -> int:
    """Keep a content and add the line of a change, durably; return the bytes of the content that are new.

    `own` is the digest of what the same turn wrote to the file; that is kept up to `LARGEST_STEP`.
    """
    from datetime import UTC, datetime
    from secrets import token_hex

    folder = make_private(_folder_of(session_id))
    mode, data, lost = _read_now(path, before)
    digest, size = (None, 0) if data is None else _keep_content(folder, data, own)
    about: dict[str, object] = {"id": token_hex(8), "path": path, "before": digest, "after": after, "mode": mode}
    about |= {"time": datetime.now(UTC).isoformat(), "at": at}
    more = {"undoes": list(undoes), "batch": batch, "lost": lost}
    line = json.dumps({**about, **{name: value for name, value in more.items() if value}})
    _add_line(journal_of(session_id), line.encode())
    return size


def journal_of(session_id: str) -> Path:
    """Return the file with the changes of a session."""
    return _folder_of(session_id) / JOURNAL


def read_changes(session_id: str) -> list[FileChange]:
    """Return the changes of a session, in their order; lines that cannot be read are left out.

    Raises `StoreUnavailable` for a journal that is there and cannot be read at all.
    """
    return _read_journal(session_id)[0]


def count_unreadable(session_id: str) -> int:
    """Return how many lines of a session's journal cannot be read, as after a power cut. Raises as `read_changes`."""
    return _read_journal(session_id)[1]


def _read_journal(session_id: str) -> tuple[list[FileChange], int]:
    path, changes, unreadable = journal_of(session_id), [], 0
    try:
        lines = [line for line in path.read_bytes().splitlines() if line]
    except (FileNotFoundError, NotADirectoryError):
        return [], 0
    except OSError as error:
        raise unusable_error(path, error) from error
    for line in lines:
        try:
            given = json.loads(line)
            changes.append(FileChange(**{**given, "session_id": session_id, "undoes": tuple(given.get("undoes", ()))}))
        except (ValueError, TypeError):
            unreadable += 1
    return changes, unreadable


def read_content(session_id: str, digest: str) -> bytes | None:
    """Return a kept content; None for one that is gone or damaged."""
    import zlib
    from hashlib import sha256

    try:
        data = zlib.decompress((_folder_of(session_id) / digest).read_bytes())
    except (OSError, zlib.error):
        return None
    return data if sha256(data).hexdigest() == digest else None


@contextmanager
def one_undo() -> Iterator[None]:
    """Keep all other undos out while the block runs; wait for one that is running."""
    from ..documents.files import locked_folder

    with locked_folder(make_private(data_home() / "undo")):
        yield


def forget_changes(session_ids: Iterable[str]) -> None:
    """Delete what is kept of sessions that are deleted."""
    import shutil

    for session_id in session_ids:
        if _ID.fullmatch(session_id):
            shutil.rmtree(_folder_of(session_id), ignore_errors=True)


def bound_contents(limit: int) -> set[str]:
    """Delete the oldest contents of all sessions until they are within `limit` bytes; return whose have gone."""
    found, losing = [], set[str]()
    for path in (data_home() / "undo").glob("*/*"):
        if path.name != JOURNAL:
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        losing.add(path.parent.name)
        total -= size
    return losing


def digest_file(path: str) -> str | None:
    """Return the digest of a regular file; None where there is none. Raises `OSError` for anything else."""
    from hashlib import file_digest

    try:
        with open(path, "rb", opener=_open_file) as stream:
            return file_digest(stream, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _open_file(path: str, flags: int) -> int:
    import errno
    import stat

    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(0, "it is a link now") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no regular file")
    return descriptor


def _read_now(path: str, before: bytes | None) -> tuple[int | None, bytes | None, str]:
    """Return the permissions and the content of a file, and why the content is not kept."""
    from amplifier_core.permissions.protected import is_secret

    try:
        with open(path, "rb", opener=_open_file) as stream:
            status = os.fstat(stream.fileno())
            mode = status.st_mode & 0o7777
            if is_secret(path.lstrip("/")):
                return mode, None, "its name says that it holds secrets"
            if status.st_size > LARGEST:
                return mode, None, f"it was larger than {LARGEST} bytes"
            return mode, stream.read() if before is None else before, ""
    except (FileNotFoundError, NotADirectoryError):
        return None, None, ""


def _keep_content(folder: Path, data: bytes, own: str | None) -> tuple[str, int]:
    """Write a content that is not kept yet, durably; return its digest, and the bytes that are new."""
    import zlib
    from hashlib import sha256
    from secrets import token_hex

    digest = sha256(data).hexdigest()
    if digest == own and len(data) > LARGEST_STEP:
        return digest, 0
    path = folder / digest
    with suppress(FileNotFoundError):
        os.utime(path)  # the oldest go first
        return digest, 0
    packed = zlib.compress(data, 1 if len(data) <= LARGEST_PACKED else 0)
    temporary = folder / f".{token_hex(8)}"
    try:
        with open(temporary, "xb", opener=_open_private) as stream:
            stream.write(packed)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return digest, len(packed)


def _add_line(path: Path, line: bytes) -> None:
    """Add a line, durably, one process at a time; a line that a kill has cut ends first."""
    import fcntl

    with open(path, "ab+", opener=_open_private) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        size = stream.seek(0, os.SEEK_END)
        if size and os.pread(stream.fileno(), 1, size - 1) != b"\n":
            line = b"\n" + line
        stream.write(line + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _folder_of(session_id: str) -> Path:
    return data_home() / "undo" / session_id
