"""Import sessions of other programs into a real store, and import them again."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import SessionRecord, load_plugins
from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import SessionStore
from amplifier_core.transcript import Message, settled_length
from amplifier_foundation.sessions.costs import spent_of
from amplifier_foundation.sessions.exporting import SCHEMA, json_lines
from amplifier_foundation.sessions.history import INTERRUPTED, text_of
from amplifier_foundation.sessions.importing import claude_code
from amplifier_foundation.sessions.importing.finding import describe, detect, find_in, find_sessions, read_sessions
from amplifier_foundation.sessions.importing.json_lines import JsonLines, Notes, parse_object
from amplifier_foundation.sessions.importing.sources import FROM_A_FILE
from amplifier_foundation.sessions.importing.storing import IMPORTED, Imported, SessionImporter
from amplifier_foundation.sessions.storages import open_store
from amplifier_foundation.sessions.untrusted import UNTRUSTED
from tests.other_programs import (
    CLAUDE_ID,
    CODEX_ID,
    FOLDER_ID,
    PIXEL,
    ClaudeFile,
    CodexFile,
    call,
    claude_session,
    codex_session,
    folder_messages,
    old_codex_lines,
    text,
    thinking,
    write_lines,
    write_session_folder,
)

pytestmark = pytest.mark.usefixtures("home")

RESULT = {"type": "tool_result", "tool_call_id": "t1"}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


@pytest.fixture
async def store(home: Path) -> AsyncIterator[SessionStore]:
    home.mkdir(mode=0o700)
    opened = open_store(load_plugins(), "storage-sqlite")
    yield opened
    await opened.close()


async def take(store: SessionStore, path: Path, notes: Notes | None = None, *, is_own: bool = True) -> list[Imported]:
    """Import everything in a file or folder, as the person's own."""
    notes = notes or Notes()
    found = [each._replace(is_own=is_own or each.is_own) for each in find_in(path)]
    outcomes = [await SessionImporter(store).take(source) for each in found for source in read_sessions(each, notes)]
    return [outcome for outcome in outcomes if outcome is not None]


async def states(store: SessionStore, path: Path) -> list[tuple[str, str, int]]:
    return [(each.state, each.session_id, each.added) for each in await take(store, path)]


def said(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message["role"], text_of(message)) for message in messages]


# Claude Code


async def test_a_session_of_claude_code_is_stored_with_its_calls_their_results_and_its_images(
    store: SessionStore, tmp_path: Path
) -> None:
    path = claude_session(str(tmp_path)).write(tmp_path / f"{CLAUDE_ID}.jsonl")
    notes = Notes()
    (outcome,) = await take(store, path, notes)
    record, messages = await store.get(CLAUDE_ID), await store.read(CLAUDE_ID)
    assert (outcome.state, outcome.messages, outcome.turns) == ("new", 10, 2)
    assert [message["role"] for message in messages] == [
        "user", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user", "assistant"
    ]  # fmt: skip
    assert messages[2]["content"] == [
        {"type": "thinking", "thinking": "I read both files.", "signature": "EqQBCkYIBxgCKkD"},
        {"type": "text", "text": "I look at the code."},
        {"type": "tool_call", "id": "toolu_01AAA", "name": "Read", "input": {"file_path": "/p/app.py"}},
        {"type": "tool_call", "id": "toolu_01BBB", "name": "mcp__github__search_code", "input": {"query": "parser"}},
    ]
    assert [call["tool"] for call in messages[2]["tool_calls"]] == ["Read", "mcp__github__search_code"]
    assert [message["tool_call_id"] for message in messages[3:5]] == ["toolu_01AAA", "toolu_01BBB"]
    assert messages[4]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert messages[2]["metadata"]["timestamp"].startswith("2026-11-20T09:00")
    assert messages[2]["metadata"]["model"] == "anthropic/claude-sonnet-4-5-20250929"
    assert (record.name, record.project, record.status, record.turn_count) == (
        "Parser fix", str(tmp_path.resolve()), "completed", 2
    )  # fmt: skip
    assert record.created.isoformat() == "2026-11-20T09:00:02+00:00"
    assert (record.bundle, record.bundle_source, record.config) == ("", "", {})
    origin = {"from": "claude-code", "id": CLAUDE_ID, "path": str(path), "session_id": CLAUDE_ID}
    assert record.metadata[IMPORTED] == origin
    usage = spent_of(record).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.requests) == (456, 400, 80, 4)
    assert dict(notes.left_out) == {"attachment 'todo_reminder'": 1}
    assert await states(store, path) == [("unchanged", CLAUDE_ID, 0)]


async def test_a_session_that_read_the_web_is_asked_before_it_acts_and_another_one_is_not(
    store: SessionStore, tmp_path: Path
) -> None:
    await take(store, claude_session(str(tmp_path)).write(tmp_path / "a.jsonl"))
    await take(store, codex_session(str(tmp_path)).write(tmp_path / "b.jsonl"))
    await take(store, write_session_folder(tmp_path / FOLDER_ID, str(tmp_path)))
    reasons = [(await store.get(each)).metadata.get(UNTRUSTED) for each in (CLAUDE_ID, CODEX_ID, FOLDER_ID)]
    assert reasons == [
        "it read text of strangers with mcp__github__search.code before it was imported",
        "it read text of strangers with web_search before it was imported",
        None,
    ]


@pytest.mark.parametrize("kind", ["claude-code", "codex", "session folder", "export"])
async def test_a_file_of_anybody_chooses_no_folder_and_its_session_is_asked_before_it_acts(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    here, files = tmp_path / "here", tmp_path / "files"
    for folder in (here, files):
        folder.mkdir()
    monkeypatch.chdir(here)
    about = {"session_id": "talk", "project": "/", "metadata": {UNTRUSTED: "you need not look"}}
    lines = [{"schema": SCHEMA, "session": about}, {"message": {"role": "user", "content": "hello"}}]
    path = {
        "claude-code": lambda: claude_session("/").write(files / f"{CLAUDE_ID}.jsonl"),
        "codex": lambda: codex_session("/").write(files / "codex.jsonl"),
        "session folder": lambda: write_session_folder(files / FOLDER_ID, "/", untrusted="you need not look"),
        "export": lambda: write_lines(files / "talk.jsonl", lines),
    }[kind]()
    (outcome,) = await take(store, path, is_own=False)
    record = await store.get(outcome.session_id)
    assert (record.project, record.metadata[UNTRUSTED]) == (str(here.resolve()), FROM_A_FILE)
    assert outcome.project == record.project


async def test_a_session_grows_by_a_file_of_anybody_and_is_asked_from_then_on(
    store: SessionStore, tmp_path: Path
) -> None:
    path = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path))
    await take(store, path)
    with (path / "transcript.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"role": "user", "content": "write to /etc"}) + "\n")
    (outcome,) = await take(store, path, is_own=False)
    record = await store.get(FOLDER_ID)
    assert (outcome.state, record.metadata[UNTRUSTED]) == ("grown", FROM_A_FILE)
    assert outcome.project == record.project == str(tmp_path.resolve())


@pytest.mark.parametrize("grows", [False, True])
async def test_a_file_of_anybody_that_turns_out_to_be_the_persons_own_works_in_its_folder_unasked(
    store: SessionStore, tmp_path: Path, grows: bool
) -> None:
    path = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path))
    await take(store, path, is_own=False)
    if grows:
        with (path / "transcript.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"role": "user", "content": "go on"}) + "\n")
    (outcome,) = await take(store, path)
    record = await store.get(FOLDER_ID)
    assert (outcome.state, outcome.added) == ("grown" if grows else "adopted", int(grows))
    assert UNTRUSTED not in record.metadata
    assert outcome.project == record.project == str(tmp_path.resolve())
    assert await states(store, path) == [("unchanged", FOLDER_ID, 0)]


async def test_messages_that_the_persons_own_file_lacks_stay_those_of_anybody(
    store: SessionStore, tmp_path: Path
) -> None:
    path = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path))
    own = (path / "transcript.jsonl").read_text(encoding="utf-8")
    with (path / "transcript.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"role": "user", "content": "write to /etc"}) + "\n")
    await take(store, path, is_own=False)
    (path / "transcript.jsonl").write_text(own, encoding="utf-8")
    assert await states(store, path) == [("kept", FOLDER_ID, 0)]
    assert (await store.get(FOLDER_ID)).metadata[UNTRUSTED] == FROM_A_FILE


def test_what_lies_where_a_program_keeps_its_sessions_is_the_persons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere = claude_session("/p").write(tmp_path / "elsewhere" / "a.jsonl")
    own = claude_session("/p").write(tmp_path / ".claude" / "projects" / "-p" / "b.jsonl")
    (tmp_path / "link").symlink_to(".claude/projects")
    (own.parent / "c.jsonl").symlink_to(elsewhere)
    places = [elsewhere, own, tmp_path / "link", own.parent / "c.jsonl"]
    assert [find_in(each)[0].is_own for each in places] == [False, True, True, False]
    for folder in (tmp_path / ".claude", tmp_path):  # above the place of the program, too
        assert {each.path: each.is_own for each in find_in(folder)} == {
            own: True,
            own.parent / "c.jsonl": False,
            **({elsewhere: False} if folder == tmp_path else {}),
        }


async def test_a_file_of_anybody_puts_no_session_below_one_of_the_person(store: SessionStore, tmp_path: Path) -> None:
    await store.create(SessionRecord("mine", status="idle"))
    await take(store, write_session_folder(tmp_path / FOLDER_ID, "/"), is_own=False)
    for name, above in (("a", "mine"), ("b", FOLDER_ID)):
        await take(store, write_session_folder(tmp_path / name, "/", name, parent_id=above), is_own=False)
    assert [(await store.get(name)).parent_id for name in ("a", "b")] == [None, FOLDER_ID]


async def test_lines_added_later_are_added_once(store: SessionStore, tmp_path: Path) -> None:
    file = claude_session(str(tmp_path))
    path = file.write(tmp_path / "session.jsonl")
    await take(store, path)
    file.user("And now the tests")
    file.answer("msg_01E", text("They pass."))
    file.write(path)
    assert await states(store, path) == [("grown", CLAUDE_ID, 2)]
    assert await states(store, path) == [("unchanged", CLAUDE_ID, 0)]
    record = await store.get(CLAUDE_ID)
    assert (record.message_count, record.turn_count) == (12, 3)
    usage = spent_of(record).usage
    assert usage is not None
    assert usage.requests == 5


async def test_a_session_that_has_moved_on_here_is_left_alone_and_a_fork_gets_the_new_lines(
    store: SessionStore, tmp_path: Path
) -> None:
    file = claude_session(str(tmp_path))
    path = file.write(tmp_path / "session.jsonl")
    await take(store, path)
    await store.append(CLAUDE_ID, [{"role": "user", "content": "here"}, {"role": "assistant", "content": "ok"}], at=10)
    assert await states(store, path) == [("unchanged", CLAUDE_ID, 0)]
    file.user("there")
    file.write(path)
    ((state, fork_id, added),) = await states(store, path)
    assert (state, added) == ("fork", 1)
    fork = await store.get(fork_id)
    assert (fork.fork_of, fork.fork_at, fork.parent_id, fork.status) == (CLAUDE_ID, 10, CLAUDE_ID, "interrupted")
    assert said(await store.read(fork_id))[-1] == ("user", "there")
    assert said(await store.read(CLAUDE_ID))[-1] == ("assistant", "ok")
    file.answer("msg_01E", text("There it is."))
    file.write(path)
    assert await states(store, path) == [("grown", fork_id, 1)]
    assert await states(store, path) == [("unchanged", fork_id, 0)]
    assert len(await store.sessions()) == 2


async def test_each_of_very_many_abandoned_prompts_and_branches_is_counted(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_code, "MOST_ENDS", 3)
    file = ClaudeFile(str(tmp_path))
    root = file.user("root")
    for number in range(4):
        file.user(f"branch {number}", above=root)
        file.answer(f"m{number}", text("So it is."))
    for number in range(5):
        file.user(f"prompt {number}", above=root)
    file.user("last", above=root)
    notes = Notes()
    await take(store, file.write(tmp_path / "session.jsonl"), notes)
    assert notes.left_out == {"abandoned prompt without an answer": 5, "further branch": 4}


async def test_going_back_makes_forks_that_share_the_history(store: SessionStore, tmp_path: Path) -> None:
    file = ClaudeFile(str(tmp_path))
    file.user("Plan it")
    planned = file.answer("m1", text("Planned."))
    file.user("Do it in Rust")
    file.answer("m2", call("t1", "Bash", command="cargo new"))
    file.result("t1", "created")
    file.answer("m3", text("Done in Rust."))
    file.user("an abandoned thought", above=planned)
    file.user("Do it in Python", above=planned)
    file.answer("m4", text("Done in Python."))
    notes = Notes()
    main, branch = await take(store, file.write(tmp_path / "session.jsonl"), notes)
    assert said(await store.read(CLAUDE_ID)) == [
        ("user", "Plan it"), ("assistant", "Planned."), ("user", "Do it in Python"), ("assistant", "Done in Python.")
    ]  # fmt: skip
    assert (main.state, branch.state, branch.fork_of, branch.fork_at) == ("new", "fork", CLAUDE_ID, 2)
    assert said(await store.read(branch.session_id))[2:] == [
        ("user", "Do it in Rust"), ("assistant", ""), ("tool", "created"), ("assistant", "Done in Rust.")
    ]  # fmt: skip
    assert notes.left_out["abandoned prompt without an answer"] == 1
    file.user("Back to Rust", above=file.lines[5]["uuid"])
    file.answer("m5", text("Rust again."))
    file.write(tmp_path / "session.jsonl")
    assert await states(store, tmp_path / "session.jsonl") == [
        ("grown", branch.session_id, 2), ("unchanged", CLAUDE_ID, 0)
    ]  # fmt: skip


async def test_a_compaction_begins_a_session_below_the_one_before_it(store: SessionStore, tmp_path: Path) -> None:
    file = ClaudeFile(str(tmp_path))
    file.user("A long story")
    end = file.answer("m1", text("Told."))
    boundary = file.add(
        "system", subtype="compact_boundary", logicalParentUuid=end, above=None, content="Conversation compacted"
    )
    file.user("This session is being continued from a previous conversation. It told a story.", isCompactSummary=True)
    file.user("Go on")
    file.answer("m2", text("And then…"))
    first, second = await take(store, file.write(tmp_path / "session.jsonl"))
    after = f"{CLAUDE_ID}-after-{boundary[:8]}"
    assert [(each.session_id, each.messages, each.turns) for each in (first, second)] == [
        (CLAUDE_ID, 2, 1),
        (after, 3, 1),
    ]
    assert (await store.get(after)).parent_id == CLAUDE_ID
    assert said(await store.read(after))[1:] == [("user", "Go on"), ("assistant", "And then…")]


async def test_sub_agents_become_child_sessions_from_the_file_and_from_files_of_their_own(
    store: SessionStore, tmp_path: Path
) -> None:
    file = ClaudeFile(str(tmp_path))
    file.user("Look around")
    top = file.answer("m1", call("t1", "Task", prompt="find it"))
    file.user("find it", above=None, uuid="51de0001-aaaa", isSidechain=True)
    file.answer("s1", call("t2", "Grep", pattern="it"), isSidechain=True)
    file.result("t2", "a.py", isSidechain=True)
    file.answer("s2", text("In a.py."), isSidechain=True)
    file.result("t1", "In a.py.", above=top)
    file.answer("m2", text("Found."))
    path = file.write(tmp_path / "p" / f"{CLAUDE_ID}.jsonl")
    for place, agent in (
        (tmp_path / "p" / "agent-aa11.jsonl", "aa11"),
        (tmp_path / "p" / CLAUDE_ID / "subagents" / "agent-bb22.jsonl", "bb22"),
    ):
        own = ClaudeFile(str(tmp_path))
        own.user(f"task of {agent}", above=None, isSidechain=True, agentId=agent)
        own.answer("x1", text("done"), isSidechain=True, agentId=agent)
        own.write(place)
    strange = ClaudeFile(str(tmp_path), "00000000-0000-4000-8000-000000000000")
    strange.user("of another session", above=None, isSidechain=True, agentId="cc33")
    strange.write(tmp_path / "p" / "agent-cc33.jsonl")
    outcomes = await take(store, path)
    children = await store.sessions(parent_id=CLAUDE_ID)
    assert len(outcomes) == 4
    assert sorted((each.session_id, each.name, each.message_count) for each in children) == [
        (f"{CLAUDE_ID}-agent-51de0001", "find it", 4),
        (f"{CLAUDE_ID}-agent-aa11", "task of aa11", 2),
        (f"{CLAUDE_ID}-agent-bb22", "task of bb22", 2),
    ]
    assert {each.added for each in await take(store, path)} == {0}


async def test_results_that_come_late_follow_their_calls_and_a_call_without_one_is_interrupted(
    store: SessionStore, tmp_path: Path
) -> None:
    file = ClaudeFile(str(tmp_path))
    file.user("Go")
    file.answer("m1", call("t1", "Bash", command="sleep 1"), call("t2", "Bash", command="sleep 2"))
    file.user("are you there?")
    file.result("t2", "slept")
    file.answer("m2", text("Yes."))
    file.answer("m3", call("t3", "Bash", command="sleep 3"))
    path = file.write(tmp_path / "session.jsonl")
    await take(store, path)
    messages = await store.read(CLAUDE_ID)
    assert [(each["role"], each.get("tool_call_id")) for each in messages] == [
        ("user", None), ("assistant", None), ("tool", "t2"), ("tool", "t1"),
        ("user", None), ("assistant", None), ("assistant", None),
    ]  # fmt: skip
    assert json.loads(messages[3]["content"]) == INTERRUPTED
    assert settled_length(messages) == 6  # the last call may still get its result
    assert (await store.get(CLAUDE_ID)).status == "interrupted"
    file.result("t3", "slept at last")
    file.write(path)
    assert await states(store, path) == [("grown", CLAUDE_ID, 1)]


# Codex


async def test_a_session_of_codex_is_stored_with_each_kind_of_call(store: SessionStore, tmp_path: Path) -> None:
    path = codex_session(str(tmp_path)).write(tmp_path / f"rollout-2026-11-20T08-00-00-{CODEX_ID}.jsonl")
    notes = Notes()
    (outcome,) = await take(store, path, notes)
    record, messages = await store.get(CODEX_ID), await store.read(CODEX_ID)
    assert (outcome.messages, outcome.turns, record.name) == (8, 1, "Why does the build fail?")
    assert [message["role"] for message in messages] == [
        "user", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant"
    ]  # fmt: skip
    assert messages[2]["content"][0] == {"type": "thinking", "thinking": "**Looking**", "content": ["gAAAAAB", "rs_01"]}
    assert [(each["tool"], each["arguments"]) for each in messages[2]["tool_calls"] + messages[5]["tool_calls"]] == [
        ("shell", {"command": ["make"]}),
        ("local_shell", {"type": "exec", "command": ["ls"]}),
        ("apply_patch", {"input": "*** Begin Patch\n*** End Patch"}),
    ]
    assert [message["content"] for message in messages if message["role"] == "tool"][1:] == ["Makefile", "Success"]
    assert messages[2]["metadata"]["usage"]["input_tokens"] == 50
    assert messages[2]["metadata"]["model"] == "openai/gpt-5-codex"
    assert record.created.isoformat() == "2026-11-20T08:00:00+00:00"
    assert dict(notes.left_out) == {"instruction of Codex": 1, "item of the type 'web_search_call'": 1}


async def test_tokens_that_codex_writes_after_an_answer_are_counted_by_the_next_import(
    store: SessionStore, tmp_path: Path
) -> None:
    file, path = CodexFile(str(tmp_path)), tmp_path / "rollout.jsonl"
    file.message("user", "Hello")
    file.message("assistant", "Hi")
    assert await states(store, file.write(path)) == [("new", CODEX_ID, 2)]
    assert spent_of(await store.get(CODEX_ID)).usage is None
    file.event("token_count", info={"last_token_usage": {"input_tokens": 50, "output_tokens": 7}})
    assert await states(store, file.write(path)) == [("grown", CODEX_ID, 0)]
    usage = spent_of(await store.get(CODEX_ID)).usage
    assert usage is not None and (usage.input_tokens, usage.output_tokens) == (50, 7)
    assert await states(store, path) == [("unchanged", CODEX_ID, 0)]
    await store.append(CODEX_ID, [{"role": "user", "content": "And here?"}], at=2)
    assert await states(store, path) == [("unchanged", CODEX_ID, 0)]


async def test_an_import_that_ended_before_its_totals_is_finished_by_the_next_one(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def update(session_id: str, **changes: Any) -> None:
        raise StoreUnavailable(str(tmp_path), "full")

    file, path = CodexFile(str(tmp_path)), tmp_path / "rollout.jsonl"
    for turn in (1, 2):
        file.message("user", "Hello")
        file.message("assistant", "Hi")
        file.event("token_count", info={"last_token_usage": {"input_tokens": 50, "output_tokens": 7}})
        with monkeypatch.context() as failing, pytest.raises(StoreUnavailable):
            failing.setattr(store, "update", update)
            await take(store, file.write(path))
        assert await states(store, path) == [("grown", CODEX_ID, 0)]
        record = await store.get(CODEX_ID)
        usage = spent_of(record).usage
        assert (record.status, record.turn_count, usage and usage.input_tokens) == ("completed", turn, 50 * turn)
        assert await states(store, path) == [("unchanged", CODEX_ID, 0)]


async def test_tokens_of_a_file_of_anybody_change_nothing_of_the_persons_own_session(
    store: SessionStore, tmp_path: Path
) -> None:
    file, path = CodexFile(str(tmp_path)), tmp_path / "rollout.jsonl"
    file.message("user", "Hello")
    file.message("assistant", "Hi")
    await take(store, file.write(path))
    own = await store.get(CODEX_ID)
    file.event("token_count", info={"last_token_usage": {"input_tokens": 50, "output_tokens": 7}})
    (outcome,) = await take(store, file.write(tmp_path / "copy.jsonl"), is_own=False)
    assert (outcome.state, outcome.added) == ("unchanged", 0)
    assert await store.get(CODEX_ID) == own


async def test_a_session_of_codex_in_its_old_form_has_its_folder_in_its_first_message(
    store: SessionStore, tmp_path: Path
) -> None:
    await take(store, write_lines(tmp_path / "rollout-old.jsonl", old_codex_lines(str(tmp_path))))
    record = await store.get(CODEX_ID)
    assert (record.project, record.name, record.turn_count) == (str(tmp_path.resolve()), "List the files", 1)
    assert said(await store.read(CODEX_ID))[1:] == [
        ("user", "List the files"), ("assistant", ""), ("tool", "app.py"), ("assistant", "There is app.py.")
    ]  # fmt: skip


async def test_turns_taken_back_in_codex_become_a_fork_and_a_compaction_begins_a_session(
    store: SessionStore, tmp_path: Path
) -> None:
    file = CodexFile(str(tmp_path))
    file.message("user", "one")
    file.message("assistant", "first")
    file.message("user", "two")
    file.message("assistant", "second")
    file.event("thread_rolled_back", num_turns=1)
    file.message("user", "three")
    file.message("assistant", "third")
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "In short: one, three."}]}]
    file.add("compacted", message="", replacement_history=kept)
    file.message("user", "four")
    file.message("assistant", "fourth")
    outcomes = await take(store, file.write(tmp_path / "rollout.jsonl"))
    stored = [(each.state, [text_of(message) for message in await store.read(each.session_id)]) for each in outcomes]
    assert [tuple(each) for each in stored] == [
        ("new", ["one", "first", "three", "third"]),
        ("new", ["In short: one, three.", "four", "fourth"]),
        ("fork", ["one", "first", "two", "second"]),
    ]
    assert (await store.get(f"{CODEX_ID}-part2")).parent_id == CODEX_ID


# Session folders


async def test_a_session_folder_is_stored_with_both_forms_of_calls(store: SessionStore, tmp_path: Path) -> None:
    path = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path))
    (outcome,) = await take(store, path)
    record, messages = await store.get(FOLDER_ID), await store.read(FOLDER_ID)
    assert (record.name, record.turn_count, outcome.messages) == ("A look around", 1, len(folder_messages()))
    assert [message.get("tool_call_id") for message in messages if message["role"] == "tool"] == [
        messages[1]["tool_calls"][0]["id"], "c2"
    ]  # fmt: skip
    assert messages[1]["tool_calls"][0]["id"].startswith("c_1-")
    assert messages[3]["tool_calls"] == [{"id": "c2", "tool": "bash", "arguments": {"command": "ls"}}]
    assert await states(store, path / "transcript.jsonl") == [("unchanged", FOLDER_ID, 0)]


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ({"role": "tool", "tool_call_id": "t1", "content": [RESULT | {"output": "a.py"}]}, "a.py"),
        ({"role": "tool", "content": [RESULT | {"output": {"stdout": "a.py"}}]}, '{"stdout": "a.py"}'),
        ({"role": "tool", "content": [RESULT | {"output": [text("a.py"), text("b.py")]}]}, "a.py\nb.py"),
        ({"role": "user", "content": [RESULT | {"output": "a.py"}]}, "a.py"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [text("a")]}]}, "a"),
        ({"role": "tool", "tool_call_id": "t1", "content": None, "output": "a.py"}, "a.py"),
        ({"role": "tool", "tool_call_id": "t1", "content": "", "output": "a.py"}, "a.py"),
        ({"role": "tool", "tool_call_id": "t1", "content": [], "output": {"n": 0}}, '{"n": 0}'),
        ({"role": "tool", "content": [RESULT | {"output": None, "content": "a.py"}]}, "a.py"),
        ({"role": "user", "content": [RESULT | {"output": "", "content": [text("a.py")]}]}, "a.py"),
        ({"role": "tool", "tool_call_id": "t1", "content": [], "output": 0}, "0"),
        ({"role": "tool", "tool_call_id": "t1", "content": []}, ""),
        ({"role": "tool", "tool_call_id": "t1", "content": [{"stdout": "a.py"}]}, '[{"stdout": "a.py"}]'),
        ({"role": "tool", "tool_call_id": "t1", "content": [{"type": "file"}]}, '[{"type": "file"}]'),
        ({"role": "tool", "tool_call_id": "t1", "content": ["a.py", "b.py"]}, '["a.py", "b.py"]'),
        ({"role": "tool", "tool_call_id": "t1", "content": [text("a"), PICTURE]}, [text("a"), PICTURE]),
        ({"role": "tool", "tool_call_id": "t1", "content": [RESULT | {"output": [PICTURE]}]}, [PICTURE]),
    ],
)
async def test_the_output_of_a_tool_is_kept_in_each_shape_of_a_result(
    store: SessionStore, tmp_path: Path, message: Message, output: object
) -> None:
    path, notes = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path)), Notes()
    asked = {"role": "assistant", "content": [{"type": "tool_call", "id": "t1", "name": "bash", "input": {}}]}
    answer = {"role": "assistant", "content": "There is a.py."}
    write_lines(path / "transcript.jsonl", [{"role": "user", "content": "list"}, asked, message, answer])
    await take(store, path, notes)
    messages = await store.read(FOLDER_ID)
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert (messages[2]["content"], notes.left_out) == (output, {})


async def test_a_damaged_transcript_is_read_from_its_backup_which_is_told(store: SessionStore, tmp_path: Path) -> None:
    path, notes = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path)), Notes()
    for name in ("transcript.jsonl", "metadata.json"):
        (path / name).rename(path / f"{name}.backup")
        (path / name).write_text('{"role": "us', encoding="utf-8")
    (outcome,) = await take(store, path, notes)
    assert (outcome.messages, (await store.get(FOLDER_ID)).name) == (len(folder_messages()), "A look around")
    assert notes.problems == [
        "metadata.json is damaged: metadata.json.backup is read instead",
        "transcript.jsonl is damaged: the messages come from transcript.jsonl.backup, which has 7 of them, not 0",
    ]


async def test_a_transcript_with_more_messages_than_its_backup_is_read_itself(
    store: SessionStore, tmp_path: Path
) -> None:
    path, notes = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path)), Notes()
    write_lines(path / "transcript.jsonl.backup", folder_messages()[:2])
    with (path / "transcript.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"role": "us')
    (outcome,) = await take(store, path, notes)
    assert (outcome.messages, len(notes.problems)) == (len(folder_messages()), 1)
    assert notes.problems[0].startswith("the last line, 8, is cut")


async def test_a_child_in_a_session_folder_stays_below_its_parent(store: SessionStore, tmp_path: Path) -> None:
    write_session_folder(tmp_path / "b" / FOLDER_ID, str(tmp_path))
    write_session_folder(tmp_path / "b" / "0000_explorer", str(tmp_path), "0000_explorer", parent_id=FOLDER_ID)
    lost = write_session_folder(tmp_path / "c" / "1111_explorer", str(tmp_path), "1111_explorer", parent_id="gone")
    for path in (tmp_path / "b" / FOLDER_ID, tmp_path / "b" / "0000_explorer", lost):
        await take(store, path)
    assert [(await store.get(each)).parent_id for each in ("0000_explorer", "1111_explorer")] == [FOLDER_ID, None]


async def test_a_session_of_this_store_is_never_touched(store: SessionStore, tmp_path: Path) -> None:
    await store.create(SessionRecord(FOLDER_ID, status="idle"))
    await store.append(FOLDER_ID, [{"role": "user", "content": "mine"}], at=0)
    path = write_session_folder(tmp_path / FOLDER_ID, str(tmp_path))
    assert await states(store, path) == [("own", FOLDER_ID, 0)]
    assert said(await store.read(FOLDER_ID)) == [("user", "mine")]


# damage, size and several at once


async def test_lines_that_cannot_be_read_are_named_and_the_others_are_stored(
    store: SessionStore, tmp_path: Path
) -> None:
    file = claude_session(str(tmp_path))
    path = file.write(tmp_path / "session.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[5] = b'{"type": "user", "uuid": \n'
    lines.insert(7, b'{"type": "brand-new", "uuid": "u", "parentUuid": null}\n')
    lines.insert(8, b"[1, 2]\n")
    path.write_bytes(b"".join(lines) + b'{"type": "user", "mess')
    notes = Notes()
    (outcome,) = await take(store, path, notes)
    assert notes.problems == [
        "line 6 is damaged and is left out",
        "line 9 is damaged and is left out",
        f"the last line, {len(lines) + 1}, is cut and is left out: it was being written, or its program was killed. "
        "Import again later",
    ]
    assert notes.left_out["line of the type 'brand-new'"] == 1
    assert outcome.messages >= 8
    assert said(await store.read(CLAUDE_ID))[1] == ("user", "Fix the parser in app.py")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["claude", "codex", "folder"])
async def test_damage_anywhere_gives_no_error_and_no_empty_session(
    store: SessionStore, tmp_path: Path, kind: str, seed: int
) -> None:
    chance = random.Random(f"{kind}{seed}")
    whole: dict[str, Any] = {"claude": claude_session, "codex": codex_session}
    for number in range(12):
        path = tmp_path / f"{kind}-{number}" / "session.jsonl"
        if kind == "folder":
            path = write_session_folder(path.parent, str(tmp_path)) / "transcript.jsonl"
        else:
            whole[kind](str(tmp_path)).write(path)
        path.write_bytes(damage(path.read_bytes(), chance))
        notes = Notes()
        try:
            found = find_in(path)
        except ValueError:
            continue  # nothing of it is left that tells the program
        for each in found:
            for source in read_sessions(each, notes):
                messages = list(source.read())
                assert messages == list(source.read())
                outcome = await SessionImporter(store).take(source)
                assert (outcome is None) == (not messages)
                if outcome is not None and messages:
                    assert len(await store.read(outcome.session_id)) >= outcome.messages > 0
                    json.dumps(messages, allow_nan=False)


def damage(content: bytes, chance: random.Random) -> bytes:
    """Cut, swap, double and overwrite parts of a file."""
    lines = content.splitlines(keepends=True)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                del lines[at]
                lines = lines or [b"{}\n"]
            case 1:
                lines.insert(at, lines[chance.randrange(len(lines))])
            case 2:
                lines[at] = lines[at][: chance.randrange(len(lines[at]) or 1)]
            case 3:
                place = chance.randrange(len(lines[at]) or 1)
                lines[at] = lines[at][:place] + bytes([chance.randrange(256)]) + lines[at][place + 1 :]
            case 4:
                values: tuple[Any, ...] = (
                    None,
                    [],
                    {},
                    7,
                    "\ud800",
                    float("nan"),
                    [None, {"type": "text"}],
                    {"type": []},
                )
                data = parse_object(lines[at]) or {}
                spoil(data, chance, values)
                lines[at] = json.dumps(data).encode() + b"\n"
            case 5:
                chance.shuffle(lines)
    return b"".join(lines)


def spoil(data: Any, chance: random.Random, values: tuple[Any, ...]) -> None:
    """Put another value in some place of a line."""
    while isinstance(data, dict | list) and data:
        key: Any = chance.choice(list(data)) if isinstance(data, dict) else chance.randrange(len(data))
        if not isinstance(data[key], dict | list) or not data[key] or chance.random() < 0.3:
            data[key] = chance.choice(values)
            return
        data = data[key]


def test_a_line_that_is_too_long_and_one_nested_too_deeply_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_foundation.sessions.importing.json_lines.LONGEST", 200_000)
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": "' + "x" * 500_000 + '"}\n' + '{"b": ' + "[" * 90_000 + "]" * 90_000 + "}\n" + '{"c": 1}\n')
    notes = Notes()
    assert [(line.number, line.data) for line in JsonLines(path).read_all(notes)] == [(3, {"c": 1})]
    assert [problem.split(" ", 2)[1] for problem in notes.problems] == ["1", "2"]


async def test_circles_and_lost_lines_in_the_tree_end(store: SessionStore, tmp_path: Path) -> None:
    file = ClaudeFile(str(tmp_path))
    file.user("one", above="u4", uuid="u1")
    file.answer("m1", text("first"), above="lost", uuid="u2")
    file.user("two", above="u2", uuid="u2")
    file.user("three", above="u3", uuid="u3")
    file.answer("m2", text("second"), above="u3", uuid="u4")
    outcomes = await take(store, file.write(tmp_path / "session.jsonl"))
    texts = {text_of(message) for each in outcomes for message in await store.read(each.session_id)}
    assert {"three", "second"} <= texts


async def test_two_imports_at_once_store_every_message_once(store: SessionStore, tmp_path: Path) -> None:
    file = ClaudeFile(str(tmp_path))
    for number in range(300):
        file.user(f"question {number}")
        file.answer(f"m{number}", thinking("…"), text(f"answer {number}"))
    path = file.write(tmp_path / "session.jsonl")
    results = await asyncio.gather(*(take(store, path) for _ in range(4)))
    assert {each.session_id for result in results for each in result} == {CLAUDE_ID}
    texts = [text_of(message) for message in await store.read(CLAUDE_ID)]
    assert texts == [words for number in range(300) for words in (f"question {number}", f"answer {number}")]
    assert len(await store.sessions()) == 1


async def test_an_import_that_was_cut_off_goes_on_where_it_ended(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ClaudeFile(str(tmp_path))
    for number in range(100):
        file.user(f"question {number}")
        file.answer(f"m{number}", text(f"answer {number}"))
    path = file.write(tmp_path / "session.jsonl")
    append: Callable[..., Any] = store.append

    async def fail_at(session_id: str, messages: list[Message], *, at: int) -> int:
        if at >= 128:
            raise OSError("the disk is gone")
        return int(await append(session_id, messages, at=at))

    monkeypatch.setattr(store, "append", fail_at)
    with pytest.raises(OSError, match="disk is gone"):
        await take(store, path)
    monkeypatch.undo()
    assert (await store.get(CLAUDE_ID)).message_count == 128
    assert await states(store, path) == [("grown", CLAUDE_ID, 72)]
    record = await store.get(CLAUDE_ID)
    assert (record.message_count, record.turn_count, record.status) == (200, 100, "completed")
    usage = spent_of(record).usage
    assert usage is not None
    assert usage.requests == 100


# finding


def test_each_program_is_told_by_its_lines(tmp_path: Path) -> None:
    assert detect(claude_session("/p").write(tmp_path / "a.jsonl")) == "claude-code"
    assert detect(codex_session("/p").write(tmp_path / "b.jsonl")) == "codex"
    assert detect(write_lines(tmp_path / "c.jsonl", old_codex_lines("/p"))) == "codex"
    assert detect(write_session_folder(tmp_path / "d", "/p")) == "amplifier"
    assert detect(write_lines(tmp_path / "e.jsonl", [{"role": "user", "content": "hello"}])) is None
    assert sorted(each.program for each in find_in(tmp_path)) == ["amplifier", "claude-code", "codex", "codex"]
    record, told = SessionRecord("of-before"), [{"role": "user", "content": "hello"}]
    export = tmp_path / "f.jsonl"
    export.write_text("\n".join(json_lines(record, told)), encoding="utf-8")
    assert [detect(export, program) for program in (None, "amplifier", "codex")] == ["amplifier", "amplifier", "codex"]
    assert [(each.program, each.session_id) for each in find_in(export)] == [("amplifier", "of-before")]
    assert describe(find_in(export)[0]) == ("", "")


def test_sessions_are_found_where_their_programs_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    claude_session("/p").write(tmp_path / ".claude" / "projects" / "-p" / f"{CLAUDE_ID}.jsonl")
    codex_session("/p").write(tmp_path / ".codex/sessions/2026/11/20" / f"rollout-2026-11-20T08-00-00-{CODEX_ID}.jsonl")
    write_session_folder(tmp_path / ".amplifier" / "projects" / "-p" / "sessions" / FOLDER_ID, "/p")
    assert {(each.program, each.session_id) for each in find_sessions()} == {
        ("claude-code", CLAUDE_ID), ("codex", CODEX_ID), ("amplifier", FOLDER_ID)
    }  # fmt: skip
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    assert find_sessions("codex") == []
