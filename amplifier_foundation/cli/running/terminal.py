"""Print safe text to the person's terminal, and find that terminal."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO, Any

import click

from amplifier_core.utils.secrets import redact_text

from ...documents.safe_text import plain


def tell(text: str, **style: Any) -> None:
    """Print a line as `print_line`; one that cannot be written is lost, and fails nothing."""
    with suppress(OSError):
        print_line(text, **style)


def print_line(text: str, **style: Any) -> None:
    """Print a safe text without secrets on stderr, styled where `shows_styles`. Raises `OSError`."""
    text = plain(redact_text(text))
    # `err=True` would find the stream below the one that keeps a moving part of the screen apart.
    click.echo(click.style(text, **style) if style and shows_styles(sys.stderr) else text, file=sys.stderr)


def shows_styles(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal that shows styles: `NO_COLOR` and `TERM=dumb` ask for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


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


def holds_terminal(file: IO[str]) -> bool:
    """Return whether this process may draw at the terminal `file`: it is in its foreground, or there are no jobs."""
    try:
        return os.tcgetpgrp(file.fileno()) == os.getpgrp()
    except OSError:  # it controls no session, or is a stream without a descriptor
        return True


def is_terminal(descriptor: int) -> bool:
    """Return whether an open file is a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
