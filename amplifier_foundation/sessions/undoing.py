"""Take back changes of files by sessions: find the changes that count, and restore what was there before.

A file's changes are a chain: each begins with the content that the one before it left. Where the chain has a gap,
somebody else wrote the file in between. An undo is a change itself, which names those that it takes back; an undo of an
undo makes these count again.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from .file_changes import FileChange, digest_file, read_changes, read_content, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.storage import SessionStore


@dataclass(slots=True)
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


@dataclass(frozen=True, slots=True)
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
        return Chain(path, changes, len(changes), None, f"it cannot be read: {error.strerror or error}")
    happened, gap = list[FileChange](), 0
    for change in reversed(changes):
        if change.after != state:
            if change.before == state and not change.lost:
                continue
            gap = gap or len(happened) + 1
        happened.append(change)
        earlier = changes[: changes.index(change)]
        # What is not kept is taken to be what the change before left.
        state = earlier[-1].after if change.lost and earlier else change.before
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
        return replace(step, problem="somebody else has changed it since")
    return step


def restore(steps: Sequence[Step], session_id: str, at: int = 0) -> None:
    """Restore files; each undo is a change of the session, durable before its file. Raises `OSError`.

    A file that was changed since the steps were planned raises `OSError`, too, and is left as it is.
    """
    from hashlib import sha256

    batch = token_hex(8)
    for step in steps:
        if os.path.realpath(step.path) != step.path:
            raise OSError(0, "it leads through a link now", step.path)
        after = None if step.content is None else sha256(step.content).hexdigest()
        record(session_id, step.path, after, at=at, undoes=[each.id for each in step.changes], batch=batch)
        if digest_file(step.path) != step.now:
            raise OSError(0, "it has just been changed by somebody else", step.path)
        if step.content is None:
            Path(step.path).unlink(missing_ok=True)
        else:
            write_back(Path(step.path), step.content, step.mode)


def write_back(path: Path, content: bytes, mode: int | None) -> None:
    """Replace a file by a whole new one, with the permissions of the earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


async def read_turns(store: SessionStore, changes: Iterable[FileChange]) -> dict[str, int]:
    """Return the turn of each change by its id, counted from 1; 0 for one before the first turn."""
    from .history import turn_starts

    given = list(changes)
    starts: dict[str, Any] = {}
    for session_id in {each.session_id for each in given}:
        starts[session_id] = turn_starts(await store.read(session_id))
    return {each.id: bisect_right(starts[each.session_id], each.at - 1) for each in given}
