"""Run the common steps of every validation; each kind of module judges its own mounts."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from .base import ValidationResult, check_on_session_ready, import_module_from_path, is_async, takes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ..testing import MockCoordinator

MODULE_TYPES = ("orchestrator", "provider", "tool", "hook", "context", "resolver")
TEST_PLAN = {"session": {"orchestrator": "test-orchestrator", "context": "test-context"}}
MOUNT = "async def mount(coordinator, config=None)"


def coordinator_for_tests() -> MockCoordinator:
    """Return a coordinator with nothing mounted, and the smallest plan for modules to read."""
    from ..testing import MockCoordinator

    return MockCoordinator(config={name: dict(section) for name, section in TEST_PLAN.items()})


class ModuleValidator:
    """Imports a module, mounts it on a test coordinator, judges the mounts, and cleans up."""

    module_type: ClassVar[str]

    async def validate(
        self, module_path: str | Path, entry_point: str | None = None, config: dict[str, Any] | None = None
    ) -> ValidationResult:
        """Return all possible checks; an exception of the module becomes a failed one.

        `entry_point` (`package:function`) names the mount function, by default `mount`; `config` is its argument.
        """
        result = ValidationResult(self.module_type, str(module_path))
        module = _import(result, module_path)
        if module is None:
            return result
        self._check_type(result, module)
        mount = _find_mount(result, module, entry_point)
        unready = check_on_session_ready(module)
        if unready is not None:
            result.add(unready)
        if mount is not None:
            await self._check_mounting(result, mount, config or {})
        return result

    def check_mounted(self, result: ValidationResult, coordinator: MockCoordinator) -> None:
        """Record whether the mounts on `coordinator` keep the protocol of this kind."""
        raise NotImplementedError

    def _check_type(self, result: ValidationResult, module: Any) -> None:
        declared = getattr(module, "__amplifier_module_type__", None)
        good = f"__amplifier_module_type__ is {declared!r}"
        if declared is None:
            bad = f"the module does not declare its type: add `__amplifier_module_type__ = '{self.module_type}'`"
            result.record("module_type", False, good, bad, "warning")  # the loader goes by the name then
            return
        known = f"it must be one of {', '.join(MODULE_TYPES)}"
        bad = f"__amplifier_module_type__ is {declared!r}: " + (
            f"it must be '{self.module_type}'" if declared in MODULE_TYPES else known
        )
        result.record("module_type", declared == self.module_type, good, bad)

    async def _check_mounting(
        self, result: ValidationResult, mount: Callable[..., Any], config: dict[str, Any]
    ) -> None:
        coordinator = coordinator_for_tests()
        cleanup = None
        try:
            cleanup = await mount(coordinator, dict(config))
            self.check_mounted(result, coordinator)
        except (Exception, SystemExit) as error:
            bad = f"mounting the module raised {type(error).__name__}: {error}"
            result.record("protocol_compliance", False, "", bad)
        await _clean_up(result, cleanup)
        await coordinator.cleanup()


def _import(result: ValidationResult, module_path: str | Path) -> Any:
    try:
        module = import_module_from_path(module_path)
    except (Exception, SystemExit) as error:
        bad = f"the module cannot be imported: {type(error).__name__}: {error}"
        result.record("module_importable", False, "", bad)
        return None
    result.record("module_importable", True, f"imported from {module_path}", "")
    return module


def _find_mount(result: ValidationResult, module: Any, entry_point: str | None) -> Any:
    """Return the mount function when it exists and can be awaited with coordinator and config."""
    name = (entry_point or "").partition(":")[2] or "mount"
    mount = getattr(module, name, None)
    if not result.record("mount_exists", callable(mount), f"{name}() found", f"no function {name}(): write `{MOUNT}`"):
        return None
    fault = "must be async" if not is_async(mount) else "must take 2 parameters, coordinator and config"
    fits = is_async(mount) and takes(mount, "coordinator", "config")
    good = f"{name}() is async and takes a coordinator and a config"
    return mount if result.record("mount_signature", fits, good, f"{name}() {fault}: write `{MOUNT}`") else None


async def _clean_up(result: ValidationResult, cleanup: Any) -> None:
    if not callable(cleanup):
        return
    try:
        outcome = cleanup()
        if inspect.isawaitable(outcome):
            await outcome
    except (Exception, SystemExit) as error:
        result.record("cleanup", False, "", f"the clean-up raised {type(error).__name__}: {error}")


def check_complete(result: ValidationResult, title: str, module: Any, names: Iterable[str]) -> bool:
    """Record whether a mounted `module` has every name of its protocol."""
    missing = [name for name in names if not hasattr(module, name)]
    good, bad = f"{title} has everything of its protocol", f"{title} has no {', '.join(missing)}"
    return result.record("protocol_compliance", not missing, good, bad)


def check_method(result: ValidationResult, check: str, title: str, method: Any, *positional: str, **named: str) -> None:
    """Record whether `method` is async and takes the arguments of the protocol's callers."""
    passed = ", ".join((*positional, *(f"{name}=" for name in named))) or "nothing but itself"
    fault = f"must take {passed}" if is_async(method) else "must be async"
    fits = is_async(method) and takes(method, *positional, **named)
    result.record(check, fits, f"{title} is async and takes {passed}", f"{title} {fault}")


def record_absence(result: ValidationResult, what: str, call: str) -> None:
    """Record that nothing of its kind was mounted on the coordinator."""
    bad = f"No {what} was mounted: mount() must `await coordinator.mount({call})`; to return the {what} is not enough"
    result.record("protocol_compliance", False, "", bad)
