"""Write log lines without secrets."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = "amplifier: %(levelname)s: %(message)s"


class RedactingFormatter(logging.Formatter):
    """Makes a record safe to print: without secrets, and without characters that steer a terminal.

    The message is one line, and a traceback is indented below it: no text of others can pass for a line of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        from amplifier_core.utils.secrets import redact_text

        from ..documents.safe_text import plain

        return plain(redact_text(super().format(record)))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        from amplifier_core.utils.secrets import redact_text

        from ..documents.safe_text import plain_line

        return plain_line(redact_text(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:
        """Return the traceback of an error, indented."""
        return self.formatStack(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        """Return the lines of a stack, indented; a secret of several lines is hidden before."""
        from amplifier_core.utils.secrets import redact_text

        return "  " + redact_text(stack_info).replace("\n", "\n  ")


def is_for_people(record: logging.LogRecord) -> bool:
    """Return whether a record is none of asyncio's debug mode, which measures every step of a loop."""
    return not (record.name == "asyncio" and str(record.msg).startswith("Executing "))


def log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log a warning of Python's as any other: for `warnings.showwarning`, whose text comes from any module."""
    logging.getLogger("py.warnings").warning("%s:%d: %s: %s", filename, lineno, category.__name__, message)


class PresentStderr:
    """Writes to `sys.stderr` as it is at that moment: a live view takes lines there, and puts them above itself."""

    def write(self, text: str) -> int:
        """Write a text."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Write what waits."""
        sys.stderr.flush()


def new_of_plugins() -> Callable[[logging.LogRecord], bool]:
    """Return a filter without what the loading of plugins has said before: a command may load them twice."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        if record.name != "amplifier_core.plugins":
            return True
        text = record.getMessage()
        is_first = text not in said
        said.add(text)
        return is_first

    return is_new
