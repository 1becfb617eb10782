"""Wake a background session by hand, with a payload."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict
from amplifier_foundation.background.asking import NoSuchBackgroundSession
from amplifier_foundation.operations.acting import Actor
from amplifier_foundation.operations.firing import Declaration, fire
from amplifier_foundation.operations.running import status_elsewhere, wake
from amplifier_foundation.sessions.lineage import describe_event
from amplifier_foundation.sessions.store_views import views_of

from ..declarations import Known, load_known
from ..pages import Act, Page, Reply, View
from ..payloads import FIELD, REST, find_fields, read_payload
from ..rendering import render_block
from .background import find_background

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_foundation.bundle.background_config import BackgroundSessionConfig

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "fire.html"
SHOWN = 5
"""The last deliveries, to see what became of the event."""


async def show_form(desk: Desk, place: Place) -> Page:
    """Return the form for an event of a background session. Raises `NoSuchBackgroundSession`."""
    project, queue = await find_background(desk, place.variables["background_id"])
    declared, session = await _find_declared(desk, project, queue)
    page = await views_of(desk.store).delivery_page(project=project, queue=queue, limit=SHOWN)
    last = [(each, describe_event(each.event)) for each in page]
    facts = {
        "queue": queue,
        "project": project,
        "key": place.variables["background_id"],
        "session": session,
        "fields": [
            (FIELD + each.path, each, show_default(each.default)) for each in find_fields(session, declared.bundle)
        ],
        "rest": REST,
    }
    return Page(f"Fire {queue}", TEMPLATE, {"last": render_block(TEMPLATE, "last", {"last": last})}, facts=facts)


def show_default(default: object) -> str:
    """Return the usual value of a field as text."""
    return "" if default is None else default if isinstance(default, str) else json.dumps(default)


async def _find_declared(desk: Desk, project: str, queue: str) -> tuple[Declaration, BackgroundSessionConfig]:
    """Return the bundle, and the declaration of the background session in it."""
    bundle, _, name = queue.rpartition("/")
    loaded = await load_known(desk, Known(project, bundle))
    if loaded.bundle is None:
        raise SessionConflict(queue, f"{queue} cannot be fired: {loaded.problem}")
    session = loaded.session(name)
    if session is None:
        raise NoSuchBackgroundSession(name, [each.name for each in loaded.bundle.background_sessions])
    return Declaration(loaded.bundle, project), session


async def send(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Enqueue the event; the reply says whether it is accepted."""
    project, queue = await find_background(desk, place.variables["background_id"])
    declared, session = await _find_declared(desk, project, queue)
    payload = read_payload(find_fields(session, declared.bundle), form)
    delivery = await fire(desk.store, desk.plugins, Actor(desk.person, "dashboard"), declared, session.name, payload)
    runs = await asyncio.to_thread(wake, project, session.name) or await status_elsewhere(desk.store, project, queue)
    if delivery is None:
        return Reply(f"{queue}: an equal event waits already.")
    facts = {"delivery": delivery.delivery_id, "state": delivery.state}
    if delivery.state in ("refused", "skipped"):
        return Reply(f"{queue}: {delivery.state}: {delivery.reason}", facts=facts)
    return Reply(f"{queue}: accepted{'' if runs else '; it waits for the next: amplifier up'}", facts=facts)


VIEWS = [View("/background/{background_id}/fire", show_form)]
ACTS = [Act("/background/{background_id}/fire", send)]
