"""`amplifier demo`: the whole loop on a folder it makes, with no key and no network."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError, SessionConflict

from .app import opened_inbox, plugins_of, refuse_what_cannot_run, run_async
from .output import console, print_session_tree
from .view import RunView

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore, SessionRecord

    from ..background.lane import Activity
    from ..bundles.model import Bundle

BROKEN = 'def greet(name):\n    print(f"Hello, {name}!"\n\n\ngreet("world")\n'
FIXED = BROKEN.replace('!"\n', '!")\n', 1)
QUESTION = "What did you find?"
PATIENCE = 20.0
"""Seconds that one step of the demo may take before it is given up."""


@click.command()
@click.argument("folder", default="amplifier-demo", type=click.Path(file_okay=False, path_type=Path))
@click.pass_context
def demo(ctx: click.Context, folder: Path) -> None:
    """Make FOLDER (default: amplifier-demo) with a bundle of two background sessions, and watch them work.

    A Python file that does not compile is written there, reviewed, summed up and mended; then a finished session is
    forked and asked what it found.
    """
    with RunView(quiet=ctx.obj["quiet"]) as view:
        run_async(_demo(ctx, folder.resolve(), view))


async def _demo(ctx: click.Context, folder: Path, view: RunView) -> None:
    from ..bundles.load import load_bundle
    from ..up import brought_up

    plugins = plugins_of(ctx)
    _make_project(folder)
    bundle = await load_bundle(str(folder / "bundle.md"))
    refuse_what_cannot_run(bundle, plugins)
    async with opened_inbox(plugins) as store:
        story = Story(view)
        async with brought_up([bundle], store, plugins, observer=story.see):
            await _act(folder, story, view)
        fork = await _fork(store, plugins, story.sessions["reviewer"][0], view)
        await _print_result(store, str(folder), fork, view)


def _make_project(folder: Path) -> None:
    """Write the demo's files into `folder`. Raises `SessionConflict` for a folder that holds something else."""
    source = files("amplifier_foundation") / "demo_project"
    marker = folder / "bundle.md"
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        raise SessionConflict(str(folder), f"{folder} holds other files; name a new folder: amplifier demo FOLDER")
    if marker.exists() and "name: demo" not in marker.read_text(encoding="utf-8"):
        raise SessionConflict(str(folder), f"{marker} is another bundle; name a new folder: amplifier demo FOLDER")
    _copy(source, folder)


def _copy(source: Traversable, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for child in source.iterdir():
            if child.name != "__pycache__":
                _copy(child, target / child.name)
    else:
        target.write_bytes(source.read_bytes())


class Story:
    """What happened so far, for the demo to wait on."""

    def __init__(self, view: RunView) -> None:
        self.sessions: dict[str, list[str]] = {}
        self.ticks = 0
        self._view = view
        self._changed = asyncio.Event()
        self._failure = ""

    def see(self, activity: Activity) -> None:
        """Show an activity and note it."""
        self._view(activity)
        if activity.kind == "completed":
            delivery = activity.facts["delivery"]
            self.sessions.setdefault(activity.lane, []).append(delivery.session_id)
            self.ticks += "tick" in delivery.event.data
        if activity.kind in ("dead", "failed"):
            self._failure = f"{activity.lane} gave up: {activity.facts['reason']}"
        self._changed.set()

    def count(self, lane: str) -> int:
        """Return how many events the lane has handled."""
        return len(self.sessions.get(lane, ()))

    async def until(self, what: str, condition: Any) -> None:
        """Return when `condition()` holds. Raises `AmplifierError` naming `what` when it never does, or what failed."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    if self._failure:
                        raise AmplifierError(self._failure)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AmplifierError(f"the demo waited {PATIENCE:g} s for {what}; see: amplifier session tree") from None


async def _act(folder: Path, story: Story, view: RunView) -> None:
    """Do what the folder's user would do."""
    program = folder / "app.py"
    reviewed, summed = story.count("reviewer"), story.count("summarizer")
    view.note("You write app.py; a bracket is missing.")
    program.write_text(BROKEN, encoding="utf-8")
    await story.until("the first review", lambda: story.count("reviewer") > reviewed)
    await story.until("the first summary", lambda: story.count("summarizer") > summed)
    reviewed, summed = story.count("reviewer"), story.count("summarizer")
    view.note("You put the bracket in.")
    program.write_text(FIXED, encoding="utf-8")
    await story.until("the second review", lambda: story.count("reviewer") > reviewed)
    await story.until("the second summary", lambda: story.count("summarizer") > summed)
    view.note("Nothing changes any more; the timer is due.")
    await story.until("the timer", lambda: story.ticks > 0)


async def _fork(store: DurableStore, plugins: Plugins, source_id: str, view: RunView) -> SessionRecord:
    from ..bundles.load import load_bundle
    from ..conversation import converse
    from ..forks import fork_stored

    source = await store.get(source_id)
    before = await _fingerprint(store, source_id)
    view.note(f"You fork the finished session {source_id} and ask: {QUESTION}")
    fork = await fork_stored(store, source, name="question", plugins=plugins)
    bundle: Bundle = await load_bundle(source.bundle_source)
    turn = await converse(bundle, QUESTION, store, plugins, resume=fork)
    view.say("completed", "fork", turn.output)
    after = await _fingerprint(store, source_id)
    if before != after:
        raise AmplifierError(f"session {source_id} changed while its fork ran: {before} became {after}")
    view.say("completed", "source", f"unchanged: {after}")
    return fork


async def _fingerprint(store: DurableStore, session_id: str) -> str:
    messages = await store.read(session_id)
    return f"{len(messages)} messages, sha256 {sha256(repr(messages).encode()).hexdigest()[:12]}"


async def _print_result(store: DurableStore, project: str, fork: SessionRecord, view: RunView) -> None:
    from ..lineage import describe_event, forest

    deliveries = await store.deliveries(project=project, limit=1_000)
    roots = forest(await store.sessions(project=project), deliveries)
    out = view.out if view.out.is_terminal else console()
    out.print()
    print_session_tree(roots, "Who made whom", out)
    out.print("\nWhat woke what")
    for delivery in sorted(deliveries, key=lambda each: each.created):
        out.print(f"  {describe_event(delivery.event)}  →  {delivery.session_id} ({delivery.state})", markup=False)
    out.print("\nGo on with:")
    for command in (
        f"session show {fork.session_id}",
        f"session tree {fork.fork_of}",
        f"run --fork {fork.fork_of} {shlex.quote(QUESTION)}",
        f"up {shlex.quote(project)}       # then change a file there",
    ):
        out.print(f"  {_program()} {command}", markup=False)


def _program() -> str:
    """Return what to type for this program here: its name where the shell finds it, else its path."""
    here = Path(sys.argv[0]).resolve()
    found = shutil.which("amplifier")
    if here.name != "amplifier" or (found and Path(found).resolve() == here):
        return "amplifier"
    return shlex.quote(min(os.path.relpath(here), str(here), key=len))
