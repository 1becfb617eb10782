"""Keep tools with `effects = "once"` from running a second time unasked.

Tool calls happen at least once: a call that a kill interrupts may or may not have had its effect. A tool that must not
act twice says `effects = "once"`, as an attribute or in its `config`. Before a call of it begins, the session's record
is marked; the mark goes when the result is durable. What a mark in a stored record means:

* without a decision, the call was interrupted: the session is not resumed (`EffectsUncertain`), a person decides;
* `done`: the call counts as completed, and its output is unknown;
* `again`: the call runs again, as itself, with its idempotency key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core import events
from amplifier_core.errors import SessionError

from .held import held_of
from .records import FORKED, with_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message

    from .records import RunningMetadata

    Decision = Literal["done", "again"]

ONCE = "once"
"""The value of a tool's `effects`, and the member of a record's metadata with the marks, by the ids of calls."""
RUN_AGAIN = "tool.run_again"
"""The capability with the ids of open calls to run again, for an orchestrator with `runs_open_calls`."""
ASSUMED_DONE = "A person decided that this tool call took effect. Its output is unknown. Do not repeat it."
NOT_DONE = "A person decided that this tool call did not take effect. Call the tool again."
ASK_FIRST = (
    "The process ended while this tool ran; whether it took effect is unknown, and it must not take effect twice. "
    "Do not call it again unless you are told to."
)

_AFTER_RECORDER = -999_998
_CUT = ("Cancelled", "CancelledError", "ToolProcessEnded")
"""Types of `tool:error` after which the effect is unknown."""


class EffectsUncertain(SessionError, RuntimeError):
    """Calls of tools with effects once were interrupted; `tools` are their names."""

    def __init__(self, session_id: str, tools: Iterable[str]) -> None:
        self.tools = tuple(dict.fromkeys(tools))
        named = ", ".join(f"'{tool}'" for tool in self.tools)
        super().__init__(
            session_id,
            f"the call of {named} in session '{session_id}' was interrupted: it may have had its effect, and must not "
            f"have it twice. Look, then decide with: amplifier trigger retry ID --assume-done, or --run-again",
        )


class OnceGuard:
    """Marks the calls of a session's tools with effects once while they may have had an effect unnoticed."""

    def __init__(self, session: AmplifierSession, metadata: RunningMetadata) -> None:
        self._session = session
        self._metadata = metadata
        metadata.values.pop(ONCE, None)
        self._marks: dict[str, dict[str, Any]] = {}
        self._finished: set[str] = set()

    @property
    def marks(self) -> dict[str, dict[str, Any]]:
        """The marks left at the end of a session, when its history is stored: those of calls that were cut.

        The history has a result for such a call, which does not tell its effect.
        """
        return {
            call_id: {**mark, "cut": True} for call_id, mark in self._marks.items() if call_id not in self._finished
        }

    def attach(self) -> None:
        """Begin to mark calls, if any mounted tool has effects once."""
        if not any(map(_has_effects_once, (self._session.coordinator.get("tools") or {}).values())):
            return
        register = self._session.coordinator.hooks.register
        register(events.TOOL_PRE, self._begin_call, _AFTER_RECORDER, "once-guard")
        for event in (events.TOOL_POST, events.TOOL_ERROR):
            register(event, self._end_call, _AFTER_RECORDER, "once-guard")
        for event in (events.PROVIDER_REQUEST, events.ORCHESTRATOR_COMPLETE):
            register(event, self._clear_marks, _AFTER_RECORDER, "once-guard")

    async def _begin_call(self, event: str, data: dict[str, Any]) -> Any:
        tool = (self._session.coordinator.get("tools") or {}).get(data.get("tool_name"))
        if not _has_effects_once(tool):
            return None
        call_id = str(data.get("tool_call_id"))
        self._marks[call_id] = {"tool": data.get("tool_name"), "key": data.get("idempotency_key")}
        try:
            await self._write()
        except Exception as error:
            from amplifier_core.models import HookResult

            self._marks.pop(call_id)
            return HookResult(action="deny", reason=f"a call with effects once cannot be marked: {error}")
        return None

    def _end_call(self, event: str, data: dict[str, Any]) -> None:
        error = data.get("error") if event == events.TOOL_ERROR else None
        if not (isinstance(error, dict) and error.get("type") in _CUT):
            self._finished.add(str(data.get("tool_call_id")))

    async def _clear_marks(self, event: str, data: dict[str, Any]) -> None:
        # Runs after the recorder's checkpoint: the results of finished calls are durable by now.
        if self._finished & self._marks.keys():
            self._marks = {call_id: mark for call_id, mark in self._marks.items() if call_id not in self._finished}
            await self._write()
        self._finished.clear()

    async def _write(self) -> None:
        await self._metadata.write(**{ONCE: self._marks})


def _has_effects_once(tool: Any) -> bool:
    config = getattr(tool, "config", None)
    said = config.get("effects") if isinstance(config, dict) else None
    return tool is not None and ONCE in (getattr(tool, "effects", None), said)


def marks_of(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the marks in the metadata of a record, by the ids of calls."""
    marks = metadata.get(ONCE)
    return {call_id: dict(mark) for call_id, mark in marks.items()} if isinstance(marks, dict) else {}


async def check_effects(store: SessionStore, record: SessionRecord) -> None:
    """Return when nothing in a session, or in those below it, waits for a decision. Raises `EffectsUncertain`."""
    for each in await _read_tree(store, record):
        undecided = await _undecided(store, each)
        if undecided:
            raise EffectsUncertain(each.session_id, [str(mark.get("tool")) for mark in undecided.values()])


async def decide_effects(store: SessionStore, session_id: str, decision: Decision) -> int:
    """Write a person's decision on the interrupted calls of a session and those below it; return their number."""
    decided = 0
    for each in await _read_tree(store, await store.get(session_id)):
        undecided = await _undecided(store, each)
        if undecided:
            marks = {call_id: {**mark, "decision": decision} for call_id, mark in undecided.items()}
            decided_on = with_members(each.metadata, {ONCE: {**marks_of(each.metadata), **marks}})
            await store.update(each.session_id, metadata=decided_on)
            decided += len(undecided)
    return decided


async def _undecided(store: SessionStore, record: SessionRecord) -> dict[str, dict[str, Any]]:
    """Return the marks without a decision; a call whose own result is stored, or that has not begun, needs none."""
    held = held_of(record.metadata)
    marks = {
        call_id: mark
        for call_id, mark in marks_of(record.metadata).items()
        if "decision" not in mark and call_id not in held
    }
    if marks:
        answered = {each.get("tool_call_id") for each in await store.read(record.session_id)}
        marks = {call_id: mark for call_id, mark in marks.items() if mark.get("cut") or call_id not in answered}
    return marks


async def _read_tree(store: SessionStore, record: SessionRecord) -> list[SessionRecord]:
    """Return a session and all sessions that work for it."""
    tree = [record]
    for each in tree:  # it grows meanwhile
        made = await store.sessions(parent_id=each.session_id)
        tree += [below for below in made if not below.metadata.get(FORKED)]
    return tree


def apply_decisions(record: SessionRecord, results: list[Message]) -> list[Message]:
    """Return the results that settle the open calls of a session, as decided.

    A call to run again gets none, nor does a held one.
    """
    marks, held = marks_of(record.metadata), held_of(record.metadata)
    kept = []
    for result in results:
        if str(result.get("tool_call_id")) in held:
            continue
        mark = marks.get(str(result.get("tool_call_id")))
        if mark is None:
            kept.append(result)
        elif mark.get("decision") != "again":
            done = mark.get("decision") == "done"
            told = {"assumed_done": done, "message": ASSUMED_DONE if done else ASK_FIRST}
            kept.append({**result, "content": json.dumps(told)})
    return kept


async def hand_over_decisions(session: AmplifierSession, metadata: Mapping[str, Any]) -> None:
    """Have a resumed session run the decided and the held calls again, or tell it the decision where it cannot."""
    held = held_of(metadata)
    marks = {call_id: mark for call_id, mark in marks_of(metadata).items() if call_id not in held}
    open_calls = {**held, **{call_id: mark for call_id, mark in marks.items() if not mark.get("cut")}}
    again = [call_id for call_id, mark in open_calls.items() if call_id in held or mark.get("decision") == "again"]
    context = session.coordinator.get("context")
    if getattr(session.coordinator.get("orchestrator"), "runs_open_calls", False):
        session.coordinator.register_capability(RUN_AGAIN, again)
    else:
        for call_id in again:
            name = str(open_calls[call_id].get("tool") or "")
            content = json.dumps({"interrupted": True, "message": NOT_DONE})
            await context.add_message({"role": "tool", "tool_call_id": call_id, "name": name, "content": content})
    for mark in marks.values():
        if mark.get("cut"):  # its result is in the history already: a note follows it
            text = ASSUMED_DONE if mark.get("decision") == "done" else NOT_DONE
            note = f"<system-reminder>About the interrupted call of {mark.get('tool')}: {text}</system-reminder>"
            await context.add_message({"role": "user", "content": note, "metadata": {"source": "hook"}})
