"""Run one agent session: its modules, its history, its life and its forks."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from . import events
from .cancellation import as_failure
from .coordinator import ModuleCoordinator
from .errors import SessionExists
from .forking import ask_to_fork
from .loader import ModuleLoader, attach_loader, detach_loader
from .mounting import Mounting, initialize_session
from .orchestrating import copy_history, refuse_answer, start_turn
from .raised import note_origin
from .transcript import Transcript
from .utils import redact_secrets
from .utils.secrets import redact_error, redact_result

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from .approval import ApprovalSystem
    from .display import DisplaySystem
    from .models import SessionStatus
    from .mounting import LoadFailure
    from .permissions import PermissionGate
    from .plugins import Plugins

logger = logging.getLogger(__name__)

_BEFORE_ALL = -1_000_000

__all__ = [
    "AmplifierSession",
    "ModuleLoader",
    "SessionState",
    "SessionStatus",
    "initialize_session",
    "redact_secrets",
]

SessionState = Literal["running", "completed", "failed", "cancelled"]


def __getattr__(name: str) -> object:
    """Import `SessionStatus` at its first use: modules expect it here."""
    if name != "SessionStatus":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .models import SessionStatus

    return SessionStatus


class AmplifierSession:
    """A session made from a mount plan.

    `config` must name `session.orchestrator` and `session.context`. `parent_id` names the session's maker: it is in
    every event of the session, and `initialize` then emits `session:fork`. `plugins` are asked before a fork or a
    spawn, and told afterwards. With `strict`, a failing mount ends the session. `permissions` hold for all tool calls.
    """

    def __init__(
        self,
        config: dict[str, Any],
        loader: ModuleLoader | None = None,
        session_id: str | None = None,
        parent_id: str | None = None,
        approval_system: ApprovalSystem | None = None,
        display_system: DisplaySystem | None = None,
        is_resumed: bool = False,
        *,
        transcript: Transcript | None = None,
        plugins: Plugins | None = None,
        strict: bool = False,
        permissions: PermissionGate | None = None,
    ) -> None:
        _require_session_section(config)
        self.config = config
        self.session_id = session_id or str(uuid4())
        self.parent_id = parent_id
        self.is_resumed = is_resumed
        self.initialized = False
        self.load_failures: list[LoadFailure] = []
        self._without_key: list[str] = []
        self.state: SessionState = "running"
        self.started_at = datetime.now(UTC)
        self.ended_at: datetime | None = None
        self.last_error: BaseException | None = None
        self.children: list[AmplifierSession] = []
        self._strict = strict
        self.plugins = plugins
        self._fork_numbers = count(1)
        self._fork_ids: dict[str, None] = {}  # a set would be the largest thing in an idle session
        self._announced = False
        self._ended = False
        self.coordinator = ModuleCoordinator(self, approval_system, display_system)
        self.loader = loader if loader is not None else ModuleLoader()
        self.coordinator.loader = self.loader
        if permissions is not None:
            self.coordinator.guard(permissions)
        self.coordinator.hooks.set_default_fields(session_id=self.session_id, parent_id=parent_id)
        shared = transcript if transcript is not None else Transcript()
        self.coordinator.register_capability("session.transcript", shared)

    @property
    def transcript(self) -> Transcript:
        """The history; a context with a new history offers it as the capability `session.transcript`."""
        transcript: Transcript = self.coordinator.get_capability("session.transcript")
        return transcript

    @property
    def status(self) -> SessionStatus:
        """The progress of the session, counted in its history.

        The kernel counts no tokens and no cost: providers contribute them on the channel `session.cost`.
        """
        from .session_status import read_status

        return read_status(self)

    # life

    async def initialize(self, *, strict: bool | None = None) -> None:
        """Mount the modules; idempotent.

        Without orchestrator or context there is no session: `RuntimeError`, with the cause. Any other failing module is
        left out and listed in `load_failures`; `module:load_failed` tells it to the hooks once all are mounted. With
        `strict` (default: the session's own) it ends the session too. Raises `ValueError` for two entries of one
        provider without an `instance_id`.
        """
        if self.initialized:
            return
        mounting = Mounting(self.coordinator, self.loader, self.config)
        self.load_failures, self._without_key = mounting.failures, mounting.without_key
        attach_loader(self.loader, self.coordinator)
        try:
            await mounting.mount_all(strict=self._strict if strict is None else strict)
            self._refuse_without_guards()
            await self._seed_context()
            if (self.config["session"].get("redact") or {}).get("tool_results"):
                self.coordinator.hooks.register(events.TOOL_POST, redact_result, _BEFORE_ALL, "redact")
            self.initialized = True
            await self._announce_mounted(mounting)
        except BaseException as error:
            self.initialized = False
            if isinstance(error, Exception):
                note_origin(error, self.coordinator.mount_points)
            await self._undo_mounts()
            raise

    def _refuse_without_guards(self) -> None:
        """Refuse every tool call when a hook was not mounted: it may be a guard."""
        gate = self.coordinator.permissions
        if gate is not None and (missing := [each for each in self.load_failures if each.kind == "hook"]):
            gate.refusal = f"the hook '{missing[0].module_id}' was not mounted, and may be a guard: {missing[0].error}"

    async def _seed_context(self) -> None:
        """Hand the history to a context with messages of its own."""
        context = self.coordinator.get("context")
        if len(self.transcript) and getattr(context, "transcript", None) is not self.transcript:
            await context.set_messages([dict(message) for message in self.transcript])

    async def _announce_mounted(self, mounting: Mounting) -> None:
        for event, data in await mounting.make_ready():
            await self.coordinator.hooks.emit(event, data)
        if self.parent_id is not None and self.coordinator.hooks.has_handlers(events.SESSION_FORK):
            fork = {"parent": self.parent_id, **self._identity(), **self._plan()}
            await self.coordinator.hooks.emit(events.SESSION_FORK, fork)

    def _identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = {"session_id": self.session_id, "parent_id": self.parent_id}
        metadata = self.config["session"].get("metadata")
        return {**identity, "metadata": metadata} if metadata else identity

    def _plan(self) -> dict[str, Any]:
        """Return the plan without its secrets for hooks if it allows them to see it (`session.raw`)."""
        return {"raw": redact_secrets(self.config)} if self.config["session"].get("raw") else {}

    async def execute(self, prompt: str) -> str:
        """Run one turn and return its final text; an uninitialised session is initialised first.

        Await each turn before the next one: two at once mix their messages in one history.
        The orchestrator's exceptions are raised, without the secrets in their texts (`utils.secrets`). Raises
        `NoProviderMounted` (a `RuntimeError`) without a provider, and `TypeError` for a prompt that is not text.
        """
        if not isinstance(prompt, str):
            raise TypeError(f"prompt: must be text, not {type(prompt).__name__}")
        if not self.initialized:
            await self.initialize()
        if not self._announced:
            await self._announce_start()
        token = self.coordinator.cancellation
        self.state = "running"
        self.coordinator.reset_turn()
        try:
            answer = await start_turn(self, prompt, self._without_key)
            if not isinstance(answer, str):
                raise refuse_answer(self, answer)
        except BaseException as raised:
            is_meant = token.is_cancelled or isinstance(raised, SystemExit)  # a program may exit at a signal
            error = raised if is_meant else as_failure(raised)
            if isinstance(error, Exception):
                redact_error(error)
                note_origin(error, self.coordinator.mount_points)
            self.last_error = error
            self.state = "cancelled" if token.is_cancelled or not isinstance(error, Exception) else "failed"
            if token.is_cancelled:
                await self._announce_cancelled(str(error))
            if error is raised:
                raise
            raise error from raised
        self.state = "cancelled" if token.is_cancelled else "completed"
        if token.is_cancelled:
            await self._announce_cancelled()
        return answer

    async def _announce_start(self) -> None:
        self._announced = True
        event = events.SESSION_RESUME if self.is_resumed else events.SESSION_START
        if self.coordinator.hooks.has_handlers(event):
            await self.coordinator.hooks.emit(event, self._identity())
        if plan := self._plan():
            await self.coordinator.hooks.emit("session:config", {"session_id": self.session_id, **plan})

    async def _announce_cancelled(self, error: str = "") -> None:
        data: dict[str, Any] = {"was_immediate": self.coordinator.cancellation.is_immediate}
        if error:
            data["error"] = error
        await self.coordinator.hooks.emit(events.CANCEL_COMPLETED, data)

    async def cleanup(self, cascade_children: bool = False) -> None:
        """End the session: tell its hooks (`session:end`), then undo its mounts; idempotent.

        With `cascade_children`, its forks are ended first, the last one first. The exit or cancellation of one of them
        is raised when all have ended.
        """
        if not cascade_children or not self.children:
            await self._end()
            return
        async with AsyncExitStack() as endings:
            endings.push_async_callback(self._end)
            for child in self.children:
                endings.push_async_callback(child.cleanup, cascade_children=True)

    async def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.ended_at = datetime.now(UTC)
        if self.state == "running":
            self.state = "cancelled" if self._announced else "completed"  # a turn was cut, or there was none
        try:
            if self.initialized and self.coordinator.hooks.has_handlers(events.SESSION_END):
                end = {"session_id": self.session_id, "status": self.state}
                await self.coordinator.hooks.emit(events.SESSION_END, end)
        finally:
            await self._undo_mounts()

    async def _undo_mounts(self) -> None:
        """Clean up the modules, then the loader, also when the modules fail."""
        try:
            await self.coordinator.cleanup()
        finally:
            detach_loader(self.loader, self.coordinator)

    def release(self) -> None:
        """Let go of the modules of a session that has ended; its history, its state and its capabilities stay.

        Modules refer to their session, and it to them. Unless somebody parts them, all of it stays in memory until
        Python looks for such rings, which takes a tenth of the time of a short session.
        """
        self.coordinator.release()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup()

    # forks

    async def fork(
        self,
        *,
        config: dict[str, Any] | None = None,
        session_id: str | None = None,
        share_history: bool = True,
        at: int | None = None,
        initialize: bool = True,
    ) -> AmplifierSession:
        """Make a child with the first `at` messages (None: all) in common; the cost does not depend on their number.

        The child never has a tool call without its result: a running turn is forked before the call. It has this
        session's loader, this config unless another is given, and the id `<parent>-fork-<n>` unless one is given.
        `initialize=False` leaves time to register capabilities; the child's `initialize` emits `session:fork`. Raises
        `ForkRefused` when a plugin refuses, `IndexError` when `at` lies outside the history, and `SessionExists` when
        this session, its parent or an earlier fork of it has the id.
        """
        shared = (await self.history()).fork(at) if share_history else Transcript()
        shared = shared.fork(shared.settled_length())
        child_id = session_id or self._next_fork_id()
        if child_id in (self.session_id, self.parent_id) or child_id in self._fork_ids:
            raise SessionExists(child_id)
        self._fork_ids[child_id] = None  # before the first wait: a fork meanwhile is refused
        try:
            async with ask_to_fork(self.plugins, self.session_id, child_id, len(shared)):
                child = self._child(child_id, config if config is not None else self.config, shared)
                self._adopt(child)
                if initialize:
                    await child.initialize()
        except BaseException:
            del self._fork_ids[child_id]
            raise
        return child

    async def history(self) -> Transcript:
        """Return the session's `transcript`, or a copy of the messages of a context with messages of its own.

        Raises `TypeError` for a context that returns something else than messages.
        """
        context, transcript = self.coordinator.get("context"), self.transcript
        if context is None or getattr(context, "transcript", None) is transcript:
            return transcript
        return await copy_history(context)

    def _adopt(self, child: AmplifierSession) -> None:
        token = child.coordinator.cancellation
        self.children.append(child)
        self.coordinator.cancellation.register_child(token)

        def let_go() -> None:
            self.children.remove(child)
            self.coordinator.cancellation.unregister_child(token)

        child.coordinator.register_cleanup(let_go)

    def _next_fork_id(self) -> str:
        while True:
            candidate = f"{self.session_id}-fork-{next(self._fork_numbers)}"
            if candidate not in self._fork_ids:
                return candidate

    def _child(self, session_id: str, config: dict[str, Any], transcript: Transcript) -> AmplifierSession:
        child = type(self)(
            config=config,
            loader=self.loader,
            session_id=session_id,
            parent_id=self.session_id,
            approval_system=self.coordinator.approval_system,
            display_system=self.coordinator.display_system,
            transcript=transcript,
            plugins=self.plugins,
            strict=self._strict,
            permissions=self.coordinator.permissions,
        )
        for capability in ("session.working_dir", "session.project", "mention_resolver"):
            value = self.coordinator.get_capability(capability)
            if value is not None:
                child.coordinator.register_capability(capability, value)
        child.coordinator.mount_points["module-source-resolver"] = self.coordinator.get("module-source-resolver")
        return child

    def __repr__(self) -> str:
        return f"<AmplifierSession {self.session_id} {self.state}>"


def _require_session_section(config: Any) -> None:
    if not config:
        raise ValueError("Configuration is required")
    if not isinstance(config, dict):
        raise ValueError(f"Configuration must be a mapping, not {type(config).__name__}")
    section = config.get("session")
    for name in ("orchestrator", "context"):
        if not isinstance(section, dict) or not section.get(name):
            raise ValueError(f"Configuration must specify session.{name}")
