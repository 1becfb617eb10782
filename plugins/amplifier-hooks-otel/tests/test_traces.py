"""The whole program with a collector: everything that follows from a file change is one connected trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks_otel.ids import turn_span

from .conftest import Site

if TYPE_CHECKING:
    from pathlib import Path

    from tests.wire.collector import Collector, Received, Span

pytestmark = pytest.mark.slow

RULES = [
    {
        "when": {"user": r"(?P<name>\w+)\.txt"},
        "call": {
            "tool": "delegate",
            "input": {"agent": "writer", "instruction": "write {name}", "context_depth": "all"},
        },
    },
    {"when": {"tool": "delegate"}, "say": "Delegated."},
    {
        "when": {"user": r"^write (?P<name>\w+)"},
        "call": {"tool": "write_file", "input": {"file_path": "{name}.md", "content": "Secret plans."}},
    },
    {"when": {"tool": "write_file"}, "say": "Written."},
    {
        "when": {"user": r"(?P<name>\w+)\.md"},
        "call": {"tool": "emit", "input": {"name": "work:done", "data": {"name": "{name}"}}},
    },
    {"when": {"tool": "emit"}, "say": "Told the others."},
    {"when": {"user": "^Check"}, "call": {"tool": "stall", "input": {}}},
    {"when": {"tool": "stall"}, "say": "Checked."},
]


def sections(runner: str | None, **config: Any) -> dict[str, Any]:
    """Return a bundle: a file wakes a reader, whose writer writes one, which wakes a teller, whose event a checker."""

    def background(name: str, instruction: str, module: str, **config: Any) -> dict[str, Any]:
        own = {"runner": runner} if runner else {}
        triggers = [{"module": module, "config": config}]
        return {"name": name, "instruction": instruction, "triggers": triggers, **own}

    return {
        "providers": [{"module": "provider-playbook", "config": {"rules": RULES, "otherwise": {"say": "Well."}}}],
        "tools": [
            {"module": "tool-delegate"},
            {"module": "tool-emit"},
            {"module": "tool-filesystem"},
            {"module": "tool-stall", "source": "./stall.py"},
        ],
        "agents": {"writer": {"description": "Writes."}},
        "hooks": [{"module": "hooks-otel", "config": config}] if config else [{"module": "hooks-otel"}],
        "background_sessions": [
            background("reader", "{file_path} changed.", "trigger-file-watcher", patterns=["*.txt"]),
            background("teller", "{file_path} was written.", "trigger-file-watcher", patterns=["*.md", "!bundle.md"]),
            background("checker", "Check it.", "trigger-session-event", event_names=["work:done"]),
        ],
    }


def by_name(received: Received) -> dict[str, list[Span]]:
    """Return the spans by name, in the order of their begin."""
    found: dict[str, list[Span]] = {}
    for span in sorted(received.spans, key=lambda each: each.start):
        found.setdefault(span.name, []).append(span)
    return found


def assert_connected(collector: Collector) -> None:
    """One trace, one root, no span without its parent, and none exported twice."""
    received = collector.received
    spans = {span.id: span for span in received.spans}
    assert len(spans) == len(received.spans), collector.outline()
    assert len({span.trace for span in received.spans}) == 1
    assert [span.name for span in received.spans if not span.parent] == ["process site/reader"]
    assert {span.parent for span in received.spans if span.parent} <= spans.keys(), collector.outline()


def is_handled(queue: str) -> Any:
    return lambda received: any(span.name == f"process site/{queue}" for span in received.spans)


def has_model_call_of(beginning: str) -> Any:
    """Return a condition: a model call of a session with such an id has arrived."""
    return lambda received: any(
        span.name == "chat playbook" and span.attributes["gen_ai.conversation.id"].startswith(beginning)
        for span in received.spans
    )


@pytest.mark.parametrize("runner", [None, "runner-subprocess"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["whole", "killed"])
def test_one_connected_trace_leads_from_a_file_change_to_a_forked_session(
    tmp_path: Path, collector: Collector, runner: str | None, is_killed: bool
) -> None:
    site = Site(tmp_path, collector.endpoint, **sections(runner))
    with site.up() as process:
        (site.folder / "work" / "plan.txt").write_text("plan")
        site.until(site.is_stalled)
        if is_killed:
            collector.wait_for(is_handled("teller"))
            collector.wait_for(has_model_call_of("checker-"))
            site.kill(process)
        else:
            site.go()
            collector.wait_for(is_handled("checker"))
    if is_killed:
        site.go()
        with site.up():
            collector.wait_for(is_handled("checker"))
    checker = next(each for each in site.sessions() if each.startswith("checker-"))
    site.run("run", "--fork", checker, "And now?")
    received = collector.wait_for(
        lambda received: any(span.attributes.get("amplifier.fork.of") == checker for span in received.spans)
    )

    assert_connected(collector)
    names = by_name(received)
    ids = {span.id: span.name for span in received.spans}
    (delivered, told, checked) = (names[f"process site/{each}"] for each in ("reader", "teller", "checker"))
    assert [len(each) for each in (delivered, told, checked)] == [1, 1, 1]
    assert ids[names["invoke_agent reader"][0].parent] == "process site/reader"
    assert ids[names["invoke_agent writer"][0].parent] == "execute_tool delegate"
    assert ids[names["execute_tool write_file"][0].parent] == "invoke_agent writer"
    assert ids[told[0].parent] == "process site/reader"
    assert ids[checked[0].parent] == "process site/teller"
    turns = [each for each in names["invoke_agent checker"] if each.attributes["gen_ai.conversation.id"] == checker]
    fork = next(span for span in received.spans if span.attributes.get("amplifier.fork.of") == checker)
    assert fork.links == [(fork.trace, f"{turn_span(checker, 1):016x}")]
    assert fork.links[0][1] == turns[0].id
    assert fork.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert [span.attributes["amplifier.turn.status"] for span in turns] == (
        ["killed", "success"] if is_killed else ["success"]
    )
    assert not any("Secret plans" in str(span.attributes) for span in received.spans)


def test_a_killed_conversation_that_goes_on_is_one_connected_trace(tmp_path: Path, collector: Collector) -> None:
    site = Site(tmp_path, collector.endpoint, **{**sections(None), "background_sessions": []})
    site.run("run", "Hello.")
    with site.start("run", "--resume", "last", "Check it.") as process:
        site.until(site.is_stalled)
        collector.wait_for(lambda received: len(by_name(received).get("chat playbook", ())) == 2)
        process.kill()
        process.communicate()
    site.go()
    site.run("run", "--resume", "last", "--accept")
    site.run("run", "--resume", "last", "And now?")
    spans = {span.id: span for span in collector.received.spans}
    assert len(spans) == len(collector.received.spans)
    assert {span.parent for span in spans.values() if span.parent} <= spans.keys(), collector.outline()
    turns = sorted((span for span in spans.values() if span.name == "invoke_agent site"), key=lambda each: each.start)
    told = [(turn.attributes["amplifier.turn"], turn.attributes["amplifier.turn.status"]) for turn in turns]
    assert told == [(1, "success"), (2, "killed"), (2, "success"), (3, "success")]
    assert [turn.parent for turn in turns] == ["", turns[0].id, turns[0].id, turns[0].id]
