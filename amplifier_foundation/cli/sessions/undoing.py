"""Run `amplifier session undo`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import SessionConflict

from ...documents.safe_text import plain
from .. import exits
from ..app import confirm, find_session, json_option, storage_plugins, use_store, yes_option
from ..completing import complete_sessions
from ..loops import run_in_loop
from ..output import plural, print_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...sessions.file_changes import FileChange
    from ...sessions.undoing import Chain, Step

LARGEST_DIFF = 512 * 1024
"""Bytes of a content whose lines are compared."""
MOST_LINES = 200
"""Lines of the diff of one file."""


@click.command(epilog="Example: amplifier session undo last --dry-run")
@click.argument("session_id", metavar="ID", shell_complete=complete_sessions)
@click.option("--last", "which", flag_value="last", default=True, help="The last turn that changed files (default).")
@click.option("--turn", type=click.IntRange(min=0), help="This turn alone.")
@click.option("--all", "which", flag_value="all", help="All turns.")
@click.option("--redo", "which", flag_value="redo", help="Take back the last undo.")
@click.option("--descendants", is_flag=True, help="Include the changes of the sessions below it.")
@click.option("--force", is_flag=True, help="Also restore files that others, commands or hooks have changed since.")
@click.option("--dry-run", is_flag=True, help="Show what would be restored, and restore nothing.")
@yes_option
@json_option
@click.pass_context
@run_in_loop
async def undo(
    ctx: click.Context,
    session_id: str,
    which: str,
    turn: int | None,
    descendants: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Restore the files that a session has changed with its file tools.

    It shows the differences first. Files that others, commands or hooks have changed since are refused, and then none
    is restored. It ends with 1 when the record of a session's changes cannot be read as a whole.
    """
    from ...sessions.lineage import read_below
    from ...sessions.presence import is_running
    from ...sessions.undoing import plan_undo, read_chains, read_turns, restore

    async with use_store(storage_plugins(ctx)) as store:
        record = await find_session(store, session_id)
        below = await read_below(store, record.session_id) if descendants else []
        for each in (record, *below):
            if is_running(each) and not dry_run:
                raise SessionConflict(each.session_id, f"session '{each.session_id}' is running. Stop it first")
        ids = [record.session_id, *(each.session_id for each in below)]
        unreadable = _warn_unreadable(ids)
        chains = read_chains(ids)
        turns = await read_turns(store, [change for chain in chains for change in chain.changes])
    chosen = _choose(chains, turns, which if turn is None else "turn", turn)
    steps = [step for chain in chains if (step := plan_undo(chain, chosen)) is not None]
    if not as_json:
        _show(steps, turns)
    refused = [step for step in steps if step.problem and (step.is_final or not force)]
    if refused and not dry_run:
        problem = "; ".join(f"{plain(step.path)}: {step.problem}" for step in refused)
        hint = ""
        if not any(step.is_final for step in refused):
            hint = ". Use --force to restore it all the same"
            hint += "" if descendants else ". --descendants includes the sessions below it"
        raise SessionConflict(record.session_id, f"nothing is restored. {problem}{hint}")
    is_done = bool(steps) and not dry_run and confirm(f"Restore {plural(len(steps), 'file')}?", yes=yes)
    if is_done:
        restore(steps, record.session_id, record.message_count)
    if as_json:
        about = {"session_id": record.session_id, "done": is_done, "unreadable": unreadable}
        print_json("session.undo/1", {**about, "files": [_facts(step, turns) for step in steps]})
    elif is_done:
        click.echo(f"restored {plural(len(steps), 'file')}")
        click.echo(f"To take that back: amplifier session undo {record.session_id} --redo", err=True)
    elif not steps:
        nothing = "There is nothing to undo" if which != "redo" else "There is no undo to take back"
        click.echo(f"{nothing}{' in what can be read' if unreadable else ''}.")
    if unreadable:
        ctx.exit(exits.FAILED)


def _warn_unreadable(session_ids: Iterable[str]) -> int:
    """Return how many lines about changes of sessions cannot be read, and say so."""
    from ...sessions.file_changes import count_unreadable, journal_of

    counts = {each: count for each in session_ids if (count := count_unreadable(each))}
    for session_id, count in counts.items():
        click.echo(
            f"amplifier: {plural(count, 'line')} of {journal_of(session_id)} cannot be read, as after a power cut: the "
            "changes in it are not known and stay. Restore those files from a backup of yours",
            err=True,
        )
    return sum(counts.values())


def _choose(chains: Iterable[Chain], turns: Mapping[str, int], which: str, turn: int | None) -> set[str]:
    """Return the ids of the changes to take back."""
    from ...sessions.undoing import find_counting

    counting = [change for chain in chains for change in find_counting(chain)]
    if which == "redo":
        known = {each.id for chain in chains for each in chain.changes if each.undoes}
        undos = [each for each in counting if each.undoes and known.isdisjoint(each.undoes)]
        newest = max(undos, key=lambda each: each.time, default=None)
        return {each.id for each in undos if newest is not None and each.batch == newest.batch}
    changes = [each for each in counting if not each.undoes]
    if which == "last" and changes:
        last = max(changes, key=lambda each: each.time)
        return {each.id for each in changes if _turn_of(each, turns) == _turn_of(last, turns)}
    return {each.id for each in changes if which == "all" or turns[each.id] == turn}


def _turn_of(change: FileChange, turns: Mapping[str, int]) -> tuple[str, int]:
    return change.session_id, turns[change.id]


def _show(steps: Sequence[Step], turns: Mapping[str, int]) -> None:
    for step in steps:
        about = _facts(step, turns)
        problem = f": {step.problem}" if step.problem else ""
        told = f"turn {', '.join(map(str, about['turns']))}" if about["turns"] else "the last undo"
        click.echo(f"{about['action']} {plain(step.path)} ({told}){problem}")
        if not (step.problem and step.is_final):
            for line in _compare(step):
                click.echo(f"  {line}")


def _compare(step: Step) -> list[str]:
    """Return the difference between a file now and as it will be, without secrets."""
    from amplifier_core.previews import compare_lines
    from amplifier_core.utils.secrets import redact_text

    now, path = None, Path(step.path)
    with suppress(OSError):
        now = path.read_bytes() if path.stat().st_size <= LARGEST_DIFF else b"\0"
    contents = [_read_text(now), _read_text(step.content)]
    if None in contents:
        return ["(not text, or too large to compare)"]
    old, new = (redact_text(text).splitlines() for text in contents if text is not None)
    lines = [plain(line) for line in compare_lines(old, new, "now", "restored")]
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES} more lines"]


def _read_text(data: bytes | None) -> str | None:
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or len(text) > LARGEST_DIFF else text


def _facts(step: Step, turns: Mapping[str, int]) -> dict[str, Any]:
    """Return a file to restore as JSON shows it."""
    return {
        "path": step.path,
        "action": "delete" if step.content is None and not step.is_final else "restore",
        "turns": sorted({turns[each.id] for each in step.changes if not each.undoes}),
        "problem": step.problem or None,
    }
