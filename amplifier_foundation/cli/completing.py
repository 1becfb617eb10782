"""Complete ids, names and keys in a shell: quickly, silently, and without an event loop.

Each function here is the `shell_complete` of a click parameter. An error completes nothing, and neither does a
store that needs an event loop.
"""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stderr, suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from amplifier_core.permissions.hidden import is_printable

from ..documents.safe_text import one_line
from ..operations.loading import known_bundles
from ..operations.sessions import LAST
from .app import project_here, read_sessions, read_settings_here, storage_plugins, storage_setting, use_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    import click
    from click.shell_completion import CompletionItem

    from amplifier_core.storage import SessionRecord, SessionStore

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

Result = TypeVar("Result")

MOST = 100
"""Words offered at most."""
READ = 1_000
"""Sessions searched for the beginning of an id."""
LONGEST = 60
"""Characters of the text beside a word."""


def completes(find: Callable[[click.Context], Iterable[tuple[str, str]]], *, or_path: bool = False) -> Complete:
    """Make a `shell_complete` of a function that yields words, each with a short text ('': none).

    With `or_path`, the shell completes a path where no word begins as what is typed.
    """

    @wraps(find)
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found: dict[str, CompletionItem] = {}
        with redirect_stderr(io.StringIO()), suppress(Exception), ctx.scope(cleanup=False):
            ctx.obj = {"quiet": True}
            for word, text in find(ctx):
                if word.startswith(incomplete) and is_printable(word):
                    found.setdefault(word, CompletionItem(word, help=one_line(text, LONGEST) or None))
                if len(found) == MOST:
                    break
        return list(found.values()) or ([CompletionItem(incomplete, type="file")] if or_path else [])

    return complete


def read_now(ctx: click.Context, read: Callable[[SessionStore], Awaitable[Result]]) -> Result | None:
    """Return what `read` finds in the store, None if that needs an event loop or there is no store yet."""
    from ..paths import data_home

    if not data_home().is_dir():
        return None

    async def work() -> Result:
        async with use_store(storage_plugins(ctx)) as store:
            return await read(store)

    started = work()
    try:
        started.send(None)
    except StopIteration as end:
        found: Result = end.value
        return found
    finally:
        started.close()
    return None


def _read_records(ctx: click.Context) -> list[SessionRecord]:
    return read_now(ctx, lambda store: read_sessions(store, everywhere=False, limit=READ)) or []


@completes
def complete_sessions(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the ids of this project's sessions, the last changed first."""
    yield LAST, "the last changed session"
    for record in _read_records(ctx):
        yield record.session_id, f"{record.status} {record.name}"


@completes
def complete_runs(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the ids of the runs of workflows."""
    from ..sessions.runs import is_run

    yield LAST, "the last changed run"
    for record in _read_records(ctx):
        if is_run(record):
            yield record.session_id, f"{record.status} {record.metadata['flow']['name']}"


@completes
def complete_flows(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the names of the workflows in the bundle.md of this project."""
    yield from _names_in("workflows")


@completes
def complete_background_sessions(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the names of background sessions: running ones, those of this project, those with events."""
    from ..background.keys import RUNS
    from ..operations.running import list_all_running
    from ..sessions.storages import require_inbox

    for (_, queue), _, row in list_all_running():
        yield queue.rpartition("/")[2], str(row["status"])
    yield from _names_in("background_sessions")
    for counted in read_now(ctx, lambda store: require_inbox(store, storage_setting()).delivery_counts()) or ():
        if counted.queue != RUNS:
            yield counted.queue.rpartition("/")[2], "has events"


@completes
def complete_approvals(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the ids of the approvals that wait."""
    from ..background.approvals import read_all
    from ..sessions.storages import require_inbox

    yield LAST, "the newest"
    for each in read_now(ctx, lambda store: read_all(require_inbox(store, storage_setting()))) or ():
        if each.state == "pending":
            yield each.id, each.question


@partial(completes, or_path=True)
def complete_bundles(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the names of bundles; of the packages, those whose plugin is called `bundle-…` are asked."""
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.hookspecs import GROUP
    from amplifier_core.plugins import is_allowed, load_plugins

    found = (entry.name for entry in find_entry_points(GROUP) if entry.name.startswith("bundle-"))
    named = ",".join(name for name in found if is_allowed(name, os.environ))
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": named})
    yield from ((name, str(place)) for name, place in known_bundles(plugins, read_settings_here()).items())


@completes
def complete_servers(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the names of the servers that packages offer."""
    from amplifier_core.plugins import load_plugins

    yield from ((name, "") for name in load_plugins().registry_of("server"))


@completes
def complete_providers(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the names of the installed providers."""
    from ..bundle.credentials import PREFIX
    from ..bundle.first_provider import installed_providers

    yield from ((name.removeprefix(PREFIX), "") for name in installed_providers())


@completes
def complete_config_keys(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the keys of settings: those with a default and those that are set."""
    from ..documents.dicts import flatten
    from ..documents.positions import format_path
    from ..settings.layer import DEFAULTS

    settings = read_settings_here()
    for keys, _ in (*flatten(settings.values), *flatten(DEFAULTS)):
        yield format_path(keys), ""


def _names_in(section: str) -> Iterator[tuple[str, str]]:
    """Yield the names in a section of this project's bundle; the text of its lines is enough."""
    from amplifier_core.permissions import read_regular

    from ..documents.document import MAX_BYTES
    from ..paths import find_own_file

    file = find_own_file(Path(project_here()))
    if file is None:
        return
    text = read_regular(file, MAX_BYTES).decode(errors="replace").replace("\r\n", "\n")
    found = re.search(rf"^{section}:[ \t]*\n((?:[ \t].*\n|\n|- .*\n)+)", text, flags=re.M)
    lines = [line for line in found[1].splitlines() if line.strip()] if found else []
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    for line in lines:
        name = re.match(rf" {{{indent}}}(?:- *{{? *name: *[\"']?([\w.-]+)|([\w.-]+):)", line)
        if name:
            yield name[1] or name[2], f"of {file.name}"
