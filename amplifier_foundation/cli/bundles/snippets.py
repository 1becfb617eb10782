"""A problem with the line of the file that it is about, and a caret under the column."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...bundles.problems import Problem

BEFORE, SHOWN = 60, 100
"""Characters of a long line: in front of the column, and altogether."""
_COLOURS = {"error": "red", "warning": "yellow"}


def print_problem(problem: Problem) -> None:
    """Print a problem on stderr, in colour when that is a terminal, with its line where the file can be read."""
    colour = _COLOURS[problem.severity]
    where, kind, what = str(problem).partition(f"{problem.severity}[{problem.code}]")
    _echo(click.style(where, bold=True) + click.style(kind, fg=colour, bold=True) + what)
    found = snippet(problem)
    if found is not None:
        margin = f"{problem.line:>5} | "
        line, caret = found
        _echo(click.style(margin, dim=True) + line)
        _echo(click.style(" " * (len(margin) - 2) + "| ", dim=True) + click.style(caret, fg=colour, bold=True))


def _echo(text: str) -> None:
    click.echo(text, err=True, color=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))


def snippet(problem: Problem) -> tuple[str, str] | None:
    """Return the line that a problem is about, cut if it is long, and the caret that goes under it.

    None where there is no such line, or where it may hold a secret.
    """
    from ...bundles.secrets import may_hold_secret

    line = _line(problem.file, problem.line)
    if line is None or problem.code == "AMP113" or may_hold_secret(line):
        return None
    start = max(0, problem.column - 1 - BEFORE)
    end = start + SHOWN
    shown = ("…" if start else "") + _printable(line[start:end]) + ("…" if line[end:] else "")
    before = ("…" if start else "") + _printable(line[start : problem.column - 1])
    return shown, " " * _width(before) + "^"


def _line(file: str, number: int) -> str | None:
    """Return a line as problems count them: the first is 1."""
    try:
        lines = Path(file).read_text(encoding="utf-8-sig", errors="replace").split("\n")
    except (OSError, ValueError):
        return None
    return lines[number - 1].removesuffix("\r") if 0 < number <= len(lines) else None


def _printable(text: str) -> str:
    """Return text that can neither steer a terminal nor move the caret: what is no character is one space or mark."""
    return "".join(" " if c == "\t" else c if c.isprintable() else "�" for c in text)


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    from rich.cells import cell_len

    return cell_len(text)
