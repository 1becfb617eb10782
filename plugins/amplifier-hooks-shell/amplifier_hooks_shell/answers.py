"""Read what a command answered, and put the answers of several together."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .config import GUARDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .running import Ran

LONGEST = 10_000
"""Characters of a text for the model, or for the person."""
_STOPS = ("Stop", "SubagentStop")
_TELLING = ("UserPromptSubmit", "SessionStart")
"""The events whose commands tell the model what they print."""
_KEYS = {
    *("continue", "stopReason", "suppressOutput", "systemMessage", "terminalSequence"),
    *("decision", "reason", "hookSpecificOutput", "async", "asyncTimeout"),
}
"""The keys of an answer in Claude Code; some have no effect here."""
_SPECIAL_KEYS = {
    "PreToolUse": {
        *("hookEventName", "permissionDecision", "permissionDecisionReason", "updatedInput", "additionalContext"),
    },
    "UserPromptSubmit": {"hookEventName", "additionalContext", "sessionTitle", "suppressOriginalPrompt"},
}
"""Those of `hookSpecificOutput`, by event."""
_DECISIONS = {"approve": "", "allow": "", "block": "deny", "deny": "deny", "ask": "ask", "": ""}


@dataclass(slots=True)
class Answer:
    """What commands want to happen. An empty text: nothing."""

    deny: str = ""
    ask: str = ""
    stop: str = ""
    """Why the turn is to end."""
    input: dict[str, Any] | None = None
    """What the tool gets instead."""
    context: list[str] = field(default_factory=list)
    """Texts for the model."""
    shown: list[str] = field(default_factory=list)
    """Texts for the person."""
    failures: list[str] = field(default_factory=list)
    """Texts about commands that failed without a consequence."""


class JunkError(Exception):
    """The output of a command has no meaning."""


def read_answer(event: str, name: str, ran: Ran, *, denies: bool) -> Answer:
    """Return what an ended command wants; `denies` says that a failure of it is a denial.

    Exit code 2 is a denial with the error output as its reason, 0 an answer in JSON or none, and every other end a
    failure.
    """
    said = cut(ran.stderr.strip())
    if ran.problem:
        return _fail(name, ran.problem, denies=denies)
    if ran.code == 2:
        return _refuse(event, said or f"{name} ended with the exit code 2")
    if ran.code != 0:
        return _fail(name, f"ended with the exit code {ran.code}{f': {said}' if said else ''}", denies=denies)
    try:
        return _read_output(event, name, ran.stdout.strip())
    except JunkError as error:
        return _fail(name, f"printed what is no answer ({error})", denies=denies)


def merge(answers: Iterable[Answer]) -> Answer:
    """Return all answers as one; of several inputs, the last one counts."""
    merged = Answer()
    for each in answers:
        merged.deny = merged.deny or each.deny
        merged.ask = merged.ask or each.ask
        merged.stop = merged.stop or each.stop
        merged.input = merged.input if each.input is None else each.input
        merged.context += each.context
        merged.shown += each.shown
        merged.failures += each.failures
    return merged


def cut(text: str) -> str:
    """Return a text with a bounded length."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n[cut here]"


def _fail(name: str, problem: str, *, denies: bool) -> Answer:
    about = f"the hook {name} {problem}"
    if denies:
        return Answer(deny=f"{about}. With 'on_error: continue' it would not deny")
    return Answer(failures=[about])


def _refuse(event: str, reason: str) -> Answer:
    if event in GUARDS or event in _STOPS:
        return Answer(deny=reason)
    return Answer(context=[reason]) if event == "PostToolUse" else Answer(shown=[reason])


def _read_output(event: str, name: str, text: str) -> Answer:
    """Return the answer of a command that succeeded. Raises `JunkError`."""
    if not text.startswith("{"):
        if text and event == "PreToolUse":  # a denial may follow
            raise JunkError("neither a JSON object nor nothing")
        return Answer(context=[cut(text)] if text and event in _TELLING else [])
    try:
        output = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JunkError(str(error)) from None
    special = _take(output, "hookSpecificOutput", dict) or {}
    if special.get("hookEventName", event) != event:
        raise JunkError(f"it is about {special['hookEventName']}")
    if event in GUARDS:  # what is unknown may be a misspelt denial
        _check_keys(event, output, special)
    answer = _decide(event, name, output, special)
    if context := _take(special, "additionalContext", str):
        answer.context.append(cut(context))
    if message := _take(output, "systemMessage", str):
        answer.shown.append(cut(message))
    if _take(output, "continue", bool) is False:
        answer.stop = cut(_take(output, "stopReason", str) or f"{name} ended the turn")
    return answer


def _check_keys(event: str, output: dict[str, Any], special: dict[str, Any]) -> None:
    """Raise `JunkError` for a key of a guard's answer that has no meaning where it stands.

    A guard of prompts may print JSON of its own, in which nothing looks like a denial.
    """
    inside = _SPECIAL_KEYS[event]
    for given, known, others, place in ((output, _KEYS, inside, "into"), (special, inside, _KEYS, "beside")):
        for key in sorted(key for key, value in given.items() if key not in known and value is not None):
            if key in others:
                raise JunkError(f"'{key}' belongs {place} 'hookSpecificOutput'")
            close = get_close_matches(key, known | others, n=1)
            if close or event == "PreToolUse":
                raise JunkError(f"unknown key '{key}'" + (f"; did you mean '{close[0]}'?" if close else ""))


def _decide(event: str, name: str, output: dict[str, Any], special: dict[str, Any]) -> Answer:
    """Return the decision in an answer. Raises `JunkError` for an unknown one."""
    decision = _take(output, "decision", str) or ""
    reason = cut(_take(output, "reason", str) or "")
    if event == "PreToolUse":
        decision = _take(special, "permissionDecision", str) or decision
        reason = cut(_take(special, "permissionDecisionReason", str) or reason)
    if decision not in _DECISIONS or (decision == "ask" and event != "PreToolUse"):
        raise JunkError(f"the decision {decision!r}")
    answer = Answer(input=_take(special, "updatedInput", dict) if event == "PreToolUse" else None)
    meaning = _DECISIONS[decision]
    if meaning == "ask":
        answer.ask = reason or f"{name} asks"
    elif meaning == "deny":
        answer = _refuse(event, reason or f"{name} denied it")
    return answer


def _take(holder: dict[str, Any], key: str, kind: type) -> Any:
    """Return a value, None for a missing one. Raises `JunkError` for one of another type."""
    value = holder.get(key)
    if value is not None and not isinstance(value, kind):
        raise JunkError(f"'{key}' is no {kind.__name__}")
    return value
