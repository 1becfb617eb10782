"""Examine and repair a stored session: the findings of its store, and tool calls without a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.storage import Finding
from amplifier_core.transcript import settled_length

from .history import interrupted_results
from .presence import as_it_is

if TYPE_CHECKING:
    from amplifier_core.storage import SessionStore
    from amplifier_core.transcript import Message

UNREADABLE = frozenset({"torn_tail", "bad_message", "missing_source"})
"""Findings of a store that must be repaired before the messages can be read."""


async def examine(store: SessionStore, session_id: str) -> list[Finding]:
    """Return all findings of a session; change nothing.

    A call without a result in a running session is work under way, and no finding.
    """
    found = await store.examine(session_id)
    if any(finding.kind == "unpaired_call" or finding.kind in UNREADABLE for finding in found):
        return found
    position, results = await _find_open_calls(store, session_id)
    return [*found, *(_describe_open_call(position, result) for result in results)]


async def repair(store: SessionStore, session_id: str) -> list[Finding]:
    """Carry out the remedies of `examine`; return the findings, in the order of the repairs."""
    found = await store.repair(session_id)
    position, results = await _find_open_calls(store, session_id)
    if results:
        await store.append(session_id, results, at=(await store.get(session_id)).message_count)
    return [*found, *(_describe_open_call(position, result) for result in results)]


async def _find_open_calls(store: SessionStore, session_id: str) -> tuple[int, list[Message]]:
    """Return the position of the calls without a result, and results for them."""
    if as_it_is(await store.get(session_id)).status == "running":
        return 0, []
    messages = await store.read(session_id)
    settled = settled_length(messages)
    return settled, interrupted_results(messages[settled:])


def _describe_open_call(position: int, result: Message) -> Finding:
    return Finding(
        "unpaired_call",
        f"the call of {result.get('name') or result['tool_call_id']} has no result",
        "record that it was interrupted",
        position,
    )
