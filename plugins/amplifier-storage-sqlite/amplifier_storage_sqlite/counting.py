"""Keep the numbers of finished deliveries with each change of one: nobody counts a million rows.

A row of `delivery_counts` has the number for one trigger and state. Triggers of the database change it in the
transaction that changes the delivery. Waiting deliveries are counted when somebody asks: they are few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

FINISHED = "state NOT IN ('pending', 'claimed')"


def count_deliveries(db: sqlite3.Connection) -> None:
    """Count the finished deliveries anew."""
    db.execute("DELETE FROM delivery_counts")
    db.execute(f"""INSERT INTO delivery_counts (project, queue, trigger, state, count)
        SELECT project, queue, trigger, state, count(*) FROM deliveries WHERE {FINISHED}
        GROUP BY project, queue, trigger, state""")


def _count_when(event: str, row: str, change: int) -> str:
    """Return the trigger that changes the count of a row."""
    name = f"deliveries_counted_{event.split()[0].lower()}_{row.lower()}"
    return f"""CREATE TRIGGER {name} AFTER {event} ON deliveries WHEN {row}.{FINISHED} BEGIN
        INSERT INTO delivery_counts (project, queue, trigger, state, count)
            VALUES ({row}.project, {row}.queue, {row}.trigger, {row}.state, {change})
            ON CONFLICT DO UPDATE SET count = count + {change};
    END"""


COUNTING = (
    """CREATE TABLE delivery_counts (
        project TEXT NOT NULL,
        queue TEXT NOT NULL,
        trigger TEXT NOT NULL,
        state TEXT NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (project, queue, trigger, state)
    ) WITHOUT ROWID""",
    count_deliveries,
    _count_when("INSERT", "NEW", 1),
    _count_when("UPDATE OF state", "NEW", 1),
    _count_when("UPDATE OF state", "OLD", -1),
    _count_when("DELETE", "OLD", -1),
)
"""The steps from schema 15 to 16. Released ones are never changed."""
