"""What a crash or a stop cut in a session, settled: each open tool call gets a result, so that the session can go on.

A call that gave a task to another session is told what that came to: its answer, when it had ended, else the session
that the task can be gone on with.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .history import INTERRUPTED, interrupted_results, open_calls
from .presence import as_it_is
from .runners import text_of
from .spawning.records import agent_of
from .stored_history import stored_transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message, Transcript


async def resumed_transcript(store: SessionStore, record: SessionRecord) -> Transcript:
    """Return the transcript to resume a session with, settled; it costs the end of the history."""
    transcript = stored_transcript(store, record, settle=False)
    open_part = transcript.since(transcript.settled())
    transcript.extend(await settling_results(store, record.session_id, record.project, open_part))
    return transcript


async def settling_results(
    store: SessionStore, session_id: str, project: str, messages: Sequence[Message]
) -> list[Message]:
    """Return the results of the calls in `messages` that have none; see the module."""
    results = interrupted_results(messages)
    tasks = {call["id"]: agent for call in open_calls(messages) if (agent := _agent_asked(call)) is not None}
    if not tasks:
        return results
    children = [
        each
        for each in sorted(await store.sessions(project=project), key=lambda record: record.created, reverse=True)
        if each.parent_id == session_id
    ]
    for result in reversed(results):
        child = _taken(children, tasks.get(result["tool_call_id"]))
        if child is not None:
            result["content"] = json.dumps(await _came_to(store, as_it_is(child)), ensure_ascii=False)
    return results


def _agent_asked(call: dict[str, Any]) -> str | None:
    """Return the agent that a call gives a task to, None for another call."""
    asked = call.get("arguments")
    named = "delegate" in str(call.get("tool") or "") and isinstance(asked, dict)
    return str(asked.get("agent") or "") if named and asked else None


def _taken(children: list[SessionRecord], agent: str | None) -> SessionRecord | None:
    """Take the newest session of `agent` off the list; later calls of one agent made the newer ones."""
    child = next((each for each in children if agent and agent_of(each) == agent), None)
    if child is not None:
        children.remove(child)
    return child


async def _came_to(store: SessionStore, child: SessionRecord) -> dict[str, Any]:
    told = {"agent": agent_of(child), "session_id": child.session_id, "status": child.status}
    if child.status == "completed":
        last = await store.read(child.session_id, max(0, child.message_count - 1))
        return {**told, "response": text_of(last[0]) if last else "", "turn_count": child.turn_count}
    message = "The process ended while this session worked; go on with it by its session_id, or begin anew."
    return {**told, **INTERRUPTED, "status": "interrupted", "message": message}
