"""Read stdin: the prompt, or text to append to it."""

from __future__ import annotations

import select
import stat
import sys
from io import TextIOWrapper
from os import fstat

import click

from .terminal import tell

LIMIT = 1024 * 1024
"""Bytes of stdin appended to a prompt, at most."""
PATIENCE = 3.0
"""Seconds of waiting before a person is told."""


def has_prompt(prompt: str | None) -> bool:
    """Return whether there is a prompt, or stdin is one."""
    return prompt is not None or not sys.stdin.isatty()


def read_prompt(prompt: str | None, *, may_be_empty: bool = False) -> str | None:
    """Return the prompt with the text of stdin; None without a prompt at a terminal.

    Without a prompt, or with `-`, stdin is the prompt; else a pipe or a file there is appended, at most `LIMIT` bytes.
    Raises `click.UsageError` for an empty prompt, unless `may_be_empty`.
    """
    if not has_prompt(prompt):
        return None
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # as arguments are read
    said = _decode(sys.stdin.read() if prompt is None or prompt == "-" else prompt)
    if not said.strip():
        if may_be_empty:
            return ""
        raise click.UsageError("the prompt is empty")
    return said if prompt is None or prompt == "-" else said + _context()


def _decode(said: str) -> str:
    """Return a text of the system as UTF-8, in any locale; bytes that are not UTF-8 are replaced, which is told."""
    try:
        raw = said.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # not read from bytes
        return said
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        tell("amplifier: the prompt has bytes that are not UTF-8; they are sent as �")
        return raw.decode("utf-8", errors="replace")


def _context() -> str:
    """Return the text of a pipe or a file at stdin, marked as such; '' without one."""
    try:
        mode = fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return ""
    if not select.select([sys.stdin.fileno()], [], [], PATIENCE)[0]:
        tell("amplifier: waiting for stdin, to append it to the prompt; use </dev/null without input")
    raw = sys.stdin.buffer.read(LIMIT + 1)
    is_cut = len(raw) > LIMIT
    text = raw[:LIMIT].decode("utf-8", "ignore") if is_cut else _decode(raw.decode("utf-8", "surrogateescape"))
    if not text.strip():
        return ""
    if is_cut:
        tell(f"amplifier: only the first {LIMIT:,} bytes of stdin are appended to the prompt")
    note = f"\n[cut here, after {LIMIT:,} bytes]" if is_cut else ""
    end = "" if text.endswith("\n") and not note else "\n"
    return f"\n\n<stdin>\n{text}{note}{end}</stdin>"
