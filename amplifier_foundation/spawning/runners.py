"""Run spawned sessions in this process: `runner-inprocess`, registered like the runner of any plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from amplifier_core.hook_data import SessionBuilder, SpawnRequest
    from amplifier_core.hookspecs import Register, RunnerFactory
    from amplifier_core.session import AmplifierSession

CONTINUE = (
    "The process ended in the middle of your work. Go on from where the messages above end; tool calls marked as "
    "interrupted may or may not have taken effect."
)


class InProcessRunner:
    """Runs the session in the event loop of its parent."""

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> str:
        """Make the session, take its turn, end it."""
        async with build(request) as session:
            return await take_turn(session, request.instruction)


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Offer `runner-inprocess`."""
    register("runner-inprocess", InProcessRunner)


async def take_turn(session: AmplifierSession, instruction: str) -> str:
    """Execute one turn; an empty instruction resumes the open turn at the end of the history."""
    if not instruction and session.is_resumed:
        orchestrator = session.coordinator.get("orchestrator")
        if not getattr(orchestrator, "continues_history", False):
            instruction = CONTINUE
    return await session.execute(instruction)
