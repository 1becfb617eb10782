"""Stand-ins for the parts of a session, for the tests of modules."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..coordinator import ModuleCoordinator
from ..models import HookResult, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class MockTool:
    """A tool that returns `output` and keeps its inputs in `calls`."""

    def __init__(self, name: str = "mock_tool", output: Any = "Success", description: str = "") -> None:
        self.name = name
        self.description = description or f"Mock tool: {name}"
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}}
        self.output = output
        self.calls: list[dict[str, Any]] = []

    @property
    def call_count(self) -> int:
        """Return the number of calls."""
        return len(self.calls)

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Return the output, or raise it when it is an exception."""
        self.calls.append(input)
        if isinstance(self.output, BaseException):
            raise self.output
        return self.output if isinstance(self.output, ToolResult) else ToolResult(output=self.output)


class MockContextManager:
    """A context with a plain list, never cut."""

    def __init__(self, messages: Sequence[dict[str, Any]] | None = None) -> None:
        self.messages: list[dict[str, Any]] = [dict(message) for message in messages or ()]

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append `message`."""
        self.messages.append(message)

    async def get_messages(self) -> list[dict[str, Any]]:
        """Return every message."""
        return [dict(message) for message in self.messages]

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """Return every message, without regard to the budget in tokens."""
        return await self.get_messages()

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Replace every message."""
        self.messages = [dict(message) for message in messages]

    async def clear(self) -> None:
        """Forget every message."""
        self.messages = []


class EventRecorder:
    """A hook handler (`record`), or a whole hook registry (`emit`), with a list of all events in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def record(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep the event and let it pass."""
        self.events.append((event, dict(data)))
        return HookResult()

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep the event and let it pass."""
        return await self.record(event, data)

    def get_events(self, event_type: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return the events, or those of one name."""
        return [entry for entry in self.events if event_type is None or entry[0] == event_type]

    def clear(self) -> None:
        """Forget the events."""
        self.events = []


class ScriptedOrchestrator:
    """An orchestrator with a list of answers, and "DONE" after the last; the context gets both sides."""

    def __init__(self, responses: Sequence[str] = ()) -> None:
        self.responses = list(responses)
        self.prompts: list[str] = []

    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, **kwargs: Any) -> str:
        """Return the next response."""
        self.prompts.append(prompt)
        position = len(self.prompts) - 1
        answer = self.responses[position] if position < len(self.responses) else "DONE"
        for role, content in (("user", prompt), ("assistant", answer)):
            await context.add_message({"role": role, "content": content})
        return answer


class MockCoordinator(ModuleCoordinator):
    """The kernel's own coordinator, with a history of mounts and unmounts in order."""

    __test__ = False  # no class of tests, also under the name TestCoordinator

    def __init__(self, *args: Any, session_id: str = "test-session", **kwargs: Any) -> None:
        super().__init__(*args, session_id=session_id, **kwargs)
        self.mount_history: list[dict[str, Any]] = []
        self.unmount_history: list[dict[str, Any]] = []

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        """Mount `module`, and note it afterwards."""
        await super().mount(mount_point, module, name)
        self.mount_history.append({"mount_point": mount_point, "module": module, "name": name})

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        """Unmount a module, and note it."""
        await super().unmount(mount_point, name)
        self.unmount_history.append({"mount_point": mount_point, "name": name})


TestCoordinator = MockCoordinator
"""An older name."""


def create_test_coordinator() -> MockCoordinator:
    """Return a coordinator with a context and two tools: `echo`, and the failing `fail`."""
    plan = {"session": {"orchestrator": "test-orchestrator", "context": "test-context"}}
    coordinator = MockCoordinator(config=plan)
    failure = ToolResult(success=False, error={"message": "the tool 'fail' fails"})
    coordinator.mount_points["tools"].update(echo=MockTool("echo", "Echo response"), fail=MockTool("fail", failure))
    coordinator.mount_points["context"] = MockContextManager()
    return coordinator


async def wait_for(condition: Callable[[], bool], timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - a published signature
    """Return True as soon as `condition()` holds, False when `timeout` seconds have passed without."""
    import asyncio

    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(0.005)
    return True
