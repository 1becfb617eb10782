"""Run `amplifier memory`: the notes of a project, for people and scripts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from amplifier_foundation.cli.app import confirm, json_option, project_here, storage_plugins, use_store, yes_option
from amplifier_foundation.cli.completing import completes, read_now
from amplifier_foundation.cli.loops import run_in_loop, run_reading
from amplifier_foundation.cli.output import plural, print_json, print_table, timestamp
from amplifier_foundation.documents.safe_text import one_line, plain

from .notes import read_number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from .notes import Note, Notes

LISTED = 100
"""Notes in a list without `--limit`."""
_EMPTY = "No notes here. Agents with the tool memory save them."


@completes
def _complete_numbers(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the numbers of notes, the newest first."""
    from amplifier_foundation.sessions.documents import documents_of

    from .notes import Notes

    found = read_now(ctx, lambda store: Notes(documents_of(store, project_here())).find(limit=LISTED)) or ()
    yield from ((str(note.id), note.title) for note in found)


@asynccontextmanager
async def _use_notes(ctx: click.Context) -> AsyncIterator[Notes]:
    """Open the notes of this project while the block runs."""
    from amplifier_foundation.sessions.documents import documents_of

    from .notes import Notes

    async with use_store(storage_plugins(ctx)) as store:
        yield Notes(documents_of(store, project_here()))


@click.group()
def memory() -> None:
    """Read and delete the notes that agents keep about this project."""


@memory.command(name="list", epilog="Example: amplifier memory list --tag deploy")
@click.option("-t", "--tag", metavar="TAG", help="Only with this tag.")
@click.option("--limit", type=click.IntRange(1, 10**9), default=LISTED, show_default=True, help="At most so many.")
@json_option
@click.pass_context
@run_reading
async def list_(ctx: click.Context, tag: str | None, limit: int, as_json: bool) -> None:
    """List the notes, the newest first."""
    async with _use_notes(ctx) as notes:
        found = await notes.find(tag, limit + 1)
    if as_json:
        print_json("memory.list/1", [note.facts() for note in found[:limit]])
        return
    print_table(
        ("NOTE", "TITLE", "TAGS", "UPDATED"),
        [
            (f"{note.id}", one_line(note.title, 80), ", ".join(note.tags), timestamp(note.updated))
            for note in found[:limit]
        ],
        empty=_EMPTY if tag is None else f"No note has the tag '{plain(tag)}'.",
        shrink=("TITLE", "TAGS"),
        leave_out=("UPDATED", "TAGS"),
    )
    if len(found) > limit:
        click.echo(f"There are more; --limit {2 * limit} shows some of them.", err=True)


@memory.command(epilog="Example: amplifier memory search deploy backend")
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="At most so many.")
@json_option
@click.pass_context
@run_reading
async def search(ctx: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Search the notes for any of WORDS, the best first."""
    async with _use_notes(ctx) as notes:
        found = await notes.search(" ".join(words), limit)
    if as_json:
        print_json("memory.search/1", [{**match.note.facts(), "snippet": match.snippet} for match in found])
        return
    print_table(
        ("NOTE", "TITLE", "FOUND"),
        [(f"{match.note.id}", one_line(match.note.title, 80), one_line(match.snippet, 200)) for match in found],
        empty="No note has any of these words.",
        shrink=("FOUND", "TITLE"),
    )


@memory.command(epilog="Example: amplifier memory show 3")
@click.argument("number", type=read_number, metavar="NOTE", shell_complete=_complete_numbers)
@json_option
@click.pass_context
@run_reading
async def show(ctx: click.Context, number: int, as_json: bool) -> None:
    """Show a note."""
    async with _use_notes(ctx) as notes:
        note = await notes.get(number)
    if as_json:
        print_json("memory.show/1", note.facts())
        return
    facts = {
        "note": f"{note.id} {note.title}",
        "tags": ", ".join(note.tags),
        "saved by": note.created_by or "a person",
        "created": timestamp(note.created),
        "updated": timestamp(note.updated),
        "untrusted": note.untrusted,
    }
    for name, value in facts.items():
        if value:
            click.echo(f"{name}: {plain(value)}")
    if note.text:
        click.echo(f"\n{plain(note.text)}")


@memory.command(epilog="Example: amplifier memory delete 3 4")
@click.argument("numbers", type=read_number, nargs=-1, required=True, metavar="NOTE…", shell_complete=_complete_numbers)
@yes_option
@json_option
@click.pass_context
@run_in_loop
async def delete(ctx: click.Context, numbers: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Delete notes."""
    async with _use_notes(ctx) as notes:
        found = [await notes.get(number) for number in dict.fromkeys(numbers)]
        deleted = []
        if confirm(f"Delete {plural(len(found), 'note')}?", yes=yes):
            deleted = [await notes.delete(note.id) for note in found]
    _report(deleted, as_json=as_json)


def _report(deleted: list[Note], *, as_json: bool) -> None:
    if as_json:
        print_json("memory.delete/1", [note.id for note in deleted])
    else:
        for note in deleted:
            click.echo(f"deleted {note.id}  {plain(note.title)}")
