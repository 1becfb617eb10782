"""Know the sessions that have read text of strangers: such a session is asked before it acts.

The member `untrusted` of a record's metadata says why. It stays for good: over resuming, in forks, and in the sessions
below. Nobody can tell which of a model's later words come from that text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound
from amplifier_core.triggers import TriggerType

from ..bundle.templates import is_from_outside
from ..paths import project_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import TriggerEvent

UNTRUSTED = "untrusted"
_FROM_OUTSIDE = {TriggerType.WEBHOOK: "a webhook woke it", TriggerType.ISSUE_EVENT: "an issue event woke it"}


async def find_reason(store: DurableStore, event: TriggerEvent, project: str) -> str:
    """Return why the data of an event for a session of `project` is not trusted; `` for one's own."""
    if is_from_outside(event) and event.type in _FROM_OUTSIDE:
        return _FROM_OUTSIDE[event.type]
    if event.type is TriggerType.ISSUE_EVENT and event.data.get(UNTRUSTED):
        return "an issue with text of a session that has read text of strangers woke it"
    if "." in (event.source_session_id or ""):  # SITE.ID; no session here has such an id
        return "an event of another site woke it"
    if event.source_session_id is not None:
        try:
            record = await store.get(event.source_session_id)
        except SessionNotFound:
            return ""
        if record.metadata.get(UNTRUSTED):
            return "an event of a session that has read text of strangers woke it"
        origin: str | None = project_of(record.project)
    else:
        cause = event.cause if event.type is TriggerType.SESSION_EVENT else None
        logged = await store.find_events(cause) if cause is not None else []
        origin = next((each.project for each in logged if each.event_id == cause), None)
    return "an event of another project woke it" if origin not in (None, project) else ""


def taint_of(session: AmplifierSession | None) -> dict[str, Any]:
    """Return the member of the metadata for a session; nothing for one that has read no text of strangers."""
    gate = session.coordinator.permissions if session is not None else None
    return {UNTRUSTED: gate.untrusted} if gate is not None and gate.untrusted else {}


def taint(session: AmplifierSession, metadata: Mapping[str, Any], *, acts: bool = False) -> None:
    """Ask for what a session does from now on, if the metadata say so; with `acts`, its bundle lets it act unasked."""
    gate, reason = session.coordinator.permissions, metadata.get(UNTRUSTED)
    if gate is not None:
        gate.untrusted = gate.untrusted or (reason if isinstance(reason, str) else "")
        gate.acts = acts
