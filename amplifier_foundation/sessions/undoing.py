"""Take back changes of files by sessions: find the changes that count, and restore what was there before.

A file's changes are a chain: each begins with the content that the one before it left. Where the chain has a gap,
somebody else wrote the file in between, or a command or a hook of the session. An undo is a change itself, which names
those that it takes back; an undo of an undo makes these count again.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict
from amplifier_core.frozen import frozen, slotted

from .file_changes import FileChange, digest_file, one_undo, read_changes, read_content, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from amplifier_core.storage import SessionStore


@slotted
class Chain:
    """The changes of one file that have happened, in their order.

    `gap` is the number of changes up to the last one after which somebody else wrote the file; 0 without one.
    """

    path: str
    changes: list[FileChange]
    gap: int
    now: str | None
    """The digest of the file now."""
    problem: str = ""
    """Why the file cannot be read."""


@frozen
class Step:
    """One file to restore: to `content`, or to none (None)."""

    path: str
    changes: tuple[FileChange, ...]
    now: str | None
    content: bytes | None = None
    mode: int | None = None
    problem: str = ""
    """Why it should not be restored; `force` overrides what is not `is_final`."""
    is_final: bool = False


def read_chains(session_ids: Iterable[str]) -> list[Chain]:
    """Return the chain of each file that sessions have changed, in the order of the first changes."""
    changes = sorted((each for its_id in session_ids for each in read_changes(its_id)), key=lambda each: each.time)
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    return [_make_chain(path, found) for path, found in by_path.items()]


def _make_chain(path: str, changes: list[FileChange]) -> Chain:
    """Leave out changes that a kill has prevented: the file is still, or was later, as before them."""
    try:
        now = state = digest_file(path)
    except OSError as error:
        return Chain(path, changes, len(changes), None, f"it cannot be read: {error.strerror or error}. Move it away")
    happened, gap = list[FileChange](), 0
    for place, change in reversed(list(enumerate(changes))):
        if change.after != state:
            if change.before == state and not change.lost:
                continue
            gap = gap or len(happened) + 1
        happened.append(change)
        # What is not kept is taken to be what the change before left.
        state = changes[place - 1].after if change.lost and place else change.before
    happened.reverse()
    return Chain(path, happened, len(happened) - gap + 1 if gap else 0, now)


def find_counting(chain: Chain) -> list[FileChange]:
    """Return the changes of a chain that nobody has taken back, undos among them."""
    taken_back: set[str] = set()
    counting = []
    for change in reversed(chain.changes):
        if change.id not in taken_back:
            taken_back.update(change.undoes)
            counting.append(change)
    return counting[::-1]


def plan_undo(chain: Chain, chosen: set[str]) -> Step | None:
    """Return how to take back the chosen changes of a file; None if none of them counts."""
    counting = find_counting(chain)
    taken = [each for each in counting if each.id in chosen]
    if not taken:
        return None
    first = taken[0]
    step = Step(chain.path, tuple(taken), chain.now, mode=first.mode)
    if chain.problem:
        return replace(step, problem=chain.problem, is_final=True)
    if first.lost:
        return replace(step, problem=f"what it held before is not kept: {first.lost}", is_final=True)
    content = None if first.before is None else read_content(first.session_id, first.before)
    if first.before is not None and content is None:
        return replace(step, problem="what it held before is no longer kept", is_final=True)
    step = replace(step, content=content)
    later = counting[counting.index(first) :]
    if any(each.id not in chosen and not each.undoes for each in later):
        return replace(step, problem="a later turn changed it again; undo that first")
    if chain.gap > chain.changes.index(first):
        return replace(step, problem="somebody else, a command or a hook, such as a formatter, has changed it since")
    return step


def restore(steps: Sequence[Step], session_id: str, at: int = 0) -> None:
    """Restore files; each undo is a change of the session, durable before its file. Undos wait for each other.

    Raises `SessionConflict` with the first file that cannot be restored, or that was changed since the steps were
    planned; it is left as it is.
    """
    batch = token_hex(8)
    with one_undo():
        for done, step in enumerate(steps):
            try:
                _restore(step, session_id, at, batch)
            except OSError as error:
                number = f"{done} of {len(steps)} files restored" if done else "nothing is restored"
                problem = f"{number}. {step.path}: {error.strerror or error}. Mend that, and run it again for the rest"
                raise SessionConflict(session_id, problem) from error


def _restore(step: Step, session_id: str, at: int, batch: str) -> None:
    from hashlib import sha256

    if os.path.realpath(step.path) != step.path:
        raise OSError(0, "it leads through a link now")
    _require_unchanged(step)
    after = None if step.content is None else sha256(step.content).hexdigest()
    with write_aside(step) as whole:
        # An undo that failed after this line would count as one that happened, once the file changes again.
        record(session_id, step.path, after, at=at, undoes=[each.id for each in step.changes], batch=batch)
        _require_unchanged(step)
        if whole is None:
            Path(step.path).unlink(missing_ok=True)
        else:
            whole.rename(step.path)


def _require_unchanged(step: Step) -> None:
    if digest_file(step.path) != step.now:
        raise OSError(0, "it has just been changed by somebody else")


@contextmanager
def write_aside(step: Step) -> Iterator[Path | None]:
    """Write what a file held to a new file beside it, durably; None where there was no file.

    It has the permissions of the file now, which somebody may have locked meanwhile; a deleted one gets those it had.
    The block renames the new file; what is left of it goes.
    """
    if step.content is None:
        yield None
        return
    path = Path(step.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, mode = path.with_name(f".{token_hex(8)}.tmp"), step.mode
    with suppress(FileNotFoundError):
        mode = S_IMODE(path.lstat().st_mode)
    try:
        with temporary.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(step.content)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


async def read_turns(store: SessionStore, changes: Iterable[FileChange]) -> dict[str, int]:
    """Return the turn of each change by its id, counted from 1; 0 for one before the first turn."""
    from .history import turn_starts

    given = list(changes)
    starts: dict[str, Any] = {}
    for session_id in {each.session_id for each in given}:
        starts[session_id] = turn_starts(await store.read(session_id))
    return {each.id: bisect_right(starts[each.session_id], each.at - 1) for each in given}
