"""Run `amplifier demo`: every step on a new folder, without a key or a network."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError, SessionConflict

from ..documents.safe_text import shell_word
from .app import plugins_of, require_runnable, use_inbox
from .loops import run_in_loop
from .output import PlainLines, console, print_session_tree
from .view import RunView

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore, SessionRecord

    from ..background.state import Activity

PROGRAM = "app.py"
BROKEN = 'def greet(name):\n    print(f"Hello, {name}!"\n\n\ngreet("world")\n'
FIXED = BROKEN.replace('!"\n', '!")\n', 1)
QUESTION = "What did you find?"
PATIENCE = 20.0
"""Seconds for one step of the demo."""


@click.command(epilog="Example: amplifier demo")
@click.argument("folder", default="amplifier-demo", type=click.Path(file_okay=False, path_type=Path))
@click.pass_context
@run_in_loop
async def demo(ctx: click.Context, folder: Path) -> None:
    """Create FOLDER (default: amplifier-demo) with a bundle of two background sessions, and watch them work.

    A Python file with a syntax error is written, reviewed, summed up and fixed; then a finished session is forked and
    asked for its findings.
    """
    from ..background.up import run_background
    from ..bundle.load import load_bundle

    plugins, folder = plugins_of(ctx), _make_project(folder)
    bundle = await load_bundle(str(folder / "bundle.md"))
    require_runnable(bundle, plugins)
    with RunView(quiet=ctx.obj["quiet"]) as view:
        async with use_inbox(plugins) as store:
            program = folder / PROGRAM
            if not program.exists() and await store.deliveries(project=str(folder), limit=1):
                program.write_text(FIXED, encoding="utf-8")  # else that of a deleted folder is missed first
            story = Story(view)
            async with run_background([bundle], store, plugins, observer=story.observe):
                await story.act(folder)
            fork = await story.ask_fork(store, plugins)
            await _print_result(store, str(folder), fork, view)


def _make_project(folder: Path) -> Path:
    """Write the demo's files into `folder`; return its path. Raises `SessionConflict` for a folder with other files."""
    from ..security.trust import trust_written

    folder = folder.resolve()
    marker = folder / "bundle.md"
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        raise SessionConflict(str(folder), f"{folder} holds other files; name a new folder: amplifier demo FOLDER")
    if marker.exists() and "name: demo" not in marker.read_text(encoding="utf-8"):
        raise SessionConflict(str(folder), f"{marker} is another bundle; name a new folder: amplifier demo FOLDER")
    trust_written(marker, _copy(files("amplifier_foundation.cli") / "demo_project", folder))
    return folder


def _copy(source: Traversable, target: Path) -> list[Path]:
    """Copy a file or a folder; return the files."""
    if not source.is_dir():
        target.write_bytes(source.read_bytes())
        return [target]
    target.mkdir(parents=True, exist_ok=True)
    children = [child for child in source.iterdir() if child.name != "__pycache__"]
    return [file for child in children for file in _copy(child, target / child.name)]


class Story:
    """Records the activities of the demo, and waits for them."""

    def __init__(self, view: RunView) -> None:
        self.sessions: dict[str, list[str]] = {}
        self.ticks = 0
        self._view = view
        self._changed = asyncio.Event()
        self._failure = ""

    def observe(self, activity: Activity) -> None:
        """Show and record an activity."""
        self._view(activity)
        if activity.kind == "completed":
            delivery = activity.facts["delivery"]
            self.sessions.setdefault(activity.name, []).append(delivery.session_id)
            self.ticks += "tick" in delivery.event.data
        if activity.kind in ("dead", "failed"):
            self._failure = f"{activity.name} gave up: {activity.facts['reason']}"
        self._changed.set()

    def count(self, name: str) -> int:
        """Return the number of events handled by a background session."""
        return len(self.sessions.get(name, ()))

    async def wait_for(self, step: str, condition: Any) -> None:
        """Return when `condition()` holds. Raises `AmplifierError` with the failure, or with `step` after a timeout."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    if self._failure:
                        raise AmplifierError(self._failure)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AmplifierError(f"the demo waited {PATIENCE:g} s for {step}; see: amplifier session tree") from None

    async def act(self, folder: Path) -> None:
        """Act as the user of the folder, and wait for the background sessions."""
        program = folder / PROGRAM
        for step, text, note in (
            ("first", BROKEN, "You write app.py; a bracket is missing."),
            ("second", FIXED, "You add the bracket."),
        ):
            reviewed, summed = self.count("reviewer"), self.count("summarizer")
            self._view.note(note)
            program.write_text(text, encoding="utf-8")
            await self.wait_for(f"the {step} review", lambda: self.count("reviewer") > reviewed)  # noqa: B023
            await self.wait_for(f"the {step} summary", lambda: self.count("summarizer") > summed)  # noqa: B023
        self._view.note("No more changes; the timer is due.")
        await self.wait_for("the timer", lambda: self.ticks > 0)

    async def ask_fork(self, store: DurableStore, plugins: Plugins) -> SessionRecord:
        """Fork the first review, ask the fork a question, and check that the source is unchanged."""
        from ..bundle.load import load_bundle
        from ..sessions.forks import fork_stored
        from ..spawning.conversation import converse

        source = await store.get(self.sessions["reviewer"][0])
        before = await _fingerprint(store, source.session_id)
        self._view.note(f"You fork the finished session {source.session_id} and ask: {QUESTION}")
        fork = await fork_stored(store, source, name="question", plugins=plugins)
        turn = await converse(await load_bundle(source.bundle_source), QUESTION, store, plugins, resume=fork)
        self._view.say("completed", "fork", turn.output)
        after = await _fingerprint(store, source.session_id)
        if before != after:
            raise AmplifierError(f"session {source.session_id} changed while its fork ran: {before} became {after}")
        self._view.say("completed", "source", f"unchanged: {after}")
        return fork


async def _fingerprint(store: DurableStore, session_id: str) -> str:
    messages = await store.read(session_id)
    return f"{len(messages)} messages, sha256 {sha256(repr(messages).encode()).hexdigest()[:12]}"


async def _print_result(store: DurableStore, project: str, fork: SessionRecord, view: RunView) -> None:
    from ..sessions.lineage import describe_event, forest

    deliveries = await store.deliveries(project=project, limit=1_000)
    roots = forest(await store.sessions(project=project), deliveries)
    out = console() if isinstance(view.out, PlainLines) else view.out
    out.print()
    print_session_tree(roots, "Sessions", out)
    out.print("\nEvents and the sessions they woke")
    for delivery in sorted(deliveries, key=lambda each: each.created):
        out.print(
            f"  {describe_event(delivery.event)}  →  {delivery.session_id or '-'} ({delivery.state})", markup=False
        )
    out.print("\nContinue with:")
    for command in (
        f"session show {fork.session_id}",
        f"session tree {fork.fork_of}",
        f"run --fork {fork.fork_of} {shell_word(QUESTION)}",
        f"up {shell_word(project)}       # then change a file there",
    ):
        out.print(f"  {_program()} {command}", markup=False)


def _program() -> str:
    """Return the command for this program: its name when the shell finds it, else its path."""
    here = Path(sys.argv[0]).resolve()
    found = shutil.which("amplifier")
    if here.name != "amplifier" or (found and Path(found).resolve() == here):
        return "amplifier"
    return shell_word(min(os.path.relpath(here), str(here), key=len))
