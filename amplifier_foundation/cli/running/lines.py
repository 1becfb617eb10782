"""Read prompts from a person, with line editing and a stored history."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from amplifier_core.utils.secrets import redact_text

from ...settings.layer import DEFAULTS
from .hearing import WasSuspended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PROMPT, MORE = "> ", ". "
QUOTES = '"""'


class LineEditor:
    """Reads prompts and completes `words` at the beginning of a line.

    The history is a file of at most `remembered` lines, for its owner alone; secrets in it are hidden. With 0 there is
    none, and an earlier one is removed. A Python without `readline` has neither editing nor history. A line without
    quotes that is in `aliases` is the prompt that stands there.
    """

    def __init__(
        self,
        history: Path,
        words: Sequence[str] = (),
        remembered: int = DEFAULTS["retention"]["prompts"],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._readline: Any = None
        with suppress(ImportError):
            self._readline = import_module("readline")
        self._history = history
        self._remembered = remembered
        self._aliases = aliases or {}
        self.words = list(words)
        self._known = 0
        self._is_reading = False
        self._is_waiting = False
        if self._readline is not None:
            self._set_up(self._readline)

    def _set_up(self, editor: Any) -> None:
        editor.clear_history()
        editor.set_history_length(self._remembered)
        if self._remembered:
            os.close(os.open(self._history, os.O_RDWR | os.O_CREAT, 0o600))
            editor.read_history_file(self._history)
        else:
            self._history.unlink(missing_ok=True)
        self._known = editor.get_current_history_length()
        if self._known > self._remembered:
            editor.write_history_file(self._history)
        editor.set_completer_delims(" \n")
        editor.set_completer(self._complete)
        libedit = "libedit" in (editor.__doc__ or "")
        editor.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
        if not libedit and os.environ.get("TERM") != "dumb":
            editor.parse_and_bind("set enable-bracketed-paste on")  # Python switches it off, for its own prompt

    def is_waiting(self) -> bool:
        """Return whether a line is being typed: after a suspension meanwhile, it is drawn again."""
        return self._is_waiting

    def _complete(self, text: str, state: int) -> str | None:
        found = [f"{word} " for word in self.words if text and word.startswith(text)]
        return found[state] if state < len(found) else None

    def read(self, begun: str = "") -> str:
        r"""Return one prompt, read at the terminal; `begun` is typed already.

        A backslash at the end continues a line in the next one. Lines between `\"""` and `\"""` are one prompt, and
        so are pasted lines, where the terminal says that they are. The end of the input ends a prompt; at the first
        line it raises `EOFError`. Raises `KeyboardInterrupt`.
        """
        self._is_reading = True
        try:
            return self._read_rest(self._read_first(begun))
        finally:
            self._is_reading = False
            self._save()

    def _read_first(self, begun: str) -> str:
        if self._readline is None:
            return begun + self._line(PROMPT + begun)
        return self._line(PROMPT, begun)

    def _line(self, prompt: str, begun: str = "") -> str:
        """Return a line; one that is begun when the program is suspended is drawn again afterwards."""
        suspended, typed = None, list[str]()
        while not typed:
            if begun:
                self._readline.set_startup_hook(partial(self._readline.insert_text, begun))
            try:
                self._is_waiting = True
                if suspended is not None:
                    suspended.settle()
                _input(prompt, typed)
            except WasSuspended as error:
                begun = self._readline.get_line_buffer() if self._readline is not None else ""
                suspended = error
            finally:
                self._is_waiting = False
                if self._readline is not None:
                    self._readline.set_startup_hook(None)
        return typed[0]

    def count_more_rows(self, width: int) -> int:
        """Return the rows of the screen that the line being typed takes after its first; call this in its thread."""
        if self._readline is None or not self._is_reading:
            return 0
        from rich.cells import cell_len

        first, *more = f"{PROMPT}{self._readline.get_line_buffer()}".split("\n")
        return len(more) + sum(cell_len(line) // width for line in (first, *more))

    def _read_rest(self, first: str) -> str:
        lines = [first]
        try:
            if first.lstrip().startswith(QUOTES):
                lines[0] = first.lstrip().removeprefix(QUOTES)
                while not lines[-1].rstrip().endswith(QUOTES):
                    lines.append(self._line(MORE))
                lines[-1] = lines[-1].rstrip().removesuffix(QUOTES)
                return "\n".join(lines).strip("\n")
            while lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
                lines.append(self._line(MORE))
        except EOFError:
            pass
        text = "\n".join(lines)
        return self._aliases.get(text.strip(" "), text)

    def _save(self) -> None:
        editor: Any = self._readline
        if editor is None or not self._remembered:
            return
        typed = [
            editor.get_history_item(1 + place) for place in range(self._known, editor.get_current_history_length())
        ]
        text = "\n".join(typed)  # a secret may have several lines
        if (safe := redact_text(text)) != text:
            for _ in typed:
                editor.remove_history_item(self._known)
            for line in safe.split("\n"):
                editor.add_history(line)
        fresh, self._known = editor.get_current_history_length() - self._known, editor.get_current_history_length()
        if fresh > 0 and hasattr(editor, "append_history_file"):
            editor.append_history_file(fresh, self._history)
        elif fresh > 0:
            editor.write_history_file(self._history)


def _input(prompt: str, typed: list[str]) -> None:
    """Add a line to `typed`, also when a signal comes at its end: C code adds it before a handler can run."""
    if not sys.stdout.isatty():  # a pipe or file gets the answers alone
        sys.stderr.write(prompt)
        sys.stderr.flush()
        prompt = ""
    typed.extend(map(input, (prompt,)))
