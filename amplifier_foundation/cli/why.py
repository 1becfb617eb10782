"""Run `amplifier why`: explain an event or a session by its causes and effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..operations.explaining import SHORT, act_parts, explain, find_postponed, link_parts, link_rows
from ..operations.sessions import LAST
from .app import find_session, json_option, storage_plugins, use_inbox
from .completing import complete_sessions
from .loops import run_reading
from .output import PART_STYLE, STATUS_STYLE, console, print_json, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

STYLES = {**STATUS_STYLE, **PART_STYLE, "asked": "bold yellow", "queue": "cyan", "note": "dim", "act": "magenta"}


@click.command(epilog="Example: amplifier why last")
@click.argument("asked", metavar="EVENT|SESSION", shell_complete=complete_sessions)
@json_option
@click.pass_context
@run_reading
async def why(ctx: click.Context, asked: str, as_json: bool) -> None:
    """Explain an event or a session: the chain from the first event down, and the results; ▶ marks it.

    EVENT|SESSION is an id, or enough of its beginning: at least four characters. `last` is the last changed session of
    this project.
    A delivery's id, as shown by `amplifier trigger dead`, stands for its event, and the four characters in a line of
    `amplifier up` for its session.
    """
    from rich.tree import Tree

    async with use_inbox(storage_plugins(ctx)) as store:
        found = await explain(store, (await find_session(store, asked)).session_id if asked == LAST else asked)
    if as_json:
        print_json("why/2", {"links": link_rows(found, timestamp), "listeners": found.listeners})
        return
    tree = Tree(_line(link_parts(found.first, timestamp)), guide_style="dim")
    waiting = [(tree, found.first)]
    while waiting:
        branch, link = waiting.pop()
        for act in found.acts.get(link.key, ()):
            branch.add(_line(act_parts(act, timestamp)))
        waiting.extend((branch.add(_line(link_parts(below, timestamp))), below) for below in link.caused)
        if link.open:
            branch.add(
                "… and more" if link.record is None else f"… and more: amplifier session tree {link.key}", style="dim"
            )
    console().print(tree, soft_wrap=False)
    postponed, triable = (" ".join(each[:SHORT] for each in ids) for ids in find_postponed(found))
    if triable:
        click.echo(f"Try what is postponed now: amplifier trigger retry {triable}")
    if postponed:
        click.echo(f"Discard what is postponed: amplifier trigger drop {postponed}")
    if found.listeners:
        queues = "; ".join(f"{queue} (by {', '.join(names)})" for queue, names in found.listeners.items())
        click.echo(f"It woke no background session. Events of sessions have woken {queues}.")
    elif found.listeners is not None:
        click.echo("It woke no background session, and no event of a session has woken one so far.")


def _line(parts: Iterable[tuple[str, str]]) -> Text:
    from rich.text import Text

    return Text.assemble(*((text, STYLES.get(kind, "")) for text, kind in parts))
