"""Read pages of deliveries and sessions, and counts over time, one function for each on a connection.

A page begins after its cursor, a time and a row's id, and each range that it reads lies together in an index. Finished
deliveries lie by trigger and state in `deliveries_by_trigger`, the others by state in `deliveries_open`: a page is the
newest of all those ranges.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import DeliveryNotFound, SessionNotFound
from amplifier_core.storage import Delivery
from amplifier_core.store_views import DeliveryRate
from amplifier_core.text_search import fold_text
from amplifier_core.triggers import TriggerEvent, TriggerType

from . import session_texts
from .admission import OPEN
from .counting import FINISHED
from .faults import IndexDamage
from .ordering import newest
from .rows import DELIVERIES, pause_collection
from .sessions import COLUMNS, listed_record
from .values import moment, unplain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Sequence

    from amplifier_core.storage import SessionRecord

    from .values import Column

Cursor = tuple[int, int]
"""The time and the id of a row: rows of a page are below it."""
END: Cursor = (2**63 - 1, 2**63 - 1)


class Kind(NamedTuple):
    """Say how an index orders deliveries: by these columns, then by `created`."""

    columns: tuple[str, ...]
    rows: str

    def next_range(self) -> str:
        """Return the query for the first range after another one."""
        names = ", ".join(self.columns)
        marks = ", ".join("?" * len(self.columns))
        return f"""SELECT {names} FROM deliveries WHERE ({names}, created) > ({marks}, {END[0]}) AND {self.rows}
            ORDER BY {names}, created LIMIT 1"""

    def within(self) -> str:
        """Return the condition for the rows of a range."""
        return " AND ".join([*(f"{name} = ?" for name in self.columns), self.rows])


KINDS = (
    Kind(("project", "queue", "trigger", "state"), FINISHED),
    Kind(("project", "queue", "state"), OPEN),
)

_PAGE = """SELECT created, id FROM deliveries WHERE {} AND (created, id) < (?, ?) AND (created, id) > (?, ?)
    ORDER BY created DESC, id DESC LIMIT ?"""
_OLDEST = "SELECT min(created) FROM (SELECT created FROM deliveries ORDER BY id DESC LIMIT ?)"
_RATES = """SELECT (created - ?) / ? AS step, count(*) FROM deliveries WHERE {} AND created >= ? GROUP BY step"""


def delivery_page(
    db: sqlite3.Connection,
    project: Column,
    queue: Column,
    states: Collection[str],
    before: Column,
    limit: int,
) -> list[Delivery]:
    """Return the deliveries of a page, the last arrived first. Raises `DeliveryNotFound`."""
    cursor, last = END, (-END[0], 0)
    if before is not None:
        cursor = db.execute("SELECT created, id FROM deliveries WHERE delivery_id = ?", (before,)).fetchone()
        if cursor is None:
            raise DeliveryNotFound(unplain(before))
    elif project is None and queue is None and not states:  # so many rows are as new as the oldest of the last stored
        [(oldest,)] = db.execute(_OLDEST, (limit,))
        last = (last[0] if oldest is None else oldest, 0)
    found: list[Cursor] = []
    for kind, names in _ranges(db, project, queue):
        if states and names[-1] not in states:
            continue
        found += db.execute(_PAGE.format(kind.within()), (*names, *cursor, *last, limit))
        if len(found) > limit:  # the other ranges have to be newer than what is there
            found = sorted(found, reverse=True)[:limit]
            last = found[-1]
    found.sort(reverse=True)
    with pause_collection():
        return [listed_delivery(row) for row in _rows(db, "deliveries", DELIVERIES.columns, found)]


def delivery_rates(db: sqlite3.Connection, project: Column, since: int, step: int) -> list[DeliveryRate]:
    """Count the deliveries since a time, by queue, step of time and state."""
    counts = Counter[tuple[str, str, int, str]]()
    for kind, names in _ranges(db, project, None):
        of_project, queue, state = unplain(names[0]), unplain(names[1]), unplain(names[-1])
        for at, count in db.execute(_RATES.format(kind.within()), (since, step, *names, since)):
            counts[of_project, queue, at, state] += count
    return [
        DeliveryRate(of_project, queue, moment(since + at * step), state, count)  # type: ignore[arg-type]  # as stored
        for (of_project, queue, at, state), count in sorted(counts.items())
    ]


def session_page(
    db: sqlite3.Connection, project: Column, statuses: Collection[str], text: str, before: Column, limit: int
) -> list[SessionRecord]:
    """Return the sessions of a page, the last changed first. Raises `SessionNotFound`."""
    where, values = ["TRUE"], dict[str, Any](limit=limit)
    if before is not None:
        cursor = db.execute("SELECT updated, id FROM sessions WHERE session_id = ?", (before,)).fetchone()
        if cursor is None:
            raise SessionNotFound(str(unplain(before)))
        where = ["({at}, id) < (:before_at, :before_id)"]
        values |= {"before_at": cursor[0], "before_id": cursor[1]}
    if project is not None:
        where.append("project = :project")
        values["project"] = project
    if statuses:
        named = {f"status_{at}": status for at, status in enumerate(statuses)}
        where.append(f"status IN (:{', :'.join(named)})")
        values |= named
    if text:
        folded = fold_text(text)  # `lower` of SQLite knows the letters of ASCII alone
        db.create_function("has_text", 3, lambda *row: folded in session_texts.fold(*row), deterministic=True)
        where.append("has_text(name, session_id, bundle)")
    candidates = session_texts.find_candidates(db, folded) if text else None
    found = db.execute(newest("", " AND ".join(where), candidates), values).fetchall()
    with pause_collection():
        return [listed_record(db, row) for row in _rows(db, "sessions", COLUMNS, found)]


def _ranges(db: sqlite3.Connection, project: Column, queue: Column) -> Iterator[tuple[Kind, Sequence[Any]]]:
    """Yield each range of deliveries of a project and a queue (None: any), by its columns."""
    wanted = [] if project is None else [project]
    for kind in KINDS:
        names: Sequence[Any] = (*wanted, *[""] * (len(kind.columns) - len(wanted)))
        while names := db.execute(kind.next_range(), names).fetchone():
            if project is not None and names[0] != project:
                break
            if queue is None or names[1] == queue:
                yield kind, names


def _rows(db: sqlite3.Connection, table: str, columns: str, found: Sequence[Cursor]) -> list[Sequence[Any]]:
    """Return the rows that an index has named, in its order. Raises `IndexDamage` if one is not there."""
    ids = [its_id for _, its_id in found]
    query = f"SELECT id, {columns} FROM {table} NOT INDEXED WHERE id IN ({', '.join(map(str, ids))})"
    rows = {row[0]: row[1:] for row in db.execute(query)}
    if lost := set(ids) - rows.keys():
        raise IndexDamage(f"an index names row {min(lost)}, which is not there")
    return [rows[each] for each in ids]


def listed_delivery(row: Sequence[Any]) -> Delivery:
    """Return a delivery; a damaged one is listed without its event, with the damage as its reason."""
    try:
        return DELIVERIES.item(row)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        values = dict(zip(DELIVERIES.names, map(unplain, row), strict=True))
        delivery_id, project, queue, trigger = (str(values[name]) for name in DELIVERIES.names[:4])
        nothing = TriggerEvent(TriggerType.CUSTOM, "")
        reason = f"the store is damaged: the event of this delivery is not what was written ({error})"
        return Delivery(delivery_id, project, queue, trigger, nothing, values["state"], reason=reason)
