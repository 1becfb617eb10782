"""`amplifier session diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..app import json_option, opened_store, plugins_of, run_async, session_by_prefix
from ..output import console, plural, print_json
from .facts import print_message, with_ids

if TYPE_CHECKING:
    from amplifier_core.transcript import Message

    from ...lineage import Parting


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@json_option
@click.pass_context
def diff(ctx: click.Context, first: str, second: str, as_json: bool) -> None:
    """Show where the histories of A and B part, and what each says after that."""
    ids, parted = run_async(_diff(ctx, first, second))
    sides = [_side(session_id, parted.shared, own) for session_id, own in zip(ids, parted.own, strict=True)]
    if as_json:
        print_json("session.diff/1", {"shared": parted.shared, "sessions": sides})
        return
    said = f"The first {plural(parted.shared, 'message')} are the same" if parted.shared else "Nothing is the same"
    click.echo(said.replace("message are", "message is"))
    for session_id, own in zip(ids, parted.own, strict=True):
        _print_side(session_id, parted.shared, own)


async def _diff(ctx: click.Context, first: str, second: str) -> tuple[tuple[str, str], Parting]:
    from ...lineage import parting

    async with opened_store(plugins_of(ctx)) as store:
        a, b = await session_by_prefix(store, first), await session_by_prefix(store, second)
        return (a.session_id, b.session_id), parting(await store.read(a.session_id), await store.read(b.session_id))


def _side(session_id: str, shared: int, own: list[Message]) -> dict[str, Any]:
    return {"session_id": session_id, "messages": with_ids(own, shared)}


def _print_side(session_id: str, shared: int, own: list[Message]) -> None:
    out = console()
    out.print()
    out.print(f"── {session_id}: {plural(len(own), 'message')} of its own", style="bold", markup=False)
    for number, message in enumerate(own, shared + 1):
        print_message(number, message)
