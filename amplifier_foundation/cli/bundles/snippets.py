"""Print a problem with its line of the file, and a caret under the column."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from amplifier_core.permissions.hidden import replace_unprintable
from amplifier_core.utils.secrets import redact_text

from ..running.terminal import shows_styles

if TYPE_CHECKING:
    from ...documents.problems import Problem

BEFORE, SHOWN = 60, 100
"""Characters of a long line before the column, and in all."""
_COLOURS = {"error": "red", "warning": "yellow"}


def print_problem(problem: Problem, *, with_line: bool) -> None:
    """Print a problem on stderr; `with_line`: in colour at a terminal, and with its line of the file."""
    if not with_line:
        click.echo(redact_text(str(problem)), err=True)
        return
    colour = _COLOURS[problem.severity]
    where, kind, what = redact_text(str(problem)).partition(f"{problem.severity}[{problem.code}]")
    _echo(click.style(where, bold=True) + click.style(kind, fg=colour, bold=True) + what)
    found = snippet(problem)
    if found is not None:
        margin = f"{problem.line:>5} | "
        line, caret = found
        _echo(click.style(margin, dim=True) + line)
        _echo(click.style(" " * (len(margin) - 2) + "| ", dim=True) + click.style(caret, fg=colour, bold=True))


def _echo(text: str) -> None:
    click.echo(text, err=True, color=shows_styles(sys.stderr))


def snippet(problem: Problem) -> tuple[str, str] | None:
    """Return the line of a problem, cut if it is long, and the caret below it.

    None for a line that is missing or may hold a secret.
    """
    from rich.cells import cell_len

    from amplifier_core.permissions import read_regular

    from ...documents.document import MAX_BYTES
    from ...documents.secrets import may_hold_secret

    try:
        lines = read_regular(problem.file, MAX_BYTES).decode("utf-8-sig", "replace").split("\n")
    except (OSError, ValueError):
        return None
    line = lines[problem.line - 1].removesuffix("\r") if 0 < problem.line <= len(lines) else None
    if line is None or problem.code == "AMP113" or may_hold_secret(line):
        return None
    start = max(0, problem.column - 1 - BEFORE)
    end = start + SHOWN
    shown = ("…" if start else "") + _printable(line[start:end]) + ("…" if line[end:] else "")
    before = ("…" if start else "") + _printable(line[start : problem.column - 1])
    return shown, " " * cell_len(before) + "^"


def _printable(text: str) -> str:
    """Return text without control characters: each becomes one space or mark, so the caret stays in its column."""
    return replace_unprintable(text, lambda each: " " if each == "\t" else "�")
