"""Handlers of a session's events: they observe, change, refuse, ask, or add to the context."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, ClassVar

from . import events
from .correlation import CORRELATED, correlate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .models import ContextInjection, HookResult

    Handler = Callable[[str, dict[str, Any]], Awaitable[HookResult | dict[str, Any] | None] | Any]

logger = logging.getLogger(__name__)

__all__ = ["ContextInjection", "HookRegistry", "HookResult"]

_PRECEDENCE = ("ask_user", "inject_context", "modify", "continue")


def __getattr__(name: str) -> object:
    """Import what modules expect to find here, and only then."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import models

    return getattr(models, name)


class _Registration:
    """One handler of one event."""

    __slots__ = ("handler", "is_async", "name", "priority")

    def __init__(self, handler: Handler, priority: int, name: str) -> None:
        self.handler = handler
        self.priority = priority
        self.name = name
        code = getattr(handler, "__code__", None)  # to inspect costs ten times as much
        self.is_async = bool(code.co_flags & inspect.CO_COROUTINE) if code else inspect.iscoroutinefunction(handler)


class HookRegistry:
    """The handlers of one session.

    They run in ascending priority, equal ones in the order of registration. `deny` ends the run; otherwise the
    strongest answer wins: ask_user (the first), inject_context (all of them), modify (the last), continue. Whichever
    wins carries the data as the handlers changed it. A handler that fails is logged with its name and skipped.
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
        self._handlers: dict[str, tuple[_Registration, ...]] = {}
        self._defaults: dict[str, Any] = {}

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        """Have `handler(event, data)` called for `event`; return what takes exactly this registration back."""
        entry = _Registration(handler, priority, name or str(getattr(handler, "__name__", type(handler).__name__)))
        kept = (*self._handlers.get(event, ()), entry)
        self._handlers[event] = tuple(sorted(kept, key=lambda each: each.priority))

        def unregister() -> None:
            self._keep(event, [each for each in self._handlers.get(event, ()) if each is not entry])

        return unregister

    on = register

    def unregister(self, name: str) -> None:
        """Take back every registration under `name`."""
        for event, entries in list(self._handlers.items()):
            self._keep(event, [entry for entry in entries if entry.name != name])

    def _keep(self, event: str, entries: list[_Registration]) -> None:
        if entries:
            self._handlers[event] = tuple(entries)
        else:
            self._handlers.pop(event, None)

    def set_default_fields(self, **fields: Any) -> None:
        """Merge `fields` under the data of every event."""
        self._defaults.update(fields)

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        """Return the handlers' names by event; of one event, or of all."""
        chosen = self._handlers if event is None else {event: self._handlers.get(event, ())}
        return {name: [entry.name for entry in entries] for name, entries in chosen.items()}

    def has_handlers(self, event: str) -> bool:
        """Return whether anybody listens to `event`: emitting it otherwise only costs time.

        An `emit` that a test has put in place of this one hears everything.
        """
        return event in self._handlers or "emit" in self.__dict__

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Call the handlers of `event` and return what they agreed on.

        Without a handler the result continues with `data` itself; with one, `data` has the default fields and a
        `timestamp` (UTC, ISO 8601).
        """
        entries = self._handlers.get(event)
        if entries is None:
            return _passed(data)
        payload = self._stamped(event, data)
        answers: list[tuple[str, HookResult]] = []
        for entry in entries:
            try:
                answer = entry.handler(event, payload)
                if entry.is_async or hasattr(answer, "__await__"):
                    answer = await answer
                result = None if answer is None else _as_result(answer)
            except (Exception, asyncio.CancelledError) as error:
                _report(entry, event, error)
                continue
            if result is None or (result.action == "continue" and not result.user_message):
                continue
            if result.action == "deny":
                return result
            if result.action == "modify" and result.data is not None:
                payload = result.data
            answers.append((entry.name, result))
        return _agreed(event, payload, answers) if answers else _passed(payload)

    async def emit_and_collect(self, event: str, data: dict[str, Any], timeout: float = 1.0) -> list[Any]:  # noqa: ASYNC109 - a published signature
        """Return the `data` of every handler's result that has any; each handler may take `timeout` seconds."""
        payload = self._stamped(event, data)
        collected: list[Any] = []
        for entry in self._handlers.get(event, ()):
            try:
                answer = entry.handler(event, payload)
                if entry.is_async or hasattr(answer, "__await__"):
                    answer = await asyncio.wait_for(answer, timeout)
                result = _as_result(answer)
            except (Exception, asyncio.CancelledError) as error:
                _report(entry, event, error)
                continue
            if result is not None and result.data is not None:
                collected.append(result.data)
        return collected

    def _stamped(self, event: str, data: Mapping[str, Any]) -> dict[str, Any]:
        payload = {**self._defaults, **data}
        if "timestamp" not in payload:
            payload["timestamp"] = _timestamp()
        if event in CORRELATED:
            correlate(event, payload)
        return payload


def _report(entry: _Registration, event: str, error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
    logger.error("hook '%s' failed on %s and was skipped: %s: %s", entry.name, event, type(error).__name__, error)


def _as_result(answer: Any) -> HookResult | None:
    if answer is None or answer.__class__ is _hook_result():
        return answer
    if isinstance(answer, dict):
        return _hook_result()(**answer)
    return answer if isinstance(answer, _hook_result()) else None


def _agreed(event: str, payload: dict[str, Any], answers: list[tuple[str, HookResult]]) -> HookResult:
    for action in _PRECEDENCE:
        chosen = [(name, result) for name, result in answers if result.action == action]
        if chosen and action == "ask_user":
            first = chosen[0][1]
            return first if first.data is not None else first.model_copy(update={"data": payload})
        if chosen and action == "inject_context":
            return _merged_injections(event, payload, chosen)
        if chosen:
            return chosen[-1][1].model_copy(update={"data": payload})
    return _passed(payload)


def _merged_injections(event: str, payload: dict[str, Any], chosen: list[tuple[str, HookResult]]) -> HookResult:
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


_new = object.__new__
_cached_class: type[HookResult] | None = None
_template: dict[str, Any] = {}
_slot_setters: tuple[Callable[[HookResult, Any], None], ...] = ()


def _hook_result() -> type[HookResult]:
    global _cached_class, _slot_setters
    if _cached_class is None:
        from pydantic import BaseModel

        from .models import HookResult

        slots = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
        _slot_setters = tuple(BaseModel.__dict__[slot].__set__ for slot in slots)
        _template.update(HookResult().__dict__)
        _cached_class = HookResult
    return _cached_class


def _passed(data: dict[str, Any]) -> HookResult:
    """Return `HookResult(data=data)` without validating what is known to be valid: the kernel's hottest path."""
    result: HookResult = _new(_cached_class or _hook_result())
    fields = _template.copy()
    fields["data"], fields["context_injections"] = data, []
    set_fields, set_fields_set, set_extra, set_private = _slot_setters
    set_fields(result, fields)
    set_fields_set(result, {"data"})
    set_extra(result, None)
    set_private(result, None)
    return result


_stamped_second = ("", "")


def _timestamp() -> str:
    """Return the time in UTC as ISO 8601 with microseconds; the text of a second is made once in it."""
    global _stamped_second  # one pair, so that a thread never joins another's second to its own text
    now = str(time.time_ns())
    second = now[:-9]
    known, text = _stamped_second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(second)))
        _stamped_second = (second, text)
    return f"{text}.{now[-9:-3]}+00:00"
