"""Run a turn of a real session with modules under test: loop, context and provider are installed packages.

run = await run_session("count the words", tools=[WordCount()], providers=[playbook(rules)])
assert run.text == "2"
assert run.calls == [("words", {"text": "two words"})]
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..events import ALL_EVENTS
from ..frozen import slotted
from ..session import AmplifierSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

LOOP, CONTEXT = "loop-basic", "context-simple"


@slotted
class SessionRun:
    """A finished turn: its text, all messages of the session, and its events in order."""

    text: str
    messages: list[dict[str, Any]]
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The tool calls, each with its name and its input."""
        return [(data["tool_name"], data.get("tool_input", {})) for name, data in self.events if name == "tool:pre"]


def playbook(rules: Sequence[Mapping[str, Any]] = (), say: str = "You said: {prompt}") -> dict[str, Any]:
    """Return the entry of a provider that answers by `rules`, else with `say`; `amplifier-provider-playbook` has it."""
    return {"module": "provider-playbook", "config": {"rules": list(rules), "otherwise": {"say": say}}}


async def run_session(
    prompt: str,
    *,
    tools: Sequence[Any] = (),
    providers: Sequence[Mapping[str, Any]] = (),
    mounts: Sequence[Callable[..., Awaitable[Any]]] = (),
    plan: Mapping[str, Any] | None = None,
    working_dir: Path | None = None,
) -> SessionRun:
    """Run one turn, and end the session.

    `tools` are tools, or entries of a mount plan; `mounts` are further functions `mount(coordinator, config)` to call.
    Without `providers`, a playbook answers. `plan` is merged over the mount plan. Raises `RuntimeError` without
    the packages of loop and context; a tool that cannot be mounted is logged, as in every session.
    """
    entries = [dict(tool) for tool in tools if isinstance(tool, dict)]
    whole = {
        "session": {"orchestrator": LOOP, "context": CONTEXT},
        "providers": [dict(each) for each in providers] or [playbook()],
        "tools": entries,
        **(plan or {}),
    }
    events: list[tuple[str, dict[str, Any]]] = []

    async def note(event: str, data: dict[str, Any]) -> None:
        events.append((event, dict(data)))

    async with AmplifierSession(whole, session_id="test-session") as session:
        coordinator = session.coordinator
        if working_dir is not None:
            coordinator.register_capability("session.working_dir", str(working_dir))
        for tool in tools:
            if not isinstance(tool, dict):
                await coordinator.mount("tools", tool, name=tool.name)
        for mount in mounts:
            await mount(coordinator, {})
        for event in ALL_EVENTS:
            coordinator.hooks.register(event, note, name="session-runs")
        text = await session.execute(prompt)
        messages = await coordinator.get("context").get_messages()
    return SessionRun(text, [dict(message) for message in messages], events)
