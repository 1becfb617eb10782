"""Check the contract of a runner; its author runs the check.

    async def test_the_contract():
        await check_runner(MyRunner)

A runner with sessions in another place cannot use the sessions of this check: it gets a mount plan of modules installed
there, an instruction and the answer of these modules.

    await check_runner(RemoteRunner, config=plan, instruction="Say yes", answer="Yes.")

A broken rule raises `AssertionError` with a sentence about it. Nothing here needs a test runner.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from ..hook_data import RunResult, SpawnRequest
from ..loader import ModuleLoader
from ..session import AmplifierSession
from .mocks import MockContextManager
from .store_checks.rules import require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from ..hook_data import Runner

PLAN = {
    "session": {"orchestrator": "loop-check", "context": "context-check"},
    "providers": [{"module": "provider-check"}],
}
CANCELLED = "CancelledError"
FAULT = "the turn failed, as the check wants it to"


async def check_runner(
    factory: Callable[[], Runner],
    *,
    config: Mapping[str, Any] | None = None,
    instruction: str = "Say yes",
    answer: str = "",
    patience: float = 10.0,
) -> None:
    """Run one session, two at once, a failing one, a cancelled one and one that is asked to stop.

    With `config` (and its `answer`) only the first two: failures elsewhere cannot be arranged from here. `patience` is
    the most seconds for each. Raises `AssertionError`, and the errors of `run` itself.
    """
    require(hasattr(factory(), "run"), "the factory must return an object with run(request, build)")
    if config is not None:
        await _check_answers_elsewhere(factory(), config, instruction, answer, patience)
    else:
        await _check_answers(factory(), instruction, patience)
        await _check_failure(factory, instruction, patience)
        await _check_cancellation(factory, instruction, patience)
        await _check_stop(factory(), instruction, patience)
    require(await factory().stop("check-nobody") is False, "stop must return False for a session that it does not run")


async def _check_answers(runner: Runner, instruction: str, patience: float) -> None:
    """Run a session alone, then two at once, on one runner."""
    sessions = Sessions()
    for names in (("alone",), ("left", "right")):
        requests = [_request(name, PLAN, f"{instruction} ({name})") for name in names]
        for request, text in zip(requests, await _run_all(runner, requests, sessions, patience), strict=True):
            _check_answer(text, _answer_to(request.instruction))
        sessions.require_used(requests)


async def _check_answers_elsewhere(
    runner: Runner, plan: Mapping[str, Any], instruction: str, answer: str, patience: float
) -> None:
    for names in (("alone",), ("left", "right")):
        requests = [_request(name, plan, instruction) for name in names]
        for text in await _run_all(runner, requests, Sessions(), patience):
            _check_answer(text, answer)


async def _run_all(
    runner: Runner, requests: list[SpawnRequest], sessions: Sessions, patience: float
) -> list[RunResult | str | BaseException]:
    """Run the requests at once; return their results and exceptions."""
    runs = [runner.run(request, sessions.build) for request in requests]
    ended: list[RunResult | str | BaseException] = await _in_time(
        asyncio.gather(*runs, return_exceptions=True), patience, "run must end"
    )
    return ended


def _check_answer(result: object, expected: str) -> None:
    if isinstance(result, BaseException):
        raise result
    require(
        isinstance(result, RunResult | str),
        f"run must return a RunResult or the session's final text, not {type(result).__name__}",
    )
    text = _text_of(cast("RunResult | str", result))
    require(
        text == expected, f"run must return the final text of its own request's session, {expected!r}, not {text!r}"
    )


async def _check_failure(factory: Callable[[], Runner], instruction: str, patience: float) -> None:
    sessions = Sessions(fails=True)
    request = _request("failing", PLAN, instruction)
    try:
        result = await _in_time(factory().run(request, sessions.build), patience, "run must end when its session fails")
        if isinstance(result, RunResult) and result.error is not None:
            raise result.error
    except AssertionError:
        raise
    except Exception as error:
        require(FAULT in str(error), f"run must raise the session's own error, not {type(error).__name__}: {error}")
    else:
        raise AssertionError(f"run must raise the session's own error; it returned {_text_of(result)!r}")
    sessions.require_left(request)


async def _check_cancellation(factory: Callable[[], Runner], instruction: str, patience: float) -> None:
    sessions = Sessions(waits=True)
    request = _request("cancelled", PLAN, instruction)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_ending(factory().run(request, sessions.build)))
        beginning = tasks.create_task(sessions.began.wait())
        await asyncio.wait((running, beginning), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        beginning.cancel()
        running.cancel()
        await asyncio.wait((running,), timeout=patience)
        is_prompt = running.done()
        sessions.release()
    require(sessions.began.is_set(), f"run must begin the session's turn; it did not within {patience:g} s")
    require(is_prompt, f"run must end promptly when it is cancelled; it went on for {patience:g} s")
    require(running.result() == CANCELLED, f"a run that is cancelled must raise {CANCELLED}: {running.result()}")
    sessions.require_left(request)


async def _check_stop(runner: Runner, instruction: str, patience: float) -> None:
    require(hasattr(runner, "stop"), "the factory must return an object with stop(session_id)")
    sessions = Sessions(waits=True)
    request = _request("stopped", PLAN, instruction)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_ending(runner.run(request, sessions.build)))
        await _in_time(sessions.began.wait(), patience, "run must begin the session's turn")
        is_known = await runner.stop(request.session_id)
        is_asked = sessions.is_asked_to_stop(request.session_id)
        sessions.release()
        await asyncio.wait((running,), timeout=patience)
    require(is_known is True, f"stop must return True for a session that the runner runs, not {is_known!r}")
    require(is_asked, "stop must ask the session to end: its cancellation token must be set")
    sessions.require_left(request)


def _text_of(result: RunResult | str) -> str:
    return result if isinstance(result, str) else result.text


async def _ending(run: Awaitable[RunResult | str]) -> str:
    """Return the end of a run, in words."""
    try:
        text = _text_of(await run)
    except asyncio.CancelledError:
        return CANCELLED
    except Exception as error:
        return f"it raised {type(error).__name__}: {error}"
    return f"it returned {text!r}"


def _request(name: str, plan: Mapping[str, Any], instruction: str) -> SpawnRequest:
    return SpawnRequest(
        session_id=f"check-{name}",
        parent_id="check",
        bundle="check",
        instruction=instruction,
        config=plan,
        working_dir=".",
    )


async def _in_time(work: Awaitable[Any], patience: float, rule: str) -> Any:
    try:
        async with asyncio.timeout(patience) as limit:
            return await work
    except TimeoutError:
        require(not limit.expired(), f"{rule}; it did not within {patience:g} s")
        raise


def _answer_to(instruction: str) -> str:
    return f"Done: {instruction}"


class Sessions:
    """Builds sessions whose turn answers, fails or waits, and notes their lives."""

    def __init__(self, *, fails: bool = False, waits: bool = False) -> None:
        self.entered: list[str] = []
        self.left: list[str] = []
        self.turns: list[tuple[str, str]] = []
        self.began = asyncio.Event()
        self._made: dict[str, AmplifierSession] = {}
        self._fails = fails
        self._released = asyncio.Event()
        if not waits:
            self._released.set()

    @asynccontextmanager
    async def build(self, request: SpawnRequest) -> AsyncIterator[AmplifierSession]:
        """Make the session of a request, like a `SessionBuilder`."""
        session = AmplifierSession(
            dict(request.config),
            loader=_Modules(self),
            session_id=request.session_id,
            parent_id=request.parent_id,
        )
        self.entered.append(request.session_id)
        self._made[request.session_id] = session
        try:
            async with session:
                yield session
        finally:
            self.left.append(request.session_id)

    def release(self) -> None:
        """Let the waiting turns go on."""
        self._released.set()

    def is_asked_to_stop(self, session_id: str) -> bool:
        """Return whether a session was asked to end."""
        return self._made[session_id].coordinator.cancellation.is_cancelled

    async def turn(self, session_id: str, prompt: str) -> str:
        """Be the orchestrator of one turn."""
        self.turns.append((session_id, prompt))
        self.began.set()
        await self._released.wait()
        if self._fails:
            raise RuntimeError(FAULT)
        return _answer_to(prompt)

    def require_used(self, requests: list[SpawnRequest]) -> None:
        """Require one turn per request, with its instruction, in a finished session of its own."""
        for request in requests:
            wanted = [(request.session_id, request.instruction)]
            taken = [turn for turn in self.turns if turn[0] == request.session_id]
            require(
                taken == wanted, f"run must execute the request's instruction once, in its session; it did: {taken}"
            )
            self.require_left(request)

    def require_left(self, request: SpawnRequest) -> None:
        """Require that the request's session was made once, and ended before `run` did."""
        made, ended = self.entered.count(request.session_id), self.left.count(request.session_id)
        require(made == 1, f"run must enter build(request) once; it did {made} times")
        require(ended == 1, "run must leave the session before it ends itself, however it ends")


class _Modules(ModuleLoader):
    """The modules of a scripted session."""

    def __init__(self, script: Sessions) -> None:
        super().__init__()
        self._script = script

    async def load(
        self, module_id: str, config: Any = None, source_hint: Any = None, coordinator: Any = None
    ) -> Callable[[Any], Awaitable[Any]]:
        async def mount(target: Any) -> None:
            if module_id == "loop-check":
                await target.mount("orchestrator", _Loop(self._script, target.session_id))
            elif module_id == "context-check":
                await target.mount("context", MockContextManager())
            else:
                await target.mount("providers", object(), name="check")

        return mount


class _Loop:
    """The orchestrator of one scripted session."""

    def __init__(self, script: Sessions, session_id: str) -> None:
        self._script = script
        self._session_id = session_id

    async def execute(self, prompt: str, **kwargs: Any) -> str:
        return await self._script.turn(self._session_id, prompt)
