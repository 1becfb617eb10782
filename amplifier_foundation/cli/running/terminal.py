"""Print safe text to the person's terminal, and find that terminal."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import click

from amplifier_core.utils.secrets import redact_text

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, and changes of the text direction."""
LOOKED_AT = 16_384
"""Characters of a text that a line is made of."""


def plain(text: str) -> str:
    """Return `text` without characters that steer a terminal or hide text."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, length: int) -> str:
    """Return the text without secrets in one line of at most `length` characters."""
    safe = redact_text(text[:LOOKED_AT])  # first: half of a secret is not recognised
    line = " ".join(plain(safe[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def tell(text: str, **style: Any) -> None:
    """Print a line without secrets on stderr, styled at a terminal unless `NO_COLOR` is set."""
    text = redact_text(text)
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    # `err=True` would find the stream below the one that keeps a moving part of the screen apart.
    click.echo(click.style(text, **style) if style and colour else text, file=sys.stderr)


def own_terminal() -> str | None:
    """Return the path of the terminal for questions; None without one.

    It is the controlling terminal, if this process runs in its foreground; without one, the terminal at stdin.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.ttyname(0) if is_terminal(0) else None
    try:
        return "/dev/tty" if os.tcgetpgrp(descriptor) == os.getpgrp() else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def is_terminal(descriptor: int) -> bool:
    """Return whether an open file is a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
