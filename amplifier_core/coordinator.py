"""What a session's modules are mounted on, and how they find each other."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from .cancellation import CancellationToken
from .events import CANCEL_REQUESTED
from .hooks import HookRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .approval import ApprovalSystem
    from .display import DisplaySystem
    from .models import HookResult
    from .session import AmplifierSession

logger = logging.getLogger(__name__)

_SINGLE = ("orchestrator", "context", "module-source-resolver")
_MANY = ("providers", "tools", "triggers")

DEFAULT_INJECTION_SIZE_LIMIT = 10_240
"""Characters that one hook may inject at once."""
DEFAULT_INJECTION_BUDGET = 10_000
"""Tokens (characters / 4) that all hooks may inject in one turn before a warning."""


class ModuleCoordinator:
    """The mount points, capabilities, contributions and clean-ups of one session.

    `orchestrator`, `context` and `module-source-resolver` hold one module; `providers`, `tools` and `triggers` hold one
    a name; `hooks` is the hook registry. Modules may set attributes of their own on it.
    """

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
        self.mount_points: dict[str, Any] = dict.fromkeys(_SINGLE)
        self.mount_points.update({name: {} for name in _MANY}, hooks=self.hooks)
        self.channels: dict[str, list[tuple[str, Callable[[], Any]]]] = {}
        self._capabilities: dict[str, Any] = {}
        self._cleanup_fns: list[Callable[[], Any]] = []
        self._current_turn_injections = 0

    # mounting

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        """Put `module` at a mount point; `name` defaults to `module.name` where many are held.

        `trigger` is another word for `triggers`, and a trigger's name defaults to that of its class. Raises
        `ValueError` for an unknown point, for `hooks`, and where a name is needed and there is none.
        """
        if mount_point in ("trigger", "triggers"):
            mount_point, name = "triggers", name or getattr(module, "name", None) or type(module).__name__
        self._require_point(mount_point)
        if mount_point == "hooks":
            raise ValueError("Hooks should be registered directly with the HookRegistry")
        if mount_point in _SINGLE:
            self.mount_points[mount_point] = module
            return
        chosen = name or getattr(module, "name", None)
        if not chosen:
            raise ValueError(f"Name required for {mount_point}")
        self.mount_points[mount_point][chosen] = module

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        """Take a module away; one that is not there is ignored."""
        self._require_point(mount_point)
        if mount_point in _SINGLE:
            self.mount_points[mount_point] = None
        elif mount_point in _MANY and name is not None:
            self.mount_points[mount_point].pop(name, None)

    def get(self, mount_point: str, name: str | None = None) -> Any:
        """Return what is mounted: a module, or a dict of them where many are held and no name is given; else None."""
        self._require_point(mount_point)
        mounted = self.mount_points[mount_point]
        return mounted.get(name) if mount_point in _MANY and name is not None else mounted

    def _require_point(self, mount_point: str) -> None:
        if mount_point not in self.mount_points:
            raise ValueError(f"Unknown mount point: {mount_point}")

    # capabilities and contributions

    def register_capability(self, name: str, value: Any) -> None:
        """Offer `value` under `name`; the last one wins."""
        self._capabilities[name] = value

    def get_capability(self, name: str) -> Any:
        """Return what was offered under `name`, or None."""
        return self._capabilities.get(name)

    def register_contributor(self, channel: str, name: str, callback: Callable[[], Any]) -> None:
        """Have `callback` (plain or async) asked when `channel` is collected."""
        self.channels.setdefault(channel, []).append((name, callback))

    async def collect_contributions(self, channel: str) -> list[Any]:
        """Return the contributions in the order of registration, without None; a callback that fails is logged.

        A cancellation ends the collection, and what was gathered so far is returned.
        """
        gathered: list[Any] = []
        for name, callback in list(self.channels.get(channel, ())):
            try:
                contribution = callback()
                if hasattr(contribution, "__await__"):
                    contribution = await contribution
            except asyncio.CancelledError:
                break
            except Exception as error:
                logger.warning("contributor '%s' to %s failed: %s", name, channel, error)
                continue
            if contribution is not None:
                gathered.append(contribution)
        return gathered

    # life

    def register_cleanup(self, cleanup_fn: Callable[[], Any]) -> None:
        """Have `cleanup_fn` (plain or async) called by `cleanup`."""
        if callable(cleanup_fn):
            self._cleanup_fns.append(cleanup_fn)

    async def cleanup(self) -> None:
        """Call every clean-up once, the last registered first; what a failing one raises does not stop the others.

        Errors are logged; the first that is no `Exception` (an exit, a cancellation) is raised when all have run.
        """
        fatal: BaseException | None = None
        while self._cleanup_fns:
            fn = self._cleanup_fns.pop()
            try:
                outcome = fn()
                if hasattr(outcome, "__await__"):
                    await outcome
            except Exception as error:
                logger.error("a clean-up of session %s failed: %s: %s", self.session_id, type(error).__name__, error)
            except BaseException as error:
                fatal = fatal or error
        if fatal is not None:
            raise fatal

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
        """Begin a turn: its injection budget is untouched."""
        self._current_turn_injections = 0

    @property
    def injection_size_limit(self) -> int | None:
        """Characters that one injection may have; None: any number."""
        limit: int | None = self._session_config().get("injection_size_limit", DEFAULT_INJECTION_SIZE_LIMIT)
        return limit

    @property
    def injection_budget_per_turn(self) -> int | None:
        """Tokens that hooks may inject in one turn before a warning; None: any number."""
        budget: int | None = self._session_config().get("injection_budget_per_turn", DEFAULT_INJECTION_BUDGET)
        return budget

    def _session_config(self) -> Mapping[str, Any]:
        section = self.config.get("session")
        return section if isinstance(section, dict) else {}

    def to_dict(self) -> dict[str, Any]:
        """Return what is mounted, by name."""
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

    # what hooks ask for

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Do what a hook's result asks for (inject, ask, show), and return the result that stands then."""
        from .hook_results import process

        return await process(self, result, event, hook_name)
