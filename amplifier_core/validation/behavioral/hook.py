"""Test the behaviour of handlers."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, get_args

import pytest

from ...models import HookResult
from ..hook import handlers_of
from .samples import MALFORMED, SAMPLES, sample_of

ACTIONS = get_args(HookResult.model_fields["action"].annotation)


class HookBehaviorTests:
    """The behaviour of every handler; a module without a handler has nothing to show."""

    module_kind: ClassVar[str] = "hook"

    @pytest.fixture(autouse=True)
    def _hooks_are_mounted(self, hook_cleanup: Any) -> None:
        """Mount the module also for tests with the coordinator alone."""

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, hook_cleanup: Any, coordinator: Any) -> None:
        """The module can be mounted, and leaves the coordinator its hooks."""
        assert coordinator.get("hooks") is coordinator.hooks, "mount() must register handlers, not replace the hooks"

    @pytest.mark.asyncio
    async def test_handler_returns_hook_result(self, coordinator: Any) -> None:
        """A handler of a well-known event returns a `HookResult`; a dict of its fields, or None, is taken for one."""
        for event, name, handler in _handlers(coordinator):
            answer = await _answer(event, name, handler)
            fits = answer is None or isinstance(answer, HookResult | dict)
            assert fits, f"handler '{name}' of {event} must return HookResult, not {type(answer).__name__}"

    @pytest.mark.asyncio
    async def test_hook_result_has_valid_action(self, coordinator: Any) -> None:
        """A handler asks for one of the known actions."""
        for event, name, handler in _handlers(coordinator):
            answer = await _answer(event, name, handler)
            action = answer.get("action", "continue") if isinstance(answer, dict) else getattr(answer, "action", None)
            fits = answer is None or action in ACTIONS
            assert fits, f"handler '{name}' of {event} asks for {action!r}; there are: {', '.join(ACTIONS)}"

    @pytest.mark.asyncio
    async def test_cleanup_is_callable_if_present(self, hook_cleanup: Any) -> None:
        """`mount` returns one function, and no list of functions: nobody calls those."""
        held = hook_cleanup.values() if isinstance(hook_cleanup, dict) else hook_cleanup
        lost = isinstance(hook_cleanup, list | tuple | set | dict) and any(callable(each) for each in held)
        assert not lost, f"mount() must return one function that cleans up, not a {type(hook_cleanup).__name__} of them"

    @pytest.mark.asyncio
    async def test_cleanup_does_not_raise(self, hook_cleanup: Any) -> None:
        """The clean-up works."""
        if callable(hook_cleanup):
            try:
                await _resolve(hook_cleanup())
            except (Exception, SystemExit) as error:
                pytest.fail(f"the clean-up must not raise; it raised {type(error).__name__}: {error}")

    @pytest.mark.asyncio
    async def test_handler_does_not_crash_on_malformed_data(self, coordinator: Any) -> None:
        """The session goes on after data of a form without an emitter."""
        await _survives(coordinator, MALFORMED)

    @pytest.mark.asyncio
    async def test_handler_does_not_crash_on_empty_data(self, coordinator: Any) -> None:
        """The session goes on after empty data."""
        await _survives(coordinator, {})


def _handlers(coordinator: Any) -> list[tuple[str, str, Any]]:
    handlers = [handler for handler in handlers_of(coordinator) if handler[0] in SAMPLES]
    if not handlers:
        pytest.skip("the module registered no handler of a well-known event")
    return handlers


async def _answer(event: str, name: str, handler: Any) -> Any:
    try:
        return await _resolve(handler(event, sample_of(event)))
    except (Exception, SystemExit) as error:
        pytest.fail(f"handler '{name}' must not raise on a {event} like any other; {type(error).__name__}: {error}")


async def _survives(coordinator: Any, data: dict[str, Any]) -> None:
    """Emit every event with handlers; the registry reports and skips the failing ones."""
    for event in sorted({event for event, _, _ in handlers_of(coordinator)}):
        result = await coordinator.hooks.emit(event, dict(data))
        assert isinstance(result, HookResult), f"emitting {event} must give a HookResult, not {result!r}"


async def _resolve(outcome: Any) -> Any:
    return await outcome if inspect.isawaitable(outcome) else outcome
