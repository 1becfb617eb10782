"""Hold one session for the editor: open it, take its turns, stop them, change its options, end it.

stored ──open──▶ open ──prompt──▶ busy ──▶ open ──close──▶ stored
   └── its bundle is not trusted: it is asked for at the first prompt
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from amplifier_core.errors import SessionConflict, SessionNotFound
from amplifier_foundation.spawning.hosting import GRACE, PATIENCE, Host, RunningTurn
from amplifier_foundation.spawning.opening import refuse

from .approving import EditorApprovals
from .client_tools import lend
from .commands import SessionCommands
from .contents import make_safe_text, make_title, name_kinds
from .options import (
    CHOSEN,
    DEFAULT,
    EPHEMERAL,
    MODE,
    MODEL,
    PROVIDER,
    chosen_of,
    mode_of,
    offered_modes,
    provider_of,
    providers_of,
    read_info,
    show_modes,
    show_options,
    takes_images,
    with_mode,
)
from .peer import INVALID_PARAMS, INVALID_REQUEST, RpcError
from .trusting import TrustQuestions
from .updates import Reporter

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from amplifier_core.permissions import Mode, PermissionGate, Policy
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_foundation.bundle.model import PreparedBundle
    from amplifier_foundation.sessions.usage import Usage
    from amplifier_foundation.spawning.conversation import Conversation
    from amplifier_foundation.spawning.opening import BundleOpener, Settle

    from .contents import Said
    from .handshake import Handshake
    from .peer import Peer

MODELS_WITHIN = 15.0
"""Seconds for a provider to list its models."""
SOON = 0.05
"""Seconds from the opening of a session to its further facts: the request that opened it is answered first."""
_STOP_REASONS = {
    **dict.fromkeys(("length", "context_length"), "max_tokens"),
    **dict.fromkeys(("refusal", "content_filter"), "refusal"),
    "max_iterations": "max_turn_requests",
}
"""The protocol's `stopReason` for that of an incomplete turn."""


class Surroundings(NamedTuple):
    """What all sessions of an editor share."""

    peer: Peer
    store: SessionStore
    plugins: Plugins
    opener: BundleOpener
    handshake: Handshake


class EditorSession:
    """One session. Its methods are called in the event loop of the editor."""

    def __init__(
        self, around: Surroundings, record: SessionRecord, servers: dict[str, Any], *, is_new: bool = False
    ) -> None:
        self.record = record
        self.servers = servers
        """The MCP servers of the editor by name."""
        self.prepared: PreparedBundle | None = None
        """Its bundle; None before the session is open."""
        self._around = around
        self._serving = asyncio.get_running_loop()
        self._is_new = is_new
        self._is_closed = False
        self._lock = asyncio.Lock()
        self._host: Host | None = None
        self._conversation: Conversation | None = None
        self._reporter: Reporter | None = None
        self._base: Policy | None = None
        """Its permissions without the mode that the person has chosen."""
        self._gates_below: WeakSet[PermissionGate] = WeakSet()
        """Those of the sessions below it."""
        self._prompting: asyncio.Task[dict[str, Any]] | None = None
        self._turn: RunningTurn | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._models: list[str] = []
        self.commands = SessionCommands(self.id, self.tell)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.record.session_id

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs, or hangs."""
        return self._prompting is not None or (self._turn is not None and not self._turn.is_done)

    # opening and closing

    async def open(self, settle: Settle = refuse, prepared: PreparedBundle | None = None) -> Conversation:
        """Load the bundle, unless it is given, and mount its modules; idempotent.

        Raises `NotTrusted`, `SessionConflict` for a session of another process, and the errors of bundles.
        """
        async with self._lock:
            if self._is_closed:
                raise RpcError(INVALID_REQUEST, f"session '{self.id}' was closed; load it first")
            if self._conversation is not None:
                return self._conversation
            self.prepared = prepared or await self._prepare(settle)
            host = Host()
            self._conversation = conversation = await host.start(self._open_conversation)
            self._host = host
            self._listing = asyncio.create_task(self._list_offers(conversation, host))
        return conversation

    async def open_asking(self) -> Conversation:
        """Open the session; the person is asked about a bundle that is not trusted."""
        return await self.open(TrustQuestions(self._around.peer, self.id).settle)

    async def _prepare(self, settle: Settle) -> PreparedBundle:
        """Load the bundle, with the provider and the model that the person has chosen in this session."""
        from amplifier_foundation.bundle.preferring import prefer
        from amplifier_foundation.spawn import prepared_bundle

        from .mcp_servers import add_module

        bundle = await self._around.opener.load(self.record.project, self.record, settle)
        add_module(bundle, self.servers)
        chosen = chosen_of(self.record)
        if chosen.get(PROVIDER) or chosen.get(MODEL):
            prefer(bundle, chosen.get(PROVIDER), chosen.get(MODEL))
        return await prepared_bundle(bundle)

    def _open_conversation(self) -> AbstractAsyncContextManager[Conversation]:
        from amplifier_foundation.security import read_policy
        from amplifier_foundation.spawning.conversation import open_conversation

        from .mcp_servers import CAPABILITY

        around, folder = self._around, self.record.project
        assert self.prepared is not None  # it is opened with it
        return open_conversation(
            self.prepared,
            around.store,
            around.plugins.bound_to(self._serving),
            resume=self.record,
            approval_system=EditorApprovals(around.peer, self.id, folder, self._serving),
            display_system=_Display(self),
            permissions=read_policy(folder),
            attach=self._attach,
            capabilities={CAPABILITY: self.servers} if self.servers else None,
        )

    def _attach(self, session: AmplifierSession) -> None:
        """Report a session: this one, or one below it to an editor that understands those."""
        is_top = session.session_id == self.id
        lend(session, self.id, self._around, self._serving)
        gate = session.coordinator.permissions
        if gate is not None and not is_top:
            self._gates_below.add(gate)
        if not is_top and not self._around.handshake.shows_children:
            return
        reporter = Reporter(session, self.record.project, self._around.peer)
        reporter.attach()
        if not is_top:
            return
        self._reporter = reporter
        mode = chosen_of(self.record).get(MODE)
        self._base = gate.policy if gate is not None else None
        if gate is not None and mode in offered_modes(gate.policy):
            gate.policy = with_mode(gate.policy, mode)

    async def close(self) -> None:
        """Stop a running turn and end the session, for good; what nobody needs is deleted."""
        self._is_closed = True
        if self._prompting is not None:
            self.stop()
            await asyncio.wait({self._prompting}, timeout=GRACE + PATIENCE)
        async with self._lock:
            await self._end()
        if chosen_of(self.record).get(EPHEMERAL) or (self._is_new and not await self._has_messages()):
            with suppress(SessionNotFound):
                await self._around.store.delete(self.id)

    async def _end(self) -> None:
        host, self._host, self._conversation = self._host, None, None
        if self._listing is not None:
            self._listing.cancel()
        if host is not None:
            await host.end()

    async def _has_messages(self) -> bool:
        with suppress(SessionNotFound):
            return (await self._around.store.get(self.id)).message_count > 0
        return False

    # turns

    async def prompt(self, said: Said) -> dict[str, Any]:
        """Take a turn, and return the answer of the protocol. Raises `RpcError` while another one runs."""
        if self.is_busy:
            raise RpcError(INVALID_REQUEST, f"a prompt runs in session '{self.id}'; cancel it, or wait for its end")
        self._prompting = prompting = asyncio.create_task(self._take_turn(said))
        while not prompting.done():
            try:
                await asyncio.wait({prompting})
            except asyncio.CancelledError:  # of the request, or of everything
                self.stop()
        self._prompting = None
        return {"stopReason": "cancelled"} if prompting.cancelled() else prompting.result()

    def stop(self) -> None:
        """Stop the running turn."""
        if self._prompting is None or self._stopping is not None:
            return
        if self._turn is None or self._turn.is_done:
            self._prompting.cancel()  # it is not open yet; a question about trust is withdrawn
        else:
            self._stopping = asyncio.create_task(self._turn.stop())

    async def _take_turn(self, said: Said) -> dict[str, Any]:
        try:
            conversation = await self.open_asking()
            assert self._host is not None  # it is open
            if said.attached and not takes_images(provider_of(conversation.session)):
                raise RpcError(INVALID_PARAMS, f"prompt: the provider of this session sees no {name_kinds(said)}")
            if not any(said) and not await self._host.call(conversation.is_cut()):
                raise RpcError(INVALID_REQUEST, "the last turn was not interrupted; give a prompt")
            expanded = await self.commands.expand(conversation, self._host, said)
            before = conversation.usage
            self._turn = RunningTurn(self._host, conversation, expanded.text, expanded.attached)
            turn = await self._turn.wait()
        except asyncio.CancelledError:
            return {"stopReason": "cancelled"}
        except SessionConflict as error:
            raise RpcError(INVALID_REQUEST, str(error), {"sessionId": self.id}) from error
        finally:
            if self._reporter is not None:
                self._reporter.flush()
            if self._stopping is not None:
                self._stopping.cancel()
                self._stopping = None
        if turn is None or turn.status == "cancelled":
            return {"stopReason": "cancelled"}
        await self._tell_end(conversation, said)
        await self.commands.refresh(conversation, self._host)
        if turn.error is not None:
            told = f"\n\n{turn.error}" if turn.output else turn.error
            self.tell({"sessionUpdate": "agent_message_chunk", "content": make_safe_text(told)})
        reason = _STOP_REASONS.get(turn.stop_reason or "", "end_turn")
        return {"stopReason": reason, "usage": _show_usage(conversation.usage.since(before))}

    async def _tell_end(self, conversation: Conversation, said: Said) -> None:
        """Tell the title, the time of the last change, and what was used."""
        record = await self._around.store.get(self.id)
        title = make_title(record.name, record.bundle, said.text if conversation.turn_count == 1 else "")
        info = {"sessionUpdate": "session_info_update", "updatedAt": record.updated.isoformat()}
        self.tell({**info, "title": title} if title else info)
        window = read_info(provider_of(conversation.session), "context_window")
        if isinstance(window, int) and self._reporter is not None:
            told: dict[str, Any] = {"sessionUpdate": "usage_update", "used": self._reporter.used, "size": window}
            if (cost := conversation.total.cost_usd) is not None:
                told["cost"] = {"amount": float(cost), "currency": "USD"}
            self.tell(told)

    # options

    def show(self) -> dict[str, Any]:
        """Return the modes and the options as answers have them."""
        chosen = chosen_of(self.record)
        session = self._conversation.session if self._conversation is not None else None
        gate = session.coordinator.permissions if session is not None else None
        current = mode_of(gate.policy) if gate is not None else chosen.get(MODE, "auto")
        modes = show_modes(current, offered_modes(self._base))
        providers = providers_of(self.prepared.bundle) if self.prepared is not None else []
        model = chosen.get(MODEL) or (read_info(provider_of(session), "model") if session is not None else None)
        return {"modes": modes, "configOptions": show_options(modes, providers, str(model or DEFAULT), self._models)}

    async def set_option(self, option: str, value: Any, member: str = "value") -> None:
        """Choose a mode, a provider or a model; the choice stays with the session.

        Raises `RpcError`, which names the `member` of the request with the value.
        """
        conversation = await self.open_asking()
        known = {each["id"]: [one["value"] for one in each["options"]] for each in self.show()["configOptions"]}
        if option not in known:
            raise RpcError(INVALID_PARAMS, f"configId: there is no option '{option}'", {"configId": option})
        if not isinstance(value, str) or (value not in known[option] and option != MODEL):
            raise RpcError(INVALID_PARAMS, f"{member}: {option} can be {', '.join(known[option])}, not {value!r}")
        if option == MODE:
            await self._choose({MODE: value})
            self._set_mode(conversation, value)  # type: ignore[arg-type]  # it is one of the offered
            return
        if self.is_busy:
            raise RpcError(INVALID_REQUEST, f"a prompt runs in session '{self.id}'; change its {option} afterwards")
        changes = {MODEL: None if value == DEFAULT else value} if option == MODEL else {PROVIDER: value, MODEL: None}
        await self._choose(changes)
        async with self._lock:
            await self._end()
            self._models = []
        await self.open_asking()

    def _set_mode(self, conversation: Conversation, mode: Mode) -> None:
        gate = conversation.session.coordinator.permissions
        if gate is not None and self._base is not None:
            gate.policy = with_mode(self._base, mode)
        for below in [*self._gates_below]:
            below.policy = with_mode(below.policy, mode)
        self.tell({"sessionUpdate": "current_mode_update", "currentModeId": mode})

    async def keep(self) -> None:
        """Keep a fork that would be deleted when it is closed."""
        await self.open_asking()
        await self._choose({EPHEMERAL: None})

    async def _choose(self, changes: dict[str, Any]) -> None:
        assert self._host is not None and self._conversation is not None  # it is open
        chosen = {name: value for name, value in {**chosen_of(self.record), **changes}.items() if value}
        await self._host.call(self._conversation.keep(CHOSEN, chosen))
        self.record = replace(self.record, metadata={**self.record.metadata, CHOSEN: chosen})

    async def _list_offers(self, conversation: Conversation, host: Host) -> None:
        """Tell the editor the commands and the models; whatever fails: the option keeps what is known."""
        provider = provider_of(conversation.session)
        await asyncio.sleep(SOON)
        with suppress(Exception):
            await self.commands.refresh(conversation, host)
            async with asyncio.timeout(MODELS_WITHIN):
                found = await host.call(provider.list_models())
            self._models = [str(getattr(each, "id", each)) for each in found]
            self.tell({"sessionUpdate": "config_option_update", "configOptions": self.show()["configOptions"]})

    # describing

    async def describe_cost(self) -> str:
        """Return what the session has used, as a sentence."""
        used = (await self.open_asking()).total
        cost = f", ${used.cost_usd:.4f}" if used.cost_usd is not None else ""
        return f"{used.requests} requests, {used.input_tokens} tokens in, {used.output_tokens} out{cost}."

    async def describe_agents(self) -> str:
        """Return the agents of the bundle as a list."""
        await self.open_asking()
        assert self.prepared is not None  # it is open
        agents = {name: agent for name, agent in self.prepared.bundle.agents.items() if isinstance(agent, dict)}
        listed = [f"* {name}: {agent.get('description') or ''}".rstrip(": ") for name, agent in agents.items()]
        return "\n".join(listed) or "The bundle has no agents."

    def tell(self, update: dict[str, Any]) -> None:
        """Send an update of this session; any thread may call this."""
        self._around.peer.update(self.id, update)


class _Display:
    """Shows the messages of a session's hooks among its thoughts."""

    def __init__(self, session: EditorSession) -> None:
        self._session = session

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        """Show `message`."""
        text = f"{level}: {message}\n" if level != "info" else f"{message}\n"
        self._session.tell({"sessionUpdate": "agent_thought_chunk", "content": make_safe_text(text)})


def _show_usage(usage: Usage) -> dict[str, Any]:
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "cachedReadTokens": usage.cache_read_tokens,
        "cachedWriteTokens": usage.cache_write_tokens,
    }
