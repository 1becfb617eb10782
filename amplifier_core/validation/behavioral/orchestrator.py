"""Test the behaviour of orchestrators with a model of immediate answers."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ..base import is_async
from ..validator import coordinator_for_tests


class OrchestratorBehaviorTests:
    """The behaviour of every orchestrator with a model of immediate answers."""

    module_kind: ClassVar[str] = "orchestrator"

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, orchestrator_module: Any) -> None:
        """An orchestrator is mounted."""
        assert orchestrator_module is not None, "mount() must mount an orchestrator"

    @pytest.mark.asyncio
    async def test_orchestrator_has_execute_method(self, orchestrator_module: Any) -> None:
        """An orchestrator can be executed."""
        execute = getattr(orchestrator_module, "execute", None)
        assert is_async(execute), "an orchestrator must have `async def execute(…)`"

    @pytest.mark.asyncio
    async def test_execute_returns_string(self, orchestrator_module: Any, mock_deps: Any) -> None:
        """A turn ends with a text."""
        answer = await _turn(orchestrator_module, "Test prompt", mock_deps)
        assert isinstance(answer, str), f"execute() must return text, not {type(answer).__name__}"

    @pytest.mark.asyncio
    async def test_execute_with_empty_prompt(self, orchestrator_module: Any, mock_deps: Any) -> None:
        """An empty prompt is answered, or refused with `ValueError` or `RuntimeError`."""
        try:
            answer = await _turn(orchestrator_module, "", mock_deps)
        except (ValueError, RuntimeError):
            return
        except Exception as error:
            pytest.fail(f"an empty prompt must be answered or refused; it raised {type(error).__name__}: {error}")
        assert isinstance(answer, str), f"execute() must return text, not {type(answer).__name__}"

    @pytest.mark.asyncio
    async def test_orchestrator_uses_provider(self, orchestrator_module: Any, mock_deps: Any) -> None:
        """The model is asked."""
        context, providers, tools, hooks = mock_deps
        asked: list[str] = []
        watched = {name: _Watched(provider, asked) for name, provider in providers.items()}
        await _turn(orchestrator_module, "Test", (context, watched, tools, hooks))
        assert asked, "execute() must call complete() of a provider"

    @pytest.mark.asyncio
    async def test_orchestrator_updates_context(self, orchestrator_module: Any, mock_deps: Any) -> None:
        """A turn is remembered."""
        context = mock_deps[0]
        before = len(await context.get_messages())
        await _turn(orchestrator_module, "Test message", mock_deps)
        assert len(await context.get_messages()) > before, "execute() must add messages to the context"


class _Watched:
    """A provider with a list of its requests."""

    def __init__(self, provider: Any, asked: list[str]) -> None:
        self._provider = provider
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        self._asked.append(self._provider.name)
        return await self._provider.complete(request, **kwargs)


async def _turn(orchestrator: Any, prompt: str, deps: Any) -> Any:
    """Run one turn as a session does."""
    context, providers, tools, hooks = deps
    return await orchestrator.execute(
        prompt=prompt,
        context=context,
        providers=providers,
        tools=tools,
        hooks=hooks,
        coordinator=coordinator_for_tests(),
    )
