"""Ask a person at the terminal, in this thread: everything waits for the answer, and Ctrl-C ends the question."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..cli import streams

if TYPE_CHECKING:
    from collections.abc import Iterator


def ask_to_confirm(question: str) -> bool:
    """Return the answer to a question with yes or no. Raises `click.Abort` at Ctrl-C or without an answer.

    Raises `OSError` as `showing` does.
    """
    with _raising_interrupts(), showing():
        return click.confirm(question, err=True)


def ask_for_secret(question: str) -> str:
    """Return a text that is not shown; it may be empty. Raises as `ask_to_confirm` does."""
    with _raising_interrupts(), showing():
        answer: str = click.prompt(question, hide_input=True, err=True, default="", show_default=False)
        return answer


@contextmanager
def showing() -> Iterator[None]:
    """Ask only what is seen, with all that was written before. Raises `OSError` if a text is lost: the command ends."""
    before = streams.goes_on, streams.needs_stderr
    streams.goes_on, streams.needs_stderr = False, True
    try:
        for err in (False, True):
            click.echo(nl=False, err=err)  # writes what waits in the stream
        streams.lost = streams.lost or streams.untold
        if streams.lost is not None:
            raise streams.lost
        yield
    finally:
        if streams.lost is None:
            streams.goes_on, streams.needs_stderr = before


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
