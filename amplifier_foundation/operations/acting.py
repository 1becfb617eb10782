"""Record who did what, and by which surface: the event `operator:acted` in the log of the store."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import SessionStore

Surface = Literal["command line", "dashboard", "editor", "session"]
"""Where an act was done; `session`: by a process that a session has started, in the name of its person."""

logger = logging.getLogger(__name__)

SHOWN = 8
"""Characters of the id of a delivery or an approval in a line."""

_NEWEST_FIRST = 1 << 64
"""Nanoseconds since 1970 are taken from this number: a store finds events in the order of their ids."""


class Actor(NamedTuple):
    """A person at a surface."""

    name: str
    """The login name."""
    via: Surface


def person_here(via: Surface) -> Actor:
    """Return the user of this process; a user without a login name is called by the number."""
    import pwd

    from ..security.session_mark import is_within_session

    via = "session" if is_within_session() else via
    try:
        return Actor(pwd.getpwuid(os.geteuid()).pw_name, via)
    except KeyError:
        return Actor(str(os.geteuid()), via)


async def record_act(
    store: SessionStore,
    actor: Actor,
    act: str,
    subject: str,
    *,
    project: str | None = None,
    queue: str = "",
    **facts: Any,
) -> None:
    """Append an act to the log of events; a store without a log keeps none.

    `act` is noun and verb, as in the command: `trigger.retry`. `subject` is the id or the name of what it is about; the
    facts `delivery_id` and `session_id` file the act under these. The act is done: a failure is logged, not raised.
    """
    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Inbox
    from amplifier_core.utils.secrets import redact_all

    from ..background.log_events import OPERATOR_ACTED
    from ..background.store_clock import clock_of

    if not isinstance(store, Inbox):
        return
    data = {"act": act, "subject": subject, "by": actor.name, "via": actor.via, "queue": queue, **facts}
    about = str(facts.get("delivery_id") or facts.get("session_id") or subject)
    try:
        now = (await clock_of(store)).now()
        event_id = f"{_prefix(about)}{_NEWEST_FIRST - int(now.timestamp() * 1e9):016x}{os.urandom(4).hex()}"
        event = SessionEvent(OPERATOR_ACTED, redact_all(data), event_id=event_id, project=project, timestamp=now)
        await store.emit(event)
    except Exception as error:  # of any store
        logger.warning("%s of %s by %s is done, and could not be recorded: %s", act, subject, actor.name, error)


def is_act(event: SessionEvent) -> bool:
    """Return whether an event is an act of a person here, as `record_act` records it: no session and no site does."""
    from ..background.log_events import OPERATOR_ACTED

    told = all(isinstance(event.data.get(name), str) for name in ("act", "subject", "by", "via", "queue"))
    return event.name == OPERATOR_ACTED and event.source_session_id is None and told


def describe_act(data: Mapping[str, Any]) -> str:
    """Return an act in one line: what was done to what, by whom, and why. It is the data of an event with `is_act`.

    The name of a background session is left out: it stands beside the line.
    """
    from ..documents.safe_text import one_line

    noun, _, verb = str(data["act"]).partition(".")
    subject, reason = str(data["subject"]), str(data.get("reason") or "")
    done = verb if noun == "background_session" else f"{noun} {verb}"
    if subject != str(data["queue"]).rpartition("/")[2]:
        done = f"{done} {subject[:SHOWN] if data.get('delivery_id') else subject}"
    return one_line(f"{done} by {data['by']} ({data['via']})" + (f": {reason}" if reason else ""), 200)


async def read_acts(store: SessionStore, about: str) -> list[SessionEvent]:
    """Return the newest acts filed under the id of a delivery, a session or another subject; at most 20."""
    from amplifier_core.storage import Inbox

    found = await store.find_events(_prefix(about)) if isinstance(store, Inbox) else []
    return [event for event in found if is_act(event)]  # another site chooses the ids of its events


def _prefix(about: str) -> str:
    from hashlib import sha256

    return f"act-{sha256(about.encode()).hexdigest()[:16]}-"
