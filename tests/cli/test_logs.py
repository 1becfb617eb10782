"""What `amplifier logs` tells of the events of background sessions."""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import SessionEvent, TriggerEvent, TriggerType, load_plugins
from amplifier_core.storage import Delivery, DurableStore, SessionRecord
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.operations.history import Following, HistoryEntry

NOW = datetime.now(UTC)


@pytest.fixture
async def store(home: Path) -> Any:
    opened = open_inbox(load_plugins(environ={}))
    yield opened
    await opened.close()


async def offered(store: DurableStore, name: str, path: str, **options: Any) -> Delivery:
    event = TriggerEvent(TriggerType.FILE_CHANGE, "trigger-file-watcher", file_path=path, change_type="modified")
    delivery = await store.enqueue("/p", f"demo/{name}", f"demo/{name}/t#1", event, **options)
    assert delivery is not None
    return delivery


async def begun(store: DurableStore, name: str, *, created: bool = True) -> Delivery:
    claimed = await store.claim("/p", f"demo/{name}", owner="me", lease=60, session_id=f"{name}-1")
    assert claimed is not None
    if created and claimed.attempts == 1:
        await store.create(SessionRecord(f"{name}-1", project="/p"))
    return claimed


async def answered(store: DurableStore, name: str, path: str, answer: str) -> None:
    await offered(store, name, path)
    claimed = await begun(store, name)
    await store.append(f"{name}-1", [{"role": "assistant", "content": answer}], at=0)
    await store.commit(claimed)


def told(lines: list[Any]) -> list[tuple[str, str, str]]:
    return [(each.background_session, each.kind, each.text) for each in lines]


async def test_lines_of_one_name_in_two_projects_say_whose_they_are(store: DurableStore, say: Any) -> None:
    await offered(store, "reviewer", "a.py")
    await offered(store, "other", "b.py")
    event = TriggerEvent(TriggerType.FILE_CHANGE, "trigger-file-watcher", file_path="c.py", change_type="modified")
    await store.enqueue("/q", "demo/reviewer", "demo/reviewer/t#1", event)
    _, out, _ = await say("logs")
    assert [line.partition(" file ")[0].split(" ", 2)[2].rstrip() for line in out.splitlines()] == [
        "demo/reviewer in /p",
        "other",
        "demo/reviewer in /q",
    ], out


async def test_each_step_of_an_event_is_told_in_order_of_time(store: DurableStore, say: Any) -> None:
    await answered(store, "reviewer", "a.py", "a.py compiles.\nAnd more.")
    await offered(store, "careful", "b.py", refused="its 'if' does not hold")
    await offered(store, "broken", "c.py")
    dead = await begun(store, "broken", created=False)
    await store.dead_letter(dead, reason="no such tool\nat all")

    code, out, err = await say("logs")
    assert (code, err) == (exits.OK, "")
    assert [" ".join(line.split()[1:]) for line in out.splitlines()] == [
        "● reviewer file a.py modified",
        "▶ reviewer session reviewer-1",
        "✓ reviewer a.py compiles.",
        "✗ careful file b.py modified: its 'if' does not hold",
        "● broken file c.py modified",
        f"✗ broken given up: no such tool. Try it again: amplifier trigger retry {dead.delivery_id[:8]}",
    ]
    _, out, _ = await say("logs", "reviewer", "--jsonl")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["kind"] for line in lines] == ["accepted", "started", "completed"]
    assert {line["session_id"] for line in lines} == {"reviewer-1"}
    _, out, _ = await say("logs", "demo/reviewer", "-n", "1")
    assert out.endswith("a.py compiles.\n")
    assert out.count("\n") == 1


async def test_of_a_long_path_a_line_shows_the_end_and_json_has_all(store: DurableStore, say: Any) -> None:
    path = f"{'deep/' * 40}last.py"
    await offered(store, "reviewer", path)
    _, out, _ = await say("logs")
    shown = out.partition("reviewer     ")[2].rstrip()
    assert (shown[:6], shown[-22:], len(shown)) == ("file …", "/deep/last.py modified", 110)
    _, out, _ = await say("logs", "--jsonl")
    facts = json.loads(out)
    assert (facts["file_path"], facts["change_type"], facts["text"]) == (path, "modified", shown)


async def test_tool_calls_are_shown_on_request_and_once(store: DurableStore, say: Any) -> None:
    shared = {"role": "assistant", "content": "", "tool_calls": [{"id": "s", "tool": "grep", "arguments": {}}]}
    await store.create(SessionRecord("source-1", project="/p"))
    await store.append("source-1", [shared], at=0)
    await store.create(SessionRecord("reviewer-1", project="/p", fork_of="source-1", fork_at=1))
    await offered(store, "reviewer", "a.py")
    claimed = await begun(store, "reviewer", created=False)
    call = {"id": "c1", "tool": "read_file", "arguments": {"file_path": "a.py"}}
    following = await Following.of(store, None)
    following.shows_tools = True
    await store.append("reviewer-1", [{"role": "assistant", "content": "", "tool_calls": [call]}], at=1)
    assert ("reviewer", "tool", '→ read_file {"file_path": "a.py"}') in told(await following.read_new(50))
    again = {**call, "id": "c2"}
    await store.append("reviewer-1", [{"role": "assistant", "content": "", "tool_calls": [again]}], at=2)
    assert [kind for _, kind, _ in told(await following.read_new(50))] == ["tool"]
    denied = {"role": "tool", "tool_call_id": "c2", "name": "read_file", "content": "Denied by hook: it is locked\nNo."}
    # The first is the text of a server.
    await store.append("reviewer-1", [{**denied, "tool_call_id": "c1"}, {**denied, "metadata": {"denied": True}}], at=3)
    assert told(await following.read_new(50)) == [("reviewer", "tool", "✗ read_file: Denied by hook: it is locked")]
    await store.append("reviewer-1", [{"role": "assistant", "content": "Fine."}], at=5)
    await store.commit(claimed)
    assert [kind for _, kind, _ in told(await following.read_new(50))] == ["completed"]
    _, out, _ = await say("logs", "--tools")
    assert [line.split()[1:3] for line in out.splitlines() if "read_file" in line] == [
        ["reviewer", "→"],
        ["reviewer", "→"],
        ["reviewer", "✗"],
    ]
    assert "grep" not in out
    assert "read_file" not in (await say("logs"))[1]


async def test_a_provider_that_stood_in_for_another_is_told(store: DurableStore, say: Any) -> None:
    await offered(store, "reviewer", "a.py")
    claimed = await begun(store, "reviewer")
    metadata = {"fallback": {"from": "one", "provider": "two", "model": "large-2", "reason": "529 overloaded"}}
    await store.append("reviewer-1", [{"role": "assistant", "content": "Fine.\nAll.", "metadata": metadata}], at=0)
    await store.commit(claimed)
    _, out, _ = await say("logs")
    assert out.rstrip().endswith("Fine. (two large-2 instead of one)")


async def test_what_is_tried_again_is_told_with_its_reason_and_when(store: DurableStore) -> None:
    await offered(store, "reviewer", "a.py")
    due = datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC)
    await store.nack(await begun(store, "reviewer"), reason="overloaded", available_at=due)
    lines = told(await Following(store).read_new(10))
    assert lines[2] == ("reviewer", "retried", "overloaded; next attempt at 2031-01-02T03:04:05Z")


async def test_what_a_terminal_would_obey_is_not_told(store: DurableStore) -> None:
    await answered(store, "reviewer", "\x1b[31ma.py", "\x1b]0;owned\x07done")
    texts = [text for _, _, text in told(await Following(store).read_new(10))]
    assert len(texts) == 3
    assert all(text.isprintable() for text in texts)


async def test_following_tells_what_is_new_and_nothing_twice(store: DurableStore) -> None:
    following = Following(store)
    await offered(store, "reviewer", "a.py")
    assert told(await following.read_new(1)) == [("reviewer", "accepted", "file a.py modified")]
    claimed = await begun(store, "reviewer")
    assert told(await following.read_new(1)) == [("reviewer", "started", "session reviewer-1")]
    await offered(store, "other", "b.py")
    assert told(await following.read_new(1)) == [("other", "accepted", "file b.py modified")]
    assert await following.read_new(1) == []
    await store.append("reviewer-1", [{"role": "assistant", "content": "done"}], at=0)
    await store.commit(claimed)  # by now neither among the newest nor among those that are not over
    assert told(await following.read_new(1)) == [("reviewer", "completed", "done")]


async def test_since_shows_all_of_that_time_and_no_more(
    store: DurableStore, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(60):
        await offered(store, "old", f"{n}.py", refused="too old", now=NOW - timedelta(hours=3))
        await offered(store, "new", f"{n}.py", refused="too new")
    _, out, _ = await say("logs", "--since", "1h")
    assert (out.count(" new "), out.count(" old ")) == (60, 0)
    _, out, _ = await say("logs")
    assert out.count("\n") == 50
    assert (await say("logs", "old", "--since", "30m"))[2] == "No events in this time.\n"


async def test_since_reads_no_more_than_that_time_needs(
    store: DurableStore, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_new, asked = Following.read_new, []

    async def ask(following: Following, count: int) -> list[HistoryEntry]:
        asked.append(count)
        return await read_new(following, count)

    monkeypatch.setattr(Following, "read_new", ask)
    await offered(store, "new", "a.py", refused="too new")
    assert (await say("logs", "--since", "1h"))[1].count(" new ") == 1
    assert asked == [1_000]


async def test_a_name_is_that_of_this_folder_and_of_others_without_one_here(
    store: DurableStore, say: Any, project: Path
) -> None:
    for folder, path in (("/p", "there.py"), (str(project), "here.py")):
        event = TriggerEvent(TriggerType.FILE_CHANGE, "t", file_path=path, change_type="modified")
        await store.enqueue(folder, "demo/reviewer", "demo/reviewer/t#1", event)
    await offered(store, "other", "other.py")
    _, out, _ = await say("logs", "reviewer")
    assert ("here.py" in out, "there.py" in out) == (True, False)
    _, out, _ = await say("logs", "other")
    assert "other.py" in out
    _, out, _ = await say("logs")
    assert ("here.py" in out, "there.py" in out) == (True, True)


async def test_turns_that_a_person_adds_later_are_not_of_the_event(store: DurableStore, say: Any) -> None:
    def turn(prompt: str, call: str, answer: str, at: datetime) -> list[dict[str, Any]]:
        about = {"timestamp": at.isoformat()}
        calls = [{"id": call, "tool": call, "arguments": {}}]
        return [
            {"role": "user", "content": prompt, "metadata": about},
            {"role": "assistant", "content": "", "tool_calls": calls, "metadata": about},
            {"role": "tool", "tool_call_id": call, "content": "ok", "metadata": about},
            {"role": "assistant", "content": answer, "metadata": about},
        ]

    await offered(store, "reviewer", "a.py")
    claimed = await begun(store, "reviewer")
    await store.append("reviewer-1", turn("Review a.py", "look", "a.py compiles.", NOW), at=0)
    await store.commit(claimed)
    await store.append("reviewer-1", turn("And b.py?", "run", "b.py does not.", NOW + timedelta(hours=1)), at=4)
    _, out, _ = await say("logs", "--tools")
    assert [" ".join(line.split()[1:]) for line in out.splitlines()] == [
        "● reviewer file a.py modified",
        "▶ reviewer session reviewer-1",
        "reviewer → look {}",
        "✓ reviewer a.py compiles.",
    ]


async def test_a_name_that_another_one_begins_with_is_not_the_other(store: DurableStore, say: Any) -> None:
    for name in ("review", "reviewer"):
        await offered(store, name, f"{name}.py")
        facts = {"queue": f"demo/{name}", "project": "/p", "status": "degraded", "reason": f"{name} ails"}
        await store.emit(SessionEvent("background:state", {**facts, "at": NOW.isoformat()}, project="/p"))
    about = {"bundle": "demo", "queue": "demo/", "project": "/p", "text": "taken up"}
    await store.emit(SessionEvent("background:reloaded", about, project="/p"))
    _, out, _ = await say("logs", "reviewer")
    assert ("reviewer ails" in out, "review ails" in out, "taken up" in out) == (True, False, True)


def test_nothing_has_happened_yet(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["logs"]) == exits.OK
    assert capsys.readouterr() == ("", "No events yet.\n")


async def test_an_unknown_name_is_answered_with_the_nearest(store: DurableStore, say: Any) -> None:
    await offered(store, "reviewer", "a.py")
    code, _, err = await say("logs", "reviewr")
    assert code == exits.NOT_FOUND
    assert err == "amplifier: no background session 'reviewr'; did you mean 'reviewer'? There are: reviewer\n"


def test_an_age_that_is_none_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["logs", "--since", "yesterday"]) == exits.USAGE
    assert "'yesterday' is not a duration" in capsys.readouterr().err


async def test_what_a_person_did_is_told_beside_what_happened(store: DurableStore, say: Any) -> None:
    await offered(store, "reviewer", "a.py")
    await store.dead_letter(await begun(store, "reviewer"), reason="no such tool")
    [letter] = await store.deliveries(state="dead")
    assert (await say("trigger", "retry", letter.delivery_id))[0] == exits.OK
    assert (await say("trigger", "drop", letter.delivery_id, "--reason", "not now"))[0] == exits.OK
    assert (await say("session", "rename", "reviewer-1", "the first"))[0] == exits.OK

    name, short = getpass.getuser(), letter.delivery_id[:8]
    _, out, _ = await say("logs", "reviewer")
    acts = [line.partition(" ◆ ")[2] for line in out.splitlines() if " ◆ " in line]
    assert acts == [
        f"reviewer     trigger retry {short} by {name} (command line)",
        f"reviewer     trigger drop {short} by {name} (command line): not now",
    ]
    _, out, _ = await say("logs", "--jsonl")
    last = json.loads(out.splitlines()[-1])
    assert {key: last[key] for key in ("kind", "act", "by", "via", "session_id", "background_session")} == {
        "kind": "acted",
        "act": "session.rename",
        "by": name,
        "via": "command line",
        "session_id": "reviewer-1",
        "background_session": "",
    }
    _, out, _ = await say("why", letter.delivery_id)
    assert [line.split(" by ")[0].strip("│├└─ ") for line in out.splitlines() if "(command line)" in line] == [
        f"trigger retry {short}",
        f"trigger drop {short}",
        "session rename reviewer-1",
    ]


async def test_an_act_is_done_when_the_store_cannot_be_opened_to_record_it(
    running: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-absent")
    code, _, err = await say("pause", "asked")
    assert (code, "echo/asked is paused" in err) == (exits.OK, True)
    assert "amplifier: WARNING: pause is done, and could not be recorded: " in err


LINKED = """---
bundle: {name: linked}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: '^go'}, call: {tool: write_file, input: {file_path: a.txt, content: new}}}
      otherwise: {say: done}
tools: [{module: tool-filesystem}]
background_sessions: [{name: asked, instruction_template: go}]
---
"""


def test_a_denied_call_is_shown_as_denied_with_the_reason_and_the_way_out(
    project: Path, amplifier: Any, home: Path
) -> None:
    (project / "bundle.md").write_text(LINKED, encoding="utf-8")
    (project / "a.txt").write_text("old")
    (project / "b.txt").hardlink_to(project / "a.txt")
    assert amplifier("trigger", "fire", "asked").returncode == exits.OK
    denied = "✗ write_file: Denied by hook: not permitted: 'a.txt': it has another name (a hard link)"
    for command in (["up", "--once"], ["logs", "--tools"]):
        shown = amplifier(*command).stdout
        [line] = [each for each in shown.splitlines() if "Denied" in each]
        assert denied in line
        assert "Put a copy of it in its place" in line
    assert (project / "b.txt").read_text() == "old"
