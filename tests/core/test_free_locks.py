"""Use a lock if it is free, and give it back whenever Ctrl-C comes."""

from __future__ import annotations

import dis
import sys
from contextlib import suppress
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.free_locks import call_if_free

if TYPE_CHECKING:
    from types import FrameType

HANDLED = ("RESUME", "CALL")
"""Beginnings of the names of those instructions that Python handles signals after: it has no loop."""


def _interrupt_before(offset: int, lock: Lock) -> bool:
    """Call a function with Ctrl-C before the instruction of `call_if_free` at `offset`; return whether it came."""
    came = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not call_if_free.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti == offset and not came:
            came.append(offset)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            call_if_free(lock, int)
    finally:
        sys.settrace(before)
    return bool(came)


def test_a_free_lock_is_held_for_the_call_alone() -> None:
    lock = Lock()
    assert call_if_free(lock, lock.locked)
    assert not lock.locked()


def test_a_held_lock_is_not_waited_for() -> None:
    lock = Lock()
    with lock:
        assert call_if_free(lock, lock.locked) is None
        assert lock.locked()


def test_an_error_gives_the_lock_back() -> None:
    lock = Lock()
    with pytest.raises(ZeroDivisionError):
        call_if_free(lock, lambda: 1 // 0)
    assert not lock.locked()


def test_an_interrupt_gives_the_lock_back_wherever_it_comes() -> None:
    found = []
    for instruction, following in pairwise(dis.get_instructions(call_if_free)):
        if instruction.opname.startswith(HANDLED):
            lock = Lock()
            found.append(_interrupt_before(following.offset, lock))
            assert not lock.locked(), f"after {instruction}"
    assert sum(found) >= 4
