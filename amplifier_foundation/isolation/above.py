"""Stand in, within a child, for what its session has above it: the store, events, plugins, budgets, approvals, display.

Each call crosses to the parent, where `serving` checks and does it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.events import SessionEvent
from amplifier_core.storage import SessionRecord

from ..sessions.asked import Answer, answer_or_hold
from ..sessions.serialising import sanitize_for_json
from ..spawning.turn_facts import LISTEN, WAITS, find_wait
from .link import ask
from .record_forms import read_value, write_value

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.documents import Document, DocumentChange, DocumentMatch
    from amplifier_core.hook_data import ForkRequest, ForkResult, SpawnOutcome, SpawnRequest
    from amplifier_core.models import HookResult
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.transcript import Message

    from ..sessions.asked import AskedCall
    from ..sessions.ledger import Ledger, OpenLedger
    from ..spawning.budget import Limits
    from .link import Link

STREAMED = (":delta", ":progress")
"""The ends of the names of events that the session does not wait for: a model's text in pieces."""


class StoreAbove:
    """The `SessionStore` of the parent, for the sessions of this process."""

    def __init__(self, link: Link, blocking: socket.socket) -> None:
        self._link = link
        self._blocking = blocking

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session below this process's."""
        return read_value(SessionRecord, await self._link.call("create", record=write_value(record)))

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages."""
        return int(await self._link.call("append", session_id=session_id, messages=messages, at=at))

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of a record."""
        await self._link.call("update", session_id=session_id, changes=changes)

    async def get(self, session_id: str) -> SessionRecord:
        """Return a record."""
        return read_value(SessionRecord, await self._link.call("get", session_id=session_id))

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return sessions by the beginning of their ids."""
        return [read_value(SessionRecord, each) for each in await self._link.call("find", prefix=prefix)]

    async def sessions(self, **chosen: Any) -> list[SessionRecord]:
        """Return sessions of a project or a parent."""
        return [read_value(SessionRecord, each) for each in await self._link.call("sessions", chosen=chosen)]

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages."""
        messages: list[Message] = await self._link.call("read", session_id=session_id, start=start, stop=stop)
        return messages

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages in the calling thread."""
        messages: list[Message] = ask(self._blocking, "read", session_id=session_id, start=start, stop=stop)
        return messages


class DocumentsAbove(StoreAbove):
    """The store of the parent, where that keeps documents: those of the project of this process's session."""

    async def write_documents(
        self, changes: Sequence[DocumentChange], *, emits: Sequence[SessionEvent] = ()
    ) -> list[SessionEvent]:
        """Change documents, with events of one session; the parent makes these events anew, and publishes them."""
        answer = await self._link.call(
            "write_documents",
            changes=[write_value(each) for each in changes],
            events=[(each.name, each.data) for each in emits],
            session_id=emits[0].source_session_id if emits else None,
            event_id=emits[0].event_id if emits else None,
        )
        return [read_value(SessionEvent, each) for each in answer]

    async def document(self, project: str, collection: str, key: str) -> Document | None:
        """Return one document."""
        from amplifier_core.documents import Document

        answer = await self._link.call("document", project=project, collection=collection, key=key)
        return None if answer is None else read_value(Document, answer)

    async def documents(self, project: str, collection: str, **chosen: Any) -> list[Document]:
        """Return documents of a collection."""
        from amplifier_core.documents import Document

        answer = await self._link.call("documents", project=project, collection=collection, chosen=chosen)
        return [read_value(Document, each) for each in answer]

    async def search_documents(
        self, project: str, collection: str, query: str, *, limit: int = 10
    ) -> list[DocumentMatch]:
        """Return documents of a collection by their words."""
        from amplifier_core.documents import Document, DocumentMatch

        asked = {"project": project, "collection": collection, "query": query, "limit": limit}
        answer = await self._link.call("search_documents", **asked)
        return [DocumentMatch(read_value(Document, document), snippet) for document, snippet in answer]


class RouterAbove:
    """The router of the parent, for the events of this process's sessions."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def emit(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
        project: str | None = None,
        event_id: str | None = None,
    ) -> SessionEvent:
        """Publish an event; the parent knows its cause and its depth."""
        given = {"name": event_name, "data": data, "session_id": source_session_id, "event_id": event_id}
        answer = await self._link.call("emit", **given)
        return read_value(SessionEvent, answer)


class PluginsAbove:
    """The moment hooks of the parent's plugins; what plugins offer is looked up in this process."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def before_fork(self, request: ForkRequest) -> None:
        """Ask every plugin."""
        await self._link.call("plugins", hook="before_fork", value=write_value(request))

    async def after_fork(self, result: ForkResult) -> None:
        """Tell every plugin."""
        await self._link.call("plugins", hook="after_fork", value=write_value(result))

    async def before_spawn(self, request: SpawnRequest) -> None:
        """Ask every plugin."""
        await self._link.call("plugins", hook="before_spawn", value=write_value(request))

    async def after_spawn(self, result: SpawnOutcome) -> None:
        """Tell every plugin."""
        await self._link.call("plugins", hook="after_spawn", value=write_value(result))

    def __getattr__(self, name: str) -> Any:
        return getattr(own_plugins(), name)


@cache
def own_plugins() -> Plugins:
    """Return the plugins of this process, loaded once."""
    from amplifier_core.plugins import load_plugins

    return load_plugins()


class BudgetAbove:
    """One budget of the tree: the parent adds up what all its sessions used."""

    def __init__(self, link: Link, number: int, limits: Limits, scope: str) -> None:
        self.limits = limits
        self.scope = scope
        self._link = link
        self._number = number
        self._open: dict[str, tuple[OpenLedger, bool]] = {}

    def begin(self, session_id: str, ledger: OpenLedger, *, is_top: bool) -> None:
        """Count an open session."""
        self._open[session_id] = ledger, is_top

    def end(self, session_id: str, ledger: Ledger) -> None:
        """Count the ledger of a session at its end."""
        self._open.pop(session_id, None)
        self._link.tell("end_ledger", number=self._number, session_id=session_id, ledger=ledger.to_dict())

    async def find_denial(self, session_id: str, store: Any, now: datetime, *, begins_turn: bool = True) -> Any:
        """Return the reason to begin no request, None within the budget."""
        from .error_forms import read_error

        ledgers = {
            each: {
                "ledger": (await ledger.read()).to_dict(),
                "inherited": ledger.inherited.to_dict(),
                "tree": ledger.tree_inherited.to_dict(),
                "is_top": is_top,
            }
            for each, (ledger, is_top) in list(self._open.items())
        }
        denial = await self._link.call(
            "find_denial", number=self._number, session_id=session_id, ledgers=ledgers, begins_turn=begins_turn
        )
        return read_error(denial) if denial is not None else None


class ApprovalsAbove:
    """The approval system of the parent."""

    def __init__(self, link: Link, *, tells_who: bool) -> None:
        self.tells_who = tells_who
        self._link = link

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the chosen option."""
        return str(await self._link.call("approve", prompt=prompt, options=options, timeout=timeout, default=default))


class InboxAbove(ApprovalsAbove):
    """The approval system of the parent, where that keeps questions until they are answered."""

    async def answer_call(self, coordinator: ModuleCoordinator, question: HookResult) -> HookResult:
        """Return the answer to a question about a call, or hold the call."""
        return await answer_or_hold(self, coordinator, question)

    async def find(self, call: AskedCall) -> Answer:
        """Return the answer to a question as it is now."""
        return read_value(Answer, await self._link.call("find_answer", call=write_value(call)))

    async def keep(self, approval_id: str, messages: list[dict[str, str]]) -> None:
        """Keep a new question."""
        await self._link.call("keep_question", approval_id=approval_id, messages=messages)


class DisplayAbove:
    """The display of the parent."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def show_message(self, message: str, level: Literal["info", "warning", "error"], source: str = "hook") -> None:
        """Show a message."""
        self._link.tell("show", message=message, level=level, source=source)


class NestingDisplayAbove(DisplayAbove):
    """The display of the parent, where that has levels."""

    def push_nesting(self) -> None:
        """Go one level down."""
        self._link.tell("nest", by=1)

    def pop_nesting(self) -> None:
        """Go one level up."""
        self._link.tell("nest", by=-1)


class EventBridge:
    """Has the parent hear the hook events of this process's sessions that it listens to, after their own handlers.

    A session waits for what the parent answers, but for streamed events, and for those of `listen`: who asks for events
    while a session runs only watches it.
    """

    def __init__(self, link: Link, listened: frozenset[str]) -> None:
        self._link = link
        self._listened = listened
        self._sessions: dict[str, AmplifierSession] = {}
        self._watched: dict[str, Sequence[str]] = {}
        """The events of `listen` by the ids of their sessions, also of coming ones."""
        self._undo: dict[str, list[Callable[[], None]]] = {}

    def observe(self, session: AmplifierSession) -> None:
        """Tell the parent about a new session, and forward its events."""
        session_id, link = session.session_id, self._link
        known = {"session_id": session_id, "parent_id": session.parent_id}
        link.tell("observe", **known, folder=session.coordinator.get_capability("session.working_dir"))

        async def forward(event: str, data: dict[str, Any]) -> Any:
            told = {"event": event, "data": sanitize_for_json(data), **known}
            if event.endswith(STREAMED):
                link.tell("hear", **told)
                return None
            answer = await link.call("hear", **told)
            if answer is None:
                return None
            from amplifier_core.models import HookResult as Result

            return Result.model_validate(answer)

        for name in sorted(self._listened):
            session.coordinator.hooks.register(name, forward, _AFTER_OWN, "parent")
        self._sessions[session_id] = session
        session.coordinator.register_cleanup(lambda: self._end(session_id))
        if session_id in self._watched:
            self._watch(session)

    def listen(self, session_id: str, events: Sequence[str]) -> None:
        """Forward these events of a session too, from now on, and what its turn waits for now; none: no longer."""
        for undo in self._undo.pop(session_id, ()):
            undo()
        self._watched.pop(session_id, None)
        session = self._sessions.get(session_id)
        if not events:
            if session is not None and (listen := session.coordinator.get_capability(LISTEN)) is not None:
                listen(())
            return
        self._watched[session_id] = events
        if session is not None:
            self._watch(session)
            if session.coordinator.get_capability(LISTEN) is None:  # else the process below tells it
                self._link.tell("hear", event=WAITS, data=find_wait(session), session_id=session_id, parent_id=None)

    def _watch(self, session: AmplifierSession) -> None:
        events, listen = self._watched[session.session_id], session.coordinator.get_capability(LISTEN)
        if listen is not None:
            listen(events)
        known = {"session_id": session.session_id, "parent_id": session.parent_id}

        async def forward(event: str, data: dict[str, Any]) -> None:
            self._link.tell("hear", event=event, data=sanitize_for_json(data), **known)

        hooks = session.coordinator.hooks
        new = [each for each in events if each not in self._listened]
        self._undo[session.session_id] = [hooks.register(each, forward, _AFTER_OWN, "watcher") for each in new]

    def _end(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._link.tell("end_session", session_id=session_id)


_AFTER_OWN = 999_999
