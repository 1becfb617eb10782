"""Keep the manifest in a trigger's state: a snapshot of all files, and a row for each change since.

One event stores the rows of its own changes, so that its size does not depend on the number of files. When the rows
have become many, a new snapshot takes their place, which costs 100 bytes an event on average.
"""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from array import array
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from .fingerprints import DIGEST_BYTES, UNREAD, Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amplifier_core.triggers import TriggerContext

    from .manifest import Change

    Files = dict[str, Fingerprint]

FORMAT = 3
FEW_ROWS, SHARE = 256, 4
"""Rows since a snapshot until the next one: so many, or one for every `SHARE` files."""
NUMBERS = 4
"""Columns of eight bytes a file, before the column of its content."""
NOTHING = bytes(DIGEST_BYTES)
"""Stands for the content of an unread file."""
DELETED = False
"""The row of a deleted file; None would bring back the file of the snapshot."""


class Journal:
    """The stored state of a watcher.

    Its keys are `format`, `generation`, `base` (the snapshot) and `/` with a path for each change since. `generation`
    counts the events, and is part of their keys: a restart makes the same key for a change without a stored event, and
    a later change to the same content has another. `pending` comes from a state of format 2: paths of events without
    their state, which may not be stored, with the generations of their keys.

    Invariant: the stored state is the manifest's files, but for `_deferred` and for facts of files with equal content.
    """

    def __init__(self, context: TriggerContext) -> None:
        self._context = context
        self.generation = 0
        self.pending: dict[str, int] = {}
        self._rows = 0
        self._deferred: dict[str, Any] = {}
        self._is_snapshot_due = False

    def restore(self) -> Files | None:
        """Return the files of the stored state; None without one."""
        state = self._context.state
        if state.get("format") not in (2, FORMAT):
            return None
        old = state["format"] != FORMAT  # the old one had the keys of the snapshot beside the others
        files = unpack(state if old else state["base"])
        rows = {key.removeprefix("/"): row for key, row in state.items() if key.startswith("/")}
        for path, row in rows.items():
            files.pop(path, None)
            if row:
                files[path] = Fingerprint._make((*row[:NUMBERS], bytes.fromhex(row[NUMBERS])))
        self.generation, self._rows, self._is_snapshot_due = state["generation"], len(rows), old
        pending = state.get("pending", {})
        self.pending = json.loads(_decompress(pending)) if isinstance(pending, str) else dict(pending)
        return files

    def record(self, changes: Sequence[Change]) -> dict[str, Any]:
        """Return the state changes for the event of these changes, with all deferred ones."""
        self.generation += 1
        self.defer(changes)
        rows, self._deferred = {**self._deferred, "generation": self.generation}, {}
        if self.pending:
            for change in changes:
                self.pending.pop(change.path, None)
            rows["pending"] = dict(self.pending) or None
        return rows

    def defer(self, changes: Iterable[Change]) -> None:
        """Take changes without an event, for the next `save` or event."""
        for path, _, file, *_ in changes:
            self._deferred[f"/{path}"] = [*file[:NUMBERS], file.content.hex()] if file else DELETED
            self._rows += 1

    def request_snapshot(self) -> None:
        """Let the next `save` store all files."""
        self._is_snapshot_due = True

    async def save(self, files: Files) -> None:
        """Store deferred changes, or a snapshot when one is due."""
        if self._is_snapshot_due or self._rows > max(FEW_ROWS, len(files) // SHARE):
            base = await asyncio.to_thread(pack, files)
            state = {"format": FORMAT, "generation": self.generation, "base": base}
            await self._context.save_state({**state, "pending": self.pending} if self.pending else state)
            self._rows, self._is_snapshot_due = 0, False
        elif self._deferred:
            await self._context.save_state(self._deferred, merge=True)
        self._deferred = {}


def pack(files: Files) -> dict[str, str]:
    """Return files as compressed text, about 27 bytes a file; names that are not Unicode survive."""
    *numbers, contents = zip(*files.values(), strict=True) if files else ((),)
    columns = (_swap(array("q", column)).tobytes() for column in numbers)
    return {
        "paths": _compress("\0".join(files).encode("utf-8", "surrogateescape")),
        "facts": _compress(b"".join(columns)),
        "contents": b64encode(b"".join(content or NOTHING for content in contents)).decode("ascii"),
    }


def unpack(packed: Mapping[str, str]) -> Files:
    """Return the argument of `pack` again."""
    paths = _decompress(packed["paths"]).decode("utf-8", "surrogateescape")
    facts, contents = array("q"), b64decode(packed["contents"])
    facts.frombytes(_decompress(packed["facts"]))
    facts, count = _swap(facts), len(contents) // DIGEST_BYTES
    columns = (facts[column * count : (column + 1) * count] for column in range(NUMBERS))
    digests = (contents[at : at + DIGEST_BYTES] for at in range(0, len(contents), DIGEST_BYTES))
    rows = zip(*columns, digests, strict=True)
    return {
        path: Fingerprint._make((*numbers, UNREAD if content == NOTHING else content))
        for path, (*numbers, content) in zip(paths.split("\0") if count else (), rows, strict=True)
    }


def _compress(data: bytes) -> str:
    return b64encode(zlib.compress(data, level=1)).decode("ascii")


def _decompress(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


def _swap(values: array[int]) -> array[int]:
    """Return the numbers with their lowest byte first, or back."""
    if sys.byteorder == "big":
        values.byteswap()
    return values
