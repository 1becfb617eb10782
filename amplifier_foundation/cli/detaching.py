"""A process of its own for `amplifier up`, and the file that its output goes to."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click

from . import exits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LARGEST = 10 * 1024 * 1024
"""Bytes of the file; one that is longer becomes `<name>.1`, in place of the one before."""
PATIENCE = 120.0
"""Seconds that a start may take: triggers are armed in it, of which a large folder may take a minute."""


class Logfile:
    """A file that stdout and stderr of this process go to, whatever writes there."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._take()

    def _take(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_log(self._path)
        except OSError as error:
            raise click.UsageError(f"--log {self._path}: {error.strerror}") from error
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)

    def rotate(self) -> None:
        """Begin a new file when this one is long enough, or is not there any more."""
        if rotated(self._path):
            self._take()


def open_log(path: Path) -> int:
    """Open a file to add to it; it is its user's alone (0600). Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def rotated(path: Path) -> bool:
    """Put a file aside that is long enough; return whether there is none now."""
    try:
        if path.stat().st_size <= LARGEST:
            return False
        path.replace(path.with_name(f"{path.name}.1"))
    except FileNotFoundError:
        pass
    return True


def detached(flags: Sequence[str], arguments: Sequence[str], *, quiet: bool) -> int:
    """Start `amplifier FLAGS up ARGUMENTS` in a session of its own, and return when it answers or has ended.

    Returns the exit code: of that process when it ended.
    """
    from ..paths import data_home, make_private
    from .app import run_async

    path = make_private(data_home() / "logs") / "up.log"
    rotated(path)
    log = open_log(path)
    try:
        begins = os.fstat(log).st_size
        program = [sys.executable, "-P", "-m", "amplifier_foundation"]
        process = subprocess.Popen(
            [*program, *flags, "up", "--log", str(path), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    answer = run_async(_answer(process))
    if answer is None:
        return _did_not_start(process, path, begins)
    process.returncode = 0  # it goes on without its parent, which is not to wait for it
    _tell(process.pid, answer, path, quiet=quiet)
    return exits.OK


async def _answer(process: subprocess.Popen[bytes]) -> list[dict[str, Any]] | None:
    """Return what the process says of itself; None when it has ended, or says nothing for a long time."""
    from amplifier_core.errors import SessionConflict

    from ..control import ask
    from ..lock import running_owner

    ends = asyncio.get_running_loop().time() + PATIENCE
    while process.poll() is None and asyncio.get_running_loop().time() < ends:
        owner = running_owner()
        if owner is not None and owner.get("pid") == process.pid:
            try:
                answer: list[dict[str, Any]] = await ask(owner, "status")
                return answer
            except SessionConflict:  # it has the folder, and is not ready
                pass
        await asyncio.sleep(0.05)
    return None


def _did_not_start(process: subprocess.Popen[bytes], path: Path, begins: int) -> int:
    code = process.returncode
    if code is None:
        process.returncode = 0
        click.echo(
            f"amplifier: process {process.pid} does not answer yet after {PATIENCE:g} s; it writes to {path}", err=True
        )
        return exits.TRY_AGAIN
    with path.open("rb") as log:
        log.seek(begins)
        said = log.read().decode("utf-8", "replace").rstrip()
    if said:
        click.echo(said, err=True)
    why = exits.MEANINGS.get(code, f"signal {-code}" if code < 0 else "failed")
    click.echo(f"amplifier: it did not start, and ended with {code} ({why})", err=True)
    return code if code in exits.MEANINGS and code != exits.OK else exits.FAILED


def _tell(pid: int, answer: Sequence[dict[str, Any]], path: Path, *, quiet: bool) -> None:
    if quiet:
        click.echo(pid)
        return
    bundles = ", ".join(f"{each['bundle']} in {each['project']}" for each in answer)
    click.echo(f"Process {pid} runs {bundles}.")
    for what, how in (
        ("what runs", "amplifier ps"),
        ("what happens", "amplifier logs -f"),
        ("end it", "amplifier stop --all"),
        ("its output", str(path)),
    ):
        click.echo(f"  {what:<13} {how}")
