"""What a person's terminal is told, and where it is."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import click

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters besides tab and newline, and those that turn the direction of text."""


def plain(text: str) -> str:
    """Return `text` without what could steer a terminal or hide a part of it."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, length: int) -> str:
    """Return the text in one line of at most `length` characters."""
    line = " ".join(plain(text[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def tell(text: str, **style: Any) -> None:
    """Print a line on stderr, in a style when that is a terminal that wants one."""
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    click.echo(click.style(text, **style) if style and colour else text, err=True)


def own_terminal() -> str | None:
    """Return the path of the terminal at which somebody can be asked; None when nobody can.

    It is the one that controls this process, while the process runs in its foreground; else the one that stdin is.
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
