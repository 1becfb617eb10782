"""Settle a session after a crash or a stop: each open tool call gets a result, and the session can go on.

The result of a call to delegate is the answer of the other session, when it had ended, else its id to resume; that of a
call to fork has the same of each fork. An open call has emitted the event that the store has under its
key, unless that is older than the call: a context that forgets counts its messages anew.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from .history import INTERRUPTED, interrupted_results, open_calls, text_of, time_of
from .once import apply_decisions
from .presence import as_it_is
from .records import agent_of, inherited_turns
from .stored_history import stored_transcript

ATTEMPT = "attempt"
"""The member of the metadata of a fork that a tool call made: the `call`, and the `number` of the fork in it."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message, Transcript


async def resumed_transcript(store: SessionStore, record: SessionRecord) -> Transcript:
    """Return the settled transcript to resume a session with; it reads the end of the history only.

    A call that a person has decided to run again stays open.
    """
    transcript = stored_transcript(store, record, settle=False)
    start = transcript.settled_length()
    results = await settling_results(store, record, transcript.since(start), start)
    transcript.extend(apply_decisions(record, results))
    return transcript


async def settling_results(
    store: SessionStore, record: SessionRecord, messages: Sequence[Message], start: int
) -> list[Message]:
    """Return results for the open calls in `messages`, which begin at position `start` of the session's history."""
    results = interrupted_results(messages)
    for result in results:
        name = await _find_emitted(store, record.session_id, messages, start, result["tool_call_id"])
        if name is not None:
            result["content"] = json.dumps({"emitted": name})
    delegated: dict[str, str] = {}
    has_forks = any("fork" in str(call.get("tool") or "") for call in open_calls(messages))
    for call in open_calls(messages):
        given = call.get("arguments")
        if "delegate" in str(call.get("tool") or "") and isinstance(given, dict) and given:
            delegated[call["id"]] = str(given.get("agent") or "")
    if not delegated and not has_forks:
        return results
    children = [
        each
        for each in sorted(await store.sessions(project=record.project), key=lambda made: made.created, reverse=True)
        if each.parent_id == record.session_id
    ]
    for result in results:
        forks = [each for each in reversed(children) if _call_of(each) == result["tool_call_id"]]
        if forks:
            told = [await _describe_child(store, as_it_is(each)) for each in forks]
            for each in told:
                each.pop("message", None)
            message = "The process ended while these forks worked; none is begun anew."
            result["content"] = json.dumps({**INTERRUPTED, "message": message, "forks": told}, ensure_ascii=False)
    children = [each for each in children if _call_of(each) is None]
    for result in reversed(results):  # later calls of one agent made its newer sessions
        agent = delegated.get(result["tool_call_id"])
        child = next((each for each in children if agent and agent_of(each) == agent), None)
        if child is not None:
            children.remove(child)
            result["content"] = json.dumps(await _describe_child(store, as_it_is(child)), ensure_ascii=False)
    return results


async def _find_emitted(
    store: SessionStore, session_id: str, messages: Sequence[Message], start: int, call_id: str
) -> str | None:
    """Return the name of the event that an open call has stored: its id is the key of the call."""
    from ..events.emitting import find_event

    for position, message in enumerate(messages, start):
        if call_id in [call.get("id") for call in message.get("tool_calls") or ()]:
            key = sha256(f"{session_id}\0{position}\0{call_id}".encode("utf-8", "surrogatepass"))  # as the loops do
            event, since = await find_event(store, key.hexdigest()[:32]), time_of(message)
            return event.name if event and (since is None or event.timestamp.timestamp() >= since) else None
    return None


def _call_of(child: SessionRecord) -> str | None:
    """Return the id of the call that made a fork of a session, None for another session."""
    made_by = child.metadata.get(ATTEMPT)
    return made_by.get("call") if isinstance(made_by, dict) else None


async def _describe_child(store: SessionStore, child: SessionRecord) -> dict[str, Any]:
    told = {"agent": agent_of(child), "session_id": child.session_id, "status": child.status}
    if child.status == "completed":
        last = await store.read(child.session_id, max(0, child.message_count - 1))
        turns = child.turn_count - inherited_turns(child.metadata)
        return {**told, "response": text_of(last[0]) if last else "", "turn_count": turns}
    message = "The process ended while this session worked; go on with it by its session_id, or begin anew."
    return {**told, **INTERRUPTED, "status": "interrupted", "message": message}
