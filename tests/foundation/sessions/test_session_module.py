"""`amplifier_foundation.session`: what published programs do with transcripts and with sessions in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import InvalidSessionId, SessionExists, SessionRecord
from amplifier_core.plugins import Plugins
from amplifier_foundation import open_store
from amplifier_foundation.session import (
    add_synthetic_tool_results,
    backup,
    count_turns,
    diagnose_transcript,
    find_orphaned_tool_calls,
    find_sessions,
    fork_session,
    fork_session_in_memory,
    get_fork_preview,
    get_session_lineage,
    get_turn_boundaries,
    get_turn_summary,
    is_real_user_message,
    list_session_forks,
    load_metadata,
    load_transcript,
    load_transcript_with_lines,
    read_jsonl,
    repair_transcript,
    resolve_session,
    rewind_transcript,
    session_info,
    slice_to_turn,
    write_metadata,
    write_transcript,
)

Message = dict[str, Any]


def user(text: str, **more: Any) -> Message:
    return {"role": "user", "content": text, **more}


def says(text: str, *calls: str, **more: Any) -> Message:
    tool_calls = [{"id": call, "function": {"name": f"tool-{call}", "arguments": "{}"}} for call in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": tool_calls} if calls else {}), **more}


def result(call: str) -> Message:
    return {"role": "tool", "tool_call_id": call, "content": "done"}


TALK = [user("one"), says("first"), user("two"), says("", "a", "b"), result("a"), result("b"), says("second")]
CUT = [*TALK, user("three"), says("", "c")]
REMINDER = user("<system-reminder>be brief</system-reminder>")
ANTHROPIC = [
    user("one"),
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "x", "name": "s"}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "found"}]},
    says("found"),
]


@pytest.fixture
def session_dir(tmp_path: Path) -> Path:
    """The folder of a session of two turns, the second one with tools."""
    return make_session(tmp_path / "project" / "sessions" / "first-1", TALK)


def make_session(folder: Path, messages: list[Message], **metadata: Any) -> Path:
    folder.mkdir(parents=True)
    write_transcript(folder, messages)
    about = {"session_id": folder.name, "bundle": "coder", "model": "m", "created": "2026-01-05T10:00:00Z"}
    write_metadata(folder, {**about, **metadata})
    return folder


# transcripts as lists


def test_turns_begin_with_people_and_not_with_hooks_or_tools() -> None:
    messages = [user("one"), REMINDER, says("first"), user("injected", metadata={"source": "hook"}), user("two")]
    assert (count_turns(messages), get_turn_boundaries(messages)) == (2, [0, 4])
    assert get_turn_boundaries(ANTHROPIC) == [0]
    assert [is_real_user_message(each) for each in (user("x"), REMINDER, ANTHROPIC[2])] == [True, False, False]
    assert (count_turns([]), get_turn_boundaries([])) == (0, [])


def test_a_transcript_is_cut_at_the_end_of_a_turn() -> None:
    assert slice_to_turn(TALK, 1) == TALK[:2]
    assert slice_to_turn(TALK, 2) == TALK
    for turn, problem in ((0, "Turn must be >= 1"), (3, r"exceeds max turns \(2\)")):
        with pytest.raises(ValueError, match=problem):
            slice_to_turn(TALK, turn)
    with pytest.raises(ValueError, match="No user messages"):
        slice_to_turn([], 1)


def test_calls_without_a_result_are_completed_removed_or_refused() -> None:
    assert find_orphaned_tool_calls(CUT) == ["c"]
    assert find_orphaned_tool_calls(ANTHROPIC[:2]) == ["x"]
    complete = slice_to_turn(CUT, 3)
    assert (complete[-1]["role"], complete[-1]["tool_call_id"], complete[-1]["name"]) == ("tool", "c", "tool-c")
    assert "forked" in complete[-1]["content"]
    assert slice_to_turn(CUT, 3, handle_orphaned_tools="remove") == CUT[:-1]
    with pytest.raises(ValueError, match="Orphaned tool calls: c"):
        slice_to_turn(CUT, 3, handle_orphaned_tools="error")
    wrong: Any = "removed"
    for cut in (CUT, TALK):
        with pytest.raises(
            ValueError, match="handle_orphaned_tools: must be one of complete, remove, error, not 'removed'"
        ):
            slice_to_turn(cut, 1, handle_orphaned_tools=wrong)
    assert slice_to_turn(CUT, 2, handle_orphaned_tools="error") == TALK


def test_removed_calls_leave_the_text_and_the_calls_that_have_results() -> None:
    blocks = [{"type": "text", "text": "I look."}, {"type": "tool_call", "id": "a"}, {"type": "tool_call", "id": "b"}]
    messages = [user("one"), says("", "a", "b") | {"content": blocks}, result("a")]
    [_, answer, _] = slice_to_turn(messages, 1, handle_orphaned_tools="remove")
    assert [call["id"] for call in answer["tool_calls"]] == ["a"]
    assert answer["content"] == blocks[:2]


def test_a_made_up_result_stands_between_its_call_and_the_next_person() -> None:
    complete = add_synthetic_tool_results([user("one"), says("", "a", "b"), result("a"), user("two")], ["b"])
    assert [each["role"] for each in complete] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [each.get("tool_call_id") for each in complete[2:4]] == ["a", "b"]
    assert add_synthetic_tool_results(ANTHROPIC[:2], ["x"])[-1]["name"] == "s"


def test_a_turn_is_summed_up() -> None:
    assert get_turn_summary(CUT, 2) == {
        "turn": 2,
        "user_content": "two",
        "assistant_content": "second",
        "tool_count": 2,
        "message_count": 5,
    }
    assert get_turn_summary([user("x" * 300)], 1, max_length=10)["user_content"] == "x" * 9 + "…"
    with pytest.raises(ValueError, match="exceeds max turns"):
        get_turn_summary(CUT, 4)


def test_messages_are_forked_in_memory() -> None:
    fork = fork_session_in_memory(CUT, turn=2, parent_id="p")
    assert (fork.messages, fork.forked_from_turn, fork.parent_id, fork.session_dir) == (TALK, 2, "p", None)
    whole = fork_session_in_memory(CUT)
    assert (whole.forked_from_turn, whole.message_count) == (3, len(CUT) + 1)
    assert (fork_session_in_memory([]).messages, fork_session_in_memory([]).forked_from_turn) == ([], 0)


# diagnosis


def lines(messages: list[Message]) -> list[Message]:
    return [{**each, "line_num": number} for number, each in enumerate(messages, 1)]


BROKEN = [
    (CUT, ["missing_tool_results"], 7),
    ([user("one"), says("", "a"), user("two"), result("a")], ["ordering_violation"], 0),
    ([user("one"), says("", "a"), result("a"), user("two")], ["incomplete_assistant_turn"], 0),
    ([user("one"), says("ok"), user("two"), says("", "a", "b"), user("three"), result("b")], None, 2),
    ([user("one"), says("ok"), user("two"), says("ok"), result("nobody's")], ["ordering_violation"], 2),
]


@pytest.mark.parametrize("messages", [TALK, ANTHROPIC, [], [user("one")]])
def test_a_sound_transcript_stays_as_it_is(messages: list[Message]) -> None:
    diagnosis = diagnose_transcript(lines(messages))
    assert (diagnosis["status"], diagnosis["recommended_action"]) == ("healthy", "none")
    assert repair_transcript(lines(messages), diagnosis) == messages
    assert rewind_transcript(lines(messages), diagnosis) == messages


@pytest.mark.parametrize(("messages", "modes", "sound"), BROKEN)
def test_a_broken_transcript_is_repaired_or_rewound(messages: list[Message], modes: Any, sound: int) -> None:
    diagnosis = diagnose_transcript(lines(messages))
    assert (diagnosis["status"], diagnosis["recommended_action"]) == ("broken", "repair")
    assert diagnosis["failure_modes"] == (modes or ["missing_tool_results", "ordering_violation"])
    repaired = repair_transcript(lines(messages), diagnosis)
    assert diagnose_transcript(repaired)["status"] == "healthy"
    assert [each for each in repaired if each["role"] == "user"] == [
        each for each in messages if each["role"] == "user"
    ]
    assert rewind_transcript(lines(messages), diagnosis) == messages[:sound]


def test_a_diagnosis_says_where() -> None:
    diagnosis = diagnose_transcript([user("one"), says("", "a"), result("a"), user("two")])
    assert diagnosis["incomplete_turns"] == [{"after_line": 3, "missing": "assistant_response"}]


# folders


def test_a_fork_is_a_folder_of_its_own_and_its_source_is_not_written(session_dir: Path) -> None:
    before = {path.name: path.read_bytes() for path in session_dir.iterdir()}
    write_metadata(session_dir, {**load_metadata(session_dir), "name": "n", "config": {"k": 1}, "working_dir": "/w"})
    metadata = load_metadata(session_dir)
    fork = fork_session(session_dir, turn=1)
    assert fork.session_dir is not None
    assert (fork.parent_id, fork.forked_from_turn, fork.message_count) == ("first-1", 1, 2)
    assert load_transcript(fork.session_dir) == TALK[:2]
    kept = load_metadata(fork.session_dir)
    assert {key: kept[key] for key in ("bundle", "model", "name", "config", "working_dir")} == {
        key: metadata[key] for key in ("bundle", "model", "name", "config", "working_dir")
    }
    assert (kept["parent_id"], kept["forked_from_turn"], kept["session_id"]) == ("first-1", 1, fork.session_id)
    assert kept["forked_at"]
    assert (session_dir / "transcript.jsonl").read_bytes() == before["transcript.jsonl"]
    assert [path.name for path in session_dir.parent.iterdir() if path.name.startswith(".")] == []


def test_a_fork_refuses_what_cannot_be(session_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSessionId):
        fork_session(session_dir, new_session_id="../esc")
    fork_session(session_dir, new_session_id="second-1", target_dir=tmp_path / "forks")
    with pytest.raises(SessionExists):
        fork_session(session_dir, new_session_id="second-1", target_dir=tmp_path / "forks")
    with pytest.raises(ValueError, match=r"Turn 9 out of range. Valid range: 1-2"):
        fork_session(session_dir, turn=9)
    with pytest.raises(FileNotFoundError, match=r"No transcript.jsonl in .*doesn't appear to be a valid session"):
        fork_session(tmp_path / "nothing")
    empty = make_session(tmp_path / "empty", [])
    with pytest.raises(ValueError, match="Cannot fork: session has no user messages"):
        fork_session(empty)


def test_a_fork_has_the_events_of_its_turns(tmp_path: Path) -> None:
    stamped = [user("one", metadata={"timestamp": "2026-01-05T10:00:00Z"}), says("first"), user("two"), says("second")]
    stamped[3]["metadata"] = {"timestamp": "2026-01-05T10:05:00Z"}
    source = make_session(tmp_path / "stamped", stamped)
    events = [{"event": "a", "ts": "2026-01-05T10:00:00Z"}, {"event": "b", "ts": "2026-01-05T10:04:00Z"}]
    (source / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    fork = fork_session(source, turn=1)
    assert fork.session_dir is not None
    assert (fork.events_count, list(read_jsonl(fork.session_dir / "events.jsonl"))) == (1, events[:1])
    assert fork_session(source).events_count == 2
    assert fork_session(source, include_events=False).events_count == 0


def test_a_fork_is_previewed_and_listed(session_dir: Path) -> None:
    assert get_fork_preview(session_dir, 1) == {
        "parent_id": "first-1",
        "turn": 1,
        "max_turns": 2,
        "message_count": 2,
        "has_orphaned_tools": False,
    }
    assert list_session_forks(session_dir) == []
    fork = fork_session(session_dir)
    assert [each["session_id"] for each in list_session_forks(session_dir)] == [fork.session_id]


def test_a_lineage_ends_also_where_parents_form_a_circle(session_dir: Path) -> None:
    first = fork_session(session_dir)
    assert first.session_dir is not None
    second = fork_session(first.session_dir)
    assert second.session_dir is not None
    assert get_session_lineage(second.session_dir) == {
        "session_id": second.session_id,
        "parent_id": first.session_id,
        "ancestors": [first.session_id, "first-1"],
        "depth": 2,
        "children": [],
    }
    write_metadata(session_dir, {**load_metadata(session_dir), "parent_id": second.session_id})
    assert get_session_lineage(second.session_dir)["ancestors"] == [first.session_id, "first-1"]


def test_lines_are_numbered_and_a_bad_one_is_told_or_passed_over(session_dir: Path) -> None:
    file = session_dir / "transcript.jsonl"
    assert [each["line_num"] for each in load_transcript_with_lines(session_dir)] == [1, 2, 3, 4, 5, 6, 7]
    write_transcript(session_dir, load_transcript_with_lines(session_dir))
    assert load_transcript(session_dir) == TALK
    copy = backup(file, "test")
    assert copy is not None and copy.name.startswith("transcript.jsonl.bak-test-")
    assert backup(session_dir / "none", "test") is None
    other_ends = {"role": "user", "content": "a\u2028b\x85c"}
    file.write_text(json.dumps(other_ends, ensure_ascii=False) + "\n")
    assert load_transcript_with_lines(session_dir) == [{**other_ends, "line_num": 1}]
    write_transcript(session_dir, TALK)
    file.write_text(file.read_text() + "{half")
    assert load_transcript(session_dir) == TALK
    with pytest.raises(ValueError, match="Malformed JSON at line 8"):
        load_transcript_with_lines(session_dir)


def test_sessions_are_found_by_id_project_date_and_words(session_dir: Path, tmp_path: Path) -> None:
    other = make_session(
        tmp_path / "other" / "sessions" / "first-2", [user("Elephants")], created="2026-03-01T00:00:00Z"
    )
    broken = make_session(tmp_path / "other" / "sessions" / "broken", CUT, created="2025-01-01T00:00:00Z")
    (tmp_path / "other" / "sessions" / "damaged").mkdir()
    root: dict[str, Any] = {"sessions_root": tmp_path}
    assert resolve_session("first-1", **root) == session_dir
    assert resolve_session("first", project="other", **root) == other
    assert resolve_session(str(broken), **root) == broken
    with pytest.raises(ValueError, match="Ambiguous session 'first'"):
        resolve_session("first", **root)
    with pytest.raises(FileNotFoundError, match="No session 'nobody'"):
        resolve_session("nobody", **root)

    def ids(**wanted: Any) -> list[str]:
        return [each["session_id"] for each in find_sessions(**root, **wanted)]

    assert ids() == ["first-2", "first-1", "broken"]
    assert [ids(project="other"), ids(limit=1)] == [["first-2", "broken"], ["first-2"]]
    assert [ids(after="2026-01-01"), ids(before="2026-01-01"), ids(keyword="elephant")] == [
        ["first-2", "first-1"],
        ["broken"],
        ["first-2"],
    ]
    assert find_sessions(sessions_root=tmp_path / "nowhere") == []
    [row] = find_sessions(project="project", **root)
    assert (row["path"], row["project"], row["bundle"], row["model"]) == (session_dir, "project", "coder", "m")
    info = session_info(broken)
    assert (info["turn_count"], info["status"], info["failure_modes"]) == (3, "broken", ["missing_tool_results"])


async def test_a_fork_in_our_own_storage_of_folders_is_read_with_what_it_shares(
    plugins: Plugins, home: Path, tmp_path: Path
) -> None:
    store = open_store(plugins, "storage-jsonl")
    await store.create(SessionRecord("source", project=str(tmp_path), status="idle"))
    await store.append("source", TALK, at=0)
    await store.create(SessionRecord("fork", project=str(tmp_path), fork_of="source", fork_at=2, status="idle"))
    await store.append("fork", [user("else")], at=2)
    await store.create(SessionRecord("fork-2", project=str(tmp_path), fork_of="fork", fork_at=1, status="idle"))
    await store.close()
    assert load_transcript(resolve_session("source")) == TALK
    fork = resolve_session("fork")
    assert load_transcript(fork) == [*TALK[:2], user("else")]
    assert load_transcript(resolve_session("fork-2")) == TALK[:1]
    assert [each["session_id"] for each in list_session_forks(fork)] == ["fork-2"]
    copied = fork_session(fork, turn=1)
    assert copied.session_dir is not None
    assert load_transcript(copied.session_dir) == TALK[:2]
    again = open_store(plugins, "storage-jsonl")
    record = await again.get(copied.session_id)
    assert (record.parent_id, record.message_count, record.turn_count) == ("fork", 2, 1)
    assert await again.read(copied.session_id) == TALK[:2]
    await again.close()
