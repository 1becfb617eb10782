"""Show the turns of running sessions to whoever listens: their text as it comes, tool calls, usage.

A session's reporter is attached when its first listener comes, and detached when the last one leaves: a turn without
listeners costs nothing more. A session may run in a thread, or in a process, of its own; it never waits for a listener.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl
from amplifier_core.utils.secrets import hide_known

from ..documents.json_text import dump_json, redact_json
from ..spawning.turn_facts import LISTEN, FactReporter, describe_child, find_wait

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from amplifier_core.hook_data import SpawnOutcome, SpawnRequest
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession

MOST_FACTS, MOST_BYTES = 1_000, 4 * 1024 * 1024
"""What may wait for one listener."""
LONGEST_FACT = 256 * 1024
"""Characters of one fact; a longer one is cut, and says so: the history has all of it."""


class Listener:
    """The facts that wait for one reader. `put` may be called in any thread, and never waits.

    When they are too many, the oldest partial text goes first, and only without any the oldest facts: all of these are
    in the session's history. A fact `lagged` stands in the place of what is lost.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._come = asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, bool]] = deque()
        self._bytes = 0
        self._lost = 0
        self._is_over = False

    def put(self, line: str, *, is_partial: bool) -> None:
        """Add a fact."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.append((line, is_partial))
            self._bytes += len(line)
            if len(self._waiting) > MOST_FACTS or self._bytes > MOST_BYTES:
                self._make_room()
        if is_first:
            self.wake()

    def end(self) -> None:
        """End with the facts that wait."""
        self._is_over = True
        self.wake()

    async def take(self) -> tuple[list[str], bool]:
        """Return the next facts, and whether they are the last ones."""
        await self._come.wait()
        with self._lock:
            self._come.clear()
            is_over, lines, lost = self._is_over, [line for line, _ in self._waiting], self._lost
            self._waiting.clear()
            self._bytes = self._lost = 0
        return ([dump_json({"type": "lagged", "lost": lost}), *lines] if lost else lines), is_over

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._come.set)

    def _make_room(self) -> None:
        kept = deque(each for each in self._waiting if not each[1])
        while len(kept) > MOST_FACTS // 2 or sum(len(line) for line, _ in kept) > MOST_BYTES // 2:
            kept.popleft()
        self._lost += len(self._waiting) - len(kept)
        self._waiting, self._bytes = kept, sum(len(line) for line, _ in kept)


class _Live:
    """One running session; all but `call` happens in its own loop."""

    def __init__(self, feed: LiveFeed, session: AmplifierSession) -> None:
        self.session = session
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._reporter: FactReporter | None = None
        self._last = ""
        """What the turn waits for, as it was told last; '' while it does not wait."""

    def update(self, listener: Listener | None = None) -> None:
        """Attach or detach the reporter in the session's loop, soon; tell a new listener what the turn waits for."""
        with suppress(RuntimeError):  # its loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._update, listener)

    def ask_to_stop(self, *, immediate: bool) -> None:
        """Ask the session to end, from any thread."""
        asking = self.session.coordinator.request_cancel(immediate=immediate)
        try:
            asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # its loop is closed: it has ended
            asking.close()

    def begin(self) -> None:
        """Attach the reporter to a session that begins its turn."""
        self._attach(is_late=False)

    def _update(self, listener: Listener | None) -> None:
        if not self._feed.is_heard(self.session.session_id):
            self._detach()
        elif self._reporter is None:
            self._attach(is_late=True)
        elif listener is not None and self._last:
            listener.put(self._last, is_partial=False)

    def _attach(self, *, is_late: bool) -> None:
        self._reporter = FactReporter(self._tell, waits=True)
        events = self._reporter.attach(self.session, is_late=is_late)
        listen = self.session.coordinator.get_capability(LISTEN)
        if listen is not None:
            listen(events)
        elif is_late:
            self._tell({"type": "waiting", **find_wait(self.session)})

    def _detach(self) -> None:
        if self._reporter is None:
            return
        self._reporter.detach()
        self._reporter = None
        listen = self.session.coordinator.get_capability(LISTEN)
        if listen is not None:
            listen(())

    def _tell(self, fact: dict[str, Any]) -> None:
        line = self._feed.tell(self.session.session_id, fact)
        if fact["type"] == "tool":
            line = dump_json({"type": "waiting", "on": fact["name"]})
        self._last = line if fact["type"] in ("waiting", "tool") else ""


class LiveFeed:
    """The running sessions of a process and their listeners, by the ids of the sessions.

    `observe` sees every session in its own loop. Listeners belong to the loop of `up`. As a plugin it sees children.
    """

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._is_registered = False
        self._lock = threading.Lock()
        self._sessions: dict[str, _Live] = {}
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._names: dict[str, str] = {}
        """The names of the running children whose parents are heard."""

    def observe(self, session: AmplifierSession) -> None:
        """Know a session from now on, to its end."""
        session_id, live = session.session_id, _Live(self, session)
        with self._lock:
            self._sessions[session_id] = live
            is_heard = session_id in self._listeners
        session.coordinator.register_cleanup(lambda: self._forget(session_id, live))
        if is_heard:
            live.begin()

    def runs(self, session_id: str) -> bool:
        """Return whether a session is running."""
        return session_id in self._sessions

    def is_heard(self, session_id: str) -> bool:
        """Return whether anybody listens to a session."""
        return session_id in self._listeners

    def ask_to_stop(self, session_id: str, *, immediate: bool) -> None:
        """Ask a session to end when its running tools have finished, or at once."""
        live = self._sessions.get(session_id)
        if live is not None:
            live.ask_to_stop(immediate=immediate)

    async def wait_ended(self, session_id: str, seconds: float) -> bool:
        """Wait until a session has ended; return whether it has after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), aclosing(self.follow(session_id)) as lines:
                async for _ in lines:
                    pass
        return not self.runs(session_id)

    async def follow(self, session_id: str, work: asyncio.Task[Any] | None = None) -> AsyncGenerator[str]:
        """Yield the facts of a session as lines of JSON, until its `work` has ended; without one, the session."""
        with self._listen(session_id) as listener:
            if work is not None:
                work.add_done_callback(lambda task: listener.end())
            yield dump_json({"type": "session", "session_id": session_id})  # from here on, nothing is missed
            is_over = False
            while not is_over:
                lines, is_over = await listener.take()
                for line in lines:
                    yield line
                is_over = is_over or (work is None and not self.runs(session_id))
            yield dump_json({"type": "end"})

    def tell(self, session_id: str, fact: dict[str, Any]) -> str:
        """Tell a fact to the listeners of a session, and return its line."""
        line = dump_json(fact)
        if not fact.get("partial"):  # the reporter has hidden the secrets of the others
            line = redact_json(line, hide_known)
        if len(line) > LONGEST_FACT:
            cut = json.loads(line)
            for name in cut.keys() & {"text", "input", "output"}:
                value = cut[name] if isinstance(cut[name], str) else dump_json(cut[name])
                cut[name] = value[: LONGEST_FACT // 4]
            line = dump_json({**cut, "cut": True})
        for listener in self._listeners.get(session_id, ()):
            listener.put(line, is_partial=bool(fact.get("partial")))
        return line

    @contextmanager
    def _listen(self, session_id: str) -> Iterator[Listener]:
        if not self._is_registered:
            self._is_registered = True
            self._plugins.register(self, f"live-feed-{id(self)}")
        listener = Listener()
        with self._lock:
            self._listeners[session_id] = (*self._listeners.get(session_id, ()), listener)
            live = self._sessions.get(session_id)
        try:
            if live is not None:
                live.update(listener)
            yield listener
        finally:
            with self._lock:
                others = tuple(each for each in self._listeners[session_id] if each is not listener)
                if others:
                    self._listeners[session_id] = others
                else:
                    del self._listeners[session_id]
                live = self._sessions.get(session_id)
            if live is not None and not others:
                live.update()

    def _forget(self, session_id: str, live: _Live) -> None:
        with self._lock:
            if self._sessions.get(session_id) is live:
                del self._sessions[session_id]
        for listener in self._listeners.get(session_id, ()):
            listener.wake()

    @hookimpl
    async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
        """Tell the listeners of a parent about the start of its child."""
        if self.is_heard(request.parent_id):
            name = self._names[request.session_id] = str(request.metadata.get("name") or request.bundle)
            self.tell(request.parent_id, describe_child(request, name))

    @hookimpl
    async def amplifier_after_spawn(self, result: SpawnOutcome) -> None:
        """Tell the listeners of a parent about the end of its child."""
        name = self._names.pop(result.session_id, result.session_id)
        if self.is_heard(result.parent_id):
            self.tell(result.parent_id, describe_child(result, name))
