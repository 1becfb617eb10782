"""Do for a child's sessions what they ask of the sessions above them, and check each call.

A child may write in the histories of its own sessions alone: the one that it was started for, and those below it; and
in the documents of its project alone. Its events continue the chain of the event that woke it, whatever it says.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from amplifier_core import hook_data
from amplifier_core.errors import SessionConflict, SessionNotFound
from amplifier_core.session import AmplifierSession
from amplifier_core.storage import SessionRecord

from ..paths import project_of
from ..sessions.accounts import tree_account
from ..sessions.asked import AskedCall
from ..sessions.ledger import BEFORE_FORK, LEDGER, TREE_BEFORE_FORK, Ledger
from ..spawning.approvals import ChildApprovals
from ..spawning.family import TREE, Tree
from ..spawning.turn_facts import LISTEN
from .error_forms import write_error
from .record_forms import read_value, write_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ..sessions.asked import CallInbox
    from ..sessions.documents import SessionDocuments
    from ..spawning.budget import Budget
    from ..spawning.child import Spawn
    from .link import Link

logger = logging.getLogger("amplifier.session")

_HOOKS = {
    "before_fork": hook_data.ForkRequest,
    "after_fork": hook_data.ForkResult,
    "before_spawn": hook_data.SpawnRequest,
    "after_spawn": hook_data.SpawnOutcome,
}
LONGEST_LINE = 2_000
"""Characters of one line for the log."""
NESTING = 8
"""Levels of the display that one child may go down."""


class ToldLedger:
    """The ledger of an open session in a child, as it was told last."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        metadata = {LEDGER: told.get("ledger"), BEFORE_FORK: told.get("inherited"), TREE_BEFORE_FORK: told.get("tree")}
        self.inherited = Ledger.of(metadata, BEFORE_FORK)
        self.tree_inherited = Ledger.of(metadata, TREE_BEFORE_FORK)
        self.ledger = Ledger.of(metadata)

    async def read(self) -> Ledger:
        """Return the ledger."""
        return self.ledger.copy()


class Services:
    """What one child may ask for. `end` takes back what it did not end itself."""

    def __init__(self, spawn: Spawn) -> None:
        self.results: dict[str, Any] | None = None
        """What came of the session, told by the child."""
        self.has_begun = False
        """Whether the child has asked for anything: it has taken its session."""
        self.done = asyncio.Event()
        """Set when the session has ended, and its process leaves nothing behind."""
        self._spawn = spawn
        self.tree: Tree = spawn.capabilities.get(TREE) or Tree.of(spawn.parent)
        self._family = {spawn.request.session_id}
        self._sessions: dict[str, AmplifierSession] = {}
        self._told: dict[tuple[int, str], ToldLedger] = {}
        self._chosen: set[str] = set()
        """Answers of a person: a rule for good must stand in one of them."""
        self._level = 0
        self._link: Link | None = None
        """The way to the child, while it runs."""
        self._watched: dict[str, Sequence[str]] = {}
        """The events that observers of running sessions hear besides, by the ids of the sessions."""

    def tell_through(self, link: Link) -> None:
        """Tell the child through `link`, from now on, what observers of its sessions hear."""
        self._link = link
        for session_id, events in self._watched.items():
            link.tell("listen", session_id=session_id, events=events)

    async def serve(self, name: str, arguments: dict[str, Any]) -> Any:
        """Do one call of the child. Raises `LookupError` for an unknown one, and the errors of what it does."""
        self.has_begun = True
        serve: Callable[..., Any] | None = getattr(self, f"_do_{name}", None)
        if serve is None:
            raise LookupError(f"a child cannot ask for '{name}'")
        return await serve(**arguments)

    async def end(self) -> None:
        """End the sessions that stood for the child's, and settle the budgets."""
        for number, session_id in list(self._told):
            await self._do_end_ledger(number, session_id, (await self._told[number, session_id].read()).to_dict())
        while self._level:
            await self._do_nest(-1)
        for session in self._sessions.values():
            await session.coordinator.cleanup()

    # The session's own end

    async def _do_done(self, **results: Any) -> None:
        self.results = results
        if results.get("leaves") is False:
            self.done.set()

    # The store

    async def _do_create(self, record: dict[str, Any]) -> dict[str, Any]:
        made = read_value(SessionRecord, record)
        if made.parent_id not in self._family and made.fork_of not in self._family:
            raise SessionConflict(made.session_id, f"session '{made.session_id}' is not below this one")
        stored = await self._store.create(made)
        self._family.add(made.session_id)
        return write_value(stored)

    async def _do_append(self, session_id: str, messages: list[dict[str, Any]], at: int) -> int:
        await self._check(session_id)
        return int(await self._store.append(session_id, messages, at=at))

    async def _do_update(self, session_id: str, changes: dict[str, Any]) -> None:
        await self._check(session_id)
        await self._store.update(session_id, **changes)

    async def _do_get(self, session_id: str) -> dict[str, Any]:
        return write_value(await self._store.get(session_id))

    async def _do_find(self, prefix: str) -> list[dict[str, Any]]:
        return [write_value(each) for each in await self._store.find(prefix)]

    async def _do_sessions(self, chosen: dict[str, Any]) -> list[dict[str, Any]]:
        return [write_value(each) for each in await self._store.sessions(**chosen)]

    async def _do_read(self, session_id: str, start: int, stop: int | None) -> list[dict[str, Any]]:
        return list(await self._store.read(session_id, start, stop))

    @property
    def _store(self) -> Any:
        if self._spawn.store is None:
            raise SessionNotFound(self._spawn.request.session_id)
        return self._spawn.store

    async def _check(self, session_id: str) -> None:
        """Raise `SessionConflict` for a session that is not below the child's."""
        above, seen = session_id, [session_id]
        while above not in self._family:
            parent = (await self._store.get(above)).parent_id
            if parent is None or parent in seen:
                raise SessionConflict(session_id, f"session '{session_id}' is not below this one")
            seen.append(parent)
            above = parent
        self._family.update(seen)

    # Documents

    async def _do_write_documents(
        self,
        changes: list[dict[str, Any]],
        events: list[tuple[str, dict[str, Any]]],
        session_id: str | None,
        event_id: str | None = None,
    ) -> list[dict[str, Any]]:
        from amplifier_core.documents import DocumentChange

        source = session_id or self._spawn.request.session_id
        await self._check(source)
        given = [read_value(DocumentChange, each) for each in changes]
        written = await self._documents(source).write(given, events, event_id=event_id)
        return [write_value(each) for each in written]

    async def _do_document(self, project: str, collection: str, key: str) -> dict[str, Any] | None:
        found = await self._documents(of=project).get(collection, key)
        return None if found is None else write_value(found)

    async def _do_documents(self, project: str, collection: str, chosen: dict[str, Any]) -> list[dict[str, Any]]:
        return [write_value(each) for each in await self._documents(of=project).find(collection, **chosen)]

    async def _do_search_documents(
        self, project: str, collection: str, query: str, limit: int
    ) -> list[tuple[dict[str, Any], str]]:
        found = await self._documents(of=project).search(collection, query, limit=limit)
        return [(write_value(each.document), each.snippet) for each in found]

    def _documents(self, session_id: str | None = None, of: str | None = None) -> SessionDocuments:
        """Return the documents of the child's project. Raises `ValueError` if it asks for those `of` another."""
        from ..sessions.documents import SessionDocuments

        if not hasattr(self._store, "write_documents"):
            raise LookupError("the store keeps no documents")
        project, publish = project_of(self._spawn.project), getattr(self._spawn.router, "publish", None)
        if of not in (None, project):
            raise ValueError(f"the documents of project '{of}' are not those of this session's project, '{project}'")
        return SessionDocuments(self._store, project, session_id, **self._chain, publish=publish)

    # Events and plugins

    async def _do_emit(
        self, name: str, data: dict[str, Any], session_id: str | None, event_id: str | None = None
    ) -> dict[str, Any]:
        spawn = self._spawn
        if spawn.router is None or session_id is None:
            raise LookupError("there is no router for this event")
        await self._check(session_id)
        about = {**self._chain, "project": project_of(spawn.project), "event_id": event_id}
        return write_value(await spawn.router.emit(name, data, session_id, **about))

    @property
    def _chain(self) -> dict[str, Any]:
        """The chain that the events of the child continue."""
        cause = self._spawn.cause
        return {"cause": cause.event_id, "depth": cause.depth} if cause is not None else {}

    async def _do_plugins(self, hook: str, value: dict[str, Any]) -> None:
        if self._spawn.plugins is None:
            return
        kind: type[Any] = _HOOKS[hook]
        given = read_value(kind, value)
        if hook == "before_spawn":
            from dataclasses import replace

            given = replace(given, relatives=max(self.tree.spawned, value["relatives"]), limits=self.tree.limits)
        await getattr(self._spawn.plugins, hook)(given)
        if hook == "before_spawn":
            self.tree.spawned += 1

    # Budgets

    async def _do_find_denial(
        self, number: int, session_id: str, ledgers: dict[str, Any], begins_turn: bool
    ) -> dict[str, Any] | None:
        budget = self._budget(number)
        for each, told in ledgers.items():
            self._told[number, each] = ledger = ToldLedger(told)
            is_top = bool(told.get("is_top")) and tree_account(each) in self.tree.accounts
            budget.begin(each, ledger, is_top=is_top)  # type: ignore[arg-type]
        now = self.tree.clock.now()
        denial = await budget.find_denial(session_id, self._spawn.store, now, begins_turn=begins_turn)
        return write_error(denial) if denial is not None else None

    async def _do_end_ledger(self, number: int, session_id: str, ledger: dict[str, Any]) -> None:
        self._told.pop((number, session_id), None)
        self._budget(number).end(session_id, Ledger.of({LEDGER: ledger}))

    def _budget(self, number: int) -> Budget:
        return self.tree.budgets[number]

    # Approvals and display

    async def _do_approve(self, prompt: str, options: list[str], timeout: float, default: Any) -> str:  # noqa: ASYNC109
        outer = self._spawn.asked
        if outer is None:
            raise LookupError("nobody can be asked")
        if isinstance(outer, ChildApprovals):
            answer = await outer.request_approval(prompt, options, timeout, default)
        else:
            async with self.tree.asking:
                answer = await outer.request_approval(prompt, options, timeout, default)
        self._chosen.add(answer)
        return answer

    async def _do_find_answer(self, call: dict[str, Any]) -> dict[str, Any]:
        asked = read_value(AskedCall, call)
        await self._check(asked.session_id)
        return write_value(await self._inbox.find(asked))

    async def _do_keep_question(self, approval_id: str, messages: list[dict[str, str]]) -> None:
        await self._inbox.keep(approval_id, messages)

    @property
    def _inbox(self) -> CallInbox:
        return cast("CallInbox", self._spawn.asked)

    async def _do_remember(self, rule: str) -> None:
        gate = self._spawn.parent.coordinator.permissions
        is_chosen = any(answer.endswith(f": {rule}") for answer in self._chosen)
        if gate is not None and gate.policy.remember is not None and is_chosen:
            gate.policy.remember(rule)

    async def _do_show(self, message: str, level: Any, source: str) -> None:
        display = self._spawn.parent.coordinator.display_system
        if display is not None:
            display.show_message(message, level, source)

    async def _do_nest(self, by: int) -> None:
        display: Any = self._spawn.parent.coordinator.display_system
        if by > 0 and self._level < NESTING:
            self._level += 1
            display.push_nesting()
        elif by < 0 and self._level:
            self._level -= 1
            display.pop_nesting()

    async def _do_log(self, name: str, level: int, text: str) -> None:
        line = " ".join(text.split())[:LONGEST_LINE]
        logger.log(min(int(level), logging.ERROR), "%s (%s): %s", self._spawn.request.session_id, name[:100], line)

    # Hook events

    def _listen(self, session_id: str, events: Collection[str]) -> None:
        """Have the events of a session come up; none: no longer."""
        self._watched[session_id] = sorted(events)
        if self._link is not None:
            self._link.tell("listen", session_id=session_id, events=self._watched[session_id])

    def observe_child(self) -> frozenset[str]:
        """Make the session that stands for the child's; return the events that it has handlers for."""
        request = self._spawn.request
        own = self._spawn.child = self._stand_in(request.session_id, request.parent_id, request.working_dir)
        return frozenset(own.coordinator.hooks.list_handlers())

    async def _do_observe(self, session_id: str, parent_id: str | None, folder: str | None) -> None:
        await self._check(session_id) if self._spawn.store is not None else None
        if session_id not in self._sessions:
            self._stand_in(session_id, parent_id, folder)

    async def _do_hear(self, event: str, data: dict[str, Any], session_id: str, parent_id: str | None) -> Any:
        session = self._sessions.get(session_id)
        if session is None:
            return None
        result = await session.coordinator.hooks.emit(event, data)
        is_plain = result.action == "continue" and not result.user_message
        return None if is_plain else result.model_dump(mode="json", exclude={"data"})

    async def _do_end_session(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session_id != self._spawn.request.session_id:
            del self._sessions[session_id]
            await session.coordinator.cleanup()

    def _stand_in(self, session_id: str, parent_id: str | None, folder: str | None) -> AmplifierSession:
        session = AmplifierSession(dict(self._spawn.request.config), session_id=session_id, parent_id=parent_id)
        session.coordinator.register_capability("session.working_dir", folder)
        session.coordinator.register_capability(LISTEN, partial(self._listen, session_id))
        self._sessions[session_id] = session
        is_own = session_id == self._spawn.request.session_id
        observe = self._spawn.observe if is_own else None
        for each in (*self.tree.observers, *([observe] if observe is not None else ())):
            each(session)
        return session
