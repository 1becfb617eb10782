"""Tell a lack of threads and processes from other errors."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_core.errors import SessionProcessEnded
from amplifier_core.processes import lacks_processes

FORK = """
import os, resource, subprocess
from amplifier_core.errors import SessionProcessEnded
from amplifier_core.processes import lacks_processes
if os.getuid() == 0:
    os.setuid(54_321)  # no limit is root's
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    subprocess.run(["true"])
except OSError as error:
    print(lacks_processes(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems start some processes at this limit")
def test_a_process_that_cannot_be_started_is_a_lack_of_processes() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("error", "is_lack"),
    [
        (RuntimeError("can't start new thread"), True),
        (SessionProcessEnded("s", f"cannot be started: {os.strerror(errno.EAGAIN)}"), True),
        (ValueError("the server said: RuntimeError: can't start new thread"), False),
        (RuntimeError("500: can't start new thread"), False),
        (FileNotFoundError("can't start new thread.md"), False),
    ],
)
def test_the_words_of_others_are_no_lack_of_processes(error: Exception, is_lack: bool) -> None:
    assert lacks_processes(error) is is_lack


def test_a_lock_that_another_one_holds_is_no_lack_of_processes(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as one, (tmp_path / "lock").open("w") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError) as caught:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not lacks_processes(caught.value)
    assert not lacks_processes(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
