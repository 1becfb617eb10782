"""Measure what `hooks-otel` adds to a turn, its export included, beside the same spans made by hand."""

from __future__ import annotations

import atexit
import subprocess
import sys
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader

from .measure import Row, in_turns
from .sessions import PLAN, Adder, InstantProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .measure import Sample

BY_HAND_RATIO = 1.5  # goal: times the SDK of OpenTelemetry by hand, of which it needs the export
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
    address = _start_collector()
    hook: dict[str, object] = {"module": "hooks-otel", "config": {"endpoint": address}}
    plain, traced = await _session([]), await _session([hook])
    without, with_hook, by_hand = await in_turns(
        _turns(plain), _turns(traced, exports=True), _by_hand(address), rounds=15
    )
    for session in (plain, traced):
        await session.cleanup()
    what = "hooks-otel: added to a turn with one tool call / OpenTelemetry by hand"
    yield Row(what, with_hook - without, by_hand, at_most_ratio=BY_HAND_RATIO)
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


def _by_hand(address: str) -> Sample:
    """Return a sample of the same spans and measurements without a session, by the processors of the SDK."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    spans, reader = TracerProvider(), PeriodicExportingMetricReader(OTLPMetricExporter(f"{address}/v1/metrics"))
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    measurements = MeterProvider([reader])
    tracer, meter = spans.get_tracer("bench"), measurements.get_meter("bench")
    duration, tokens = meter.create_histogram("duration", "s"), meter.create_histogram("tokens", "{token}")

    def call_model() -> None:
        about = {"operation": "chat", "model": "instant", "provider": "instant"}
        with tracer.start_as_current_span("chat instant", attributes=about) as span:
            span.set_attributes({"input_tokens": 10, "output_tokens": 5, "finish_reasons": ["stop"]})
        duration.record(0.001, about)
        for kind, count in (("input", 10), ("output", 5)):
            tokens.record(count, {**about, "type": kind})

    async def sample() -> float:
        start = perf_counter()
        for _ in range(TURNS):
            about = {"operation": "invoke_agent", "agent": "bench", "conversation": "bench"}
            with tracer.start_as_current_span("invoke_agent bench", attributes=about):
                call_model()
                with tracer.start_as_current_span("execute_tool add", attributes={"tool": "add", "call": "1"}):
                    pass
                call_model()
        spans.force_flush()
        measurements.force_flush()
        return (perf_counter() - start) / TURNS

    return sample
