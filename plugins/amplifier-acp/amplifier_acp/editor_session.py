"""Hold one session for the editor: open it, take its turns, stop them, change its options, end it.

    stored ──open──▶ open ──prompt──▶ busy ──▶ open ──close──▶ stored
       └── its bundle is not trusted: it is asked for at the first prompt

The conversation lives in an event loop of its own, in a thread of its own: a tool that blocks holds up its session, and
neither the editor nor the other sessions.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from amplifier_core.errors import SessionConflict, SessionNotFound

from .approving import EditorApprovals
from .contents import make_text
from .options import (
    CHOSEN,
    DEFAULT,
    MODE,
    MODEL,
    PROVIDER,
    mode_of,
    offered_modes,
    provider_of,
    providers_of,
    show_modes,
    show_options,
    with_mode,
)
from .peer import INVALID_PARAMS, INVALID_REQUEST, RpcError
from .trusting import TrustQuestions, refuse
from .updates import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from amplifier_core.permissions import Mode, Policy
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_foundation.bundle.model import Bundle, PreparedBundle
    from amplifier_foundation.spawning.conversation import Conversation, Turn
    from amplifier_foundation.spawning.own_loops import SessionLoop

    from .contents import Said
    from .handshake import Handshake
    from .opening import BundleOpener, Settle
    from .peer import Peer

T = TypeVar("T")
logger = logging.getLogger(__name__)

GRACE, PATIENCE = 2.0, 3.0
"""Seconds for a stopped turn to end by itself, and then, cancelled, until it is answered for without waiting."""
ENDING = 10.0
"""Seconds for a session to end its modules."""
MODELS_WITHIN = 15.0
"""Seconds for a provider to list its models."""
LONGEST_TITLE = 80


class Surroundings(NamedTuple):
    """What all sessions of an editor share."""

    peer: Peer
    store: SessionStore
    plugins: Plugins
    opener: BundleOpener
    handshake: Handshake


class EditorSession:
    """One session. Its methods are called in the event loop of the editor."""

    def __init__(self, around: Surroundings, record: SessionRecord, *, is_new: bool = False) -> None:
        self.record = record
        self.is_ephemeral = bool(_chosen_of(record).get("ephemeral"))
        self._around = around
        self._serving = asyncio.get_running_loop()
        self._is_new = is_new
        self._lock = asyncio.Lock()
        self._conversation: Conversation | None = None
        self.prepared: PreparedBundle | None = None
        """Its bundle; None before the session is open."""
        self._base: Policy | None = None
        self._own: SessionLoop | None = None
        self._host: concurrent.futures.Future[None] | None = None
        self._closing: asyncio.Event | None = None
        self._turn: asyncio.Task[dict[str, Any]] | None = None
        self._saying: concurrent.futures.Future[Turn] | None = None
        self._task: asyncio.Task[Any] | None = None
        """The turn in its own loop."""
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        """Set when a stopped turn is no longer waited for."""
        self._listing: asyncio.Task[None] | None = None
        self._models: list[str] = []
        self._reporter: Reporter | None = None

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.record.session_id

    @property
    def is_open(self) -> bool:
        """Whether its modules are mounted."""
        return self._conversation is not None

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs, or hangs."""
        return self._turn is not None or (self._saying is not None and not self._saying.done())

    # opening and closing

    async def open(self, settle: Settle = refuse, prepared: PreparedBundle | None = None) -> None:
        """Load the bundle, unless it is given, and mount its modules; idempotent.

        Raises `NotTrusted`, `SessionConflict` for a session of another process, and the errors of bundles.
        """
        async with self._lock:
            if self.is_open:
                return
            from amplifier_foundation.spawn import prepared_bundle
            from amplifier_foundation.spawning.own_loops import SessionLoop

            if prepared is None:
                bundle = await self._around.opener.load(self.record.project, self.record, settle)
                self._prefer(bundle)
                prepared = await prepared_bundle(bundle)
            self._own = SessionLoop()
            opened: concurrent.futures.Future[Conversation] = concurrent.futures.Future()
            self._host = asyncio.run_coroutine_threadsafe(self._live(prepared, opened), self._own.loop)
            try:
                self._conversation = await asyncio.wrap_future(opened)
            except BaseException:
                self._own.end()
                raise
            self.prepared = prepared
        self._listing = asyncio.create_task(self._list_models())

    def _prefer(self, bundle: Bundle) -> None:
        """Prefer the provider and the model that the person has chosen in this session."""
        chosen = _chosen_of(self.record)
        if chosen.get(PROVIDER) or chosen.get(MODEL):
            from amplifier_foundation.bundle.preferring import prefer

            prefer(bundle, chosen.get(PROVIDER), chosen.get(MODEL))

    async def _live(self, prepared: PreparedBundle, opened: concurrent.futures.Future[Conversation]) -> None:
        """Keep the conversation open until the session is closed; this runs in its own loop."""
        from amplifier_foundation.security import read_policy
        from amplifier_foundation.spawning.conversation import open_conversation

        around, folder = self._around, self.record.project
        self._closing = asyncio.Event()
        approvals = EditorApprovals(around.peer, self.id, folder, self._serving)
        try:
            async with open_conversation(
                prepared,
                around.store,
                around.plugins.bound_to(self._serving),
                resume=self.record,
                approval_system=approvals,
                display_system=_Display(self.tell),
                permissions=read_policy(folder),
                attach=self._attach,
            ) as conversation:
                self._hold_to_mode(conversation.session)
                opened.set_result(conversation)
                await self._closing.wait()
        except BaseException as error:
            if opened.done():
                logger.warning("session %s: %s: %s", self.id, type(error).__name__, error)
            else:
                opened.set_exception(error)

    def _hold_to_mode(self, session: AmplifierSession) -> None:
        gate = session.coordinator.permissions
        if gate is None:
            return
        self._base = gate.policy
        mode = _chosen_of(self.record).get(MODE)
        if mode in offered_modes(self._base):
            gate.policy = with_mode(self._base, mode)

    def _attach(self, session: AmplifierSession) -> None:
        """Report a session: this one, or one below it to an editor that understands those."""
        if session.session_id != self.id and not self._around.handshake.shows_children:
            return
        reporter = Reporter(session, self.record.project, self._tell)
        if session.session_id == self.id:
            self._reporter = reporter
        reporter.attach()

    async def close(self) -> None:
        """Stop a running turn and end the session; what nobody needs is deleted."""
        if self.is_busy:
            self.stop()
            if self._turn is not None:
                await asyncio.wait({self._turn}, timeout=GRACE + PATIENCE)
        if self._listing is not None:
            self._listing.cancel()
        async with self._lock:
            await self._end()
        if self.is_ephemeral or (self._is_new and not await self._has_messages()):
            with suppress(SessionNotFound):
                await self._around.store.delete(self.id)

    async def _end(self) -> None:
        """End the conversation and its loop."""
        own, host, closing = self._own, self._host, self._closing
        self._conversation = self._own = self._host = self._closing = None
        if own is None or host is None:
            return
        if closing is not None:
            own.call(closing.set)
        with suppress(Exception):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(host)), ENDING)
        own.end()

    async def _has_messages(self) -> bool:
        try:
            return (await self._around.store.get(self.id)).message_count > (self.record.fork_at or 0)
        except SessionNotFound:
            return False

    # turns

    async def prompt(self, said: Said) -> dict[str, Any]:
        """Take a turn, and return the answer of the protocol. Raises `RpcError` while another one runs."""
        if self.is_busy:
            raise RpcError(INVALID_REQUEST, f"a prompt runs in session '{self.id}'; cancel it, or wait for its end")
        self._turn = turn = asyncio.create_task(self._take_turn(said))
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            self.stop()
            return await turn
        finally:
            self._turn = None

    def stop(self) -> None:
        """Stop the running turn: it is asked, then cancelled, then no longer waited for."""
        if self._turn is None or self._stopping is not None:
            return
        if self._saying is None:
            self._turn.cancel()  # it is not open yet; a question about trust is withdrawn
        else:
            self._stopping = asyncio.create_task(self._stop(self._saying))

    async def _stop(self, saying: concurrent.futures.Future[Turn]) -> None:
        conversation, own = self._conversation, self._own
        assert conversation is not None and own is not None  # a turn runs
        asyncio.run_coroutine_threadsafe(conversation.session.coordinator.request_cancel(immediate=True), own.loop)
        ended = asyncio.ensure_future(asyncio.wrap_future(saying))
        await asyncio.wait({ended}, timeout=GRACE)
        if self._task is not None:
            own.call(self._task.cancel)
        await asyncio.wait({ended}, timeout=PATIENCE)
        self._stopped.set()

    async def _take_turn(self, said: Said) -> dict[str, Any]:
        try:
            await self.open(TrustQuestions(self._around.peer, self.id).settle)
            conversation, own = self._conversation, self._own
            assert conversation is not None and own is not None  # it is open
            before = conversation.usage
            self._saying = saying = asyncio.run_coroutine_threadsafe(self._say(conversation, said), own.loop)
            turn = await self._wait_for(saying)
        except asyncio.CancelledError:
            return {"stopReason": "cancelled"}
        except SessionConflict as error:
            raise RpcError(INVALID_REQUEST, str(error), {"sessionId": self.id}) from error
        finally:
            if self._stopping is not None:
                self._stopping.cancel()
                self._stopping = None
        if turn is None or turn.status == "cancelled":
            return {"stopReason": "cancelled"}
        self._is_new = False
        await self._tell_end(said)
        reason = await self._read_stop_reason() if turn.error is not None else "end_turn"
        return {"stopReason": reason, "usage": _show_usage(conversation.usage.since(before))}

    async def _say(self, conversation: Conversation, said: Said) -> Turn:
        self._task = asyncio.current_task()
        return await conversation.say(said.text, said.attached)

    async def _wait_for(self, saying: concurrent.futures.Future[Turn]) -> Turn | None:
        """Return the turn; None: it was stopped, and may hang."""
        self._stopped = asyncio.Event()
        ended = asyncio.create_task(_await(saying))
        given_up = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait([ended, given_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            given_up.cancel()
        return ended.result() if ended.done() and not ended.cancelled() else None

    async def _read_stop_reason(self) -> str:
        """Return why an answer is unfinished, as the last message says."""
        record = await self._around.store.get(self.id)
        last = await self._around.store.read(self.id, max(0, record.message_count - 1))
        reason = ((last[0].get("metadata") or {}) if last else {}).get("finish_reason")
        known = {"length": "max_tokens", "refusal": "refusal", "content_filter": "refusal"}
        return known.get(str(reason), "end_turn")

    async def _tell_end(self, said: Said) -> None:
        """Tell the title, the time of the last change, and what was used."""
        conversation = self._conversation
        if conversation is None:
            return
        record = await self._around.store.get(self.id)
        title = make_title(record.name, record.bundle, said.text if conversation.turn_count == 1 else "")
        info = {"sessionUpdate": "session_info_update", "updatedAt": record.updated.isoformat()}
        self.tell({**info, "title": title} if title else info)
        window = _read_info(provider_of(conversation.session), "context_window")
        if isinstance(window, int) and self._reporter is not None:
            told = {"sessionUpdate": "usage_update", "used": self._reporter.used, "size": window}
            cost = conversation.total.cost_usd
            self.tell({**told, "cost": {"amount": float(cost), "currency": "USD"}} if cost is not None else told)

    # options

    def show(self) -> dict[str, Any]:
        """Return the modes and the options as answers have them."""
        chosen = _chosen_of(self.record)
        session = self._conversation.session if self._conversation is not None else None
        gate = session.coordinator.permissions if session is not None else None
        offered = offered_modes(self._base) if self._base is not None else ["auto", "ask", "read-only"]
        current = mode_of(gate.policy) if gate is not None else chosen.get(MODE, "auto")
        modes = show_modes(current, offered)
        providers = providers_of(self.prepared.bundle) if self.prepared is not None else []
        model = chosen.get(MODEL) or (_read_info(provider_of(session), "model") if session is not None else None)
        options = show_options(modes, providers[0] if providers else "", providers, str(model or DEFAULT), self._models)
        return {"modes": modes, "configOptions": options}

    async def set_option(self, option: str, value: Any) -> None:
        """Choose a mode, a provider or a model; the choice stays with the session. Raises `RpcError`."""
        await self.open(TrustQuestions(self._around.peer, self.id).settle)
        known = {each["id"]: [one["value"] for one in each["options"]] for each in self.show()["configOptions"]}
        if option not in known:
            raise RpcError(INVALID_PARAMS, f"configId: there is no option '{option}'", {"configId": option})
        if not isinstance(value, str) or (value not in known[option] and option != MODEL):
            raise RpcError(INVALID_PARAMS, f"value: {option} can be {', '.join(known[option])}, not {value!r}")
        if option == MODE:
            await self._choose({MODE: value})
            self._set_mode(value)  # type: ignore[arg-type]  # it is one of the offered
            return
        if self.is_busy:
            raise RpcError(INVALID_REQUEST, f"a prompt runs in session '{self.id}'; change its {option} afterwards")
        changes = {MODEL: None if value == DEFAULT else value} if option == MODEL else {PROVIDER: value, MODEL: None}
        await self._choose(changes)
        async with self._lock:
            await self._end()
        self._models = []
        await self.open(TrustQuestions(self._around.peer, self.id).settle)

    def _set_mode(self, mode: Mode) -> None:
        conversation, base = self._conversation, self._base
        gate = conversation.session.coordinator.permissions if conversation is not None else None
        if gate is not None and base is not None:
            gate.policy = with_mode(base, mode)
        self.tell({"sessionUpdate": "current_mode_update", "currentModeId": mode})

    async def _choose(self, changes: dict[str, Any]) -> None:
        from dataclasses import replace

        chosen = {name: value for name, value in {**_chosen_of(self.record), **changes}.items() if value}
        assert self._conversation is not None
        await self.call(self._conversation.keep(CHOSEN, chosen))
        self.record = replace(self.record, metadata={**self.record.metadata, CHOSEN: chosen})

    async def keep(self) -> None:
        """Keep a fork that would be deleted when it is closed."""
        await self.open(TrustQuestions(self._around.peer, self.id).settle)
        self.is_ephemeral = False
        await self._choose({"ephemeral": None})

    async def _list_models(self) -> None:
        """Ask the provider for its models, and tell the editor; whatever fails: the option keeps what is known."""
        conversation = self._conversation
        provider = provider_of(conversation.session) if conversation is not None else None
        if provider is None or not hasattr(provider, "list_models"):
            return
        with suppress(Exception):
            async with asyncio.timeout(MODELS_WITHIN):
                found = await self.call(provider.list_models())
            self._models = [str(getattr(each, "id", each)) for each in found]
            self.tell({"sessionUpdate": "config_option_update", "configOptions": self.show()["configOptions"]})

    # describing

    async def describe_cost(self) -> str:
        """Return what the session has used, as a sentence."""
        await self.open(TrustQuestions(self._around.peer, self.id).settle)
        assert self._conversation is not None
        used = self._conversation.total
        cost = f", ${used.cost_usd:.4f}" if used.cost_usd is not None else ""
        return f"{used.requests} requests, {used.input_tokens} tokens in, {used.output_tokens} out{cost}."

    async def describe_agents(self) -> str:
        """Return the agents of the bundle as a list."""
        await self.open(TrustQuestions(self._around.peer, self.id).settle)
        assert self.prepared is not None
        agents = {name: agent for name, agent in self.prepared.bundle.agents.items() if isinstance(agent, dict)}
        listed = [f"* {name}: {agent.get('description') or ''}".rstrip(": ") for name, agent in agents.items()]
        return "\n".join(listed) or "The bundle has no agents."

    # telling

    def tell(self, update: dict[str, Any]) -> None:
        """Send an update of this session; any thread may call this."""
        self._tell(self.id, update)

    def _tell(self, session_id: str, update: dict[str, Any]) -> None:
        self._around.peer.notify("session/update", {"sessionId": session_id, "update": update})

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something of the session in its own loop."""
        assert self._own is not None  # it is open
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._own.loop))


class _Display:
    """Shows the messages of a session's hooks among its thoughts."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        """Show `message`."""
        from amplifier_core.utils.secrets import redact_text

        text = f"{level}: {message}\n" if level != "info" else f"{message}\n"
        self._tell({"sessionUpdate": "agent_thought_chunk", "content": make_text(redact_text(text))})


def make_title(name: str, bundle: str, prompt: str) -> str:
    """Return the title of a session: its name where a person gave one, else the beginning of its first prompt."""
    if name and name != bundle:
        return name
    line = " ".join(prompt.split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1] + "…"


def _chosen_of(record: SessionRecord) -> dict[str, Any]:
    chosen = record.metadata.get(CHOSEN)
    return dict(chosen) if isinstance(chosen, dict) else {}


def _read_info(provider: Any, name: str) -> Any:
    with suppress(Exception):  # it is the code of others
        return provider.get_info().defaults.get(name)
    return None


def _show_usage(usage: Any) -> dict[str, Any]:
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "cachedReadTokens": usage.cache_read_tokens,
        "cachedWriteTokens": usage.cache_write_tokens,
    }


async def _await(future: concurrent.futures.Future[T]) -> T:
    return await asyncio.wrap_future(future)
