"""How a spawned session is executed; the runner of this process enters by the same door as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.hookspecs import Register, RunnerFactory
    from amplifier_core.moments import SessionBuilder, SpawnRequest
    from amplifier_core.session import AmplifierSession

CONTINUE = (
    "The process ended in the middle of your work. Go on from where the messages above end; tool calls marked as "
    "interrupted may or may not have taken effect."
)


class InProcessRunner:
    """Runs the session here, in the event loop of its parent."""

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> str:
        """Make the session, take its turn, end it."""
        async with build(request) as session:
            return await take_turn(session, request.instruction)


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Offer `runner-inprocess`."""
    register("runner-inprocess", InProcessRunner)


async def take_turn(session: AmplifierSession, instruction: str) -> str:
    """Execute one turn; an empty instruction goes on with the turn that the history ends in."""
    if not instruction and session.is_resumed:
        orchestrator = session.coordinator.get("orchestrator")
        if not getattr(orchestrator, "continues_history", False):
            instruction = CONTINUE
    return await session.execute(instruction)


def final_answer(messages: Sequence[dict[str, Any]]) -> str | None:
    """Return the text a finished history ends with, or None when its last turn is still open."""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        return None
    return text_of(last)


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message, its blocks joined."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(block.get("text") or "") for block in content if block.get("type") == "text")
    return str(content or "")
