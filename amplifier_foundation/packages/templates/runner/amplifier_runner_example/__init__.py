"""Run spawned sessions: here in this process, in your package wherever you like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core import hookimpl

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession, RunResult, SessionBuilder, SpawnRequest
    from amplifier_core.hookspecs import Register, RunnerFactory


class ExampleRunner:
    """Runs each session in the event loop of its parent."""

    def __init__(self) -> None:
        self._running: dict[str, AmplifierSession] = {}

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> RunResult:
        """Make the session, take its turn, end it; an error of the session is raised as it is."""
        from amplifier_core import RunResult

        async with build(request) as session:
            self._running[request.session_id] = session
            try:
                return RunResult(await session.execute(request.instruction))
            finally:
                del self._running[request.session_id]

    async def stop(self, session_id: str) -> bool:
        """Ask a session to end when its running tools have finished; return whether it runs here."""
        session = self._running.get(session_id)
        if session is not None:
            session.coordinator.cancellation.request_graceful()
        return session is not None


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Offer the runner to bundles."""
    register("runner-example", ExampleRunner)
