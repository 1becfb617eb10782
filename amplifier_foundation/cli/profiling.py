"""Record where a command spends its time, with py-spy, into a file of folded stacks.

py-spy reads the memory of the process from outside: it sees all threads, the frames of coroutines and the processes
that the command starts, the command itself runs unchanged, and a killed command leaves its profile, too. Samplers
inside of a process see one thread (pyinstrument), or slow down what they measure.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO

import click

from amplifier_core.utils.secrets import redact_text

if TYPE_CHECKING:
    from collections.abc import Callable

REMEDY = "pip install 'amplifier[profile]'"
SAMPLES = b"Sampling process"
"""What py-spy says when it has begun."""
PATIENCE = 30.0
"""Seconds for py-spy to begin, and to write its file."""
LOOK = 0.005
"""Seconds between two looks at what py-spy says."""

_PR_SET_PTRACER, _ANY = 0x59616D61, -1  # Linux with Yama: who may look at this process beside its ancestors
_CUT = re.compile(rb'\n(?!process \d+:"|\Z)')
"""An end of a line inside of a command's text; each folded stack begins with its process."""
MOST_SAID = 1 << 20
"""Bytes of what py-spy says that are read."""

_hide = lru_cache(256)(redact_text)  # a few command lines, each at the beginning of many stacks


def start_profile(name: str) -> Callable[[], None]:
    """Begin to sample this process and those that it starts; return the function that ends this, and writes the file.

    An earlier file is replaced; a new one is its owner's alone, since it has command lines. Raises `click.UsageError`
    if it cannot be written, or py-spy cannot begin.
    """
    file = Path(name).absolute()  # the command may change its folder
    was_there = file.exists()
    try:
        with open(file, "ab", opener=partial(os.open, mode=0o600)):
            program = _find_program()
            process, said = _spawn(program, file)
    except OSError as error:
        raise click.UsageError(f"--profile: {file} cannot be written: {error.strerror or error}") from None
    except click.UsageError:
        if not was_there:
            file.unlink()
        raise
    return partial(_stop, process, said, file)


def _find_program() -> str:
    name = "py-spy"
    program = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if program is None:
        raise click.UsageError(f"--profile: py-spy is not installed. Install it with: {REMEDY}")
    return program


def _spawn(program: str, file: Path) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    """Start py-spy in a session of its own, where Ctrl-C does not reach it; return when it samples."""
    _allow(_ANY)
    said = TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would block py-spy
    process = subprocess.Popen(
        [program, "record", "--pid", str(os.getpid()), "--subprocesses", "--format", "raw", "--output", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        start_new_session=True,
    )
    ends = time.monotonic() + PATIENCE
    while SAMPLES not in (text := _read(said)):
        if process.poll() is not None or time.monotonic() > ends:
            process.kill()
            process.wait()
            said.close()
            raise click.UsageError(f"--profile: py-spy did not begin: {_cause(text)}")
        time.sleep(LOOK)
    _allow(process.pid)
    os.register_at_fork(after_in_child=partial(_allow, process.pid))
    return process, said


def _stop(process: subprocess.Popen[bytes], said: BinaryIO, file: Path) -> None:
    """Have py-spy write its file; a failure is a warning: the command has done its work."""
    process.send_signal(signal.SIGINT)
    try:
        failed = process.wait(PATIENCE) != 0
    except subprocess.TimeoutExpired:
        process.kill()
        failed = bool(process.wait())
    with said, suppress(OSError):
        if failed:
            click.echo(f"amplifier: --profile: {file} was not written: {_cause(_read(said))}", err=True)
        else:
            stacks = _CUT.sub(b" ", file.read_bytes()).decode(errors="surrogateescape").splitlines(keepends=True)
            file.write_bytes("".join(map(hide_commands, stacks)).encode(errors="surrogateescape"))


def hide_commands(stack: str) -> str:
    """Return a folded stack, `process 1:"command";frame;frame 5`, without the secrets of its command lines."""
    commands, end, frames = stack.rpartition('";')
    if '"' in frames:  # a process without a frame, or a command line with such an end inside
        frames = _hide(frames)
    return f"{_hide(commands)}{end}{frames}"


def _allow(tracer: int) -> None:
    """Let a process look at this one, where the system has Yama; elsewhere this changes nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_long(tracer), 0, 0, 0)


def _read(said: BinaryIO) -> bytes:
    return os.pread(said.fileno(), MOST_SAID, 0)  # py-spy writes at the position of the same file


def _cause(said: bytes) -> str:
    """Return the error in what py-spy has said, in one line."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return " ".join(lines[-2:]) or "it said nothing"
