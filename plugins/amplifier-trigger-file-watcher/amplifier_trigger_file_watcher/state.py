"""The manifest as the state of an event: small enough to be stored with it.

It grows with the number of files, so that in a batch not every event carries one: the first does, the last does, and
between them one in `len(files) / SHARE`. It names as `pending` the paths whose events follow without a state of their
own: a restarted watcher cannot know whether they were stored, and so finds them again, under the same key, even if they
look as they did.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from base64 import b64decode, b64encode
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from .manifest import DIGEST_BYTES, UNREAD, Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 2
SHARE = 64
"""Entries of the manifest that are written per event, at most, on average over a batch."""
NUMBERS = 4
"""Columns of eight bytes a file, before that of its content."""
NOTHING = bytes(DIGEST_BYTES)
"""The content of a file that was not read."""


class Saved(NamedTuple):
    """What a restarted watcher knows.

    `generation` counts the states, and is part of an event's key; `pending` maps a path to the one of its key.
    """

    generation: int
    files: dict[str, Fingerprint]
    pending: dict[str, int]


def encode(saved: Saved) -> dict[str, Any]:
    """Return the state as JSON; file names that are not Unicode survive."""
    paths = "\0".join(saved.files).encode("utf-8", "surrogateescape")
    *numbers, contents = zip(*saved.files.values(), strict=True) if saved.files else ((),)
    return {
        "format": FORMAT,
        "generation": saved.generation,
        "paths": _pack(paths),
        "facts": _pack(b"".join(map(_column, numbers))),
        "contents": b64encode(b"".join(content or NOTHING for content in contents)).decode("ascii"),
        "pending": _pack(json.dumps(saved.pending).encode("ascii")),
    }


def decode(state: Mapping[str, Any]) -> Saved | None:
    """Return what `encode` was given; None when there is nothing, or something of another format."""
    if state.get("format") != FORMAT:
        return None
    paths = _unpack(state["paths"]).decode("utf-8", "surrogateescape")
    facts, contents = _numbers(_unpack(state["facts"])), b64decode(state["contents"])
    count = len(contents) // DIGEST_BYTES
    rows = zip(
        *(facts[column * count : (column + 1) * count] for column in range(NUMBERS)),
        (contents[at : at + DIGEST_BYTES] for at in range(0, len(contents), DIGEST_BYTES)),
        strict=True,
    )
    files = {
        path: Fingerprint(size, mtime, inode, ctime, UNREAD if content == NOTHING else content)
        for path, (size, mtime, inode, ctime, content) in zip(paths.split("\0") if count else (), rows, strict=True)
    }
    return Saved(state["generation"], files, json.loads(_unpack(state["pending"])))


def carriers(count: int, files: int) -> dict[int, range]:
    """Return which of `count` events carry a state, each with the events after it that carry none."""
    starts = sorted({*range(0, count, max(1, files // SHARE)), *range(count)[-1:]})
    return {start: range(start + 1, end) for start, end in pairwise([*starts, count])}


def _pack(data: bytes) -> str:
    return b64encode(zlib.compress(data, level=1)).decode("ascii")


def _unpack(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


def _column(numbers: Iterable[int]) -> bytes:
    """Return the numbers as eight bytes each, the lowest first."""
    return _little(array("q", numbers)).tobytes()


def _numbers(data: bytes) -> array[int]:
    values = array("q")
    values.frombytes(data)
    return _little(values)


def _little(values: array[int]) -> array[int]:
    if sys.byteorder == "big":
        values.byteswap()
    return values
