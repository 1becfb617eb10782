"""What stdin says: the prompt, or something to go with it."""

from __future__ import annotations

import select
import stat
import sys
from os import fstat

import click

from .terminal import tell

LIMIT = 1024 * 1024
"""Bytes of stdin that go with a prompt."""
PATIENCE = 3.0
"""Seconds of silence after which a person is told what is waited for."""


def read_prompt(prompt: str | None, *, may_be_empty: bool = False) -> str | None:
    """Return the prompt with what stdin adds to it; None when nothing is said and a terminal can be asked.

    Without a prompt, or with `-`, stdin is the prompt; else what a pipe or a file says there is appended, at most
    `LIMIT` bytes. Raises `click.UsageError` for a prompt that is empty and may not be.
    """
    if prompt is None and sys.stdin.isatty():
        return None
    said = sys.stdin.read() if prompt is None or prompt == "-" else prompt
    if not said.strip():
        if may_be_empty:
            return ""
        raise click.UsageError("the prompt is empty")
    return said if prompt is None or prompt == "-" else said + _context()


def _context() -> str:
    descriptor = _pipe()
    if descriptor is None:
        return ""
    text, is_cut = _read(descriptor)
    if not text.strip():
        return ""
    if is_cut:
        tell(f"amplifier: of stdin, the first {LIMIT:,} bytes go with the prompt; the rest is left out")
    note = f"\n[cut here, after {LIMIT:,} bytes]" if is_cut else ""
    end = "" if text.endswith("\n") and not note else "\n"
    return f"\n\n<stdin>\n{text}{note}{end}</stdin>"


def _pipe() -> int | None:
    """Return the descriptor of stdin when it is a pipe or a file."""
    try:
        descriptor = sys.stdin.fileno()
        mode = fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else None


def _read(descriptor: int) -> tuple[str, bool]:
    """Return the text up to the limit, and whether there was more."""
    if not select.select([descriptor], [], [], PATIENCE)[0]:
        tell("amplifier: waiting for stdin, which goes with the prompt; say </dev/null when there is none")
    raw = sys.stdin.buffer.read(LIMIT + 1)
    is_cut = len(raw) > LIMIT
    return raw[:LIMIT].decode("utf-8", errors="ignore" if is_cut else "replace"), is_cut
