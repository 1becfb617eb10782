"""Start `amplifier up` in a process of its own, and keep the log file of its output."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.utils.interpreters import PYTHON

from ..cli import exits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

LARGEST = 10 * 1024 * 1024
"""Bytes of a log file; a longer one is renamed to `<name>.1` and replaces the one before."""
PATIENCE = 120.0
"""Seconds for a start; arming the watcher of a large folder may take a minute."""


class Logfile:
    """A file for all stdout and stderr of this process; other processes may write to it, and rotate it, too."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._failure = ""
        try:
            self._redirect()
        except OSError as error:
            raise click.UsageError(f"--log {self._path}: {error.strerror or error}") from error

    def _redirect(self) -> None:
        from ..paths import make_private

        if not self._path.parent.exists():
            make_private(self._path.parent)
        descriptor = open_log(self._path)
        for number in (1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors=stream.errors)  # the encoding of no terminal

    def rotate(self) -> None:
        """Begin a new file when this one is long enough, renamed or gone.

        A failure is a warning, once: the file in use stays, and the next call tries again.
        """
        try:
            rotate_log(self._path)
            if not self._is_in_use():
                self._redirect()
            self._failure = ""
        except OSError as error:
            before, self._failure = self._failure, str(error)
            if self._failure != before:
                reason = error.strerror or error
                logger.warning("the log %s cannot be rotated, which is tried again: %s", self._path, reason)

    def _is_in_use(self) -> bool:
        """Return whether this process writes to the file that is now at the path."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(1))
        except FileNotFoundError:
            return False


def open_log(path: Path) -> int:
    """Open a file for appending, for its user alone (0600). Raises `OSError`, also for a link."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "no log is written through symbolic links; remove this one", path) from None
        raise
    try:
        os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def rotate_log(path: Path) -> None:
    """Rename a long file. Raises `OSError`."""
    with suppress(FileNotFoundError, BlockingIOError):  # another process renames it now
        if path.stat().st_size <= LARGEST:
            return
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):  # else it was renamed before the lock
                path.replace(path.with_name(f"{path.name}.1"))


def detach(flags: Sequence[str], arguments: Sequence[str], *, quiet: bool) -> int:
    """Start `amplifier FLAGS up ARGUMENTS` in a new process session, and wait until it answers or ends.

    Returns the exit code: 0 when it answers, else the code of the process.
    """
    from ..paths import data_home, make_private
    from ..security.session_mark import unmarked_environment

    path = make_private(data_home() / "logs") / "up.log"
    try:
        rotate_log(path)
        log = open_log(path)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise click.ClickException(f"{path}: {error.strerror}") from None
    try:
        begins = os.fstat(log).st_size
        program = [*PYTHON, "-P", "-m", "amplifier_foundation"]
        process = subprocess.Popen(
            [*program, *flags, "up", "--log", str(path), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=unmarked_environment(),
            start_new_session=True,
        )
    finally:
        os.close(log)
    answer = _await_answer(process)
    if answer is None:
        return _report_failure(process, path, begins)
    process.returncode = 0  # it outlives this process; nobody waits for it
    if quiet:
        click.echo(process.pid)
        return exits.OK
    bundles = ", ".join(f"{each['bundle']} in {each['project']}" for each in answer)
    click.echo(f"Process {process.pid} runs {bundles}.")
    for purpose, command in (
        ("list", "amplifier ps"),
        ("events", "amplifier logs -f"),
        ("stop", "amplifier stop --all"),
        ("output", str(path)),
    ):
        click.echo(f"  {purpose:<13} {command}")
    for name, address in _read_servers(process.pid).items():
        click.echo(f"  {name:<13} {address}")
    return exits.OK


def _read_servers(pid: int) -> dict[str, str]:
    """Return the addresses of the servers beside a new process; those of the settings may be starting."""
    from amplifier_core.errors import SessionConflict

    from ..background.asking import ask
    from ..sessions.lock import running_owners

    with suppress(SessionConflict, StopIteration):
        owner = next(each for each in running_owners() if each.get("pid") == pid)
        return dict(ask(owner, "servers"))
    return {}


def _await_answer(process: subprocess.Popen[bytes]) -> list[dict[str, Any]] | None:
    """Return the status of the new process; None when it has ended, or does not answer for a long time."""
    from amplifier_core.errors import SessionConflict

    from ..background.asking import ask
    from ..sessions.lock import running_owners

    ends = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < ends:
        owner = next((each for each in running_owners() if each.get("pid") == process.pid), None)
        if owner is not None:
            try:
                answer: list[dict[str, Any]] = ask(owner, "status")
                return answer
            except SessionConflict:  # it owns the data folder, and is not ready
                pass
        time.sleep(0.05)
    return None


def _report_failure(process: subprocess.Popen[bytes], path: Path, begins: int) -> int:
    """Print the output of a process that did not start; return the exit code."""
    code = process.returncode
    if code is None:
        process.returncode = 0
        text = f"process {process.pid} has not answered after {PATIENCE:g} s; its output: {path}"
        click.echo(f"amplifier: {text}", err=True)
        return exits.TRY_AGAIN
    with path.open("rb") as log:
        log.seek(begins)
        said = log.read().decode("utf-8", "replace").rstrip()
    if said:
        click.echo(said, err=True)
    cause = exits.MEANINGS.get(code, f"signal {-code}" if code < 0 else "failed")
    click.echo(f"amplifier: it did not start, and ended with {code} ({cause})", err=True)
    return code if code in exits.MEANINGS and code != exits.OK else exits.FAILED
