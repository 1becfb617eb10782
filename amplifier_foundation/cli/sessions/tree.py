"""Run `amplifier session tree`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.utils.secrets import redact_text

from ...operations.session_trees import read_forest, read_subtree, read_waking
from ...operations.sessions import session_facts
from .. import exits
from ..app import find_session, json_option, project_here, storage_plugins, use_store
from ..completing import complete_sessions
from ..loops import run_reading
from ..output import plural, print_json, print_session_tree
from .export import output_option, write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from amplifier_core.storage import SessionStore

    from ...sessions.lineage import Node

_DRAWN = ("mermaid", "dot", "html")
"""Formats that a file may take."""
SHOWN = 500
"""Sessions on a terminal, unless a number is given."""
DEEPEST = 100
"""Levels of one JSON tree: programs read it recursively."""


@click.command(epilog="Example: amplifier session tree --format html -o tree.html")
@click.argument("session_id", metavar="[ID]", required=False, shell_complete=complete_sessions)
@click.option("--all", "everywhere", is_flag=True, help="Include the sessions of all folders.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["rich", "mermaid", "dot", "json", "html"]),
    default="rich",
    show_default=True,
    help="html: one page with all messages, readable without a network.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10**9),
    help=f"Show at most so many sessions, and those above them.  [default: {SHOWN} at a terminal, else all]",
)
@output_option
@click.option("--open", "is_opened", is_flag=True, help="Open the html page in your browser.")
@json_option
@click.pass_context
@run_reading
async def tree(
    ctx: click.Context,
    session_id: str | None,
    everywhere: bool,
    kind: str,
    limit: int | None,
    output: Path | None,
    is_opened: bool,
    as_json: bool,
) -> None:
    """Show sessions below their parents, with their forks and events: of this folder, or of ID and its descendants."""
    from ...sessions.lineage import forest, subtree
    from ...sessions.presence import as_it_is
    from ...sessions.uncounted import count_all

    if is_opened and (as_json or kind not in ("rich", "html")):
        raise click.UsageError("--open takes --format html")
    kind = "html" if is_opened else "json" if as_json else kind
    if output is not None and kind not in _DRAWN:
        raise click.UsageError("--output takes --format mermaid, dot or html")
    if kind == "rich" and sys.stdout.isatty():
        limit = limit or SHOWN
    async with use_store(storage_plugins(ctx)) as store:
        chosen = await find_session(store, session_id) if session_id is not None else None
        project = chosen.project if chosen else None if everywhere else project_here()
        found = await (read_subtree(store, chosen, limit) if chosen else read_forest(store, project, limit))
        if limit is not None and found.has_more:
            which = f"The first {limit:,} of this tree" if chosen else f"The last changed {limit:,}"
            click.echo(f"{which} are shown, and there are more: -n {10 * limit}", err=True)
        records = [as_it_is(each) for each in await count_all(store, found.records)]
        nodes = forest(records, await read_waking(store, records, project))
        if chosen is not None:
            node = subtree(nodes, chosen.session_id)
            nodes = [node] if node else []
        title = project or "all folders"
        drawn = await _draw(store, nodes, kind, title) if kind in _DRAWN else ""
    if drawn:
        _show_drawing(ctx, nodes, drawn, output, kind, is_opened)
    elif kind == "json":
        print_json("session.tree/1", branches(nodes))
    elif nodes:
        print_session_tree(nodes, title)
    else:
        click.echo("No sessions in this folder. All folders: amplifier session tree --all", err=True)


async def _draw(store: SessionStore, nodes: Sequence[Node], kind: str, title: str) -> str:
    """Return the page or the graph; a list needs none of what these import."""
    if kind != "html":
        from ...sessions import lineage_text

        return redact_text((lineage_text.mermaid if kind == "mermaid" else lineage_text.dot)(nodes))
    from ...flows.picture import draw_runs
    from ...sessions.lineage import walk
    from ...sessions.lineage_html import lineage_page, own_messages

    histories = await own_messages(store, nodes)
    runs = [node.record for _, node in walk(nodes) if node.record.session_id in histories]
    return lineage_page(nodes, histories, title, await draw_runs(store, runs))


def _show_drawing(
    ctx: click.Context, nodes: Sequence[Node], drawn: str, output: Path | None, kind: str, is_opened: bool
) -> None:
    """Print a page or a graph, or write it into a file: into a new one where a terminal cannot show it."""
    from pathlib import Path
    from tempfile import mkdtemp

    from ...sessions.lineage import walk

    if output is None and kind == "html" and (is_opened or sys.stdout.isatty()):
        output = Path(mkdtemp(prefix="amplifier-tree-")) / "sessions.html"  # in a folder of mode 0700
    if output is None:
        click.echo(drawn)
        return
    write_private(output, f"{drawn}\n")
    click.echo(f"{output}: {plural(sum(1 for _ in walk(nodes)), 'session')}", err=True)
    if is_opened:
        import webbrowser

        if not webbrowser.open(output.absolute().as_uri()):
            click.echo("amplifier: no browser was found; open that file yourself", err=True)
            ctx.exit(exits.FAILED)


def branches(roots: Sequence[Node]) -> list[dict[str, Any]]:
    """Return trees as JSON shows them, each node with its `children`; below `DEEPEST` levels a new tree begins."""
    from ...sessions.lineage import describe_event, walk

    above: list[list[dict[str, Any]]] = [[]]
    for depth, node in walk(roots):
        event = node.woken_by.event if node.woken_by is not None else None
        woken_by = {"event_id": event.event_id, "summary": describe_event(event)} if event is not None else None
        branch = {**session_facts(node.record), "woken_by": woken_by, "children": []}
        level = depth % DEEPEST
        above[level].append(branch)
        above[level + 1 :] = [branch["children"]]
    return above[0]
