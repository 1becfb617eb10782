"""Ctrl-C that reaches the main thread wherever that waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from queue import SimpleQueue

from amplifier_foundation.cli.running.hearing import NUDGE, heard_at_once


def test_a_signal_is_handed_on_once_and_its_handlers_are_put_back() -> None:
    told: SimpleQueue[int] = SimpleQueue()
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(NUDGE)
    with heard_at_once({signal.SIGUSR1: lambda number, frame: told.put(number)}):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert told.get(timeout=30) == signal.SIGUSR1
    assert told.empty()
    assert (signal.getsignal(signal.SIGUSR1), signal.getsignal(NUDGE)) == before


def test_a_nudge_that_nothing_is_due_for_hands_on_nothing() -> None:
    told: list[int] = []
    with heard_at_once({signal.SIGUSR1: lambda number, frame: told.append(number)}):
        os.kill(os.getpid(), NUDGE)
    assert told == []


def test_a_block_that_a_handler_ends_ends_with_another_signal_on_its_way() -> None:
    program = """
import os, signal, sys, threading
from amplifier_foundation.cli.running.hearing import heard_at_once
def end(number, frame):
    os.kill(os.getpid(), signal.SIGUSR2)
    raise SystemExit(3)
with heard_at_once({signal.SIGUSR1: end, signal.SIGUSR2: end}):
    os.kill(os.getpid(), signal.SIGUSR1)
    threading.Event().wait()
"""
    for _ in range(5):
        assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 3
