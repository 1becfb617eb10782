"""Be an OTLP collector over HTTP: keep the spans and metrics that programs export, or fail as collectors do."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self


@dataclass(slots=True)
class Span:
    """One exported span; ids are hex, and `parent` is '' for a root."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    resource: dict[str, Any]


@dataclass(slots=True)
class Point:
    """One exported data point; the value of a histogram is its (count, sum)."""

    name: str
    unit: str
    value: Any
    attributes: dict[str, Any]


@dataclass(slots=True)
class Received:
    """What has arrived so far."""

    spans: list[Span] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


class Collector:
    """A collector on 127.0.0.1 while the block runs.

    `status` is the answer to each request. While `is_hanging`, there is none.
    """

    def __init__(self) -> None:
        self.received = Received()
        self.status = 200
        self.asked = threading.Event()
        """Set by the first request."""
        self._go_on = threading.Event()
        self._go_on.set()
        self._arrived = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                collector.asked.set()
                collector._go_on.wait()
                if collector.status == 200:
                    collector._take(self.path, dict(self.headers), body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        self.answer()
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def hang(self) -> None:
        """Answer no request until `answer`."""
        self._go_on.clear()

    def answer(self) -> None:
        """Answer the waiting requests, and the later ones."""
        self._go_on.set()

    def wait_for(self, holds: Callable[[Received], bool], seconds: float = 60) -> Received:
        """Return what has arrived once it `holds`; fail after `seconds`."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: holds(self.received), seconds), self.outline()
        return self.received

    def outline(self) -> str:
        """Return the names of the spans, each below its parent."""
        by_parent: dict[str, list[Span]] = {}
        known = {span.id for span in self.received.spans}
        for span in sorted(self.received.spans, key=lambda each: each.start):
            by_parent.setdefault(span.parent if span.parent in known else "", []).append(span)

        def lines(parent: str, depth: int) -> Iterable[str]:
            for span in by_parent.get(parent, ()):
                orphan = " (orphan)" if span.parent and span.parent not in known else ""
                yield f"{'  ' * depth}{span.name} {span.trace[:6]}{orphan}{' !' if span.failed else ''}"
                yield from lines(span.id, depth + 1)

        return "\n".join(lines("", 0))

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        with self._arrived:
            self.received.headers.append(headers)
            self.received.bodies.append(body)
            if path == "/v1/traces":
                self.received.spans += _read_spans(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                self.received.points += _read_points(ExportMetricsServiceRequest.FromString(body))
            self._arrived.notify_all()


def _read_spans(request: Any) -> Iterable[Span]:
    for resource in request.resource_spans:
        about = _read_attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == 2,
                    _read_attributes(span.attributes),
                    [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    about,
                )


def _read_points(request: Any) -> Iterable[Point]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                for point in data.data_points:
                    is_histogram = metric.WhichOneof("data") == "histogram"
                    value = (point.count, point.sum) if is_histogram else getattr(point, point.WhichOneof("value"))
                    yield Point(metric.name, metric.unit, value, _read_attributes(point.attributes))


def _read_attributes(attributes: Any) -> dict[str, Any]:
    return {each.key: _read_value(each.value) for each in attributes}


def _read_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_read_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
