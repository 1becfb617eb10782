"""Run `amplifier issue`: the issues of a project, for people and scripts."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from amplifier_foundation.cli.app import json_option, project_here, storage_plugins, use_store
from amplifier_foundation.cli.completing import completes, read_now
from amplifier_foundation.cli.loops import run_in_loop, run_reading
from amplifier_foundation.cli.output import print_json, print_table, timestamp
from amplifier_foundation.documents.safe_text import one_line, plain

from .issues import STATUSES, read_number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from .issues import Issue
    from .tracker import Tracker

LISTED = 100
"""Issues in a list without `--limit`."""

type_option = click.option("-t", "--type", "type_", metavar="TYPE", help="The kind of work: task, bug, research, …")
description_option = click.option("-d", "--description", metavar="TEXT", help="What is to be done; - reads stdin.")
priority_option = click.option("-p", "--priority", type=click.IntRange(0, 4), help="0 is the most urgent, 2 is usual.")
label_option = click.option("-l", "--label", "labels", multiple=True, metavar="LABEL", help="Label it; repeatable.")


@completes
def _complete_numbers(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the numbers of issues, the open ones first."""
    from amplifier_foundation.sessions.documents import documents_of

    from .tracker import Tracker

    found = read_now(ctx, lambda store: Tracker(documents_of(store, project_here())).find(limit=LISTED)) or ()
    yield from ((str(each.id), f"{each.state} {each.title}") for each in found)


number_argument = click.argument("number", type=read_number, metavar="ISSUE", shell_complete=_complete_numbers)


@asynccontextmanager
async def _use_tracker(ctx: click.Context) -> AsyncIterator[Tracker]:
    """Open the issues of this project while the block runs."""
    from amplifier_foundation.sessions.documents import documents_of

    from .tracker import Tracker

    async with use_store(storage_plugins(ctx)) as store:
        yield Tracker(documents_of(store, project_here()))


@click.group()
def issue() -> None:
    """Keep the issues of this project: work for agents and people.

    Background sessions with `tracker: issue`, such as those of the foreman, take up the open ones by themselves.
    """


@issue.command(epilog='Example: amplifier issue create "Add unit tests" -t testing -p 1')
@click.argument("title")
@description_option
@type_option
@priority_option
@label_option
@click.option("--blocked-by", type=read_number, multiple=True, metavar="ISSUE", help="An issue to close first.")
@json_option
@click.pass_context
@run_in_loop
async def create(
    ctx: click.Context,
    title: str,
    description: str | None,
    type_: str | None,
    priority: int | None,
    labels: Sequence[str],
    blocked_by: Sequence[int],
    as_json: bool,
) -> None:
    """Make an issue with the title TITLE, and print its number."""
    given: dict[str, Any] = {"description": _read_text(description), "type": type_, "priority": priority}
    async with _use_tracker(ctx) as tracker:
        made = await tracker.create(
            title,
            labels=labels,
            blocked_by=blocked_by,
            **{name: value for name, value in given.items() if value is not None},
        )
    _report(made, "issue.create/1", as_json=as_json)


@issue.command(name="list", epilog="Example: amplifier issue list --ready")
@click.option(
    "-s", "--status", "statuses", multiple=True, type=click.Choice([*STATUSES, "blocked"]), help="Only these."
)
@type_option
@click.option("-l", "--label", metavar="LABEL", help="Only with this label.")
@click.option("--ready", is_flag=True, help="Only open ones that wait for no other.")
@click.option("--all", "everything", is_flag=True, help="Closed ones, too.")
@click.option("--limit", type=click.IntRange(1, 10**9), default=LISTED, show_default=True, help="At most so many.")
@json_option
@click.pass_context
@run_reading
async def list_(
    ctx: click.Context,
    statuses: Sequence[str],
    type_: str | None,
    label: str | None,
    ready: bool,
    everything: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List the issues that are not closed, the most urgent first."""
    wanted = statuses or (() if everything else [each for each in STATUSES if each != "closed"])
    async with _use_tracker(ctx) as tracker:
        found = await tracker.find(
            status=wanted, type=[type_] if type_ else (), label=label, ready=ready, limit=None if as_json else limit + 1
        )
        is_empty = not (as_json or found or await tracker.find(limit=1))
    if as_json:
        print_json("issue.list/1", [each.facts() for each in found[:limit]])
        return
    others = "No such issues. See all with: amplifier issue list --all"
    print_table(
        ("ISSUE", "STATE", "PRIORITY", "TYPE", "TITLE", "WORKER"),
        [
            (f"{each.id}", _state(each), f"{each.priority}", each.type, one_line(each.title, 80), each.assignee or "")
            for each in found[:limit]
        ],
        empty="No issues here. Make one with: amplifier issue create TITLE" if is_empty else others,
        shrink=("TITLE",),
        leave_out=("WORKER", "TYPE", "PRIORITY", "STATE"),
    )
    if len(found) > limit:
        click.echo(f"There are more; --limit {2 * limit} shows some of them.", err=True)


@issue.command(epilog="Example: amplifier issue show 3")
@number_argument
@json_option
@click.pass_context
@run_reading
async def show(ctx: click.Context, number: int, as_json: bool) -> None:
    """Show an issue with its comments."""
    async with _use_tracker(ctx) as tracker:
        found, comments = await tracker.get(number), await tracker.comments(number)
    if as_json:
        print_json("issue.show/1", {**found.facts(), "said": comments})
        return
    facts = {
        "issue": f"{found.id} {found.title}",
        "state": found.state + (f" ({found.resolution})" if found.resolution else ""),
        "reason": found.reason,
        "type": found.type,
        "priority": found.priority,
        "labels": ", ".join(found.labels),
        "waits for": ", ".join(map(str, found.blocked_by)),
        "blocks": ", ".join(map(str, found.blocks)),
        "worker": found.assignee,
        "made by": found.created_by or "a person",
        "created": timestamp(found.created),
        "updated": timestamp(found.updated),
        **found.metadata,
    }
    for name, value in facts.items():
        if value not in ("", None, []):
            click.echo(f"{name}: {plain(', '.join(map(str, value)) if isinstance(value, list) else str(value))}")
    for heading, text in (("description", found.description), ("result", found.result)):
        if text:
            click.echo(f"\n{heading}:\n{plain(text)}")
    for each in comments:
        when, author = plain(timestamp(each["created"])), plain(each["author"] or "a person")
        click.echo(f"\n{when} {author}:\n{plain(each['text'])}")


@issue.command(epilog='Example: amplifier issue update 3 --status open --reason "the tests fail"')
@number_argument
@click.option("--title", metavar="TEXT", help="A new title.")
@description_option
@type_option
@priority_option
@click.option("-s", "--status", type=click.Choice(STATUSES), help="open lets a worker begin it.")
@click.option("-l", "--label", "labels", multiple=True, metavar="LABEL", help="The labels, all of them; repeatable.")
@click.option("--reason", metavar="TEXT", help="Why it is escalated, or open again.")
@json_option
@click.pass_context
@run_in_loop
async def update(
    ctx: click.Context,
    /,
    number: int,
    description: str | None,
    type_: str | None,
    labels: Sequence[str],
    as_json: bool,
    **given: Any,
) -> None:
    """Change an issue."""
    given |= {"description": _read_text(description), "type": type_, "labels": list(labels) or None}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to change; give an option such as --status open")
    async with _use_tracker(ctx) as tracker:
        before = await tracker.get(number)
        _report(await tracker.update(number, **changes), "issue.update/1", as_json=as_json)
    if changes.get("status") == "closed":
        await _stop_worker(ctx, before)


@issue.command(epilog='Example: amplifier issue comment 3 "The parser is the cause."')
@number_argument
@click.argument("text")
@json_option
@click.pass_context
@run_in_loop
async def comment(ctx: click.Context, number: int, text: str, as_json: bool) -> None:
    """Add the comment TEXT (-: stdin)."""
    async with _use_tracker(ctx) as tracker:
        _report(await tracker.comment(number, _read_text(text) or ""), "issue.comment/1", as_json=as_json)


@issue.command(epilog="Example: amplifier issue depend 3 1")
@number_argument
@click.argument("on", type=read_number, metavar="OTHER", shell_complete=_complete_numbers)
@click.option("--remove", is_flag=True, help="Wait for it no longer.")
@json_option
@click.pass_context
@run_in_loop
async def depend(ctx: click.Context, number: int, on: int, remove: bool, as_json: bool) -> None:
    """Let ISSUE wait until OTHER is closed."""
    async with _use_tracker(ctx) as tracker:
        _report(await tracker.depend(number, on, remove=remove), "issue.depend/1", as_json=as_json)


@issue.command(epilog="Example: amplifier issue close 3")
@number_argument
@click.option("--resolution", metavar="WORD", default="completed", show_default=True, help="wontfix, duplicate, …")
@click.option("--result", metavar="TEXT", default="", help="What came of it; - reads stdin.")
@json_option
@click.pass_context
@run_in_loop
async def close(ctx: click.Context, number: int, resolution: str, result: str, as_json: bool) -> None:
    """Close an issue; those that waited for it alone can begin.

    A session that works on it is stopped, and its branch is not merged.
    """
    async with _use_tracker(ctx) as tracker:
        before = await tracker.get(number)
        closed = await tracker.close(number, resolution=resolution, result=_read_text(result) or "")
    _report(closed, "issue.close/1", as_json=as_json)
    await _stop_worker(ctx, before)


async def _stop_worker(ctx: click.Context, before: Issue) -> None:
    """End the turn of the session that worked on an issue which is closed now."""
    from amplifier_core.errors import SessionConflict, SessionNotFound
    from amplifier_foundation.operations.acting import person_here
    from amplifier_foundation.operations.cancelling import NotRunning, cancel_turn

    if before.status != "in_progress" or before.queue is None or before.assignee is None:
        return
    async with use_store(storage_plugins(ctx)) as store:
        # The work of one that does not answer is not merged either.
        with suppress(NotRunning, SessionConflict, SessionNotFound):
            if await cancel_turn(store, person_here("command line"), before.assignee):
                click.echo(f"Its session {before.assignee} is stopped.", err=True)


def _read_text(given: str | None) -> str | None:
    return sys.stdin.read().removeprefix("\ufeff") if given == "-" else given


def _report(issue: Issue, schema: str, *, as_json: bool) -> None:
    if as_json:
        print_json(schema, issue.facts())
    else:
        click.echo(f"{issue.id}  {_state(issue)}  {plain(issue.title)}")


def _state(issue: Issue) -> str:
    waits = f" by {', '.join(map(str, issue.blocked_by))}" if issue.state == "blocked" else ""
    return f"{issue.state.replace('_', ' ')}{waits}"
