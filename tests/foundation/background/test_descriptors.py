"""Report a lack of file descriptors once."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, os, resource, socket, sys
from amplifier_foundation.background.descriptors import report_exhaustion

asyncio.constants.ACCEPT_RETRY_DELAY = 0.01

async def main():
    loop, failed = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(lambda loop, context: print("failed otherwise:", context["exception"], file=sys.stderr))
    with report_exhaustion():
        server = await asyncio.start_unix_server(lambda reader, writer: None, sys.argv[1])
        client = socket.socket(socket.AF_UNIX)
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        try:
            while True:
                os.open(os.devnull, os.O_RDONLY)
        except OSError:
            pass
        client.connect(sys.argv[1])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        server.close()
        loop.call_later(0.5, failed.set)
        await failed.wait()
        loop.call_soon(int, "no number")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is one of Unix")
def test_a_server_closed_without_a_free_descriptor_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "s")], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.splitlines() == [
        "no file descriptor is free: connections wait. Raise the limit: ulimit -n",
        "failed otherwise: invalid literal for int() with base 10: 'no number'",
    ]
