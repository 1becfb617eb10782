"""Read or rewrite a whole `transcript.jsonl`: a message a line, each line written once."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.frozen import frozen

from .files import damage_error, read_all, replace, sync_folder, write_all, write_new
from .lines import is_followed, is_good, is_sealed, loads, seal, split
from .marks import Mark, new_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.errors import StoreDamaged
    from amplifier_core.transcript import Message

REPAIR = "See what can be saved: amplifier session repair"


@frozen
class Contents:
    """Hold the lines of a transcript without empty ones, and the rest of a cut append."""

    path: str
    lines: list[bytes]
    torn: bytes
    unended: bool
    """Whether the last line is whole and only its end is missing."""
    missing: int
    """How many messages were acknowledged and are not there."""

    @property
    def count(self) -> int:
        """How many messages should be there."""
        return len(self.lines) + self.missing

    def messages(self, start: int, stop: int, first: int = 0) -> list[Message]:
        """Return messages of a range; the transcript's own first one is message `first` of its session.

        Raises `StoreDamaged` unless all messages up to `stop` are good.
        """
        found = parse(self.path, self.lines[:stop], 0, range(start, stop), first)
        if stop > len(self.lines):
            raise too_short(self.path, len(self.lines), max(stop, self.count))
        return found


def contents(path: str, mark: Mark | None) -> Contents:
    """Read a transcript. Raises `StoreDamaged` for a missing one."""
    try:
        data = read_all(path)
    except FileNotFoundError:
        raise damage_error(path, "is missing") from None
    whole, tail, unended = _divide(data, mark)
    lines = [line for line in whole if line.strip()]
    if unended:
        lines.append(tail)
    torn = b"" if unended else tail
    ours = mark is not None and (bool(tail) or not lines or any(map(is_sealed, lines)))
    missing = max(0, mark.count - len(lines)) if mark is not None and ours else 0
    return Contents(path, lines, torn, unended, missing)


def parse(path: str, lines: Iterable[bytes], at: int, wanted: range, first: int) -> list[Message]:
    """Return the `wanted` messages among consecutive lines; the first line is message `at`.

    Raises `StoreDamaged` for a bad line, wanted or not, counting from message `first` of the session.
    """
    found = []
    for number, line in enumerate(lines, at):
        try:
            if number in wanted:
                found.append(loads(line))
            elif not is_good(line):
                raise ValueError
        except ValueError:
            raise _damage_error(path, f"message m{first + number + 1} is not what was written") from None
    return found


def too_short(path: str, there: int, expected: int) -> StoreDamaged:
    """Return the error for a transcript with lost messages."""
    return _damage_error(path, f"it has {there} messages of {expected}")


def settle(path: str, transcript: int, mark: Mark | None) -> Mark:
    """Make an open transcript ready for appending if its mark does not describe it; return a valid mark.

    Raises `StoreDamaged`.
    """
    found = contents(path, mark)
    found.messages(0, found.count)
    if found.torn:
        keep_cut(path, found.torn)
        os.ftruncate(transcript, os.fstat(transcript).st_size - len(found.torn))
    elif found.unended:
        write_all(transcript, b"\n")
    last = split(found.lines[-1])[1] if found.lines else b""
    return Mark(os.fstat(transcript).st_size, len(found.lines), last, new_file())


def rewrite(path: str, lines: Sequence[bytes]) -> Mark:
    """Replace the lines of a transcript, each ended as its own append; return the mark of the end.

    Good lines without a checksum get one; a bad line stays bad.
    """
    kept = [seal(split(line)[0].rstrip()) if is_good(line) else line for line in lines]
    data = b"".join([line + b"\n" for line in kept])
    replace(path, data)
    return Mark(len(data), len(kept), split(kept[-1])[1] if kept else b"", new_file())


def keep_cut(path: str, data: bytes) -> None:
    """Store removed data in a file beside `path`."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    write_new(f"{path}.cut-{now}", data)
    sync_folder(Path(path).parent)


def _divide(data: bytes, mark: Mark | None) -> tuple[list[bytes], bytes, bool]:
    """Return the lines, the incomplete end, and whether this end is a complete line without its newline.

    An incomplete end is half a line, or the first lines of a turn. Lines counted by the mark are complete, whatever
    became of the lines appended with them.
    """
    *whole, tail = data.split(b"\n")
    kept, messages, acknowledged = len(whole), sum(1 for line in whole if line.strip()), mark.count if mark else 0
    if tail and is_good(tail) and (messages < acknowledged or _is_complete(data, tail, mark)):
        return whole, tail, True
    while messages > acknowledged and is_followed(whole[kept - 1]):
        kept, messages = kept - 1, messages - 1
    return whole[:kept], b"\n".join([*whole[kept:], tail]), False


def _is_complete(data: bytes, tail: bytes, mark: Mark | None) -> bool:
    """Return whether a good last line ends its append, or another tool's write.

    If only this store has written since the mark, a last line without a checksum has lost it.
    """
    if is_sealed(tail):
        return not is_followed(tail)
    if mark is None or not mark.stands_in(data):
        return True
    since = data[mark.size : len(data) - len(tail)]
    return not all(is_sealed(line) for line in since.split(b"\n") if line)


def _damage_error(path: str, what: str) -> StoreDamaged:
    return damage_error(path, f"is damaged ({what})", f"{REPAIR} {Path(path).parent.name}")
