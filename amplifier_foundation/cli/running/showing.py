"""How a turn is shown: to a person as it goes, to a program as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol

import click

from ...spent import Spent
from ...usage import Usage
from ..output import print_json
from .terminal import one_line, plain, tell

ARGUMENTS = 60
"""Characters of a tool call's arguments that a person sees."""


class View(Protocol):
    """Whatever shows a turn."""

    def begin(self, session_id: str) -> None:
        """Show which session takes the turn."""
        ...

    def __call__(self, fact: dict[str, Any]) -> None:
        """Show what just happened, a fact of `Watch`."""
        ...

    def end(self, result: dict[str, Any]) -> None:
        """Show what the turn gave: `session_id`, `status`, `output`, `turn_count`, `usage`, `unanswered`, `error`."""
        ...


class PersonView:
    """The answer on stdout, everything else on stderr; text as it comes where stdout is a terminal.

    What the model says between tool calls is no answer: it goes to stderr, unless it was shown as it came.
    """

    def __init__(self, *, quiet: bool = False, closing: bool = True) -> None:
        self._quiet = quiet
        self._closing = closing
        self._streams = sys.stdout.isatty() and not quiet
        self._shown = ""
        self._block: Any = None
        self._held: list[str] = []

    def begin(self, session_id: str) -> None:
        """Show nothing: the session is named at the end."""

    def __call__(self, fact: dict[str, Any]) -> None:
        """Show one fact."""
        if not self._quiet:
            getattr(self, f"_on_{fact['type']}", _unshown)(fact)

    def end(self, result: dict[str, Any]) -> None:
        """Show the answer, as far as it has not been shown."""
        answer, shown = result["output"], self._break()
        if result["error"] is None and _squashed(shown) != _squashed(plain(answer)):
            click.echo(plain(answer) if sys.stdout.isatty() else answer)
        self._held.clear()
        if self._closing and not self._quiet and result["error"] is None:
            tell(f"session {result['session_id']}")

    def _on_text(self, fact: dict[str, Any]) -> None:
        if not fact.get("partial"):
            self._held.append(fact["text"])
        elif self._streams:
            if self._shown and fact.get("block") != self._block:
                click.echo()
            self._block = fact.get("block")
            piece = plain(fact["text"])
            self._shown += piece
            click.echo(piece, nl=False)
            sys.stdout.flush()

    def _on_tool(self, fact: dict[str, Any]) -> None:
        self._between()
        tell(f"→ {plain(str(fact['name']))} {arguments_line(fact['input'])}".rstrip(), dim=True)

    def _on_tool_result(self, fact: dict[str, Any]) -> None:
        if not fact["ok"]:
            tell(f"✗ {plain(str(fact['name']))}: {one_line(str(fact['output']), ARGUMENTS)}", dim=True)

    def _on_child(self, fact: dict[str, Any]) -> None:
        self._between()
        line = f"⤷ {plain(fact['name'])} {fact['session_id']} {fact['status']}"
        if "seconds" in fact:
            line += f", {Spent(Usage.from_dict(fact['usage']), fact['seconds'])}"
        tell(line + (f": {one_line(fact['error'], ARGUMENTS)}" if fact.get("error") else ""), dim=True)

    def _between(self) -> None:
        """Show what was said before something else began."""
        shown = self._break()
        said = "\n\n".join(self._held)
        self._held.clear()
        if said and not shown:
            tell(plain(said))

    def _break(self) -> str:
        """End the line of what was shown as it came, and return that."""
        shown, self._shown = self._shown, ""
        if shown and not shown.endswith("\n"):
            click.echo()
        return shown


def _unshown(fact: dict[str, Any]) -> None:
    """Leave out what only programs want to know."""


def _squashed(text: str) -> str:
    return "".join(text.split())


def arguments_line(value: Any) -> str:
    """Return the arguments of a tool call as a person sees them."""
    values = value.values() if isinstance(value, dict) else [value]
    return one_line("  ".join(each if isinstance(each, str) else json.dumps(each, default=str) for each in values), 60)


class LinesView:
    """A line of JSON for everything that happens; the last one is the result."""

    def begin(self, session_id: str) -> None:
        """Print which session it is."""
        self({"type": "session", "session_id": session_id})

    def __call__(self, fact: dict[str, Any]) -> None:
        """Print one fact."""
        click.echo(json.dumps(fact, ensure_ascii=False, default=str))

    def end(self, result: dict[str, Any]) -> None:
        """Print the error, if there was one, and the result."""
        if result["error"] is not None:
            self({"type": "error", "message": result["error"]})
        self({"type": "result", **result})


class ObjectView:
    """One JSON object at the end."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def begin(self, session_id: str) -> None:
        """Print nothing yet."""

    def __call__(self, fact: dict[str, Any]) -> None:
        """Print nothing yet."""

    def end(self, result: dict[str, Any]) -> None:
        """Print the result of a turn that ended; an error is told as every command tells it."""
        if result["error"] is None:
            print_json(self._schema, result)


class Display:
    """What hooks want a person to see."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        """Print a line on stderr; with `quiet`, errors alone."""
        if not self._quiet or level == "error":
            tell(f"{plain(source)}: {plain(message)}", fg={"error": "red", "warning": "yellow"}.get(level))
