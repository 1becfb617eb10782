"""Run modules of others, and ours, on our kernel and on the published one, and compare: `make ecosystem`.

Ends with 0 when everything is alike, with 1 when not, and with 75 when the published kernel cannot be installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from .compare import differences
from .peers import KERNEL, ROOT, NoEnvironment, install_ours, interpreter

HERE = Path(__file__).parent
OURS = [ROOT / "plugins" / f"amplifier-{name}" for name in
        ("loop-basic", "context-simple", "provider-playbook", "tool-filesystem")]  # fmt: skip

TURNS: dict[str, tuple[str, ...]] = {
    "modules of others, installed": ("turn.py", "entry-points"),
    "modules of others, from their folders": ("turn.py", "source"),
    "modules of others, cancelled": ("turn.py", "source", "--cancel"),
    "our modules": ("ours.py",),
}

TRY_AGAIN = 75


def turn(python: Path, installed: Path, script: str, *options: str) -> dict[str, Any]:
    """Return what happens when `python` runs a turn; raises `CalledProcessError`."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    with TemporaryDirectory() as folder:
        command = [str(python), "-W", "error", str(HERE / script), folder, *options]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    happened: dict[str, Any] = json.loads(done.stdout)
    return happened


def compared(theirs: Path, installed: Path, command: tuple[str, ...]) -> list[str]:
    """Return what differs when both kernels run a turn, or what one of them failed with."""
    try:
        return differences(turn(Path(sys.executable), installed, *command), turn(theirs, installed, *command))
    except subprocess.CalledProcessError as error:
        return [f"{error.cmd[0]} failed: {error.stderr.strip() or error.returncode}"]


def main() -> int:
    """Print a line a turn, and what differs below it; return how to end."""
    try:
        theirs = interpreter()
    except NoEnvironment as error:
        click.echo(f"{KERNEL} cannot be installed, nothing was compared: {error}", err=True)
        return TRY_AGAIN
    failed = False
    with TemporaryDirectory() as folder:
        install_ours(OURS, Path(folder))
        for name, command in TURNS.items():
            found = compared(theirs, Path(folder), command)
            click.echo(f"{name.ljust(40)} {'DIFFERENT' if found else 'alike'}")
            for difference in found:
                click.echo(f"    {difference}")
            failed = failed or bool(found)
    return int(failed)


sys.exit(main())
