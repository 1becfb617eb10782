"""Ask a person at the terminal, in this thread: everything waits for the answer, and Ctrl-C ends the question."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


def ask_to_confirm(question: str) -> bool:
    """Return the answer to a question with yes or no. Raises `click.Abort` at Ctrl-C or without an answer."""
    with _raising_interrupts():
        return click.confirm(question, err=True)


def ask_for_secret(question: str) -> str:
    """Return a text that is not shown; it may be empty. Raises `click.Abort` as `ask_to_confirm` does."""
    with _raising_interrupts():
        answer: str = click.prompt(question, hide_input=True, err=True, default="", show_default=False)
        return answer


@contextmanager
def _raising_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise at once while the block runs: an event loop that is blocked by a question hears of none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
