"""Hand spans and measurements to a thread that exports them; nobody ever waits for it but the end of the process.

The queue is bounded: what finds no room is dropped, counted, and told once. The thread alone imports the SDK. A fork of
the process begins with an empty queue and a thread of its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakSet

from .records import DROPPED, Measurement, SpanRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .config import Settings
    from .sdk import Exporter

    Source = Callable[[], Iterable[Measurement]]

logger = logging.getLogger("amplifier.otel")

LONGEST_START = 30.0
"""Seconds that the end of a process waits for the SDK: it is imported by the first export."""

_pipelines: dict[Settings, Pipeline] = {}
_all: WeakSet[Pipeline] = WeakSet()


def pipeline_of(settings: Settings) -> Pipeline:
    """Return this process's pipeline with these settings."""
    found = _pipelines.get(settings)
    if found is None:
        found = _pipelines[settings] = Pipeline(settings)
    return found


def flush_all(seconds: float | None = None) -> None:
    """Export what waits in this process, and wait for it as `Pipeline.flush` does."""
    for each in list(_pipelines.values()):
        each.flush(seconds)


class Pipeline:
    """The queue and the thread of one exporter."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._is_closed = False
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """Begin with nothing: in a new pipeline, and in a fork of its process."""
        self._waiting: deque[SpanRecord | Measurement] = deque()
        self._sources: list[Source] = []
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._is_ready = threading.Event()
        """Set when the exporter is made, or is not needed."""
        self._settled = threading.Event()
        """Set when a flush is done, or when the collector has a problem."""
        self._is_flushing = False
        self._is_troubled = False
        self._dropped = 0
        self._untold_drops = 0
        self._problem = ""
        self._has_told = False

    @property
    def dropped(self) -> int:
        """Spans and measurements dropped so far."""
        return self._dropped

    def put(self, record: SpanRecord | Measurement) -> None:
        """Queue a record, or drop it."""
        if len(self._waiting) >= self.settings.queue_size:
            self._dropped += 1
            self._untold_drops += 1
            return
        self._waiting.append(record)
        if self._thread is None:
            self._start()
        if len(self._waiting) == self.settings.batch_size:
            self._wake.set()

    def add_source(self, source: Source) -> Callable[[], None]:
        """Measure `source` at each export of metrics, in the thread of the pipeline; return how to end that."""
        self._sources.append(source)
        if self._thread is None:
            self._start()
        return lambda: self._sources.remove(source) if source in self._sources else None

    def flush(self, seconds: float | None = None) -> bool:
        """Export what waits, and wait for it; not for a collector that has a problem. Return whether it is done.

        The collector has `seconds`, by default those of the settings. The time until the SDK is imported is not its.
        """
        if self._thread is None or self._is_troubled:
            return self._thread is None
        seconds = self.settings.flush_timeout if seconds is None else seconds
        self._settled.clear()
        self._is_flushing = True
        self._wake.set()
        self._is_ready.wait(LONGEST_START)
        if not self._settled.wait(seconds):
            self.note_problem(f"it has not answered within {seconds:g} s of the end of the process")
        self._tell()
        return not self._is_troubled

    def close(self) -> None:
        """End the thread after what it does now; what waits is dropped."""
        self._is_closed = True
        self._wake.set()

    def note_problem(self, text: str) -> None:
        """Keep the reason of a failing export; called by the exporter in the thread of the pipeline."""
        self._problem = self._problem or text  # the first is the reason, and what follows that it lasts
        self._is_troubled = True
        self._is_ready.set()
        self._settled.set()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="hooks-otel", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process ends, or may have no more threads
                return
            self._thread = thread
        try:
            from amplifier_core.process_ends import at_process_end
        except ModuleNotFoundError:  # the published kernel has no process that ends without `atexit`
            atexit.register(self.flush)
        else:
            at_process_end(self.flush)

    def _run(self) -> None:
        exporter: Exporter | None = None
        due = monotonic() + self.settings.metric_interval
        while True:
            pause = self.settings.delay if self._waiting else self.settings.metric_interval
            self._wake.wait(max(0.0, min(pause, due - monotonic(), self.settings.delay)))
            self._wake.clear()
            if self._is_closed:
                return
            is_flush, self._is_flushing = self._is_flushing, False
            is_due = monotonic() >= due
            try:
                if exporter is None and (self._waiting or is_due):
                    exporter = self._make_exporter()
                if exporter is not None or is_flush:
                    self._is_ready.set()
                if exporter is not None:
                    self._export(exporter, with_metrics=is_flush or is_due)
            except Exception as error:  # a record that cannot be encoded, or a broken installation
                self._waiting.clear()
                self.note_problem(f"{type(error).__name__}: {error}")
            self._tell()
            if is_due:
                due = monotonic() + self.settings.metric_interval
            if is_flush:
                self._settled.set()

    def _make_exporter(self) -> Exporter:
        from .sdk import Exporter

        return Exporter(self.settings, self.note_problem, self._measure)

    def _export(self, exporter: Exporter, *, with_metrics: bool) -> None:
        while self._waiting:
            spans = []
            for _ in range(min(len(self._waiting), self.settings.batch_size)):
                record = self._waiting.popleft()
                if isinstance(record, SpanRecord):
                    spans.append(record)
                else:
                    exporter.record(record)
            if spans:
                self._note_result(exporter.export(spans), len(spans))
        if with_metrics:
            drops, self._untold_drops = self._untold_drops, 0
            if drops:
                exporter.record(Measurement(DROPPED, drops, {}))
            exporter.export_metrics()

    def _note_result(self, is_exported: bool, count: int) -> None:
        if is_exported:
            self._is_troubled, self._problem = False, ""
        else:
            self._dropped += count
            self._untold_drops += count

    def _measure(self) -> Iterable[Measurement]:
        for source in list(self._sources):
            yield from source()

    def _tell(self) -> None:
        """Tell once a process that something was dropped."""
        if self._has_told or not (self._dropped or self._problem):
            return
        self._has_told = True
        from .redaction import redact_text

        reason = redact_text(self._problem) or f"its queue of {self.settings.queue_size} is full"
        logger.warning(
            "hooks-otel cannot export to %s: %s. Sessions go on; what cannot be exported is dropped, without a "
            "further word. Check `endpoint` and OTEL_EXPORTER_OTLP_ENDPOINT",
            self.settings.shown_endpoint,
            reason,
        )


def _begin_in_fork() -> None:
    for pipeline in list(_all):
        pipeline._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_fork)
