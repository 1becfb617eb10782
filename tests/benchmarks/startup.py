"""Measure the start of the program, beside a Python that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import perf_counter
from typing import TYPE_CHECKING

from .measure import Row, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from .measure import Sample

PYTHON = sys.executable
PROGRAM = str(Path(PYTHON).with_name("amplifier"))
NOTHING = (PYTHON, "-c", "pass")
IMPORTED = """
from pathlib import Path
from amplifier_core import entry_points
from amplifier_core.plugins import load_plugins
from amplifier_foundation.documents.kept import Check
entry_points.keep_with(Check("entry-points", (Path(entry_points.__file__),)))
"""
LIBRARY = "import pydantic"
HELP_RATIO, READING_RATIO, TURN_RATIO = 6.0, 10.0, 20.0  # goals: times a Python that does nothing
SETTINGS_RATIO = 0.7  # goal: 10 ms where a Python that does nothing takes 14
TOOLS_RATIO = 1.2  # goal: a tool costs nothing before it is used
PLUGINS_RATIO = 0.7  # goal: times the import of a library that every turn needs; 30 ms where that takes 44
READING = (("session", "list"), ("ps",), ("logs", "-n", "20"), ("trigger", "list"))
BUNDLE = """---
bundle: {name: bench}
providers: [{module: provider-playbook, config: {otherwise: {say: "ok"}}}]
---
"""
TWO_TOOLS = ("tool-bash", "tool-filesystem")
ALL_TOOLS = sorted(
    each.name.removeprefix("amplifier-") for each in (Path(__file__).parents[2] / "plugins").glob("amplifier-tool-*")
)
SETTINGS = "fetch: {timeout: 60}\nretention: {keep: 30}\n"
ROUNDS = 15


async def listed() -> AsyncIterator[Row]:
    """Run `--help` in new processes."""
    shown, nothing = await in_turns(run_command(PROGRAM, "--help"), run_command(*NOTHING), rounds=ROUNDS)
    yield Row("amplifier --help / python -c pass", shown, nothing, at_most_ratio=HELP_RATIO)


async def commands() -> AsyncIterator[Row]:
    """Run short commands in new processes."""
    with _place() as place:
        limits = [*((command, READING_RATIO) for command in READING), (("run", "hello"), TURN_RATIO)]
        for command, ratio in limits:
            took, nothing = await in_turns(
                run_command(PROGRAM, *command, folder=place), run_command(*NOTHING), rounds=ROUNDS
            )
            yield Row(f"amplifier {' '.join(command)} / python -c pass", took, nothing, at_most_ratio=ratio)


async def shares() -> AsyncIterator[Row]:
    """Measure the shares of a settings file and of the plugins."""
    with _place() as place:
        yield await _settings(place)
        yield await _plugins(place)


@contextmanager
def _place() -> Iterator[str]:
    """Make a folder with a trusted bundle and one turn of it."""
    with TemporaryDirectory() as place:
        (Path(place) / "bundle.md").write_text(BUNDLE, encoding="utf-8")
        for command in (("trust", "--yes"), ("run", "hello")):
            subprocess.run((PROGRAM, *command), check=True, capture_output=True, cwd=place, env=_environ(place))
        yield place


async def tools() -> AsyncIterator[Row]:
    """Run a turn with every tool package of the checkout, and one with two of them; no tool is called."""
    with TemporaryDirectory() as place:
        folders = [Path(place) / "all", Path(place) / "two"]
        for folder, tools in zip(folders, (ALL_TOOLS, TWO_TOOLS), strict=True):
            folder.mkdir()
            listed = "".join(f"  - module: {tool}\n" for tool in tools)
            text = BUNDLE.replace("---\n", f"---\ntools:\n{listed}", 1)
            (folder / "bundle.md").write_text(text, encoding="utf-8")
            await run_command(PROGRAM, "trust", "--yes", folder=str(folder))()
        samples = [run_command(PROGRAM, "run", "hello", folder=str(folder)) for folder in folders]
        took, limit = await in_turns(*samples, rounds=ROUNDS)
    what = f"amplifier run hello with {len(ALL_TOOLS)} tool packages / with {len(TWO_TOOLS)}"
    yield Row(what, took, limit, at_most_ratio=TOOLS_RATIO)


PARTS = (listed, commands, shares, tools)


async def _settings(place: str) -> Row:
    with TemporaryDirectory() as other:
        home = Path(other) / "home"
        home.mkdir()
        (home / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
        await run_command(PROGRAM, "ps", folder=other)()
        configured, plain, nothing = await in_turns(
            run_command(PROGRAM, "ps", folder=other),
            run_command(PROGRAM, "ps", folder=place),
            run_command(*NOTHING),
            rounds=ROUNDS,
        )
    what = "a settings file, its share of amplifier ps / python -c pass"
    return Row(what, configured - plain, nothing, at_most_ratio=SETTINGS_RATIO)


async def _plugins(place: str) -> Row:
    loaded, imported, library, nothing = await in_turns(
        run_command(PYTHON, "-c", f"{IMPORTED}load_plugins()", folder=place),
        run_command(PYTHON, "-c", IMPORTED, folder=place),
        run_command(PYTHON, "-c", LIBRARY),
        run_command(*NOTHING),
        rounds=ROUNDS,
    )
    what = "load_plugins(), its share of a new process / import pydantic"
    return Row(what, loaded - imported, library - nothing, at_most_ratio=PLUGINS_RATIO)


def compiled() -> dict[str, str]:
    """Return the environment of a command with compiled modules, as after an installation."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environ, "PYTHONPYCACHEPREFIX": str(Path(gettempdir()) / "amplifier-bench-modules")}


def _environ(folder: str) -> dict[str, str]:
    return {**compiled(), "AMPLIFIER_HOME": str(Path(folder) / "home")}


def run_command(*command: str, folder: str | None = None) -> Sample:
    """Return a sample of a command with compiled modules; its data folder is in `folder`."""
    environ = compiled() if folder is None else _environ(folder)

    async def sample() -> float:
        start = perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environ, stdin=subprocess.DEVNULL)
        return perf_counter() - start

    return sample
