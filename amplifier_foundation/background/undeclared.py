"""Find the queues whose events wait in vain: their bundle has another name, declares them no more, or has moved."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.errors import SessionNotFound

from ..documents.safe_text import shell_word
from ..paths import find_absence
from .hosts.sharing import shared_store
from .keys import RUNS, queue_key, root_id
from .lifecycle import read_wish

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path
    from typing import Any

    from amplifier_core.storage import DurableStore

    from ..bundle.model import Bundle
    from .lifecycle import Wish

DECLARED = "declared"
"""In the metadata of the session above a bundle's background sessions: the file that declared each, by its name."""


class UndeclaredQueue(NamedTuple):
    """A queue with waiting events that its bundle, read from `source`, does not declare, or whose folder is away."""

    project: str
    queue: str
    waiting: int
    wish: Wish | None
    """What a person asked of its background session; it holds for that name alone."""
    source: str = ""
    """Empty for a folder that is away."""
    absence: str = ""
    """What is the matter with that folder, such as "is gone"."""

    @property
    def fact(self) -> str:
        """What waits, and why in vain."""
        events = "1 event waits" if self.waiting == 1 else f"{self.waiting} events wait"
        state = f" ({self.wish})" if self.wish in ("paused", "stopped") else ""
        if not self.source:
            return f"{events} for {self.queue}{state} of {self.project}, a folder that {self.absence}"
        return f"{events} for {self.queue}{state}, which {self.source} no longer declares"

    @property
    def remedy(self) -> str:
        """What a person may do about it."""
        them = "it" if self.waiting == 1 else "them"
        drop = f"or discard {them} with: amplifier trigger drop {self.queue}"
        if not self.source:
            return f"Bring it back to handle {them}, {drop} --folder {shell_word(self.project)}"
        return f"Give it that name again to handle {them}, {drop}"

    def __str__(self) -> str:
        return f"{self.fact}. {self.remedy}"


async def source_of(store: DurableStore, project: str, queue: str) -> str:
    """Return the file of the bundle that last ran a queue, '' where that is unknown."""
    bundle, _, name = queue.rpartition("/")
    try:
        metadata = (await store.get(root_id(bundle, project))).metadata
    except SessionNotFound:  # its events were fired by hand, and it has never run
        return ""
    return str(metadata.get(DECLARED, {}).get(name, ""))


def declaring(bundle: Bundle, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the session above a bundle's background sessions, with the file that declares each.

    The names that are gone stay: several files of a folder may have a bundle of one name, and each has its own.
    """
    here = dict.fromkeys((each.name for each in bundle.background_sessions), str(bundle.source_path or ""))
    return {**metadata, DECLARED: {**metadata.get(DECLARED, {}), **here}}


async def remember_declared(store: DurableStore, bundle: Bundle, project: str) -> None:
    """Store that a bundle which runs declares other background sessions by now."""
    root = await store.get(root_id(bundle.name, project))
    await store.update(root.session_id, metadata=declaring(bundle, root.metadata))


async def find_undeclared(store: DurableStore, bundles: Collection[tuple[Bundle, str]]) -> list[UndeclaredQueue]:
    """Return the queues with waiting events that these bundles, each with its project, declare no more.

    A queue belongs to the file that last ran it. One that never ran, or that an earlier version ran, belongs to nobody.
    """
    declared = {
        (project, queue_key(bundle.name, each.name))
        for bundle, project in bundles
        for each in bundle.background_sessions
    }
    sources = {(project, _follow(bundle.source_path)) for bundle, project in bundles}
    found = []
    for (project, queue), count in await _count_waiting(store):
        if (project, queue) in declared:
            continue
        source = await source_of(store, project, queue)
        if source and (project, _follow(source)) in sources:
            wish = await read_wish(store, project, queue)
            found.append(UndeclaredQueue(project, queue, count, wish, source))
    return found


async def find_stranded(store: DurableStore, bundles: Collection[Bundle] | None = None) -> list[UndeclaredQueue]:
    """Return the queues with waiting events whose folder is away: those that these bundles declare, or all.

    A folder may be on another host of a shared store, which has none of them. Blocks on the folders.
    """
    if shared_store(store) is not None:
        return []
    queues = {queue_key(bundle.name, each.name) for bundle in bundles or () for each in bundle.background_sessions}
    return [
        UndeclaredQueue(project, queue, count, await read_wish(store, project, queue), absence=absence)
        for (project, queue), count in await _count_waiting(store)
        if (bundles is None or queue in queues) and (absence := find_absence(project))
    ]


async def _count_waiting(store: DurableStore) -> list[tuple[tuple[str, str], int]]:
    """Return the number of waiting events by project and queue, of background sessions with any."""
    waiting = Counter[tuple[str, str]]()
    for counted in await store.delivery_counts():
        waiting[counted.project, counted.queue] += counted.counts.get("pending", 0)
    return [(place, count) for place, count in sorted(waiting.items()) if count and place[1] != RUNS]


def _follow(source: Path | str | None) -> str:
    """Return the file that a path leads to: links lead to one bundle."""
    return os.path.realpath(source) if source else ""
