"""`amplifier session tree`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..app import deliveries_in, json_option, opened_store, plugins_of, run_async, session_by_prefix
from ..output import plural, print_json, print_session_tree
from .export import output_option, write_private
from .facts import facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message

    from ...lineage import Node


@click.command()
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--all", "everywhere", is_flag=True, help="Sessions of every project, not of this folder alone.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["rich", "mermaid", "dot", "json", "html"]),
    default="rich",
    show_default=True,
    help="html: one page, which needs no network, with what was said.",
)
@output_option
@json_option
@click.pass_context
def tree(
    ctx: click.Context, session_id: str | None, everywhere: bool, kind: str, output: Path | None, as_json: bool
) -> None:
    """Draw who made whom, whose history is whose, and what woke what: of this folder, or of ID and what is below."""
    kind = "json" if as_json else kind
    nodes, title, histories = run_async(_trees(ctx, session_id, everywhere=everywhere, messages=kind == "html"))
    if output is not None:
        if kind not in ("mermaid", "dot", "html"):
            raise click.UsageError("--output takes --format mermaid, dot or html")
        write_private(output, _drawn(kind, nodes, title, histories) + "\n")
        click.echo(f"{output}: {plural(len(histories) or len(nodes), 'session')}", err=True)
    elif kind == "json":
        print_json("session.tree/1", branches(nodes))
    elif kind != "rich":
        click.echo(_drawn(kind, nodes, title, histories))
    elif nodes:
        print_session_tree(nodes, title)
    else:
        click.echo("No sessions in this folder. Other folders': amplifier session tree --all", err=True)


async def _trees(
    ctx: click.Context, prefix: str | None, *, everywhere: bool, messages: bool
) -> tuple[list[Node], str, dict[str, list[Message]]]:
    from ...lineage import forest, subtree
    from ...pages import own_messages
    from ...paths import project_of
    from ...presence import as_it_is

    async with opened_store(plugins_of(ctx)) as store:
        chosen = await session_by_prefix(store, prefix) if prefix is not None else None
        project = chosen.project if chosen else None if everywhere else project_of()
        records = [as_it_is(record) for record in await store.sessions(project=project)]
        roots = forest(records, await deliveries_in(store, project=project))
        title = project or "every project"
        if chosen is not None:
            node = subtree(roots, chosen.session_id)
            roots = [node] if node else []
        return roots, title, await own_messages(store, roots) if messages else {}


def _drawn(kind: str, nodes: Sequence[Node], title: str, histories: Mapping[str, list[Message]]) -> str:
    if kind == "html":
        from ...pages import lineage_page

        return lineage_page(nodes, histories, title)
    from ... import drawing

    return drawing.mermaid(nodes) if kind == "mermaid" else drawing.dot(nodes)


DEEPEST = 100
"""Levels of one JSON tree, which programs read recursively."""


def branches(roots: Sequence[Node]) -> list[dict[str, Any]]:
    """Return trees as JSON shows them, each node with its `children`; what lies deeper than `DEEPEST` begins anew."""
    from ...lineage import walk

    above: list[list[dict[str, Any]]] = [[]]
    for depth, node in walk(roots):
        branch = {**facts(node.record), "woken_by": _woken_by(node), "children": []}
        level = depth % DEEPEST
        above[level].append(branch)
        above[level + 1 :] = [branch["children"]]
    return above[0]


def _woken_by(node: Node) -> dict[str, str] | None:
    from ...lineage import describe_event

    if node.woken_by is None:
        return None
    event = node.woken_by.event
    return {"event_id": event.event_id, "summary": describe_event(event)}
