"""Read pages of deliveries and sessions, and counts over time.

The deliveries of one project, queue and state lie together in `deliveries_by_time`: a page is the newest of those
ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import DeliveryNotFound, SessionNotFound
from amplifier_core.shared_stores import SharedDelivery
from amplifier_core.store_views import DeliveryRate
from amplifier_core.text_search import fold_text
from amplifier_core.triggers import TriggerEvent, TriggerType

from .rows import DELIVERIES
from .sessions import LISTED, listed
from .values import dumps, escape, moment, unplain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.storage import Delivery, SessionRecord

    from .connections import Pool
    from .projects import Projects

_LAST = 2**63 - 1

_RANGES = """WITH RECURSIVE ranges AS (
        (SELECT project, queue, state FROM @.deliveries ORDER BY project, queue, state LIMIT 1)
        UNION ALL
        SELECT later.* FROM ranges r, LATERAL (
            SELECT d.project, d.queue, d.state FROM @.deliveries d
            WHERE (d.project, d.queue, d.state) > (r.project, r.queue, r.state)
            ORDER BY d.project, d.queue, d.state LIMIT 1
        ) later
    ), wanted AS (
        SELECT * FROM ranges WHERE (%(project)s::text IS NULL OR project = %(project)s)
            AND (%(queue)s::text IS NULL OR queue = %(queue)s)
            AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s))
    )"""
_WITHIN = "d.project = w.project AND d.queue = w.queue AND d.state = w.state"
_PAGE = f"""{_RANGES}, page AS (
        SELECT found.created, found.id FROM wanted w, LATERAL (
            SELECT d.created, d.id FROM @.deliveries d WHERE {_WITHIN} AND (d.created, d.id) < (%(created)s, %(id)s)
            ORDER BY d.created DESC, d.id DESC LIMIT %(limit)s
        ) found ORDER BY found.created DESC, found.id DESC LIMIT %(limit)s
    )
    SELECT {", ".join(f'd."{name}"' for name in DELIVERIES.names)} FROM page JOIN @.deliveries d USING (id)
    ORDER BY page.created DESC, page.id DESC"""
_RATES = f"""{_RANGES}
    SELECT w.project, w.queue, counted.step, w.state, counted.count FROM wanted w, LATERAL (
        SELECT (d.created - %(since)s) / %(step)s AS step, count(*) FROM @.deliveries d
        WHERE {_WITHIN} AND d.created >= %(since)s GROUP BY 1
    ) counted"""

_BELOW = f"""{LISTED} WHERE id IN (
        SELECT id FROM @.sessions WHERE parent_id = ANY (%(above)s)
        UNION SELECT fork.id FROM @.sessions AS source JOIN @.histories ON histories.source = source.history
        JOIN @.sessions AS fork ON fork.history = histories.id WHERE source.session_id = ANY (%(above)s)
    ) AND coalesce(fork_of, parent_id) = ANY (%(above)s) ORDER BY id LIMIT %(limit)s"""  # no index has `fork_of`

_TEXTS = "name || chr(10) || session_id || chr(10) || bundle"
_NORMAL = f"CASE current_setting('server_encoding') WHEN 'UTF8' THEN normalize({_TEXTS}, NFKC) ELSE {_TEXTS} END"
_ALL = {"project": None, "queue": None, "states": None}


def delivery_page(pool: Pool, projects: Projects, wanted: Mapping[str, Any], before: str | None) -> list[Delivery]:
    """Return the deliveries of a page, the last arrived first. Raises `DeliveryNotFound`."""
    created, its_id = _LAST, _LAST
    if before is not None:
        rows = pool.read("SELECT created, id FROM @.deliveries WHERE delivery_id = %s", (before,))
        if not rows:
            raise DeliveryNotFound(unplain(before))
        [(created, its_id)] = rows
    found = pool.read(_PAGE, {**_ALL, **wanted, "created": created, "id": its_id})
    return [listed_delivery(row, projects) for row in found]


def delivery_rates(pool: Pool, projects: Projects, wanted: Mapping[str, Any]) -> list[DeliveryRate]:
    """Count the deliveries since a time, by queue, step of time and state."""
    counted = [
        (projects.to_local(unplain(project)), unplain(queue), step, state, count)
        for project, queue, step, state, count in pool.read(_RATES, {**_ALL, **wanted})
    ]
    return [
        DeliveryRate(project, queue, moment(wanted["since"] + step * wanted["step"]), state, count)
        for project, queue, step, state, count in sorted(counted)
    ]


def session_page(
    pool: Pool, projects: Projects, wanted: Mapping[str, Any], text: str, before: str | None, limit: int
) -> list[SessionRecord]:
    """Return the sessions of a page, the last changed first. Raises `SessionNotFound`."""
    where, values = ["TRUE"], {**wanted, "limit": limit}
    if before is not None:
        rows = pool.read("SELECT updated, id FROM @.sessions WHERE session_id = %s", (before,))
        if not rows:
            raise SessionNotFound(str(unplain(before)))
        [(values["updated"], values["id"])] = rows
        where.append("(updated, id) < (%(updated)s, %(id)s)")
    where += ["project = %(project)s"] if "project" in wanted else []
    where += ["status = ANY (%(statuses)s)"] if "statuses" in wanted else []
    if text.isascii():
        values["text"] = escape(text).lower()
        where += [f"strpos(lower({_NORMAL}), %(text)s) > 0"] if text else []
        query = f"{LISTED} WHERE {' AND '.join(where)} ORDER BY updated DESC, id DESC LIMIT %(limit)s"
        return listed(pool, projects, query, values)
    folded = fold_text(text)
    names = pool.read(f"SELECT id, {_TEXTS} FROM @.sessions WHERE {' AND '.join(where)} ORDER BY updated, id", values)
    ids = [its_id for its_id, texts in reversed(names) if folded in fold_text(unplain(texts))][:limit]
    return listed(pool, projects, f"{LISTED} WHERE id = ANY (%s) ORDER BY updated DESC, id DESC", (ids,))


def sessions_below(pool: Pool, projects: Projects, session_id: str, limit: int | None) -> list[SessionRecord]:
    """Return the sessions below a session, those above first, by one query for each level."""
    found: dict[str, SessionRecord] = {}
    above = [session_id]
    while above and (limit is None or len(found) < limit):
        left = None if limit is None else limit - len(found)
        level = listed(pool, projects, _BELOW, {"above": above, "limit": left})
        new = {each.session_id: each for each in level if each.session_id not in {session_id, *found}}  # not a circle
        found |= new
        above = list(new)
    return list(found.values())


def sessions_with(
    pool: Pool, projects: Projects, member: str, wanted: Mapping[str, Any], limit: int | None
) -> list[SessionRecord]:
    """Return sessions with a member in their metadata, the last updated first."""
    where = " AND ".join([*(f"{name} = %({name})s" for name in wanted), "strpos(metadata, %(named)s) > 0"])
    query = f"{LISTED} WHERE {where} ORDER BY updated DESC, id DESC"
    found = listed(pool, projects, query, {**wanted, "named": f"{dumps(member)}:"})
    return [each for each in found if member in each.metadata][:limit]


def listed_delivery(row: Sequence[Any], projects: Projects) -> Delivery:
    """Return a delivery; a damaged one is listed without its event, with the damage as its reason."""
    try:
        return DELIVERIES.item(row, projects)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        values = dict(zip(DELIVERIES.names, map(unplain, row), strict=True))
        delivery_id, project, queue, trigger = (str(values[name]) for name in DELIVERIES.names[:4])
        nothing = TriggerEvent(TriggerType.CUSTOM, "")
        reason = f"the store is damaged: the event of this delivery is not what was written ({error})"
        place = projects.to_local(project)
        return SharedDelivery(delivery_id, place, queue, trigger, nothing, values["state"], reason=reason)
