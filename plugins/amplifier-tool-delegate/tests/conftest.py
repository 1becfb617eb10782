"""Play the program that runs agents: record its calls, and answer by a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.models import ToolResult
from amplifier_tool_delegate import mount
from amplifier_tool_delegate.reporting import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AGENTS = {
    "reviewer": {"description": "Reads one file\n  and says what is wrong with it."},
    "lib:bug-hunter": {"meta": {"description": "Finds what is broken."}},
}


class Program:
    """The session of a program, and that program's capabilities.

    `answer` is what they return: a mapping, whose missing members are filled in, an exception, or an async function.
    """

    def __init__(self, folder: Path) -> None:
        self.coordinator = ModuleCoordinator(session_id="lead", config={"agents": dict(AGENTS)})
        self.coordinator.register_capability("session.working_dir", str(folder))
        self.coordinator.register_capability("session.spawn", self.spawn)
        self.coordinator.register_capability("session.resume", self.resume)
        self.asked: list[dict[str, Any]] = []
        self.answer: Any = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        for event in EVENTS:
            self.coordinator.hooks.register(event, self._hear)

    async def spawn(
        self, context_depth: str = "", context_scope: str = "", context_turns: int = 0, **asked: Any
    ) -> dict[str, Any]:
        context = {"context_depth": context_depth, "context_scope": context_scope, "context_turns": context_turns}
        return await self._answer({**asked, **context}, asked["sub_session_id"])

    async def resume(self, sub_session_id: str, instruction: str) -> dict[str, Any]:
        return await self._answer({"sub_session_id": sub_session_id, "instruction": instruction}, sub_session_id)

    async def _answer(self, asked: dict[str, Any], session_id: str) -> Any:
        self.asked.append(asked)
        answer = await self.answer(asked) if callable(self.answer) else self.answer
        if isinstance(answer, BaseException):
            raise answer
        if not isinstance(answer, dict):
            return answer
        usual = {"output": "Done.", "session_id": session_id, "status": "completed", "turn_count": 1, "metadata": {}}
        return {**usual, **answer}

    async def _hear(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))

    def names(self) -> list[str]:
        """Return the names of the events so far."""
        return [name for name, _ in self.events]

    def enqueue(self, **capabilities: Callable[..., Any] | None) -> None:
        """Offer other capabilities in place of `session.…`; None: none."""
        for name, value in capabilities.items():
            self.coordinator.register_capability(f"session.{name}", value)

    async def tool(self, **config: Any) -> Any:
        """Return the tool, mounted with this configuration."""
        await mount(self.coordinator, config)
        return self.coordinator.get("tools", "delegate")

    async def call(self, config: dict[str, Any] | None = None, /, **given: Any) -> ToolResult:
        """Return the result of one call."""
        result: ToolResult = await (await self.tool(**(config or {}))).execute({"instruction": "Look.", **given})
        return result

    async def failure(self, config: dict[str, Any] | None = None, /, **given: Any) -> tuple[str, str]:
        """Return type and message of a call that fails, and see that the model reads the message."""
        result = await self.call(config, **given)
        assert result.success is False
        assert result.error is not None
        read = result.output["error"] if isinstance(result.output, dict) else result.output
        assert read == result.error["message"]
        return result.error["type"], result.error["message"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working folder."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def program(work: Path) -> Program:
    return Program(work)
