"""Ask a session, and the sessions below it, to stop: first gracefully, then at once."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import traceback
from enum import StrEnum
from functools import partial
from inspect import getargvalues
from itertools import pairwise
from opcode import opmap
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .errors import PluginError
from .raised import describe_at, is_readable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import CodeType

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ALARMS = {getattr(signal, name, None) for name in ("SIGALRM", "SIGVTALRM", "SIGPROF")}
"""The signals by which modules bound blocking calls."""


class CancellationState(StrEnum):
    """How far a cancellation has gone; it only ever goes further, until `reset`."""

    NONE = "none"
    GRACEFUL = "graceful"
    IMMEDIATE = "immediate"


_NONE = CancellationState.NONE  # a turn asks often, and to look up the member takes longer than to compare it
_RANK = {CancellationState.NONE: 0, CancellationState.GRACEFUL: 1, CancellationState.IMMEDIATE: 2}


class CancellationToken:
    """The request to stop one session. Children take over the state of their parent, now and later.

    Graceful: running tools finish, a response of the model is closed, nothing new begins. Immediate: running tools are
    cancelled.
    """

    def __init__(self) -> None:
        self._state = _NONE
        self._running: dict[str, str] = {}
        self._children: list[CancellationToken] = []
        self._callbacks: list[Callable[[], Awaitable[None]]] = []
        self._listeners: list[Callable[[], None]] = []

    @property
    def state(self) -> CancellationState:
        """How far it has gone."""
        return self._state

    @property
    def is_cancelled(self) -> bool:
        """Whether any stop was requested."""
        return self._state is not _NONE

    @property
    def is_graceful(self) -> bool:
        """Whether a graceful stop, and no more, was requested."""
        return self._state is CancellationState.GRACEFUL

    @property
    def is_immediate(self) -> bool:
        """Whether an immediate stop was requested."""
        return self._state is CancellationState.IMMEDIATE

    @property
    def running_tools(self) -> set[str]:
        """The ids of the running tool calls."""
        return set(self._running)

    @property
    def running_tool_names(self) -> list[str]:
        """The names of the running tools."""
        return list(self._running.values())

    def request_graceful(self) -> bool:
        """Ask to stop when running tools have finished; return whether the state changed."""
        return self._advance(CancellationState.GRACEFUL)

    def request_immediate(self) -> bool:
        """Ask to stop now; return whether the state changed."""
        return self._advance(CancellationState.IMMEDIATE)

    def _advance(self, state: CancellationState) -> bool:
        changed = _RANK[state] > _RANK[self._state]
        if changed:
            self._state = state
            for listener in list(self._listeners):
                try:
                    listener()
                except Exception:
                    logger.exception("a listener to a cancellation failed")
        for child in list(self._children):
            child._advance(state)
        return changed

    def reset(self) -> None:
        """Forget the request, here and in the children: the next turn begins clean."""
        self._state = _NONE
        self._running.clear()
        for child in list(self._children):
            child.reset()

    def register_tool_start(self, tool_call_id: str, tool_name: str) -> None:
        """Note the start of a tool call."""
        self._running[tool_call_id] = tool_name

    def register_tool_complete(self, tool_call_id: str) -> None:
        """Note the end of a tool call."""
        self._running.pop(tool_call_id, None)

    def register_child(self, child: CancellationToken) -> None:
        """Let `child` follow this token from its present state on."""
        if child not in self._children:
            self._children.append(child)
        if self._state is not _NONE:
            child._advance(self._state)

    def unregister_child(self, child: CancellationToken) -> None:
        """Let `child` go its own way; unknown ones are ignored."""
        if child in self._children:
            self._children.remove(child)

    def on_cancel(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have `callback` awaited by `trigger_callbacks`."""
        self._callbacks.append(callback)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a stop is requested, here or above, before the request returns."""
        self._listeners.append(listener)

    def clear(self) -> None:
        """Forget the callbacks and listeners; the state stays."""
        self._callbacks = []
        self._listeners = []

    async def trigger_callbacks(self) -> None:
        """Await every callback in order, then the children's; a failing one is logged, and the rest still run.

        A callback's own `CancelledError` is such a failure. Raises the first exit of the program (`KeyboardInterrupt`),
        or the cancellation of the calling task, when every callback has run.
        """
        errors = [await _run_callback(callback) for callback in list(self._callbacks)]
        errors += [await _run_callback(child.trigger_callbacks) for child in list(self._children)]
        for error in filter(None, errors):
            raise error


async def _run_callback(callback: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Await `callback` and log a failure; return an exception only if it must end the caller."""
    try:
        await callback()
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            return error
        logger.exception("a cancellation callback failed")
    except BaseException as error:
        return error
    return None


def as_failure(error: BaseException, before: int = 0) -> BaseException:
    """Return a `PluginError` in place of an error of a module without a readable text, or of no class of `Exception`.

    The latter is an exit, a cancellation that nobody asked the current task for, or such as the `PanicException` of
    extensions in Rust: a module may not end its caller. Any other `Exception` is returned as it is, and so is the
    exit of a signal handler: it belongs to the program, wherever the signal arrives. A `KeyboardInterrupt` does, too,
    unless a module has certainly raised it. An error of another class is the program's if its handler is still
    installed, and for no alarm: modules install such handlers for a call. A group is returned with the failures of its
    errors. `before` is how often the task was cancelled before the module was called.
    """
    if isinstance(error, Exception) and is_readable(error):
        return error
    if isinstance(error, BaseExceptionGroup):
        failures = [_member_failure(each, before) for each in error.exceptions]
        return BaseExceptionGroup(error.message, failures).with_traceback(error.__traceback__)
    if isinstance(error, asyncio.CancelledError):
        is_own = count_cancellations() <= before
        said = "raised CancelledError, and nobody has cancelled its work"
    elif isinstance(error, KeyboardInterrupt | GeneratorExit):
        is_own = _is_raised_by_module(error)
        said = f"raised {type(error).__name__}, which a module may not do"
    else:
        is_own, said = not _is_at_signal(error), f"raised {describe_at(error, '')}"
        if isinstance(error, SystemExit):
            said = f"called exit({error.code!r}), which a module may not do"
    return PluginError(f"{_place_of(error)}{said}") if is_own else error


def _member_failure(error: BaseException, before: int) -> BaseException:
    """Return what `as_failure` does for an error in a group: the exit that closes a generator ends there."""
    if isinstance(error, GeneratorExit):
        return PluginError(f"{_place_of(error)}closed a generator with a group of tasks in it")
    return as_failure(error, before)


def ends_program(error: BaseException) -> bool:
    """Return whether an error out of a module's code is the program's own: of a signal. Groups are a module's."""
    if isinstance(error, Exception | asyncio.CancelledError | GeneratorExit):
        return False
    return as_failure(error) is error


def own_failure(error: BaseException, before: int = 0) -> Exception:
    """Return what a module raised as an `Exception`; raise what is not its own, see `as_failure`."""
    failure = as_failure(error, before)
    if not isinstance(failure, Exception):
        raise failure
    return failure


async def awaited_failure(error: BaseException, before: int = 0) -> Exception:
    """Do as `own_failure` for awaited code, and raise a cancellation of the task that the code has lost."""
    failure = own_failure(error, before)
    if count_cancellations() > before:
        await asyncio.sleep(0)  # raises one that is still to come
        raise asyncio.CancelledError from error
    return failure


async def run_guarded(work: Awaitable[T]) -> T:
    """Await the work of a module; raise its errors as `as_failure` returns them."""
    try:
        return await work
    except BaseException as raised:
        if (failure := as_failure(raised)) is raised:
            raise
        raise failure from raised


async def call_guarded(function: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs) -> T:
    """Call an asynchronous function of a module when this is awaited, as in a task, and do as `run_guarded`."""
    return await run_guarded(function(*arguments, **named))


def count_cancellations() -> int:
    """Return how often the current task was cancelled; 0 without an event loop."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return 0 if task is None else task.cancelling()


def _is_raised_by_module(error: BaseException) -> bool:
    """Return whether an interrupt comes from a `raise` of a module, and from no signal."""
    return error.__traceback__ is not None and not _is_at_signal(error) and _ends_in_raise(error)


def _ends_in_raise(error: BaseException) -> bool:
    """Return whether an interrupt comes from a `raise` outside of Python itself, which passes interrupts on so.

    Handlers in C, such as Python's own for Ctrl-C, and debuggers leave no frame: they end a module at any instruction.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    is_raised = frame.f_code.co_code[trace.tb_lasti] == opmap["RAISE_VARARGS"]
    return is_raised and package not in sys.stdlib_module_names


def _is_at_signal(error: BaseException) -> bool:
    """Return whether a handler of the program has raised an error of no class of `Exception`, or a module in its place.

    Other errors may be between the two.
    """
    at: BaseException | None = error
    seen: set[int] = set()
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if not isinstance(at, Exception) and _is_raised_by_handler(at):
            return True
        if at is not error and isinstance(at, KeyboardInterrupt) and not _ends_in_raise(at):
            return True
        at = at.__context__
    return False


def _is_raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal handler of the program has raised an error.

    Python calls it with the frame that it interrupts; a handler that has dropped this one is known by its code. An exit
    may come from one that is installed no more.
    """
    is_exit = isinstance(error, KeyboardInterrupt | SystemExit)
    signals = signal.valid_signals() - (set() if is_exit else ALARMS)
    handlers = [_code_of(signal.getsignal(each)) for each in signals]
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(frame.f_code in handlers for frame in frames):
        return True
    for interrupted, called in pairwise(frames) if is_exit else ():
        names, rest, _, values = getargvalues(called)
        if any(each is interrupted for each in (*map(values.get, names), *values.get(rest or "", ()))):
            return True
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a function, a method, a callable object, or a `partial` of one; None for any other object."""
    while isinstance(handler, partial):
        handler = handler.func
    if not callable(handler):
        return None
    function = getattr(handler, "__func__", handler)
    return getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def _place_of(error: BaseException) -> str:
    """Return the file and line that raised an error, `""` where that is not known; what only waits is none."""
    found, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name != "__await__" and "asyncio" not in code.co_filename.split("/")[-2:-1]:
            found = f"{code.co_filename}, line {trace.tb_lineno}: it "
        trace = trace.tb_next
    return found
