"""A turn with `hooks-otel`, its export to a collector in another process included, beside the same turn without."""

from __future__ import annotations

import atexit
import subprocess
import sys
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader

from .measure import Row, in_turns, timed
from .sessions import PLAN, Adder, InstantProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .measure import Sample

AT_MOST = 500e-6  # goal: seconds that tracing adds to a turn; the fastest models take a thousand times that
TURNS = 100
COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


async def rows() -> AsyncIterator[Row]:
    """Measure turns with one tool call: four spans, and the measurements of two model calls."""
    hook = {"module": "hooks-otel", "config": {"endpoint": _start_collector()}}
    plain, traced = await _session([]), await _session([hook])
    without, with_hook = await in_turns(_turns(plain), _turns(traced, exports=True), rounds=31)
    for session in (plain, traced):
        await session.cleanup()
    yield timed("hooks-otel: added to a turn with one tool call", max(0.0, with_hook - without), at_most=AT_MOST)
    yield Row("  the whole turn / the same without the hook", with_hook, without)


def _start_collector() -> str:
    """Return the address of a collector that lives as long as this process, which exports to its end."""
    process = subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    assert process.stdout is not None
    return f"http://127.0.0.1:{process.stdout.readline().strip()}"


async def _session(hooks: list[dict[str, object]]) -> AmplifierSession:
    session = AmplifierSession({"session": PLAN["session"], "hooks": hooks}, ModuleLoader(), "bench", strict=True)
    await session.initialize()
    await session.coordinator.mount("providers", InstantProvider())
    await session.coordinator.mount("tools", Adder())
    return session


def _turns(session: AmplifierSession, *, exports: bool = False) -> Sample:
    """Return a sample of turns; one that `exports` ends when the collector has all that they leave."""
    from amplifier_hooks_otel.pipeline import flush_all

    forget = partial(session.coordinator.get("context").clear)

    async def sample() -> float:
        seconds = 0.0
        for _ in range(TURNS):
            await forget()
            start = perf_counter()
            await session.execute("one and two")
            seconds += perf_counter() - start
        start = perf_counter()
        if exports:
            flush_all()
        return (seconds + perf_counter() - start) / TURNS

    return sample
