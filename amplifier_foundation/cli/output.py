"""What commands print: tables and trees for a person, lines for a pipe, JSON for a program."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.text import Text

    from amplifier_core.storage import SessionRecord

    from ..lineage import Node

STATUS_STYLE = {
    "running": "cyan",
    "completed": "green",
    "loaded": "green",
    "failed": "red",
    "dead": "red",
    "cancelled": "yellow",
    "interrupted": "yellow",
    "blocked": "yellow",
    "backing_off": "yellow",
    "stopping": "yellow",
    "idle": "dim",
    "not running": "dim",
}


def console(*, err: bool = False) -> Console:
    """Return a console for stdout or stderr; one that is no terminal gets plain text that is never cut."""
    from .consoles import PlainConsole

    stream = sys.stderr if err else sys.stdout
    return PlainConsole(file=stream, highlight=False, soft_wrap=True, width=None if stream.isatty() else 500)


def print_json(schema: str, data: Any) -> None:
    """Print the envelope that every `--json` answer has."""
    click.echo(
        json.dumps({"schema": f"amplifier/{schema}", "data": data}, indent=2, ensure_ascii=False, default=_plain)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return timestamp(value)
    return str(value)


def timestamp(moment: datetime | None) -> str:
    """Return a moment as RFC 3339 in UTC, to the second; '' for None."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Print a table, or `empty` on stderr when there are no rows; in a pipe, columns two spaces apart."""
    listed = [list(row) for row in rows]
    if not listed:
        click.echo(empty, err=True)
    elif sys.stdout.isatty():
        _print_rich_table(headings, listed)
    else:
        table = [list(headings), *listed]
        widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
        for row in table:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=STATUS_STYLE.get(cell.partition(":")[0], "")) for cell in row))
    console().print(table)


def plural(count: int, noun: str) -> str:
    """Return `1 turn`, `2 turns`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def session_line(node: Node) -> Text:
    """Return one session as a tree shows it."""
    from rich.text import Text

    from ..lineage import describe_event, shared_part
    from ..spawning.records import agent_of
    from .running.terminal import one_line

    record = node.record
    line = Text.assemble(
        (record.session_id, "bold"), "  ", (record.status, STATUS_STYLE.get(record.status, "")), f"  {_size(record)}"
    )
    if agent_of(record):
        line.append(f"  agent {agent_of(record)}", "cyan")
    if record.fork_of:
        line.append(f"  fork of {record.fork_of}, {shared_part(record)}", "magenta")
    if node.woken_by is not None:
        line.append(f"  woken by {one_line(describe_event(node.woken_by.event), 200)}", "blue")
    if record.error:
        line.append(f"  {record.error.splitlines()[0][:100]}", "red")
    return line


def _size(record: SessionRecord) -> str:
    from ..spent import spent_of

    size = f"{plural(record.turn_count, 'turn')}, {plural(record.message_count, 'message')}"
    spent = str(spent_of(record))
    return f"{size}, {spent}" if spent else size


def print_session_tree(nodes: Sequence[Node], title: str, out: Console | None = None) -> None:
    """Print the lineage of sessions as a tree; what is wider than the terminal goes on in the next line."""
    from rich.tree import Tree

    tree = Tree(title, guide_style="dim")
    waiting = [(tree, node) for node in reversed(nodes)]
    while waiting:
        branch, node = waiting.pop()
        below = branch.add(session_line(node))
        waiting.extend((below, child) for child in reversed(node.children))
    (out or console()).print(tree, soft_wrap=False)
