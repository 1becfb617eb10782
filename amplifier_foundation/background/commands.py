"""Carry out what other processes and hosts ask of the process that runs background sessions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import SystemClock
from amplifier_core.errors import SessionConflict, SessionNotFound
from amplifier_core.frozen import slotted

from .asking import NoSuchBackgroundSession
from .hosts.sharing import shared_name
from .keys import queue_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from amplifier_core.errors import StoreUnavailable
    from amplifier_core.session import AmplifierSession

    from ..bundle.model import Bundle
    from ..events import EventRouter
    from .hosts.member import Member
    from .lifecycle import Wish
    from .live_feed import LiveFeed
    from .manager import BackgroundSessionManager
    from .state import Running

VERBS: dict[str, Wish | None] = {
    "stop": "stopped",
    "start": "running",
    "restart": None,
    "pause": "paused",
    "resume": "running",
}
"""The verbs of a background session's life, and the wish of each; `restart` is a stop and a start."""

LOOK_EVERY = 0.2
"""Seconds between two looks at the work of a process that ends when it is done."""


@slotted
class Up:
    """A bundle with its running background sessions; `root` is their parent session."""

    bundle: Bundle
    project: str
    root: AmplifierSession
    manager: BackgroundSessionManager
    router: EventRouter

    async def reconcile(self, bundle: Bundle) -> list[str]:
        """Run the declarations of the changed bundle; return the names of the background sessions concerned."""
        from ..bundle.prepared import with_default_session

        prepared = await bundle.prepare()
        self.bundle = bundle
        self.root.config.update(with_default_session(prepared.mount_plan))
        return await self.manager.reconcile(prepared)

    def status(self) -> dict[str, Any]:
        """Return the status for `amplifier ps`."""
        return {"bundle": self.bundle.name, "project": self.project, "sessions": self.manager.get_status()}


@slotted
class Control:
    """Handles the requests at the process's socket; `asked_to_stop` ends the process."""

    running: list[Up] = field(default_factory=list)
    asked_to_stop: Callable[[], None] = lambda: None
    asked_to_reload: Callable[[], None] = lambda: None
    lost: Callable[[StoreUnavailable], None] = lambda error: None
    """Called when the data folder is gone."""
    tell: Callable[[str], None] = lambda text: None
    """Called with news for the person at the terminal."""
    member: Member | None = None
    """This process among the hosts of a shared store."""
    servers: dict[str, str] = field(default_factory=dict)
    """The addresses of the servers beside."""
    feed: LiveFeed | None = None
    """What its running sessions show."""

    async def take_part(self, member: Member) -> None:
        """Take the commands of other hosts, and tell them the states of the background sessions, until cancelled.

        When a person drains this host, the process ends with its running sessions.
        """
        self.member, member.obey, member.states, member.report = member, self.handle, self._states, self.report
        await member.drain_asked.wait()
        while any(row["running"] for each in self.running for row in each.manager.get_status().values()):
            await SystemClock().sleep(LOOK_EVERY)
        self.asked_to_stop()

    def _states(self) -> dict[str, Any]:
        states: dict[str, Any] = {}
        for each in self.running:
            rows = each.manager.get_status().values()
            states.setdefault(each.project, {}).update({row["queue"]: [row["status"], row["reason"]] for row in rows})
        return states

    async def handle(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Carry out a request. Raises `NoSuchBackgroundSession` for an unknown name."""
        if operation == "status":
            return [each.status() for each in self.running]
        if operation == "follow":
            return self._follow(str(arguments["session_id"]))
        if operation == "cancel":
            return await self._cancel(str(arguments["session_id"]), str(arguments["by"]))
        if operation == "servers":
            return self.servers
        if operation == "declaration":
            return self._find_declaration(str(arguments["queue"]), arguments)
        if operation == "wake":
            ups = self._at(arguments)
            for each in ups:
                with suppress(SessionNotFound):  # another bundle of that folder declares it
                    each.manager.wake(str(arguments["name"]))
            return any(arguments.get("queue") in known for each in ups for known in each.manager.names)
        if operation in VERBS and arguments.get("name"):
            return await self._change(operation, str(arguments["name"]), arguments)
        if operation == "drain" and self.member is not None:
            self.tell("no new work is taken, and this process ends when its work is done: a person drains this host")
            return self.member.drain_asked.set()
        if operation == "stop":
            return self.asked_to_stop()
        if operation == "reload":
            return self.asked_to_reload()
        raise ValueError(f"unknown operation {operation}")

    def _find_declaration(self, queue: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the declaration behind a queue as JSON, as it runs; None when this process does not run it."""
        for each in self._at(arguments):
            for session in each.bundle.background_sessions:
                if queue_key(each.bundle.name, session.name) == queue:
                    return session.model_dump_json(by_alias=True, exclude_unset=True)
        return None

    def _find_running(self, session_id: str) -> Running | None:
        return next(filter(None, (each.manager.find_running(session_id) for each in self.running)), None)

    async def _cancel(self, session_id: str, by: str) -> dict[str, Any] | None:
        """End the turn of a session; return what came of it, None when this process does not run it."""
        from .cancelling import cancel_child, cancel_delivery

        found = self._find_running(session_id)
        if found is not None:
            self.tell(f"the turn of session {session_id} is cancelled by {by}")
            return {"cancelled": await cancel_delivery(found, by), "queue": found.delivery.queue}
        if self.feed is not None and self.feed.runs(session_id):
            return {"cancelled": await cancel_child(self.feed, session_id), "queue": ""}
        return None

    def _follow(self, session_id: str) -> AsyncGenerator[str] | None:
        """Return the facts of a running session as lines; None when this process does not run it."""
        found = self._find_running(session_id)
        if self.feed is None or (found is None and not self.feed.runs(session_id)):
            return None
        return self.feed.follow(session_id, found.task if found is not None else None)

    def report(self, component: str, problem: str) -> None:
        """Show the problem of a shared component in the status of every background session; '' for none."""
        for each in self.running:
            each.manager.report_shared(component, problem)

    def _at(self, arguments: Mapping[str, Any]) -> list[Up]:
        """Return what runs in the project of a request, if it names one: other hosts say its name on all of them."""
        project, member = arguments.get("project"), self.member
        shared: Callable[[str], str] = partial(shared_name, member.store) if member is not None else str
        return [each for each in self.running if project in (None, each.project, shared(each.project))]

    async def _change(self, verb: str, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Change the life of every background session of that name or id; return their ids.

        A stopped one is neither paused nor resumed: it only starts when a person says so.
        """
        managers = [each.manager for each in self._at(arguments)]
        found = [(manager, known) for manager in managers for known in manager.names if name in known]
        if not found:
            raise NoSuchBackgroundSession(name, [known[0] for manager in managers for known in manager.names])
        if verb in ("pause", "resume"):
            rows = [(manager, row) for manager in managers for row in manager.get_status().values()]
            alive = [(manager, row["name"]) for manager, row in rows if row["status"] not in ("stopping", "stopped")]
            found = [(manager, known) for manager, known in found if (manager, known[0]) in alive]
            if not found:
                raise SessionConflict(name, f"{name} is stopped. Start it with: amplifier start {name}")
        ids = []
        for manager, (own, *_) in found:
            self.tell(f"{own} is to {verb}, as another process asks")
            wish = VERBS[verb]
            ids.append(await (manager.restart(own) if wish is None else manager.change(own, wish)))
        return ids
