"""Call the handlers of a session's events: they observe, change, refuse, ask, or add to the context."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import cache
from inspect import CO_COROUTINE
from operator import itemgetter
from time import gmtime, strftime, time_ns
from types import CoroutineType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar

from . import events
from .cancellation import awaited_failure, count_cancellations, own_failure
from .correlation import CORRELATED, correlate
from .raised import describe_raised
from .undoing import note_step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping

    from .models import ContextInjection, HookResult

    Handler = Callable[[str, dict[str, Any]], Awaitable[HookResult | dict[str, Any] | None] | Any]
    Observer = Callable[[str, dict[str, Any]], None]
    Undo = Callable[[], None]
    Gate = Callable[[dict[str, Any]], HookResult | None]
    Registration = tuple[Handler, bool, bool, str, int]
    """The handler, whether it only observes, whether it is a coroutine function, its name, and its priority."""

logger = logging.getLogger(__name__)

_TOOL_PRE = events.TOOL_PRE
_ACTIONS = ("continue", "deny", "modify", "inject_context", "ask_user")
_SECOND = 1_000_000_000
"""Nanoseconds."""
_FUNCTIONS = (FunctionType, MethodType)
_OBSERVES, _NAME, _PRIORITY = 1, 3, 4
"""Places in a registration: a tuple, for a session makes many of them, and a class takes twice as long."""

__all__ = ["ContextInjection", "HookRegistry", "HookResult"]


def __getattr__(name: str) -> object:
    """Import a name of `models` at its first use: modules expect it here."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import models

    return getattr(models, name)


class _Observers(tuple["Registration", ...]):
    """The registrations of an event whose handlers only observe, all of them."""

    __slots__ = ()


class HookRegistry:
    """The handlers of one session.

    They run in ascending priority, equal ones in the order of registration. `deny` ends the run; otherwise the
    strongest answer wins: ask_user (the first), inject_context (all of them), continue. The result carries the data
    with the changes of all handlers; `modify` changes the data and is never a result. A failing handler is logged with
    its name and skipped, also one that exits or raises `CancelledError` by itself; on `tool:pre` it refuses the call,
    unless it only observes: it may be a guard. A cancellation of the emitting task, and an exit at a signal, are raised
    all the same.
    """

    SESSION_START: ClassVar[str] = events.SESSION_START
    SESSION_END: ClassVar[str] = events.SESSION_END
    PROMPT_SUBMIT: ClassVar[str] = events.PROMPT_SUBMIT
    TOOL_PRE: ClassVar[str] = events.TOOL_PRE
    TOOL_POST: ClassVar[str] = events.TOOL_POST
    CONTEXT_PRE_COMPACT: ClassVar[str] = events.CONTEXT_PRE_COMPACT
    ORCHESTRATOR_COMPLETE: ClassVar[str] = events.ORCHESTRATOR_COMPLETE
    USER_NOTIFICATION: ClassVar[str] = events.USER_NOTIFICATION

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[Registration, ...]] = {}
        self._defaults: dict[str, Any] = {}
        self._gate: Gate | None = None

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Undo:
        """Have `handler(event, data)` called for `event`; return a function to undo this registration alone."""
        return self.register_all({event: handler}, priority, name)

    on = register

    def register_all(self, handlers: Mapping[str, Handler], priority: int = 0, name: str | None = None) -> Undo:
        """Register the handler of each event; return a function to undo these registrations alone."""
        added: list[tuple[str, Registration]] = []
        for event, handler in handlers.items():
            code = getattr(handler, "__code__", None) if type(handler) in _FUNCTIONS else None
            is_async = code is not None and code.co_flags & CO_COROUTINE != 0
            shown = name or str(getattr(handler, "__name__", type(handler).__name__))
            entry = (handler, False, is_async, shown, priority)
            added.append((event, entry))
        return self._add(added)

    def observe(self, observers: Mapping[str, Observer], priority: int = 0, name: str = "observer") -> Undo:
        """Have `observer(event, data)` of each event called in its order; return a function to undo these alone.

        It is a plain function. It answers nothing, changes nothing, refuses nothing by its failure, and reads only what
        the emitter gave: the default fields and the `timestamp` may be missing. So an event with observers alone costs
        little more than one without a handler.
        """
        return self._add([(event, (observer, True, False, name, priority)) for event, observer in observers.items()])

    def _add(self, added: list[tuple[str, Registration]]) -> Undo:
        for event, entry in added:
            if event in self._handlers:
                self._handlers[event] = _in_order([*self._handlers[event], entry])
            else:
                self._handlers[event] = _Observers((entry,)) if entry[_OBSERVES] else (entry,)

        def unregister() -> None:
            for event, entry in added:
                self._keep(event, [each for each in self._handlers.get(event, ()) if each is not entry])

        note_step(unregister)
        return unregister

    def unregister(self, name: str) -> None:
        """Undo every registration under `name`."""
        for event, entries in list(self._handlers.items()):
            self._keep(event, [entry for entry in entries if entry[_NAME] != name])

    def clear(self) -> None:
        """Undo every registration; a gate stays."""
        self._handlers = {} if self._gate is None else {_TOOL_PRE: ()}

    def _keep(self, event: str, entries: list[Registration]) -> None:
        if entries or (event == events.TOOL_PRE and self._gate is not None):
            self._handlers[event] = _in_order(entries)
        else:
            self._handlers.pop(event, None)

    def set_default_fields(self, **fields: Any) -> None:
        """Merge `fields` under the data of every event."""
        self._defaults.update(fields)

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        """Return the handlers' names by event; of one event, or of all."""
        chosen = self._handlers if event is None else {event: self._handlers.get(event, ())}
        names = {each: [name for _, _, _, name, _ in entries] for each, entries in chosen.items()}
        return names if event is not None else {each: listed for each, listed in names.items() if listed}

    @property
    def heard(self) -> Container[str]:
        """The events with a handler, now and whenever it is asked: to emit another one only costs time.

        An `emit` replaced by a test double hears everything.
        """
        return _EVERYTHING if "emit" in self.__dict__ else self._handlers.keys()

    def has_handlers(self, event: str) -> bool:
        """Return whether `event` has a handler, see `heard`."""
        return event in self._handlers or "emit" in self.__dict__

    def guard(self, gate: Gate) -> None:
        """Ask `gate` about the data of each `tool:pre`, before its handlers, and again about what they changed.

        It returns a refusal (`deny`), a question (`ask_user`), or None. A refusal is final; a question is put unless
        the handlers refuse.
        """
        self._gate = gate
        self._handlers.setdefault(events.TOOL_PRE, ())  # it is heard

    def tell(self, event: str, data: dict[str, Any]) -> bool:
        """Tell an event to its observers; return False, and do nothing, for an event that takes an `emit`.

        Nobody can answer it, so its emitter goes on as without a handler.
        """
        entries = self._handlers.get(event)
        if type(entries) is not _Observers or (self._gate is not None and event == _TOOL_PRE):
            return False
        if "emit" in self.__dict__:
            return False
        _tell(entries or (), event, data)
        return True

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Call the handlers of `event` and return their common result.

        Without a handler the result continues with `data` itself; with one, `data` has the default fields and the
        registry's own `timestamp` (UTC, ISO 8601) in place of the caller's.
        """
        entries, gate = self._handlers.get(event, ()), self._gate if event == _TOOL_PRE else None
        if gate is None:
            if not entries:
                return _continue_with(data)
            if type(entries) is _Observers:
                _tell(entries, event, data)
                return _continue_with(data)
        payload = {**self._defaults, **data}
        payload["timestamp"] = _timestamp()  # within the braces, it is put into a dict of its own first
        if event in CORRELATED:
            correlate(event, payload)
        question = gate(payload) if gate is not None else None
        if question is not None and question.action == "deny":
            return question
        answers: list[tuple[str, HookResult]] | None = None
        before = count_cancellations() if sys.exception() else 0  # the count takes a third of an emit
        for handler, observes, is_async, name, _ in entries:
            try:
                answer = handler(event, payload)
                if is_async or type(answer) is CoroutineType or hasattr(answer, "__await__"):
                    answer = await answer
                if answer is None:
                    continue
                result = _as_result(answer)
            except BaseException as raised:
                error = await awaited_failure(raised, before)
                refuses = event == _TOOL_PRE and not observes
                _report(handler, name, event, error, "the call is refused" if refuses else "was skipped")
                if refuses:
                    return _hook_result()(action="deny", reason=f"the guard '{name}' failed: {error}")
                continue
            if event == _TOOL_PRE and answer is not True and getattr(result, "action", None) not in _ACTIONS:
                unread = TypeError(f"its answer is no HookResult: {str(answer)[:80]}")
                _report(handler, name, event, unread, "the call is refused")
                return _hook_result()(action="deny", reason=f"the guard '{name}' failed: {unread}")
            if result is None or (result.action == "continue" and not result.user_message):
                continue
            if result.action == "deny":
                return result
            if result.action == "modify" and result.data is not None:
                payload = result.data
            answers = [*(answers or ()), (name, result)]
        outcome = _merge_answers(event, payload, answers) if answers else _continue_with(payload)
        if gate is None:
            return outcome
        if entries:  # again: a handler may have changed the call
            outcome = _restore_call(outcome, payload, data)
            question = gate(outcome.data or {})
        return outcome if question is None else _put_question(question, outcome)

    async def emit_and_collect(self, event: str, data: dict[str, Any], timeout: float = 1.0) -> list[Any]:  # noqa: ASYNC109 - a published signature
        """Return the `data` of the handlers' results, without None; each handler may take `timeout` seconds.

        The default fields are added, and no `timestamp`.
        """
        payload = {**self._defaults, **data}
        if event in CORRELATED:
            correlate(event, payload)
        collected: list[Any] = []
        before = count_cancellations()
        for handler, _, _, name, _ in self._handlers.get(event, ()):
            try:
                answer = handler(event, payload)
                if hasattr(answer, "__await__"):
                    answer = await asyncio.wait_for(answer, timeout)
                result = _as_result(answer)
            except BaseException as raised:
                error = await awaited_failure(raised, before)
                _report(handler, name, event, error)
                continue
            if result is not None and result.data is not None:
                collected.append(result.data)
        return collected


def _in_order(entries: list[Registration]) -> tuple[Registration, ...]:
    entries.sort(key=itemgetter(_PRIORITY))
    return _Observers(entries) if entries and all(entry[_OBSERVES] for entry in entries) else tuple(entries)


def _tell(observers: tuple[Registration, ...], event: str, data: dict[str, Any]) -> None:
    for observer, _, _, name, _ in observers:
        try:
            observer(event, data)
        except BaseException as raised:
            _report(observer, name, event, own_failure(raised))


class _Everything:
    def __contains__(self, event: object) -> bool:
        return True


_EVERYTHING = _Everything()


def _report(handler: Handler, name: str, event: str, error: BaseException, outcome: str = "was skipped") -> None:
    logger.error("hook '%s' failed on %s and %s: %s", name, event, outcome, describe_raised(error, handler))


def _as_result(answer: Any) -> HookResult | None:
    if answer is None or answer.__class__ is _hook_result():
        return answer
    if isinstance(answer, dict):
        return _hook_result()(**answer)
    return answer if isinstance(answer, _hook_result()) else None


def _merge_answers(event: str, payload: dict[str, Any], answers: list[tuple[str, HookResult]]) -> HookResult:
    question = next((result for _, result in answers if result.action == "ask_user"), None)
    if question is not None:
        return question if question.data is not None else question.model_copy(update={"data": payload})
    if injecting := [answer for answer in answers if answer[1].action == "inject_context"]:
        return _merge_injections(event, payload, injecting)
    last = next((result for _, result in reversed(answers) if result.user_message), answers[-1][1])
    return last.model_copy(update={"action": "continue", "data": payload})


def _restore_call(outcome: HookResult, payload: dict[str, Any], given: dict[str, Any]) -> HookResult:
    """Return the result with a call's data as a whole: a loop runs the tool that it named, whatever handlers say."""
    changed, name = outcome.data, given.get("tool_name")
    if changed is not None and "tool_input" in changed and changed.get("tool_name") == name:
        return outcome
    return outcome.model_copy(update={"data": {**given, **payload, **(changed or {}), "tool_name": name}})


def _put_question(question: HookResult, outcome: HookResult) -> HookResult:
    """Return the gate's refusal, or its question together with the handlers' own one; injections wait for nobody."""
    if question.action == "deny":
        return question
    changes: dict[str, Any] = {"data": outcome.data}
    if outcome.action == "ask_user":
        changes["approval_prompt"] = f"{outcome.approval_prompt}\n{question.approval_prompt}"
    return question.model_copy(update=changes)


def _merge_injections(event: str, payload: dict[str, Any], chosen: list[tuple[str, HookResult]]) -> HookResult:
    from .models import ContextInjection

    injections = [
        ContextInjection(
            content=result.context_injection or "",
            role=result.context_injection_role,
            ephemeral=result.ephemeral,
            append_to_last_tool_result=result.append_to_last_tool_result,
            hook_name=name,
            event=event,
        )
        for name, result in chosen
    ]
    first = chosen[0][1]
    return first.model_copy(
        update={
            "data": payload if first.data is None else first.data,
            "context_injection": "\n\n".join(each.content for each in injections if each.content),
            "ephemeral": any(each.ephemeral for each in injections),
            "append_to_last_tool_result": any(each.append_to_last_tool_result for each in injections),
            "context_injections": injections,
        }
    )


@cache
def _hook_result() -> type[HookResult]:
    from .models import HookResult

    return HookResult


def _continue_with(data: dict[str, Any]) -> HookResult:
    """Return `HookResult(data=data)`; the first call replaces this function by one without an import."""
    from .models import continue_with

    globals()["_continue_with"] = continue_with
    return continue_with(data)


_stamped_second = (0, "")
_DIGITS = tuple(f"{number:03}" for number in range(1_000))


def _timestamp() -> str:
    """Return the time in UTC as ISO 8601 with microseconds; the text of a second is made once in it."""
    global _stamped_second  # one pair: a thread never joins another's second to its own text
    now = time_ns()
    begin, text = _stamped_second
    past = now - begin
    if not 0 <= past < _SECOND:
        past = now % _SECOND
        begin = now - past
        text = strftime("%Y-%m-%dT%H:%M:%S.", gmtime(begin // _SECOND))
        _stamped_second = (begin, text)
    micros = past // 1_000
    return f"{text}{_DIGITS[micros // 1_000]}{_DIGITS[micros % 1_000]}+00:00"  # a format takes twice as long
