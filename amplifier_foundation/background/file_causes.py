"""Find the session behind a changed file: loops run through files too.

Two kinds of evidence attribute a file event to a session, and nothing else does:

* Announced. The file holds exactly what the session left in it: a tool announced the write by `artifact:write`, or is
  `write_file`, `edit_file` or `edit_notebook`. The event gets the session as its source, the session's event as its
  cause, and the depth after it. A chain longer than `max_depth` is refused.
* A tool was running. The file changed while a tool of a session ran whose working folder holds it. Somebody else may
  have changed it at that time, so this is a suspicion. The event gets the cause, and as its depth the number of times
  the same file woke the same background session before in that chain: 0 for a change by somebody else, one more each
  time round for a loop. From the second time on it is also delayed, twice as long each time. A change by somebody else
  is soon found outside of these ever rarer runs, and begins anew with depth 0; a loop reaches `max_depth`.

Both are remembered in memory: after a restart, chains through files begin anew. Where several hosts share a folder,
what is announced on one of them is known on all (`SharedWrites`).
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.events import ARTIFACT_WRITE, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_core.frozen import frozen, slotted
from amplifier_core.triggers import TriggerType

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import Delivery, DurableStore
    from amplifier_core.triggers import TriggerEvent

    from .hosts.writes import SharedWrites

    ProjectQueue = tuple[str, str]
    """Project and queue."""

MOST = 10_000
"""Remembered files; the oldest are forgotten first."""
RUNS = 1_000
"""Remembered runs of tools."""
SUSPECTS = 4
"""Runs of tools looked at for one file, the latest ones."""
LINKS = 64
"""Links of a chain searched for the same file."""
LARGEST = 64 * 1024 * 1024
"""Bytes of the largest file with a digest."""
CLOCK_STEP = 0.02
"""Seconds by which a file's time may be behind the clock: file systems take it from the last tick of the kernel."""
WRITTEN_BY = "written_by"
"""The key in an event's data with the session and the evidence."""

_LAST = 1_000_000
_WRITES = ("write_file", "edit_file", "edit_notebook")


@frozen
class Writer:
    """A session that may write, and the event that it handles."""

    session_id: str
    place: ProjectQueue
    event_id: str
    depth: int


@slotted
class ToolRun:
    """The time of one tool call, in seconds since 1970; `ended` is None while it runs."""

    writer: Writer
    folder: Path
    begun: float
    ended: float | None = None

    def holds(self, path: Path, moment: float) -> bool:
        """Return whether the tool ran at that time, in a folder above the path."""
        ended = time.time() if self.ended is None else self.ended
        return self.begun - CLOCK_STEP <= moment <= ended + CLOCK_STEP and path.is_relative_to(self.folder)


class FileCauses:
    """The files written by the sessions of one manager, and the runs of their tools."""

    def __init__(self) -> None:
        self.shared: SharedWrites | None = None
        """What is announced on other hosts; None where no folder is shared."""
        self._writes: dict[str, tuple[str, Writer]] = {}
        self._runs: deque[ToolRun] = deque(maxlen=RUNS)
        self._lock = Lock()  # sessions run in several threads

    def own_writes(self, place: ProjectQueue) -> Mapping[str, str]:
        """Return the files written by one background session; see `TriggerContext.own_writes`."""
        return OwnWrites(self._writes, place)

    def observer(self, delivery: Delivery) -> Callable[[AmplifierSession], None]:
        """Return a function to call with each session that handles `delivery`, before its turn."""
        place = delivery.project, delivery.queue

        def observe(session: AmplifierSession) -> None:
            self._observe(session, Writer(session.session_id, place, delivery.event.event_id, delivery.event.depth))

        return observe

    def _observe(self, session: AmplifierSession, writer: Writer) -> None:
        folder = Path(session.coordinator.get_capability("session.working_dir") or ".")
        real_folder = cache(folder.resolve)  # at the first tool call: most sessions have none
        running: dict[str, ToolRun] = {}

        async def begin_tool(event: str, data: dict[str, Any]) -> None:
            path, content = _path_of(data), (data.get("tool_input") or {}).get("content")
            if path is None:
                run = running[call_of(data)] = ToolRun(writer, real_folder(), time.time())
                with self._lock:
                    self._runs.append(run)
            elif data.get("tool_name") == "write_file" and isinstance(content, str):
                # now, not when the tool has ended: a watcher may see the file before
                digest = sha256(content.encode(errors="surrogatepass")).hexdigest()
                await self._remember_and_share(folder / path, digest, writer)

        async def end_tool(event: str, data: dict[str, Any]) -> None:
            run = running.pop(call_of(data), None)
            if run is not None:
                run.ended = time.time()
            await note_write(event, {**data, "path": _path_of(data)})

        async def note_write(event: str, data: dict[str, Any]) -> None:
            path = data.get("path")
            if isinstance(path, str) and path:
                await self._remember_and_share(folder / path, await asyncio.to_thread(_digest, folder / path), writer)

        async def end_all() -> None:
            for run in running.values():
                run.ended = time.time()

        hooks = session.coordinator.hooks
        hooks.register(TOOL_PRE, begin_tool, _LAST, "file-causes")
        hooks.register(TOOL_POST, end_tool, _LAST, "file-causes")
        hooks.register(TOOL_ERROR, end_tool, _LAST, "file-causes")
        hooks.register(ARTIFACT_WRITE, note_write, _LAST, "file-causes")
        session.coordinator.register_cleanup(end_all)

    @contextmanager
    def watch_merge(self, delivery: Delivery, folder: str) -> Iterator[Callable[[Mapping[str, str]], None]]:
        """Suspect a delivery's session of changes in a folder while the block merges its work.

        Yields a function that takes the digests of the files it is about to write, by their paths.
        """
        place = delivery.project, delivery.queue
        writer = Writer(str(delivery.session_id), place, delivery.event.event_id, delivery.event.depth)
        run = ToolRun(writer, Path(folder).resolve(), time.time())
        with self._lock:
            self._runs.append(run)

        def note(digests: Mapping[str, str]) -> None:
            for path, digest in digests.items():
                self._remember(Path(path), digest, writer)

        try:
            yield note
        finally:
            run.ended = time.time()

    async def _remember_and_share(self, path: Path, digest: str | None, writer: Writer) -> None:
        self._remember(path, digest, writer)
        if self.shared is not None and digest is not None:
            await self.shared.remember(str(path.resolve()), digest, writer)  # noqa: ASYNC240 - one path

    def _remember(self, path: Path, digest: str | None, writer: Writer) -> None:
        if digest is None:
            return
        real = str(path.resolve())
        with self._lock:
            self._writes.pop(real, None)
            self._writes[real] = digest, writer
            if len(self._writes) > MOST:
                del self._writes[next(iter(self._writes))]

    async def attribute(self, store: DurableStore, place: ProjectQueue, event: TriggerEvent) -> TriggerEvent:
        """Return a file event with its session as the cause, or the event itself without evidence."""
        if event.type is not TriggerType.FILE_CHANGE or event.cause is not None or not event.file_path:
            return event
        path = Path(place[0], event.file_path).resolve()  # noqa: ASYNC240 - one path, at most once an event
        digest, writer = self._writes.get(str(path), (None, None))
        is_asked = writer is not None or self.shared is not None
        content = await asyncio.to_thread(_digest, path) if is_asked else None
        if self.shared is not None and digest != content:
            digest, writer = await self.shared.find(place[0], str(path))
        if writer is not None and digest == content:
            return _attribute_to(event, writer, "announced", writer.depth + 1, writer.session_id)
        suspects = [run.writer for run in self._runs_at(path)][-SUSPECTS:]
        if not suspects:
            return event
        rounds = [await _count_rounds(store, place, event, each) for each in suspects]
        return _attribute_to(event, suspects[rounds.index(min(rounds))], "a tool was running", min(rounds))

    def _runs_at(self, path: Path) -> list[ToolRun]:
        """Return the runs of tools during the last change of the file; a deleted file has no time."""
        try:
            changed = path.stat().st_ctime
        except (OSError, ValueError):
            return []
        with self._lock:
            runs = list(self._runs)
        return [run for run in runs if run.holds(path, changed)]


class OwnWrites(Mapping[str, str]):
    """The SHA-256 of each file as the sessions of one background session left it, by its real path."""

    def __init__(self, writes: Mapping[str, tuple[str, Writer]], place: ProjectQueue) -> None:
        self._writes = writes
        self._place = place

    def __getitem__(self, path: str) -> str:
        digest, writer = self._writes[path]
        if writer.place != self._place:
            raise KeyError(path)
        return digest

    def __iter__(self) -> Iterator[str]:
        return (path for path, (_, writer) in list(self._writes.items()) if writer.place == self._place)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def delay_of(event: TriggerEvent) -> float:
    """Return the seconds that a suspected loop waits: none the first time round, then 2, 4, 8 …"""
    suspected = event.data.get(WRITTEN_BY, {}).get("evidence") == "a tool was running"
    return 2.0 ** (event.depth - 1) if suspected and event.depth > 1 else 0.0


def _attribute_to(
    event: TriggerEvent,
    writer: Writer,
    evidence: Literal["announced", "a tool was running"],
    depth: int,
    source: str | None = None,
) -> TriggerEvent:
    data = {**event.data, WRITTEN_BY: {"session_id": writer.session_id, "evidence": evidence}}
    return replace(event, data=data, cause=writer.event_id, depth=depth, source_session_id=source)


async def _count_rounds(store: DurableStore, place: ProjectQueue, event: TriggerEvent, writer: Writer) -> int:
    """Return how often the chain up from the writer's event came by this file in the queue at `place`."""
    rounds, cause = 0, writer.event_id
    for _ in range(LINKS):
        deliveries = await store.deliveries(event_id=cause, limit=10)
        if deliveries:
            here = [each for each in deliveries if (each.project, each.queue) == place]
            rounds += any(each.event.file_path == event.file_path for each in here)
            above = deliveries[0].event.cause
        else:  # an event of the log, between a session and the trigger event made from it
            logged = await store.find_events(cause)
            above = logged[0].cause if logged else None
        if above is None:
            break
        cause = above
    return rounds


def call_of(data: Mapping[str, Any]) -> str:
    """Return the id of a tool's call in the data of its event."""
    return str(data.get("tool_call_id") or data.get("tool_name"))


def _path_of(data: Mapping[str, Any]) -> str | None:
    """Return the path of a call that writes one known file."""
    asked = data.get("tool_input")
    if data.get("tool_name") not in _WRITES or not isinstance(asked, Mapping):
        return None
    path = asked.get("file_path") or asked.get("path")
    return path if isinstance(path, str) else None


def _digest(path: Path) -> str | None:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a FIFO would wait for a writer
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            return sha256(file.read()).hexdigest()
    except (OSError, ValueError):
        return None
