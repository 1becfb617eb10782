"""Connect a session's modules: mount points, capabilities, contributions and clean-ups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypedDict

from .cancellation import CancellationToken, as_failure, own_failure
from .eager import Waiting, start
from .events import CANCEL_REQUESTED
from .hooks import HookRegistry
from .time_limits import finish
from .undoing import drop_value, note_step, set_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from .approval import ApprovalSystem
    from .display import DisplaySystem
    from .models import HookResult
    from .permissions import PermissionGate
    from .session import AmplifierSession

logger = logging.getLogger(__name__)

_SINGLE = ("orchestrator", "context", "module-source-resolver")
_MANY = ("providers", "tools", "triggers")
_DESCRIPTION = (("input_schema", Mapping, "a mapping, a JSON Schema"), ("description", str, "a text"))
"""The attributes of a tool that a model sees; it may lack them, or make them when they are asked for."""
_PLAIN = (str, bytes, int, float, list, tuple, set, dict, FunctionType)

CLEANUP_TIME_LIMIT = 30.0
"""The most seconds for one clean-up of a module."""


class Contribution(TypedDict):
    """One contributor to a channel: the name of its module, and the function to call."""

    name: str
    callback: Callable[[], Any]


class ModuleCoordinator:
    """The mount points, capabilities, contributions and clean-ups of one session.

    `orchestrator`, `context` and `module-source-resolver` hold one module; `providers`, `tools` and `triggers` hold one
    module per name; `hooks` is the hook registry. Modules may set attributes of their own on it.
    """

    permissions: PermissionGate | None = None
    """The gate of the session's tool calls, see `guard`."""
    mounting = ""
    """The id of the module that is being mounted: it owns what is registered meanwhile."""

    def __init__(
        self,
        session: AmplifierSession | None = None,
        approval_system: ApprovalSystem | None = None,
        display_system: DisplaySystem | None = None,
        *,
        config: dict[str, Any] | None = None,
        session_id: str = "",
        parent_id: str | None = None,
    ) -> None:
        self.session = session
        self.config: dict[str, Any] = config if config is not None else (session.config if session else {})
        self.session_id = session.session_id if session else session_id
        self.parent_id = session.parent_id if session else parent_id
        self.approval_system = approval_system
        self.display_system = display_system
        self.loader: Any = None
        self.hooks = HookRegistry()
        self.cancellation = CancellationToken()
        self.session_state: dict[str, Any] = {}
        self.mount_points = self._empty_mount_points()
        self.channels: dict[str, list[Contribution]] = {}
        self._capabilities: dict[str, Any] = {}
        self._cleanup_fns: list[tuple[str, Callable[[], Any]]] = []
        self._current_turn_injections = 0

    # mounting

    def _empty_mount_points(self) -> dict[str, Any]:
        return {
            "orchestrator": None,
            "context": None,
            "module-source-resolver": None,
            "providers": {},
            "tools": {},
            "triggers": {},
            "hooks": self.hooks,
        }

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        """Put `module` at a mount point; a point for many modules takes `name`, by default `module.name`.

        `trigger` is another word for `triggers`, and a trigger's name defaults to the name of its class. Raises
        `ValueError` for an unknown point, for `hooks`, and for a missing name, `TypeError` for one that is no string,
        and for a tool that cannot be described to a model.
        """
        if mount_point in _SINGLE:
            set_value(self.mount_points, mount_point, module)
            return
        if mount_point in ("trigger", "triggers"):
            mount_point, name = "triggers", name or getattr(module, "name", None) or type(module).__name__
        self._require_point(mount_point)
        if mount_point == "hooks":
            raise ValueError("Hooks should be registered directly with the HookRegistry")
        chosen = name or getattr(module, "name", None)
        if not chosen:
            raise ValueError(f"Name required for {mount_point}")
        if not isinstance(chosen, str):
            raise TypeError(f"the name of a module at {mount_point} must be a string, not {chosen!r}")
        if mount_point == "tools":
            for part, kind, told in _DESCRIPTION:
                value = _find_plain(module, part)
                if isinstance(value, _PLAIN) and not isinstance(value, kind):
                    raise TypeError(f"tool '{chosen}': its {part} must be {told}, not {type(value).__name__}")
        set_value(self.mount_points[mount_point], chosen, module)

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        """Take a module away; an absent one is ignored.

        Raises `ValueError` for an unknown point, and for a missing name at a point for many modules.
        """
        self._require_point(mount_point)
        if mount_point in _SINGLE:
            self.mount_points[mount_point] = None
        elif mount_point in _MANY:
            if name is None:
                raise ValueError(f"Name required to unmount from {mount_point}")
            drop_value(self.mount_points[mount_point], name)

    def get(self, mount_point: str, name: str | None = None) -> Any:
        """Return a mounted module, or None; of a point for many modules without a name, return the dict of them.

        Raises `ValueError` for an unknown point.
        """
        try:
            mounted = self.mount_points[mount_point]
        except KeyError:
            raise ValueError(f"Unknown mount point: {mount_point}") from None
        return mounted.get(name) if name is not None and mount_point in _MANY else mounted

    def _require_point(self, mount_point: str) -> None:
        if mount_point not in self.mount_points:
            raise ValueError(f"Unknown mount point: {mount_point}")

    # permissions

    def guard(self, gate: PermissionGate) -> None:
        """Hold every tool call of the session to the permissions of `gate`, ahead of all handlers of `tool:pre`."""
        self.permissions = gate
        self.hooks.guard(lambda data: gate.check(data, self.mount_points["tools"]))

    # capabilities and contributions

    def register_capability(self, name: str, value: Any) -> None:
        """Offer `value` under `name`; the last offer wins."""
        set_value(self._capabilities, name, value)

    def register_capabilities(self, values: Mapping[str, Any]) -> None:
        """Offer each value under its name."""
        self._capabilities.update(values)

    def get_capability(self, name: str) -> Any:
        """Return the capability `name`, or None."""
        return self._capabilities.get(name)

    def register_contributor(self, channel: str, name: str, callback: Callable[[], Any]) -> None:
        """Have `callback` (plain or async) called when `channel` is collected."""
        contribution: Contribution = {"name": name, "callback": callback}
        offered = self.channels.setdefault(channel, [])
        offered.append(contribution)
        note_step(offered.remove, contribution)

    async def collect_contributions(self, channel: str) -> list[Any]:
        """Return the contributions in the order of registration, without None; a failing callback is logged.

        A cancellation ends the collection; the contributions before it are returned.
        """
        gathered: list[Any] = []
        for contributor in list(self.channels.get(channel, ())):
            try:
                contribution = contributor["callback"]()
                if hasattr(contribution, "__await__"):
                    contribution = await contribution
            except asyncio.CancelledError:
                break
            except BaseException as raised:
                error = own_failure(raised)
                logger.warning("contributor '%s' to %s failed: %s", contributor["name"], channel, error)
                continue
            if contribution is not None:
                gathered.append(contribution)
        return gathered

    # life

    def register_cleanup(self, cleanup_fn: Callable[[], Any]) -> None:
        """Have `cleanup_fn` (plain or async) called by `cleanup`; one of a module has `CLEANUP_TIME_LIMIT` seconds."""
        if callable(cleanup_fn):
            self._cleanup_fns.append((self.mounting, cleanup_fn))

    async def cleanup(self) -> None:
        """Call every clean-up once, the last registered first, also when one of them fails.

        Errors are logged, and so is the exit of a module's clean-up. The first `KeyboardInterrupt`, cancellation of the
        caller, exit at a signal or of another clean-up is raised when all have run.
        """
        fatal: BaseException | None = None
        while self._cleanup_fns:
            module_id, fn = self._cleanup_fns.pop()
            try:
                outcome = fn()
                if not hasattr(outcome, "__await__"):
                    continue
                if not module_id:
                    await outcome
                elif isinstance(outcome := start(outcome), Waiting):
                    owner = f"module '{module_id}' of session {self.session_id}"
                    await finish(outcome, CLEANUP_TIME_LIMIT, "its clean-up", owner)
            except BaseException as raised:
                error = raised if isinstance(raised, Exception) or not module_id else as_failure(raised)
                if isinstance(error, Exception):
                    session = f"{self.session_id}, module '{module_id}'," if module_id else self.session_id
                    logger.error("a clean-up of session %s failed: %s: %s", session, type(error).__name__, error)
                else:
                    fatal = fatal or error
        if fatal is not None:
            raise fatal

    def release(self) -> None:
        """Let go of the session, its modules and their handlers; it has ended, and runs nothing more."""
        self.session = None
        if self.permissions is not None:  # its gate refers to all of this, and nothing may get past its end
            from .models import HookResult

            refusal = HookResult(action="deny", reason="the session has ended")
            self.hooks.guard(lambda data: refusal)
        self.hooks.clear()
        self.cancellation.clear()
        self.mount_points = self._empty_mount_points()

    async def request_cancel(self, immediate: bool = False) -> None:
        """Cancel the session, tell its hooks (`cancel:requested`) and run the token's callbacks."""
        token = self.cancellation
        changed = token.request_immediate() if immediate else token.request_graceful()
        if not changed:
            return
        await self.hooks.emit(
            CANCEL_REQUESTED,
            {
                "level": token.state.value,
                "running_tools": sorted(token.running_tools),
                "running_tool_names": token.running_tool_names,
            },
        )
        await token.trigger_callbacks()

    def reset_turn(self) -> None:
        """Begin a turn with its whole injection budget."""
        self._current_turn_injections = 0

    @property
    def injection_size_limit(self) -> int | None:
        """The most characters of one injection, `session.injection_size_limit`; None: no limit."""
        limit: int | None = self._session_config().get("injection_size_limit")
        return limit

    @property
    def injection_budget_per_turn(self) -> int | None:
        """The tokens (characters / 4) of a turn's injections before a warning; None: no limit."""
        budget: int | None = self._session_config().get("injection_budget_per_turn")
        return budget

    def _session_config(self) -> Mapping[str, Any]:
        section = self.config.get("session")
        return section if isinstance(section, dict) else {}

    def to_dict(self) -> dict[str, Any]:
        """Return the names of the mounted modules, capabilities and channels."""
        return {
            "session_id": self.session_id,
            "parent_id": self.parent_id,
            "mounted": {
                point: sorted(mounted) if point in _MANY else mounted is not None
                for point, mounted in self.mount_points.items()
            },
            "capabilities": sorted(self._capabilities),
            "channels": sorted(self.channels),
        }

    # results of hooks

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Carry out a hook's result (inject, ask, show), and return the result in force afterwards."""
        from .hook_results import process

        return await process(self, result, event, hook_name)


def _find_plain(module: Any, part: str) -> Any:
    """Return an attribute of a module or its class as it was written: no code of it runs, as that of a property."""
    of_class = None
    for each in type(module).__mro__:
        if part in each.__dict__:
            of_class = each.__dict__[part]
            break
    fields = getattr(module, "__dict__", {})
    return of_class if part not in fields or isinstance(of_class, property) else fields[part]
