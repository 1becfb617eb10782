"""Read stdin: the prompt, or text to append to it."""

from __future__ import annotations

import select
import stat
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
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
    said = _read_stdin() if prompt is None or prompt == "-" else _decode_text(prompt)
    if not said.strip():
        if may_be_empty:
            return ""
        raise click.UsageError("the prompt is empty")
    return said if prompt is None or prompt == "-" else said + _context()


def _read_stdin() -> str:
    if not isinstance(sys.stdin, TextIOWrapper):
        return _decode_text(sys.stdin.read())
    return _decode(sys.stdin.buffer.read())


def _decode_text(said: str) -> str:
    """Return a text of the system as UTF-8, in any locale."""
    try:
        return _decode(said.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # not read from bytes
        return said


def _decode(raw: bytes, *, is_cut: bool = False) -> str:
    """Return UTF-8, or UTF-16 or UTF-32 with its mark, as text without the mark; other bytes are replaced and told."""
    marks = {"utf-32": (BOM_UTF32_LE, BOM_UTF32_BE), "utf-16": (BOM_UTF16_LE, BOM_UTF16_BE)}  # one begins as another
    encoding = next((name for name, both in marks.items() if raw.startswith(both)), "utf-8-sig")
    try:
        return raw.decode(encoding, "ignore" if is_cut else "strict")
    except UnicodeDecodeError:
        tell("amplifier: the prompt has bytes that are not UTF-8; they are sent as �")
        return raw.decode(encoding, "replace")


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
    text = _decode(raw[:LIMIT], is_cut=is_cut)
    if not text.strip():
        return ""
    if is_cut:
        tell(f"amplifier: only the first {LIMIT:,} bytes of stdin are appended to the prompt")
    note = f"\n[cut here, after {LIMIT:,} bytes]" if is_cut else ""
    end = "" if text.endswith("\n") and not note else "\n"
    return f"\n\n<stdin>\n{text}{note}{end}</stdin>"
