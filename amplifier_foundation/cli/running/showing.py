"""Show a turn: to a person step by step, to a program as JSON."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from amplifier_core.utils.secrets import hide_known, redact_all

from ...documents.json_text import dump_json, redact_json
from ...documents.safe_text import one_line, plain
from ...sessions.costs import Spent, format_cost, format_duration
from ...sessions.usage import Usage
from ..output import print_json
from ..own_stdout import own_stdout
from .screens import open_screen
from .terminal import print_line, tell

if TYPE_CHECKING:
    from ..consoles import QuietCursor

ARGUMENTS = 60
"""Characters of a tool call's arguments in a line."""
TYPED = 160
"""Characters of a message typed during a turn, in a line."""


class View(Protocol):
    """The interface of the three views."""

    def begin(self, session_id: str) -> None:
        """Show the session of the turn."""
        ...

    def __call__(self, fact: dict[str, Any]) -> None:
        """Show one fact of `FactReporter`."""
        ...

    def end(self, result: dict[str, Any]) -> None:
        """Show the result: `session_id`, `status`, `output`, `turn_count`, `usage`, `unanswered`, `error`."""
        ...

    def pause(self) -> None:
        """Leave the terminal to others."""
        ...


class PersonView:
    """The answer on stdout, everything else on stderr; a terminal gets the text as it comes, and the cost of the turn.

    Text between tool calls is not the answer: it goes to stderr, unless it was streamed.
    """

    def __init__(self, *, quiet: bool = False, closing: bool = True) -> None:
        self._quiet = quiet
        self._closing = closing
        self._screen = open_screen(quiet=quiet)
        self._held: list[str] = []
        self._shown = ""
        """The streamed text since the last tool call or child session."""
        self._began = 0.0

    @property
    def console(self) -> QuietCursor | None:
        """The terminal, if it can move its cursor and all is shown."""
        return self._screen.console

    def begin(self, session_id: str) -> None:
        """Begin to count the seconds; the session is named at the end."""
        self._began = time.monotonic()

    def pause(self) -> None:
        """Leave the terminal to others: a question, a prompt."""
        self._screen.pause()

    def show_typing(self, text: str) -> None:
        """Show the beginning of a line that the person types during the turn."""
        self._screen.show_typing(text)

    def show_typed(self, text: str, remark: str) -> None:
        """Show a text that the person has typed during the turn."""
        tell(f"» {one_line(text, TYPED)} ({plain(remark)})", dim=True)

    def __call__(self, fact: dict[str, Any]) -> None:
        """Show one fact."""
        if not self._quiet:
            on_fact = getattr(self, f"_on_{fact['type']}", None)
            if on_fact is not None:
                on_fact(fact)

    def end(self, result: dict[str, Any]) -> None:
        """Show the answer, unless it was streamed; of an unfinished one, what there is."""
        answer, shown = hide_known(result["output"]), self._finish()
        self._screen.pause()
        said = "\n\n".join(self._held)
        self._held.clear()
        if not shown and said != answer and said.endswith(answer):  # earlier answers, with messages of the user between
            tell(plain(said.removesuffix(answer).strip()))
        if (answer or result["error"] is None) and not "".join(shown.split()).endswith("".join(plain(answer).split())):
            self._screen.show(answer)
        usage = Usage.from_dict(result["usage"])
        if usage.requests and own_stdout().isatty() and not self._quiet:
            tell(describe_usage(usage, time.monotonic() - self._began), dim=True)
        if self._closing and not self._quiet and result["error"] is None:
            tell(f"session {result['session_id']}")

    def _on_text(self, fact: dict[str, Any]) -> None:
        if not fact.get("partial"):
            self._held.append(fact["text"])
        else:
            self._screen.add(fact["text"], fact.get("block"))

    def _on_waiting(self, fact: dict[str, Any]) -> None:
        self._shown += self._screen.finish()
        self._screen.wait(fact["on"])

    def _on_tool(self, fact: dict[str, Any]) -> None:
        self._between()
        print_line(f"→ {plain(str(fact['name']))} {arguments_line(fact['input'])}".rstrip(), dim=True)
        self._screen.wait(str(fact["name"]))

    def _on_tool_result(self, fact: dict[str, Any]) -> None:
        if not fact["ok"]:
            said = one_line(str(fact["output"] or "it did not say why"), ARGUMENTS)
            print_line(f"✗ {plain(str(fact['name']))}: {said}", dim=True)

    def _on_fallback(self, fact: dict[str, Any]) -> None:
        self._finish()
        line = f"⚠ {plain(fact['provider'])} answers instead of {plain(fact['from'])}: {plain(fact['reason'])}"
        print_line(line, dim=True)

    def _on_child(self, fact: dict[str, Any]) -> None:
        self._between()
        line = f"⤷ {plain(fact['name'])} {fact['session_id']} {fact['status']}"
        if "seconds" in fact:
            line += f", {Spent(Usage.from_dict(fact['usage']), fact['seconds'])}"
        print_line(line + (f": {one_line(fact['error'], ARGUMENTS)}" if fact.get("error") else ""), dim=True)

    def _between(self) -> None:
        """Show the text before a tool call or a child session."""
        shown = self._finish()
        said = "\n\n".join(self._held)
        self._held.clear()
        if said and not shown:
            print_line(plain(said))

    def _finish(self) -> str:
        """End the streamed text; return all of it since the last call."""
        shown, self._shown = self._shown + self._screen.finish(), ""
        return shown


def describe_usage(usage: Usage, seconds: float | None = None) -> str:
    """Return tokens, cost and duration in one line."""
    parts = [f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out", format_cost(usage) or "cost unknown"]
    return "; ".join(parts if seconds is None else [*parts, format_duration(seconds)])


def arguments_line(value: Any) -> str:
    """Return the arguments of a tool call in one line."""
    value = redact_all(value)
    values = value.values() if isinstance(value, dict) else [value]
    return one_line("  ".join(each if isinstance(each, str) else json.dumps(each, default=str) for each in values), 60)


class LinesView:
    """A line of JSON for every fact; the last one is the result.

    A line is written whole: the rest of one that a full disk has cut is written before the next, and lines that find no
    room are left out.
    """

    def __init__(self) -> None:
        self._rest = b""
        """The rest of a line that was cut."""

    def pause(self) -> None:
        """Have nothing to pause."""

    def begin(self, session_id: str) -> None:
        """Print the session."""
        self({"type": "session", "session_id": session_id})

    def __call__(self, fact: dict[str, Any]) -> None:
        """Print one fact. Raises `OSError`."""
        line = dump_json(fact)
        if (out := own_stdout()) is not None:
            self._write(line if fact.get("partial") else redact_json(line, hide_known), out)

    def _write(self, text: str, out: TextIO) -> None:
        out.flush()
        raw = getattr(out.buffer, "raw", out.buffer)  # at a full disk, the buffer would lose a part of a long line
        write = getattr(raw, "write_some", raw.write)
        line = f"{text}\n".encode(out.encoding, out.errors or "strict")
        self._rest += line
        try:
            while self._rest:
                self._rest = self._rest[write(self._rest) :]
        except OSError:
            if len(self._rest) >= len(line):  # nothing of it was written
                self._rest = self._rest[: -len(line)]
            raise

    def end(self, result: dict[str, Any]) -> None:
        """Print the error, if any, and the result."""
        if result["error"] is not None:
            self({"type": "error", "message": result["error"]})
        self({"type": "result", **result})


class ObjectView:
    """One JSON object at the end."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def pause(self) -> None:
        """Have nothing to pause."""

    def begin(self, session_id: str) -> None:
        """Print nothing yet."""

    def __call__(self, fact: dict[str, Any]) -> None:
        """Print nothing yet."""

    def end(self, result: dict[str, Any]) -> None:
        """Print the result, also of a turn that has failed."""
        print_json(self._schema, result, hide_known)


class Display:
    """Prints messages of hooks for a person."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        """Print a line on stderr; `quiet`: errors only."""
        if not self._quiet or level == "error":
            tell(f"{plain(source)}: {plain(message)}", fg={"error": "red", "warning": "yellow"}.get(level))
