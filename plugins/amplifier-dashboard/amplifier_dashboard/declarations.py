"""Load the bundles behind background sessions, to show what they declare; nothing of them runs."""

from __future__ import annotations

import asyncio
from dataclasses import field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.errors import AmplifierError, SessionNotFound
from amplifier_core.frozen import slotted
from amplifier_foundation.background.keys import RUNS
from amplifier_foundation.background.up import root_id
from amplifier_foundation.operations.loading import load_to_look, read_trusted_settings
from amplifier_foundation.operations.timing import declared_in

from .observing import read_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_foundation.bundle.background_config import BackgroundSessionConfig
    from amplifier_foundation.bundle.model import Bundle
    from amplifier_foundation.operations.timing import Declared

    from .desk import Desk

FRESH = 30.0
"""Seconds for which a bundle is not read again while its file has the same time."""


@slotted
class Loaded:
    """A bundle that was loaded, or the problem with it; `path` is its file."""

    path: str
    bundle: Bundle | None = None
    problem: str = ""
    time: int = 0
    read_at: float = field(default_factory=monotonic)

    def session(self, name: str) -> BackgroundSessionConfig | None:
        """Return the declaration of a background session."""
        declared = self.bundle.background_sessions if self.bundle is not None else ()
        return next((each for each in declared if each.name == name), None)

    def triggers(self, name: str) -> Sequence[Declared]:
        """Return the triggers of a background session."""
        session = self.session(name)
        return list(declared_in(self.bundle, session)) if self.bundle is not None and session is not None else []


class Known(NamedTuple):
    """A bundle that runs or has run, and its project."""

    project: str
    bundle: str


async def read_queues(desk: Desk) -> list[tuple[str, str]]:
    """Return project and queue of every background session that runs or has run."""
    counted = [(each.project, each.queue) for each in await desk.store.delivery_counts() if each.queue != RUNS]
    running = [each.key for _, each in (await read_processes(desk)).running]
    return list(dict.fromkeys([*running, *counted]))


async def read_known(desk: Desk) -> list[Known]:
    """Return the bundles with background sessions that run or have run."""
    return sorted({Known(project, queue.rpartition("/")[0]) for project, queue in await read_queues(desk)})


async def load_known(desk: Desk, known: Known) -> Loaded:
    """Load a bundle as it is now; the session above its background sessions names its file."""
    try:
        source = (await desk.store.get(root_id(known.bundle, known.project))).bundle_source
    except SessionNotFound:
        source = ""
    if not source:
        return Loaded(
            "", problem="The file of this bundle is unknown: a program has made it, or it is no longer stored."
        )
    kept: dict[tuple[str, str], Loaded] = desk.kept.setdefault("declarations", {})
    before = kept.get((source, known.project))
    if before is None or before.time != _time_of(source) or monotonic() - before.read_at > FRESH:
        kept[source, known.project] = before = await asyncio.to_thread(_load, desk, source, known.project)
    return before


def _time_of(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def _load(desk: Desk, source: str, project: str) -> Loaded:
    time, folder = _time_of(source), Path(project)
    try:
        bundle = load_to_look(source, desk.plugins, read_trusted_settings(folder)[0], folder)
    except AmplifierError as error:
        return Loaded(source, problem=str(error), time=time)
    return Loaded(source, bundle, time=time)
