"""Collectors that hang, refuse, fail or are slow: no session waits for one, and a warning tells it once."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks_otel.config import read_environment
from amplifier_hooks_otel.ids import Place, random_span
from amplifier_hooks_otel.pipeline import Pipeline
from amplifier_hooks_otel.records import TOKENS, Measurement, SpanRecord
from tests.proxies import VARIABLES, Proxy, SecureServer

from .conftest import Site

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks_otel.sdk import Exporter
    from tests.wire.collector import Collector

pytestmark = pytest.mark.slow

SAYS = {"providers": [{"module": "provider-playbook", "config": {"otherwise": {"say": "You said: {prompt}"}}}]}
TOLD = "cannot export to"
SECRET = "collector-key-0123456789"


def closed_port() -> str:
    """Return the address of a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def make_pipeline(endpoint: str, flush_timeout: float = 60, **environ: str) -> Pipeline:
    """Return a pipeline of its own."""
    config = {"endpoint": endpoint, "flush_timeout": flush_timeout}
    return Pipeline(read_environment(config, {"OTEL_BSP_SCHEDULE_DELAY": "20", **environ}))


def make_span(number: int = 0) -> SpanRecord:
    return SpanRecord(f"span {number}", Place(1, random_span()), None, 1, end=2)


def test_a_run_says_nothing_of_a_collector_that_answers(tmp_path: Path, collector: Collector) -> None:
    done = Site(tmp_path, collector.endpoint, **SAYS).run("run", "hello")
    assert done.stdout == "You said: hello\n"
    assert done.stderr.startswith("session site-")
    assert len(done.stderr.splitlines()) == 1
    received = collector.wait_for(lambda received: len(received.spans) == 2)
    assert [span.name for span in received.spans] == ["chat playbook", "invoke_agent site"]


def test_a_run_answers_and_ends_while_its_collector_hangs(tmp_path: Path, collector: Collector) -> None:
    collector.hang()
    hooks = [{"module": "hooks-otel", "config": {"flush_timeout": 0.5}}]
    done = Site(tmp_path, collector.endpoint, **SAYS, hooks=hooks).run("run", "hello")
    assert done.stdout == "You said: hello\n"
    assert collector.asked.is_set()
    assert f"{TOLD} {collector.endpoint}: it has not answered within 0.5 s of the end of the process. " in done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


def test_the_time_until_the_sdk_is_imported_is_not_the_collectors(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(collector.endpoint, 0.001)
    begin, make_exporter = threading.Event(), pipeline._make_exporter

    def make_late() -> Exporter:
        assert begin.wait(60)
        return make_exporter()

    monkeypatch.setattr(pipeline, "_make_exporter", make_late)
    pipeline.put(make_span())
    flush = threading.Thread(target=pipeline.flush)
    flush.start()
    flush.join(0.1)
    assert flush.is_alive()
    begin.set()
    flush.join(60)
    assert not flush.is_alive()
    collector.wait_for(lambda received: len(received.spans) == 1)


@pytest.mark.parametrize("status", [401, 500, 503])
def test_a_run_answers_and_tells_the_reason_once_when_its_collector_fails(
    tmp_path: Path, collector: Collector, status: int
) -> None:
    collector.status = status
    site = Site(tmp_path, collector.endpoint, **SAYS)
    site.environment["OTEL_EXPORTER_OTLP_HEADERS"] = f"x-collector={SECRET}"
    done = site.run("run", "hello")
    assert done.stdout == "You said: hello\n"
    assert done.stderr.count(TOLD) == 1
    assert SECRET not in done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


def test_a_run_answers_and_tells_once_that_its_collector_refuses(tmp_path: Path) -> None:
    done = Site(tmp_path, closed_port(), **SAYS).run("run", "hello")
    assert done.stdout == "You said: hello\n"
    assert done.stderr.count(TOLD) == 1
    assert len(done.stderr.splitlines()) == 2, done.stderr


def test_headers_reach_the_collector_and_no_other_place(tmp_path: Path, collector: Collector) -> None:
    hooks = [{"module": "hooks-otel", "config": {"headers": {"x-collector": SECRET}, "service_name": "shop"}}]
    site = Site(tmp_path, collector.endpoint, **SAYS, hooks=hooks)
    done = site.run("run", f"my key is {SECRET}")
    assert {each["x-collector"] for each in collector.received.headers} == {SECRET}
    assert {span.resource["service.name"] for span in collector.received.spans} == {"shop"}
    assert SECRET not in done.stderr
    assert not any(SECRET.encode() in body for body in collector.received.bodies)
    listed = site.run("session", "show", "last", "--json").stdout
    assert SECRET not in listed.replace(f"my key is {SECRET}", "").replace(f"said: my key is {SECRET}", "")


def test_a_header_is_sent_with_the_variable_that_it_names(tmp_path: Path, collector: Collector) -> None:
    hooks = [{"module": "hooks-otel", "config": {"headers": {"x-collector": "Bearer ${COLLECTOR}"}}}]
    site = Site(tmp_path, collector.endpoint, **SAYS, hooks=hooks)
    site.environment["COLLECTOR"] = SECRET
    done = site.run("run", "--jsonl", f"my key is {SECRET}")
    assert {each["x-collector"] for each in collector.received.headers} == {f"Bearer {SECRET}"}
    assert SECRET not in done.stderr


def test_a_header_that_names_an_unset_variable_is_an_error_with_both_names(tmp_path: Path) -> None:
    hooks = [{"module": "hooks-otel", "config": {"headers": {"x-collector": "${COLLECTOR}"}}}]
    done = Site(tmp_path, closed_port(), **SAYS, hooks=hooks).run("run", "hello")
    assert done.stdout == "You said: hello\n"
    assert "hooks-otel: headers: x-collector: the environment has no COLLECTOR. Set it, or" in done.stderr


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment, without variables of the network."""
    for name in (*VARIABLES, "CURL_CA_BUNDLE", "OTEL_EXPORTER_OTLP_CERTIFICATE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def export_to_end(pipeline: Pipeline) -> None:
    """Export a span in vain, and let the thread tell why."""
    pipeline.put(make_span())
    assert not pipeline.flush(60)
    pipeline.close()
    assert pipeline._thread is not None
    pipeline._thread.join(60)


def test_a_collector_of_the_company_is_trusted_as_all_else_is(
    tmp_path: Path, network: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with SecureServer(tmp_path, b"") as server, Proxy(server.address) as proxy:
        network.setenv("HTTPS_PROXY", proxy.url)
        refused = make_pipeline("https://corp.test")
        export_to_end(refused)
        assert "the certificate is not trusted (self-signed certificate). If your network" in caplog.text
        network.setenv("SSL_CERT_FILE", str(server.certificate))
        pipeline = make_pipeline("https://corp.test")
        pipeline.put(make_span())
        assert pipeline.flush(60)
        assert "/v1/traces" in server.asked


def test_a_proxy_whose_address_cannot_be_read_is_told_without_its_password(
    network: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network.setenv("HTTPS_PROXY", "http://ann:pw1#x@127.0.0.1:1")
    export_to_end(make_pipeline("https://corp.test"))
    assert "HTTPS_PROXY is no address of a proxy that can be read" in caplog.text
    assert "pw1" not in caplog.text


def test_what_finds_no_room_is_dropped_and_told_once(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = make_pipeline(collector.endpoint, OTEL_BSP_MAX_QUEUE_SIZE="10", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="5")
    collector.hang()
    with caplog.at_level(logging.WARNING, "amplifier.otel"):
        pipeline.put(make_span())
        assert collector.asked.wait(60)  # the first one is on its way, or a few
        for number in range(100):
            pipeline.put(make_span(number))
        assert 80 <= pipeline.dropped <= 90
        collector.answer()
        assert pipeline.flush(60)
    assert len(collector.received.spans) + pipeline.dropped == 101
    assert [each.message for each in caplog.records if "its queue of 10 is full" in each.message] != []
    assert len(caplog.records) == 1
    dropped = [point.value for point in collector.received.points if point.name == "amplifier.otel.dropped"]
    assert dropped[-1:] == [pipeline.dropped]


def test_a_collector_that_comes_back_gets_what_follows(collector: Collector) -> None:
    pipeline = make_pipeline(collector.endpoint)
    collector.status = 500
    pipeline.put(make_span(1))
    assert not pipeline.flush(60)
    collector.status = 200
    pipeline.put(make_span(2))
    collector.wait_for(lambda received: [span.name for span in received.spans] == ["span 2"])


def test_a_fork_of_the_process_exports_its_own_spans_and_no_others(collector: Collector) -> None:
    pipeline = make_pipeline(collector.endpoint, OTEL_BSP_SCHEDULE_DELAY="600000")
    pipeline.put(make_span(1))
    child = os.fork()
    if child == 0:
        pipeline.put(make_span(2))
        os._exit(0 if pipeline.flush(60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [span.name for span in collector.received.spans] == ["span 2"]
    assert pipeline.flush(60)
    assert [span.name for span in collector.received.spans] == ["span 2", "span 1"]


def test_a_record_that_cannot_be_exported_ends_no_thread(collector: Collector) -> None:
    pipeline = make_pipeline(collector.endpoint)
    pipeline.put(Measurement("unknown", 1, {}))
    assert not pipeline.flush(60)
    pipeline.put(Measurement(TOKENS, 1, {}))
    pipeline.put(make_span())
    collector.wait_for(lambda received: bool(received.spans))


def test_nothing_is_exported_and_nothing_imported_with_the_sdk_disabled(tmp_path: Path, collector: Collector) -> None:
    site = Site(tmp_path, collector.endpoint, **SAYS)
    site.environment["OTEL_SDK_DISABLED"] = "true"
    assert site.run("run", "hello").stdout == "You said: hello\n"
    assert not collector.asked.is_set()
