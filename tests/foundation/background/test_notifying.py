"""Tests of what a service manager is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from amplifier_foundation.background.service.notifying import ALIVE, Notifier


def test_a_manager_that_is_behind_misses_no_sign_of_life_and_is_said_to_miss_another_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(manager.family, manager.type) as full,
    ):
        manager.bind(str(tmp_path / "notify"))
        full.connect(manager.getsockname())
        full.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                full.send(ALIVE.encode())
        notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
        notifier.tell(ALIVE)
        assert caplog.messages == []
        notifier.tell("STOPPING=1")
    [text] = caplog.messages
    assert text.startswith("the service manager cannot be told STOPPING=1: ")
