"""Define the columns of background sessions once, for every table of them, and for JSON.

To add a column, add a row to `COLUMNS`; a column with `counts` is filled by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..documents.safe_text import one_line
from ..documents.times import format_time
from ..paths import find_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from amplifier_core.storage import DeliveryCounts, DeliveryState

Row = dict[str, Any]
"""The facts of one background session, by the keys of `COLUMNS`."""
ShowTime = Callable[["datetime | str | None"], str]
"""Turns a time, as it is or as RFC 3339, into the text of a surface."""


CAUSE, LONGEST_CAUSE = 80, 2_000
"""Characters of a cause in a table, and below it."""


def cut_causes(rows: Iterable[Row]) -> list[str]:
    """Return the causes that a table cuts, whole, each once with the queues that have it."""
    queues: dict[str, list[str]] = {}
    for row in rows:
        for given in dict.fromkeys((row["reason"], row["postponed_reason"])):
            cause = one_line(given or "", LONGEST_CAUSE)
            if len(cause) > CAUSE:
                queues.setdefault(cause, []).append(row["queue"])
    return [f"{', '.join(names)}: {cause}" for cause, names in queues.items()]


def _state_text(row: Row, show: ShowTime) -> str:
    text = str(row["state"]) + (f": {one_line(row['reason'], CAUSE)}" if row["reason"] else "")
    return text + (f" (next try at {show(row['next_try'])})" if row["next_try"] else "")


def _postponed_text(row: Row, show: ShowTime) -> str:
    if not row["postponed"]:
        return ""
    is_told = row["postponed_reason"] == row["reason"]  # a spent budget is the reason of the state, too
    cause = "" if is_told else f": {one_line(row['postponed_reason'], CAUSE)}"
    until = f" until {show(row['postponed_until'])}" if row["postponed_until"] else ""
    return f"{row['postponed']}{until}{cause}"


def _work_text(row: Row, show: ShowTime) -> str:
    places = [f" on {work['host']}" if work.get("host") else "" for work in row["at_work"]]
    works = zip(row["at_work"], places, strict=True)
    return ", ".join(f"{work['session_id']} since {show(work['since'])}{place}" for work, place in works)


class Column(NamedTuple):
    """One fact of a background session: its member in JSON, and its cell in tables."""

    key: str
    heading: str = ""
    """Heading in tables; '' keeps the fact out of them."""
    new: Callable[[], Any] = int
    """Makes the value of a new row."""
    text: Callable[[Row, ShowTime], str] | None = None
    """Returns the cell, with times as a surface shows them; None: the value itself. An empty cell is shown as `-`."""
    counts: tuple[DeliveryState, ...] = ()
    """The delivery states counted by this column."""
    style: str = ""
    """Colour in the live table of a number above zero; a column with a style holds numbers there."""
    only: Literal["", "ps", "up"] = ""
    """The only table with this column; facts of `up` alone are not in JSON."""
    at_terminal: Callable[[Sequence[Row]], bool] = bool
    """Returns whether a terminal gets the column for these rows; a pipe gets every column."""


COLUMNS = (
    Column("background_session", new=str),
    Column("bundle", new=str),
    Column("queue", "BACKGROUND SESSION", new=str),
    Column("id", new=lambda: None),
    Column("state", "STATE", new=lambda: "not running", text=_state_text),
    Column("reason", new=str),
    Column("next_try", new=lambda: None),
    Column("restarts"),
    Column(
        "triggers",
        "TRIGGERS",
        new=list,
        text=lambda row, show: ", ".join(sorted({each.removeprefix("trigger-") for each in row["triggers"]})),
        only="up",
    ),
    Column("waiting", "WAITING", counts=("pending",), style="yellow"),
    Column(
        "at_work",
        "AT WORK",
        new=list,
        text=_work_text,
        style="cyan",
    ),
    Column("done", "DONE", counts=("done",), style="green"),
    Column(
        "approvals",
        "TO APPROVE",
        new=list,
        text=lambda row, show: ", ".join(row["approvals"]),
        style="yellow",
        at_terminal=lambda rows: any(row["approvals"] for row in rows),
    ),
    Column(
        "postponed",
        "POSTPONED",
        text=_postponed_text,
        only="ps",
        at_terminal=lambda rows: any(row["postponed"] for row in rows),
    ),
    Column("postponed_until", new=lambda: None),
    Column("postponed_reason", new=str),
    Column("dropped", "DROPPED", counts=("refused", "skipped"), style="yellow"),
    Column("dead", "DEAD", counts=("dead",), style="red"),
    Column("last_event", "LAST EVENT", new=lambda: None, text=lambda row, show: show(row["last_event"]), only="ps"),
    Column(
        "hosts",
        "HOSTS",
        new=list,
        text=lambda row, show: ", ".join(sorted(set(row["hosts"]))),
        only="ps",
        at_terminal=lambda rows: any(row["hosts"] for row in rows),
    ),
    Column("pid", "PID", new=lambda: None, only="ps", at_terminal=lambda rows: False),
    Column(
        "project",
        "FOLDER",
        new=str,
        text=lambda row, show: shorten_home(row["project"]),
        only="ps",
        at_terminal=lambda rows: len({row["project"] for row in rows}) > 1,
    ),
)


def columns_of(table: Literal["ps", "up"]) -> list[Column]:
    """Return the columns of a table, in order."""
    return [column for column in COLUMNS if column.heading and column.only in ("", table)]


def reset_counts(row: Row) -> None:
    """Set every count of a row to zero."""
    row.update({column.key: 0 for column in COLUMNS if column.counts})


def forget_counts(row: Row) -> None:
    """Set every count of a row to None: it is unknown."""
    row.update({column.key: None for column in COLUMNS if column.counts})


def new_row(project: str, queue: str, **facts: Any) -> Row:
    """Return the row of a background session with no deliveries; `facts` replace its values."""
    bundle, _, name = queue.rpartition("/")
    row = {column.key: column.new() for column in COLUMNS}
    return {**row, "background_session": name, "bundle": bundle, "queue": queue, "project": project, **facts}


def add_counts(row: Row, counted: DeliveryCounts) -> None:
    """Add the deliveries of one trigger to the row of its background session."""
    for column in COLUMNS:
        for state in column.counts:
            row[column.key] += counted.counts.get(state, 0)
    row["last_event"] = max(row["last_event"] or "", format_time(counted.newest) if counted.newest else "")


def cell(column: Column, row: Row, show: ShowTime) -> str:
    """Return the cell of a row in a plain table; `show` turns a time (or None) into text."""
    value = row[column.key]
    text = column.text(row, show) if column.text is not None else "" if value is None else str(value)
    return text or "-"


def as_json(row: Row) -> Row:
    """Return the facts of a row for programs."""
    return {column.key: row[column.key] for column in COLUMNS if column.only != "up"}


def shorten_home(folder: str) -> str:
    """Return a folder with `~` for the user's home."""
    home = str(find_home() or "~")
    return "~" + folder.removeprefix(home) if folder == home or folder.startswith(f"{home}/") else folder
