"""Print tables and trees for a person, lines for a pipe, JSON for a program."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.utils.command_secrets import redact_commands
from amplifier_core.utils.secrets import redact_text

from ..documents.json_text import dump_json, redact_json
from ..documents.safe_text import plain, plain_line
from ..documents.times import format_time
from .own_stdout import own_stdout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.text import Text

    from ..sessions.lineage import Node

STATUS_STYLE = {
    "running": "cyan",
    "completed": "green",
    "loaded": "green",
    "failed": "red",
    "dead": "red",
    "cancelled": "yellow",
    "interrupted": "yellow",
    "waiting": "yellow",
    "blocked": "yellow",
    "backing off": "yellow",
    "stopping": "yellow",
    "idle": "dim",
    "not running": "dim",
}

PART_STYLE = {"id": "bold", "agent": "cyan", "fork": "magenta", "event": "blue", "error": "red"}


def console(*, err: bool = False) -> Console:
    """Return a console for stdout or stderr; a pipe or file gets plain text, never cut."""
    from .consoles import PlainConsole

    stream = sys.stderr if err else own_stdout()
    return PlainConsole(file=stream, highlight=False, soft_wrap=True, width=None if stream.isatty() else 500)


class PlainLines:
    """Prints lines to a pipe or a file: without colours, and without the time that rich takes to import."""

    is_terminal = False
    width = 500
    """As wide as `console` is there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print(self, line: str) -> None:
        """Print a line at once. Raises `OSError` when its reader is gone."""
        self._stream.write(f"{plain(line)}\n")
        self._stream.flush()


def output_of(stream: TextIO) -> Console | PlainLines:
    """Return what prints the lines of background sessions to a stream; only colours need rich."""
    if stream.isatty() or "FORCE_COLOR" in os.environ:
        return console(err=stream is sys.stderr)
    return PlainLines(stream)


def print_json(schema: str, data: Any, hide: Callable[[str], str] = redact_text) -> None:
    """Print data in the envelope of all `--json` output; `hide` removes the secrets."""
    text = dump_json(
        {"schema": f"amplifier/{schema}", "data": data},
        indent=2,
        default=lambda value: format_time(value) if isinstance(value, datetime) else str(value),
    )
    click.echo(redact_json(text, hide), file=own_stdout())


def timestamp(moment: datetime | str | None) -> str:
    """Return a time as RFC 3339 to the second, '' for None: local at a terminal, UTC in pipes and in JSON.

    A text that is no time is returned as it is.
    """
    if not moment:
        return ""
    if isinstance(moment, str):
        try:
            return timestamp(datetime.fromisoformat(moment))
        except ValueError:
            return moment
    context = click.get_current_context(silent=True)
    to_json = context is not None and any(context.params.get(name) for name in ("as_json", "as_lines", "jsonl"))
    if to_json or not sys.stdout.isatty():
        return format_time(moment)
    return moment.astimezone().isoformat(timespec="seconds")


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    empty: str,
    wrap: Sequence[str] = (),
    shrink: Sequence[str] = (),
    leave_out: Sequence[str] = (),
) -> None:
    """Print a table without secrets, or `empty` on stderr without rows; a pipe gets columns two spaces apart.

    On a narrow terminal, the columns of `shrink` are shortened and those of `wrap` wrap at words; while that does not
    suffice, those of `leave_out` are left out, in this order. All other cells stay whole.
    """
    listed = [list(row) for row in rows]
    every = "\n".join("\n".join(row) for row in listed)
    if redact_text(every) != every:
        listed = [[redact_commands(cell) for cell in row] for row in listed]
    if not listed:
        click.echo(empty, err=True)
    elif sys.stdout.isatty():
        from .tables import Fit, draw_table

        draw_table(headings, listed, Fit(wrap, shrink, leave_out))
    else:
        table = [[plain_line(cell) for cell in row] for row in (headings, *listed)]
        widths = [max(map(width_of, column)) for column in zip(*table, strict=True)]
        for row in table:
            cells = (cell + " " * (width - width_of(cell)) for cell, width in zip(row, widths, strict=True))
            click.echo("  ".join(cells).rstrip())


def width_of(text: str) -> int:
    """Return the columns that a text takes at a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def plural(count: int, noun: str) -> str:
    """Return `1 turn`, `2 turns`, `3 deliveries`."""
    many = f"{noun[:-1]}ies" if noun.endswith("ery") else f"{noun}s"
    return f"{count} {noun if count == 1 else many}"


def session_line(node: Node) -> Text:
    """Return the line of a session in a tree."""
    from rich.text import Text

    from ..operations.session_lines import session_parts

    styles = {**STATUS_STYLE, **PART_STYLE}
    return Text.assemble(*((text, styles.get(kind, "")) for text, kind in session_parts(node)))


def print_session_tree(nodes: Sequence[Node], title: str, out: Console | None = None) -> None:
    """Print sessions as a tree; lines wider than a terminal are wrapped."""
    if out is None and not sys.stdout.isatty():
        from ..operations.session_lines import tree_lines

        click.echo("\n".join(tree_lines(nodes, title)))
        return
    from rich.tree import Tree

    tree = Tree(title, guide_style="dim")
    waiting = [(tree, node) for node in reversed(nodes)]
    while waiting:
        branch, node = waiting.pop()
        below = branch.add(session_line(node))
        waiting.extend((below, child) for child in reversed(node.children))
    (out or console()).print(tree, soft_wrap=False)
