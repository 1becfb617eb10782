"""The manifest as the state of an event: small enough to be stored with it.

It grows with the number of files, so that in a batch not every event carries one: the first does, the last does, and
between them one in `len(files) / SHARE`. It names as `pending` the paths whose events follow without a state of their
own: a restarted watcher cannot know whether they were stored, and so finds them again, under the same key, even if they
look as they did.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from .manifest import UNSURE, Fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARE = 64
"""Entries of the manifest that are written per event, at most, on average over a batch."""


class Saved(NamedTuple):
    """What a restarted watcher knows.

    `generation` counts the states, and is part of an event's key; `pending` maps a path to the one of its key.
    """

    generation: int
    files: dict[str, Fingerprint]
    pending: dict[str, int]


def encode(saved: Saved) -> dict[str, Any]:
    """Return the state as JSON; file names that are not Unicode survive."""
    content = {
        "files": {path: "".join(known) for path, known in saved.files.items()},
        "pending": saved.pending,
    }
    packed = zlib.compress(json.dumps(content).encode("ascii"), level=1)
    return {"generation": saved.generation, "manifest": b64encode(packed).decode("ascii")}


def decode(state: Mapping[str, Any]) -> Saved:
    """Return what `encode` was given."""
    content = json.loads(zlib.decompress(b64decode(state["manifest"])))
    cut = len(UNSURE)
    files = {path: Fingerprint(known[:cut], known[cut:]) for path, known in content["files"].items()}
    return Saved(state["generation"], files, content["pending"])


def carriers(count: int, files: int) -> dict[int, range]:
    """Return which of `count` events carry a state, each with the events after it that carry none."""
    starts = sorted({*range(0, count, max(1, files // SHARE)), *range(count)[-1:]})
    return {start: range(start + 1, end) for start, end in pairwise([*starts, count])}
