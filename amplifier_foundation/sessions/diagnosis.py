"""Diagnose and repair transcripts after a crash, or after another program: providers refuse broken ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .transcripts import (
    INTERRUPTED,
    add_synthetic_tool_results,
    find_orphaned_tool_calls,
    get_turn_boundaries,
    is_real_user_message,
    results_in,
    tool_calls_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_core.transcript import Message

LOST = "The result of this tool call was lost: an error, or an end of the process, while it ran."
LINE = "line_num"
"""The member of an entry with its line in the file, from 1."""


class IncompleteTurn(TypedDict):
    """A turn without an answer at its end: tool results, and then the next message of a person."""

    after_line: int
    missing: Literal["assistant_response"]


class DiagnosisResult(TypedDict):
    """The problems of a transcript.

    `failure_modes` are `missing_tool_results`, `ordering_violation` (a result apart from its call) and
    `incomplete_assistant_turn`.
    """

    status: Literal["healthy", "broken"]
    failure_modes: list[str]
    orphaned_tool_ids: list[str]
    misplaced_tool_ids: list[str]
    incomplete_turns: list[IncompleteTurn]
    recommended_action: Literal["none", "repair"]


def diagnose_transcript(entries: Sequence[Message]) -> DiagnosisResult:
    """Return the problems of the entries; without `line_num`, their lines are counted from 1."""
    orphaned, misplaced = find_orphaned_tool_calls(entries), [call_id for _, call_id in _find_misplaced(entries)]
    incomplete: list[IncompleteTurn] = [
        {"after_line": int(entries[position - 1].get(LINE, position)), "missing": "assistant_response"}
        for position in _find_unanswered(entries)
    ]
    modes = {
        "missing_tool_results": orphaned,
        "ordering_violation": misplaced,
        "incomplete_assistant_turn": incomplete,
    }
    broken = [mode for mode, found in modes.items() if found]
    return {
        "status": "broken" if broken else "healthy",
        "failure_modes": broken,
        "orphaned_tool_ids": orphaned,
        "misplaced_tool_ids": misplaced,
        "incomplete_turns": incomplete,
        "recommended_action": "repair" if broken else "none",
    }


def repair_transcript(entries: Sequence[Message], diagnosis: DiagnosisResult) -> list[Message]:
    """Return the entries repaired, without `line_num`.

    A result apart from its call is removed. Each call without a result gets an error as its result, and each turn
    without an answer gets a note of its interruption.
    """
    misplaced = {position for position, _ in _find_misplaced(entries)} if diagnosis["misplaced_tool_ids"] else set()
    kept = [entry for position, entry in enumerate(strip_lines(entries)) if position not in misplaced]
    lost = {*diagnosis["orphaned_tool_ids"], *diagnosis["misplaced_tool_ids"]}
    complete = add_synthetic_tool_results(kept, lost, LOST)
    for position in reversed(list(_find_unanswered(complete))):
        complete.insert(position, {"role": "assistant", "content": INTERRUPTED})
    return complete


def rewind_transcript(entries: Sequence[Message], diagnosis: DiagnosisResult) -> list[Message]:
    """Return the entries before the first turn with a problem, without `line_num`."""
    whole = strip_lines(entries)
    if diagnosis["status"] == "healthy":
        return whole
    lost = {*diagnosis["orphaned_tool_ids"], *diagnosis["misplaced_tool_ids"]}
    wrong = [position for position, entry in enumerate(whole) if not lost.isdisjoint(tool_calls_of(entry))]
    wrong += [position - 1 for position in _find_unanswered(whole)] + [
        position for position, _ in _find_misplaced(whole)
    ]
    first = min(wrong, default=0)
    starts = [start for start in get_turn_boundaries(whole) if start <= first]
    return whole[: starts[-1] if starts else 0]


def strip_lines(entries: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the entries without `line_num`."""
    return [{key: value for key, value in entry.items() if key != LINE} for entry in entries]


def _find_misplaced(entries: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """Yield the position and the call of each result apart from its call, or before it."""
    open_calls: set[str] = set()
    for position, entry in enumerate(entries):
        results = results_in(entry)
        if not results:
            open_calls = set(tool_calls_of(entry))
        for call_id in sorted(results - open_calls):
            yield position, call_id


def _find_unanswered(entries: Sequence[Message]) -> Iterator[int]:
    """Yield the positions of a person's messages right after a tool's result."""
    for position in range(1, len(entries)):
        if is_real_user_message(entries[position]) and results_in(entries[position - 1]):
            yield position
