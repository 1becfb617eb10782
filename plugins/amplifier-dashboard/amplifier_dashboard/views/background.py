"""Show one background session: its facts, its triggers, its deliveries, and change its life."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from amplifier_core.storage import DeliveryState
from amplifier_core.utils.secrets import redact_all
from amplifier_foundation.background.asking import NoSuchBackgroundSession
from amplifier_foundation.background.lifecycle import read_wish
from amplifier_foundation.documents.json_text import dump_json
from amplifier_foundation.operations.acting import Actor
from amplifier_foundation.operations.overview import read_overview
from amplifier_foundation.operations.running import change_background_session
from amplifier_foundation.operations.timing import next_fire
from amplifier_foundation.sessions.accounts import queue_account
from amplifier_foundation.sessions.lineage import describe_event
from amplifier_foundation.sessions.store_views import views_of

from ..declarations import Known, load_known, read_queues
from ..links import background_key, find_stored
from ..observing import read_processes, read_spending, today
from ..pages import Act, Page, Reply, View
from ..rendering import render_block
from ..steps import make_feed
from .overview import read_sparklines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_foundation.operations.columns import Row
    from amplifier_foundation.operations.running import Verb
    from amplifier_foundation.operations.timing import Declared

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "background.html"
SHOWN = 50
"""Deliveries on a page."""
STEPS = 30
"""Steps shown at first."""
STATES = get_args(DeliveryState)
VERBS: Mapping[str, tuple[Verb, ...]] = {
    "running": ("pause", "restart", "stop"),
    "starting": ("stop",),
    "degraded": ("pause", "restart", "stop"),
    "failed": ("restart", "stop"),
    "paused": ("resume", "stop"),
    "stopped": ("start",),
    "stopping": (),
}
"""What a background session in a state can be asked for."""


class TriggerRow(NamedTuple):
    """One declared trigger: its configuration, and what it would do next."""

    name: str
    config: str
    does: str
    next_fire: datetime | None


async def show_background(desk: Desk, place: Place) -> Page:
    """Return the page of a background session. Raises `NoSuchBackgroundSession`."""
    project, queue = await find_background(desk, place.variables["background_id"])
    bundle, _, name = queue.rpartition("/")
    loaded = await load_known(desk, Known(project, bundle))
    row = await _read_row(desk, project, queue)
    spent = (await read_spending(desk)).by(lambda key: _spent_when(key.day, key.account, queue_account(project, queue)))
    state = cast("DeliveryState", place.query.get("state", ""))
    views, wanted = views_of(desk.store), [state] if state in STATES else []
    before = place.query.get("before") or None
    page = await views.delivery_page(project=project, queue=queue, states=wanted, before=before, limit=SHOWN + 1)
    values = {
        "row": row,
        "read_only": desk.read_only,
        "key": background_key(project, queue),
        "loaded": loaded,
        "declared": loaded.session(name),
        "wish": await read_wish(desk.store, project, queue),
        "verbs": VERBS.get(row["state"], ()),
        "line": (await read_sparklines(desk, project)).get((project, queue)),
        "spent": spent,
        "triggers": [await _describe(desk, each, project, row["state"]) for each in loaded.triggers(name)],
        "stored": await find_stored(desk.store, [each.session_id for each in page]),
        "deliveries": [(each, describe_event(each.event)) for each in page[:SHOWN]],
        "more": place.with_query({"before": page[SHOWN - 1].delivery_id}) if len(page) > SHOWN else "",
        "newest": place.with_query({"before": ""}) if before else "",
    }
    parts = {name: render_block(TEMPLATE, name, values) for name in ("facts", "triggers", "deliveries")}
    states = [(each, place.with_query({"state": each, "before": ""})) for each in ("", *STATES)]
    facts = {
        "project": project,
        "queue": queue,
        "states": states,
        "state": state,
        "loaded": loaded,
        "key": values["key"],
    }
    return Page(queue, TEMPLATE, parts, {"events": make_feed(desk, STEPS, queue=(project, queue))}, facts=facts)


def _spent_when(day: str, account: str, wanted: str) -> str | None:
    return None if account != wanted else "today" if day == today() else "before"


async def find_background(desk: Desk, text: str) -> tuple[str, str]:
    """Return project and queue of a background session by its key in addresses, or its id of `amplifier ps`.

    Raises `NoSuchBackgroundSession`.
    """
    queues = await read_queues(desk)
    found = [each for each in queues if background_key(*each) == text]
    found = found or [each.key for _, each in (await read_processes(desk)).running if each.session_id == text]
    if len(found) != 1:
        raise NoSuchBackgroundSession(text, [queue for _, queue in queues])
    return found[0]


async def _read_row(desk: Desk, project: str, queue: str) -> Row:
    found = await read_overview(desk.store, await read_processes(desk), everything=True)
    return next(each for each in found.background_sessions if (each["project"], each["queue"]) == (project, queue))


async def _describe(desk: Desk, declared: Declared, project: str, state: str) -> TriggerRow:
    """Return what a trigger would do next; that of a stopped background session does nothing."""
    config = redact_all(dict(declared.config.config))
    fires = None
    if state != "stopped":
        now = datetime.now(UTC)
        fires = await next_fire(declared, now, project=project, plugins=desk.plugins, store=desk.store)
    does = _does_next(declared.config.module, config, project, declared.background_session)
    return TriggerRow(declared.name, dump_json(config, indent=2) if config else "", does, fires)


def _does_next(module: str, config: Mapping[str, Any], project: str, name: str) -> str:
    """Say in words what a trigger waits for."""
    if module == "trigger-file-watcher":
        patterns = ", ".join(map(str, config.get("patterns") or ["**/*"]))
        ignored = f", without {', '.join(map(str, config['ignore']))}" if config.get("ignore") else ""
        return f"watches {patterns} in {project}/{config.get('path', '.')}".removesuffix("/.") + ignored
    if module == "trigger-webhook":
        host, port = config.get("host", "127.0.0.1"), config.get("port", 8787)
        return f"listens at http://{host}:{port or '(any free port)'}{config.get('path') or f'/{name}'}"
    if module == "trigger-session-event":
        names = config.get("event_names") or config.get("events") or ["any event"]
        return f"waits for {', '.join(map(str, names))}"
    if module == "trigger-manual":
        return "waits to be fired by hand"
    return ""


async def change(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Start, stop, pause, resume or restart a background session."""
    project, queue = await find_background(desk, place.variables["background_id"])
    verb = form.get("verb", "")
    if verb not in {each for verbs in VERBS.values() for each in verbs}:
        return Reply("Nothing was asked for.")
    actor = Actor(desk.person, "dashboard")
    await change_background_session(desk.store, actor, verb, queue, project=project)
    desk.changes.note()
    done = {"start": "started", "stop": "stopped", "pause": "paused", "resume": "running again", "restart": "restarted"}
    return Reply(f"{queue} is {done[verb]}.")


VIEWS = [View("/background/{background_id}", show_background)]
ACTS = [Act("/background/{background_id}/change", change)]
