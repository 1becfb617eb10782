"""The spans of deliveries that are tried again or given up, and the metrics of their queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .conftest import Site

if TYPE_CHECKING:
    from pathlib import Path

    from tests.wire.collector import Collector, Received

pytestmark = pytest.mark.slow

FLAKY = """
import os
from pathlib import Path
from amplifier_core.message_models import ChatResponse, TextBlock

class Flaky:
    name = "flaky"

    def get_info(self):
        return None

    async def list_models(self):
        return []

    async def complete(self, request, **kwargs):
        text = str(request.messages)
        marker = Path(os.environ["SITE"], "failed")
        if "bad.txt" in text or not marker.exists():
            marker.touch()
            raise RuntimeError("the text of an error")
        return ChatResponse(content=[TextBlock(text="Fine.")])

    def parse_tool_calls(self, response):
        return []

async def mount(coordinator, config):
    await coordinator.mount("providers", Flaky(), name="flaky")
"""


def sections(**fields: Any) -> dict[str, Any]:
    """Return a bundle with a provider that fails at first, and for good with a bad file."""
    triggers = [{"module": "trigger-file-watcher", "config": {"patterns": ["*.txt"]}}]
    reader = {"name": "reader", "instruction": "{file_path}", "triggers": triggers, "max_attempts": 2}
    return {
        "providers": [{"module": "provider-flaky", "source": "./flaky.py"}],
        "background_sessions": [{**reader, "retry": {"delay": 0.05, "max_delay": 0.1}, **fields}],
    }


def has_ended(state: str) -> Any:
    return lambda received: any(span.attributes.get("amplifier.delivery.state") == state for span in received.spans)


def last_values(received: Received) -> dict[str, Any]:
    """Return the last value of each metric of the queue."""
    return {
        point.name: point.value
        for point in received.points
        if point.attributes.get("messaging.destination.name") == "site/reader"
    }


def test_attempts_and_dead_letters_are_in_their_traces_and_counted(tmp_path: Path, collector: Collector) -> None:
    site = Site(tmp_path, collector.endpoint, **sections())
    (tmp_path / "work" / "flaky.py").write_text(FLAKY)
    with site.up():
        (tmp_path / "work" / "good.txt").write_text("good")
        collector.wait_for(has_ended("done"))
        (tmp_path / "work" / "bad.txt").write_text("bad")
        collector.wait_for(has_ended("dead"))
        collector.wait_for(lambda received: last_values(received).get("amplifier.queue.dead") == 1)
        values = last_values(collector.received)
    spans = collector.received.spans
    assert len({span.id for span in spans}) == len(spans)
    assert {span.parent for span in spans if span.parent} <= {span.id for span in spans}, collector.outline()
    done, dead = (span for span in spans if span.name == "process site/reader")
    for delivery, types in ((done, ["RuntimeError", None]), (dead, ["RuntimeError", "RuntimeError"])):
        turns = sorted((span for span in spans if span.parent == delivery.id), key=lambda span: span.start)
        assert [turn.attributes["amplifier.attempt"] for turn in turns] == [1, 2]
        assert [turn.attributes.get("error.type") for turn in turns] == types
        assert delivery.attributes["amplifier.delivery.attempts"] == 2
        assert delivery.kind == 5
    assert (done.failed, dead.attributes["error.type"]) == (False, "dead_letter")
    assert done.trace != dead.trace
    assert (values["amplifier.queue.waiting"], values["amplifier.queue.running"]) == (0, 0)
    assert values["amplifier.queue.oldest.age"] == 0
    assert not any(b"text of an error" in body or b"bad.txt" in body for body in collector.received.bodies)


def test_a_waiting_delivery_grows_old(tmp_path: Path, collector: Collector) -> None:
    site = Site(tmp_path, collector.endpoint, **sections(retry={"delay": 600, "max_delay": 600}))
    (tmp_path / "work" / "flaky.py").write_text(FLAKY)
    with site.up():
        (tmp_path / "work" / "good.txt").write_text("good")
        collector.wait_for(lambda received: last_values(received).get("amplifier.queue.waiting") == 1)
        collector.wait_for(lambda received: last_values(received).get("amplifier.queue.oldest.age", 0) > 0)


def test_a_bundle_without_the_hook_exports_nothing(tmp_path: Path, collector: Collector) -> None:
    site = Site(tmp_path, collector.endpoint, **sections(), hooks=[])
    (tmp_path / "work" / "flaky.py").write_text(FLAKY)
    (tmp_path / "failed").touch()
    with site.up():
        (tmp_path / "work" / "good.txt").write_text("good")
        site.until(lambda: "completed" in site.sessions().values())
    assert not collector.asked.is_set()
