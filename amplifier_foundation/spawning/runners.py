"""Run spawned sessions in this process: `runner-inprocess`, registered like the runner of any plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import UnknownName
from amplifier_core.hook_data import RunResult
from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from amplifier_core.hook_data import Runner, SessionBuilder, SpawnRequest
    from amplifier_core.hookspecs import Register, RunnerFactory
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession

CONTINUE = (
    "The process ended in the middle of your work. Go on from where the messages above end; tool calls marked as "
    "interrupted may or may not have taken effect."
)


class InProcessRunner:
    """Runs sessions in the event loop of their parent."""

    def __init__(self) -> None:
        self._running: dict[str, AmplifierSession] = {}

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> RunResult:
        """Make the session, take its turn, end it."""
        async with build(request) as session:
            self._running[request.session_id] = session
            try:
                return RunResult(await self.take(session, request, build))
            finally:
                del self._running[request.session_id]

    async def take(self, session: AmplifierSession, request: SpawnRequest, build: SessionBuilder) -> str:
        """Do the work of a made session, and return its final text."""
        return await take_turn(session, request.instruction)

    async def stop(self, session_id: str) -> bool:
        """Ask a session to end when its running tools have finished."""
        session = self._running.get(session_id)
        if session is not None:
            session.coordinator.cancellation.request_graceful()
        return session is not None


def find_runner(plugins: Plugins | None, name: str) -> Runner:
    """Return a runner by its registered name, with or without `runner-`. Raises `UnknownName`."""
    if plugins is None:
        raise UnknownName("runner", name, ())
    full = name if name.startswith("runner-") or name in plugins.runners else f"runner-{name}"
    return plugins.runners.get(full)()


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
