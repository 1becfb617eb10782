"""Find what is wrong with a stored session, and mend it: what its store sees, and calls that never got a result."""

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
"""Findings of a store that must be mended before the messages can be read."""


async def examine(store: SessionStore, session_id: str) -> list[Finding]:
    """Return everything that is wrong with a session; changes nothing.

    Of a session that runs, a call without a result is work under way and no finding.
    """
    found = await store.examine(session_id)
    if any(finding.kind == "unpaired_call" or finding.kind in UNREADABLE for finding in found):
        return found
    position, results = await _unsettled(store, session_id)
    return [*found, *(_unpaired(position, result) for result in results)]


async def mend(store: SessionStore, session_id: str) -> list[Finding]:
    """Do what the remedies of `examine` say and return what was found, in the order in which it was mended."""
    found = await store.mend(session_id)
    position, results = await _unsettled(store, session_id)
    if results:
        await store.append(session_id, results, at=(await store.get(session_id)).message_count)
    return [*found, *(_unpaired(position, result) for result in results)]


async def _unsettled(store: SessionStore, session_id: str) -> tuple[int, list[Message]]:
    """Return the position of the calls that have no result, and the results that settle them."""
    if as_it_is(await store.get(session_id)).status == "running":
        return 0, []
    messages = await store.read(session_id)
    settled = settled_length(messages)
    return settled, interrupted_results(messages[settled:])


def _unpaired(position: int, result: Message) -> Finding:
    return Finding(
        "unpaired_call",
        f"the call of {result.get('name') or result['tool_call_id']} has no result",
        "record that it was interrupted",
        position,
    )
