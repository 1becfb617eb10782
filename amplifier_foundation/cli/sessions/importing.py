"""Run `amplifier session import`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError

from ...documents.safe_text import plain
from ...operations.columns import shorten_home
from .. import exits
from ..app import json_option, plugins_of, project_here, use_store
from ..loops import run_in_loop
from ..output import plural, print_json, print_table, timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionStore

    from ...sessions.importing.finding import Found
    from ...sessions.importing.json_lines import Notes
    from ...sessions.importing.storing import Imported

PROGRAMS = ("claude-code", "codex", "amplifier")

_STATES = {
    "new": "imported",
    "grown": "continued",
    "fork": "imported as a fork",
    "unchanged": "nothing new",
    "own": "already a session of yours",
    "adopted": "yours now, it works in its folder",
    "kept": "stays one of anybody: it has messages that your file lacks. Delete it first to import yours",
}


@click.command("import", epilog="Example: amplifier session import --from claude-code --dry-run")
@click.argument("places", nargs=-1, metavar="[PATH|ID]...")
@click.option("--from", "program", type=click.Choice(PROGRAMS), help="Import the sessions of this program.")
@click.option("--all", "everywhere", is_flag=True, help="With --from: the sessions of all folders.")
@click.option("--own", is_flag=True, help="With PATH: the sessions are yours, keep their folders and act unasked.")
@click.option("--dry-run", is_flag=True, help="Say what would be imported, and where it would work, and store nothing.")
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 10**9), help="List at most so many."
)
@json_option
@click.pass_context
@run_in_loop
async def import_(
    ctx: click.Context,
    places: tuple[str, ...],
    program: str | None,
    everywhere: bool,
    own: bool,
    dry_run: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Import sessions of Claude Code, of Codex, and from session folders and exports: show, fork and resume them here.

    PATH is a file, a session's folder, or a folder with sessions; ID is one from the list. Without either, --from
    imports the sessions of this folder; without --from too, the sessions on this machine are listed. Importing again
    adds what is new. The other program's files are only read. Anybody may have written a file at another place than the
    program's own: its session works in the current folder, and is asked before it acts.
    """
    from ...sessions.importing.finding import find_sessions, is_of_project

    if everywhere and (places or program is None):
        raise click.UsageError("--all takes --from, and no PATH")
    if own and not places:
        raise click.UsageError("--own takes a PATH")
    if not places and program is None:
        if dry_run:
            raise click.UsageError("--dry-run takes a PATH, an ID or --from")
        return await _list(ctx, limit, as_json=as_json)
    here = project_here()
    found = _find_all(places, program) if places else find_sessions(program)
    if not places and not everywhere:
        found = [each for each in found if is_of_project(each, here)]
        if not found:
            raise _nothing(
                f"{program} has no sessions of {here}. All folders: amplifier session import --from {program} --all"
            )
    if not found:
        raise _nothing(f"there are no sessions in {', '.join(places) or f'the folders of {program}'}")
    if own:
        found = [each._replace(is_own=True) for each in found]
    plugins = plugins_of(ctx)
    async with use_store(plugins) as store:
        job = _Job(store, plugins, dry_run=dry_run, as_json=as_json)
        for each in reversed(found):  # the newest is the last, and becomes the last changed session
            await job.take(each)
    if as_json:
        print_json("session.import/1", {"dry_run": dry_run, "sessions": job.rows, "sources": job.sources})
    elif job.stored and not ctx.obj["quiet"]:
        job.say_left_out()
        _say_summary(job, dry_run=dry_run)
    if job.failed:
        ctx.exit(exits.FAILED)


class _NothingToImport(AmplifierError, LookupError):
    """No session is where one was looked for."""


def _nothing(text: str) -> _NothingToImport:
    return _NothingToImport(text)


def _find_all(places: Sequence[str], program: str | None) -> list[Found]:
    """Return the sessions at these paths, and those with these ids, each once."""
    from ...sessions.importing.finding import find_in, find_sessions

    found: list[Found] = []
    for place in places:
        path = Path(place).expanduser()
        try:
            if path.exists():
                found += find_in(path, program)
                continue
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except OSError as error:
            raise click.UsageError(f"{place} cannot be read: {error.strerror}") from error
        named = [each for each in find_sessions(program) if len(place) >= 4 and each.session_id.startswith(place)]
        if len(named) != 1:
            problem = "begins the ids of several sessions" if named else "is neither a path nor the id of a session"
            raise _nothing(f"'{place}' {problem}. See: amplifier session import")
        found += named
    return list(dict.fromkeys(found))


class _Job:
    """Imports one source after the other, and keeps what has become of each."""

    def __init__(self, store: SessionStore, plugins: Plugins, *, dry_run: bool, as_json: bool) -> None:
        self._store = store
        self._plugins = plugins
        self._dry_run = dry_run
        self._as_json = as_json
        self.rows: list[dict[str, Any]] = []
        self.sources: list[dict[str, Any]] = []
        self.stored: list[Imported] = []
        self.left_out: Counter[str] = Counter()
        self.failed = 0

    async def take(self, found: Found) -> None:
        """Import the histories of one source; a failure ends this source alone."""
        from ...sessions.importing.finding import read_sessions
        from ...sessions.importing.json_lines import Notes
        from ...sessions.importing.storing import SessionImporter

        notes, error, before = Notes(), "", len(self.stored)
        importer = SessionImporter(self._store, self._plugins, is_trial=self._dry_run)
        try:
            for source in read_sessions(found, notes):
                outcome = await importer.take(source)
                if outcome is not None:
                    self.stored.append(outcome)
                    self._tell(outcome)
        except OSError as problem:
            error = f"cannot be read: {problem.strerror or problem}"
        except AmplifierError as problem:
            if exits.exit_code(problem) == exits.TRY_AGAIN:
                raise
            error = str(problem)
        if not error and len(self.stored) == before:
            error = "it has no messages"
        self.failed += bool(error)
        self._tell_notes(found, notes, error)

    def _tell(self, outcome: Imported) -> None:
        source = outcome.source
        self.rows.append(
            {
                "session_id": outcome.session_id,
                "state": outcome.state,
                "from": source.program,
                "source_id": source.source_id,
                "path": str(source.path),
                "name": source.name,
                "project": outcome.project,
                "parent_id": outcome.fork_of or source.parent_id,
                "fork_of": outcome.fork_of,
                "fork_at": outcome.fork_at if outcome.fork_of else None,
                "messages": outcome.messages,
                "added": outcome.added,
                "turns": outcome.turns,
                "created": source.created,
            }
        )
        if self._as_json:
            return
        added = plural(outcome.added, "message") if outcome.added else ""
        what = ", ".join(filter(None, [_STATES[outcome.state], added]))
        where = f"  {shorten_home(outcome.project)}" if self._dry_run else ""
        click.echo(plain(f"{outcome.session_id}  {what}  {source.name}{where}").rstrip())

    def _tell_notes(self, found: Found, notes: Notes, error: str) -> None:
        left_out = dict(notes.left_out)
        self.sources.append(
            {"path": str(found.path), "error": error or None, "problems": notes.problems, "left_out": left_out}
        )
        for text in [*([error] if error else []), *notes.problems]:
            click.echo(plain(f"amplifier: {found.path}: {text}"), err=True)
        self.left_out.update(left_out)

    def say_left_out(self) -> None:
        """Say what has no place in a history here, of all sources together."""
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.left_out.items()))
        if listed:
            click.echo(plain(f"amplifier: left out: {listed}"), err=True)


def _say_summary(job: _Job, *, dry_run: bool) -> None:
    from ...sessions.importing.storing import count_states

    counts = count_states(job.stored)
    made = counts["new"] + counts["fork"]
    strange = [each for each in job.stored if not each.source.is_own and each.added]
    if strange:
        click.echo(
            f"amplifier: anybody may have written {plural(len(strange), 'session')} of these: new ones work in the "
            "current folder, and all are asked before they act. If they are your own, import them with --own",
            err=True,
        )
    if dry_run:
        click.echo(
            f"nothing was stored: {plural(made, 'session')} would be new, {counts['grown']} would grow", err=True
        )
        return
    gone = sorted(
        {each.source.folder for each in job.stored if each.source.folder and not Path(each.source.folder).is_dir()}
    )
    for folder in gone[:3]:
        click.echo(
            plain(f"amplifier: the folder {folder} does not exist here; its sessions can be read and forked"), err=True
        )
    last = next((each for each in reversed(job.stored) if not each.source.parent_id), job.stored[-1])
    click.echo(f'Go on with one: amplifier run --resume {last.session_id} "…"', err=True)


async def _list(ctx: click.Context, limit: int, *, as_json: bool) -> None:
    """List the sessions on this machine: those of this project first, the newest first."""
    from ...sessions.importing.finding import describe, find_sessions, is_of_project

    found, here = find_sessions(), project_here()
    own = {each for each in found if is_of_project(each, here)}
    chosen = sorted(found, key=lambda each: each not in own)[:limit]
    async with use_store(plugins_of(ctx)) as store:
        there = [any(one.session_id == each.session_id for one in await store.find(each.session_id)) for each in chosen]
    rows: list[dict[str, Any]] = []
    for each, is_there in zip(chosen, there, strict=True):
        about = describe(each)
        rows.append(
            {
                "id": each.session_id,
                "from": each.program,
                "path": str(each.path),
                "project": about.folder,
                "is_here": each in own,
                "name": about.name,
                "changed": each.changed,
                "size": each.size,
                "imported": is_there,
            }
        )
    if as_json:
        print_json("session.import.list/1", {"total": len(found), "sessions": rows})
        return
    print_table(
        ("ID", "FROM", "CHANGED", "IMPORTED", "FOLDER", "NAME"),
        (
            (
                row["id"],
                row["from"],
                timestamp(row["changed"]),
                "yes" if row["imported"] else "",
                row["project"],
                row["name"],
            )
            for row in rows
        ),
        empty=f"No sessions of {', '.join(PROGRAMS)} are on this machine. Import a file: amplifier session import PATH",
        shrink=("NAME", "FOLDER"),
        leave_out=("FOLDER", "NAME", "CHANGED", "IMPORTED", "FROM"),
    )
    if len(found) > len(rows):
        click.echo(f"{len(rows)} of {len(found)} sessions; list more with --limit", err=True)
