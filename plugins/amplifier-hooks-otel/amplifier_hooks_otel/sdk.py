"""Export records by the SDK of OpenTelemetry; only the thread of a pipeline imports this module.

The SDK's own processors are not used: their threads outlive a fork badly, and their end may take half a minute.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from .config import DEFAULT_SERVICE
from .network import check_proxy, explain_certificate
from .records import METRICS, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from opentelemetry.metrics import CallbackOptions

    from .config import Settings
    from .ids import Place
    from .records import SpanRecord

SCOPE = "amplifier"
_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT, "consumer": SpanKind.CONSUMER}
_LOGGERS = ("opentelemetry.exporter", "opentelemetry.sdk")

_REASON = re.compile(r"\[Errno -?\d+\] ([^'\")]+)|(code: .+)", re.DOTALL)

_here = threading.local()


class Exporter:
    """Exports spans and metrics; `note_problem` is called with each reason of a failure, `measure` for each gauge."""

    def __init__(
        self, settings: Settings, note_problem: Callable[[str], None], measure: Callable[[], Iterable[Measurement]]
    ) -> None:
        check_proxy(settings.address)
        _here.note_problem = note_problem
        _route_logs()
        self._measure = measure
        self._measured: list[Measurement] = []
        self._resource = make_resource(settings)
        self._scope = InstrumentationScope(SCOPE)
        self._spans = OTLPSpanExporter(**_options(settings, "traces")) if settings.exports_traces else None
        self._reader: PeriodicExportingMetricReader | None = None
        if settings.exports_metrics:
            exporter = OTLPMetricExporter(**_options(settings, "metrics"))
            self._reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
            self._instruments = self._make_instruments(self._reader)

    def export(self, records: Sequence[SpanRecord]) -> bool:
        """Export spans; return whether the collector has taken them."""
        if self._spans is None:
            return True
        return self._spans.export([self._convert(each) for each in records]) is SpanExportResult.SUCCESS

    def record(self, measurement: Measurement) -> None:
        """Add a measurement to its metric."""
        if self._reader is None:
            return
        instrument = self._instruments[measurement.name]
        add = getattr(instrument, "record", None) or instrument.add
        add(measurement.value, dict(measurement.attributes))

    def export_metrics(self) -> None:
        """Export the metrics as they are now."""
        if self._reader is not None:
            self._measured = list(self._measure())
            self._reader.collect()

    def _convert(self, record: SpanRecord) -> ReadableSpan:
        return ReadableSpan(
            name=record.name,
            context=_context(record.place),
            parent=_context(record.parent) if record.parent is not None else None,
            resource=self._resource,
            attributes=record.attributes if record.error is None else {**record.attributes, "error.type": record.error},
            links=[Link(_context(place), dict(attributes)) for place, attributes in record.links],
            kind=_KINDS[record.kind],
            status=Status(StatusCode.UNSET if record.error is None else StatusCode.ERROR),
            start_time=record.start,
            end_time=record.end,
            instrumentation_scope=self._scope,
        )

    def _make_instruments(self, reader: PeriodicExportingMetricReader) -> dict[str, Any]:
        provider = MeterProvider(metric_readers=[reader], resource=self._resource, shutdown_on_exit=False)
        meter = provider.get_meter(SCOPE)
        made: dict[str, Any] = {}
        for name, metric in METRICS.items():
            about = {"unit": metric.unit, "description": metric.description}
            if metric.kind == "gauge":
                meter.create_observable_gauge(name, [self._observer(name)], **about)
            elif metric.kind == "counter":
                made[name] = meter.create_counter(name, **about)
            else:
                buckets = list(metric.boundaries) if metric.boundaries else None
                made[name] = meter.create_histogram(name, **about, explicit_bucket_boundaries_advisory=buckets)
        return made

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(options: CallbackOptions) -> Iterator[Observation]:
            for each in self._measured:
                if each.name == name:
                    yield Observation(each.value, dict(each.attributes))

        return observe


def make_resource(settings: Settings) -> Resource:
    """Return what describes this process; the standard variables name the service unless the bundle does.

    `Resource.create` is not used: it needs a pool of threads, and a process that ends has none any more.
    """
    named = OTELResourceDetector().detect()
    about: dict[str, Any] = {
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": __version__,
        "service.instance.id": str(uuid4()),
        "process.pid": os.getpid(),
        "service.name": settings.service_name or str(named.attributes.get("service.name") or DEFAULT_SERVICE),
    }
    return named.merge(Resource(about))


def _options(settings: Settings, signal: str) -> dict[str, Any]:
    options: dict[str, Any] = {"headers": dict(settings.headers)} if settings.headers else {}
    others = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "OTEL_EXPORTER_OTLP_CERTIFICATE")
    names = (*others, f"OTEL_EXPORTER_OTLP_{signal.upper()}_CERTIFICATE")
    if (file := os.environ.get("SSL_CERT_FILE")) and not any(os.environ.get(name) for name in names):
        options["certificate_file"] = file  # as for all else that connects
    if settings.endpoint:
        options["endpoint"] = f"{settings.endpoint.rstrip('/')}/v1/{signal}"
    return options


def _context(place: Place) -> SpanContext:
    return SpanContext(place.trace_id, place.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _route_logs() -> None:
    """Take what the SDK logs in the threads of pipelines for problems of the collector; it is no output of ours."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, _Problems) for each in logger.handlers):
            logger.addHandler(_Problems(logging.WARNING))
            logger.propagate = False


class _Problems(logging.Handler):
    """Notes the warnings of exporters; those of other programs in this process go their way."""

    def emit(self, record: logging.LogRecord) -> None:
        note = getattr(_here, "note_problem", None)
        if note is None:
            logging.getLogger().handle(record)
        else:
            text = record.getMessage()
            if (told := explain_certificate(text)) is not None:
                note(f"{told[0]}. {told[1]}")
                return
            found = _REASON.search(text)
            note(" ".join((found[1] or found[2] if found else text).split())[:200])
