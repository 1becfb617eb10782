"""Hold a module of a package to its contract: its mount, what it mounts, and what it leaves."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from amplifier_core import validation
from amplifier_core.testing import MockCoordinator, check_hooks
from amplifier_core.testing.process_watch import watch_process
from amplifier_core.testing.provider_checks import check_description, check_parsing
from amplifier_core.testing.tool_checks import call_tool, check_tool_description
from amplifier_core.validation.base import ValidationResult, is_async, takes
from amplifier_core.validation.hook import handlers_of

from .report import kind_of

if TYPE_CHECKING:
    from .examining import Task

MOUNT = "async def mount(coordinator, config)"
PATIENCE = 10.0
"""Seconds for a mount, and for a call of a tool."""
POINTS = {"tools": "tool", "providers": "provider", "orchestrator": "orchestrator", "context": "context"}
"""The kind of each mount point."""
VALIDATORS = {
    "tool": validation.ToolValidator,
    "provider": validation.ProviderValidator,
    "orchestrator": validation.OrchestratorValidator,
    "context": validation.ContextValidator,
    "hook": validation.HookValidator,
}


async def examine_module(task: Task, mount: Any) -> None:
    """Mount the module on a test coordinator, check what is there, and clean up. Raises `AssertionError`."""
    if not callable(mount):
        raise AssertionError(f"{task.target} must be a function, and is {type(mount).__name__}: write `{MOUNT}`")
    if not is_async(mount):
        raise AssertionError(f"mount must be declared 'async def': write `{MOUNT}`")
    if not takes(mount, "coordinator", "config"):
        raise AssertionError(f"mount must take 2 parameters: write `{MOUNT}`")
    kind = kind_of(task.name, task.group)
    if kind == "module":
        task.add(
            "warning", f"'{task.name}' does not name its kind: begin with tool-, provider-, hooks-, loop- or context-"
        )
    coordinator = MockCoordinator(config={"session": {"orchestrator": "loop-basic", "context": "context-simple"}})
    coordinator.register_capability("session.working_dir", str(task.folder))
    async with watch_process("mount"):
        try:
            async with asyncio.timeout(PATIENCE):
                cleanup = await mount(coordinator, dict(task.config))
        except TimeoutError:
            raise AssertionError(f"mount must end; it did not within {PATIENCE:g} s") from None
        except ValueError as error:
            task.add("note", f"it was not mounted: it needs a configuration ({error}); give one with --config")
            return
        await _examine_mounted(task, kind, coordinator, cleanup)
        ended = cleanup() if callable(cleanup) else None
        if inspect.isawaitable(ended):
            await ended
        await coordinator.cleanup()
    if kind == "hook" and task.is_sound:
        await check_hooks(mount, task.config)


async def _examine_mounted(task: Task, kind: str, coordinator: MockCoordinator, cleanup: Any) -> None:
    """Check the result of `mount`, and everything on the coordinator."""
    if cleanup is not None and not callable(cleanup):
        what = type(cleanup).__name__
        raise AssertionError(f"mount must return None or a function for the clean-up; it returned {what}")
    mounted = [POINTS.get(each["mount_point"], each["mount_point"]) for each in coordinator.mount_history]
    task.tell(offers={each: sorted(_names_at(coordinator, each)) for each in dict.fromkeys(mounted)})
    if mounted and kind in POINTS.values() and kind not in mounted:
        raise AssertionError(f"'{task.name}' promises a {kind}, and mounts a {mounted[0]}: name it after its kind")
    hooks = {"hook"} if handlers_of(coordinator) else set()  # a module of any kind may register some
    for each in {kind, *mounted, *hooks} & set(VALIDATORS):
        result = ValidationResult(each, task.target)
        VALIDATORS[each]().check_mounted(result, coordinator)
        for check in result.errors:
            if mounted or task.config or kind == "hook":
                task.add("error", check.message)
            else:
                task.add("note", f"{check.message} (without a configuration; give one with --config)")
        if each == "hook":  # the other warnings are told by the checks below
            for check in result.warnings:
                task.add("warning", check.message)
    for provider in (coordinator.get("providers") or {}).values():
        check_description(provider)
        check_parsing(provider)
    for tool in (coordinator.get("tools") or {}).values():
        check_tool_description(tool)
        if required := getattr(tool, "input_schema", {}).get("required"):
            result_of_nothing = await call_tool(tool, {}, PATIENCE)
            if result_of_nothing.success:
                raise AssertionError(f"execute({{}}) must fail: the schema requires {', '.join(required)}")


def _names_at(coordinator: MockCoordinator, kind: str) -> list[str]:
    mounts = [each for each in coordinator.mount_history if POINTS.get(each["mount_point"]) == kind]
    return [str(each["name"] or getattr(each["module"], "name", kind)) for each in mounts]
