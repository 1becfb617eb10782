"""Read folders of other amplifier tools, and keep ours readable to them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import StoreDamaged
from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl.store import JsonlStore
from amplifier_storage_jsonl.tree import slug

pytestmark = pytest.mark.slow

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Fix the test"},
    {"role": "user", "content": '<system-reminder source="hooks-status">It is Monday\u2028</system-reminder>'},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "tool": "bash", "arguments": {"command": "ls"}}]},
    {"role": "tool", "name": "bash", "tool_call_id": "c1", "content": '{"output": "größe"}'},
    {"role": "assistant", "content": [{"type": "text", "text": "Done"}]},
]
METADATA: dict[str, Any] = {
    "session_id": "s",
    "created": "2026-01-02T03:04:05.678901+00:00",
    "bundle": "bundle:foundation",
    "model": "some-model",
    "turn_count": 1,
    "working_dir": "/work/app",
    "name": "Fix the test",
    "description": "About a test",
    "incremental": True,
}


def write_session(folder: Path, metadata: dict[str, Any], messages: list[dict[str, Any]] = MESSAGES) -> None:
    """Write a session as another tool does."""
    folder.mkdir(parents=True)
    lines = [json.dumps(message, ensure_ascii=False) + "\n" for message in messages]
    (folder / "transcript.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2), encoding="utf-8")
    (folder / "events.jsonl").write_text('{"event": "session:start"}\n')
    for name in ("transcript.jsonl.backup", "metadata.json.backup"):
        (folder / name).write_text("of a turn before")


def read_session(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read a session as another tool does."""
    with (folder / "transcript.jsonl").open(encoding="utf-8") as lines:
        messages = [json.loads(line) for line in lines if line.strip()]
    return messages, json.loads((folder / "metadata.json").read_text(encoding="utf-8"))


async def test_a_folder_of_another_tool_is_read_and_nothing_is_written(folder: Path, store: JsonlStore) -> None:
    write_session(folder, METADATA)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    record = await store.get("s")
    assert (record.name, record.bundle, record.turn_count) == ("Fix the test", "foundation", 1)
    assert record.created == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert (record.project, record.message_count, record.status) == ("/work/app", 5, "idle")
    assert record.metadata == {"model": "some-model", "description": "About a test", "incremental": True}
    assert await store.read("s") == MESSAGES
    assert await store.read("s", 1, 3) == MESSAGES[1:3]
    assert await store.sessions(project="/work/app") == [record]
    assert await store.examine("s") == []
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


async def test_a_folder_without_most_metadata_belongs_to_the_project_it_lies_in(
    folder: Path, store: JsonlStore
) -> None:
    write_session(folder, {"session_id": "s", "name": None, "created": "yesterday"})
    [record] = await store.sessions(project="/work/app")
    assert (record.session_id, record.name, record.project) == ("s", "", "/work/app")
    assert await store.sessions(project="/work/other") == []
    assert (await store.get("s")).created.tzinfo is UTC


@pytest.mark.parametrize(
    "odd",
    [
        {"created": "0001-01-01T00:00:00+14:00", "updated": "9999-12-31T23:59:59-14:00"},
        {"fork_of": "another"},
        {"fork_of": "another", "fork_at": -5},
        {"fork_of": "s", "fork_at": "2", "parent_id": 7},
        {"status": "active", "turn_count": -1},
        {"status": ["idle"], "name": 5, "config": [], "metadata": "text", "error": {}},
    ],
    ids=lambda odd: "-".join(odd),
)
async def test_a_member_that_means_something_else_to_another_tool_hides_no_session(
    odd: dict[str, Any], folder: Path, store: JsonlStore
) -> None:
    write_session(folder, {**METADATA, **odd})
    [record] = await store.sessions()
    assert record == await store.get("s")
    assert (record.message_count, record.status, record.config, record.error) == (5, "idle", {}, None)
    assert await store.read("s") == MESSAGES
    fork = await store.create(SessionRecord("fork", fork_of="s"))
    assert await store.read("fork") == MESSAGES
    assert (fork.fork_at, fork.message_count) == (5, 5)


async def test_metadata_that_cannot_be_written_again_is_said_and_stays(folder: Path, store: JsonlStore) -> None:
    write_session(folder, {**METADATA, "cost": float("nan")})
    before = (folder / "metadata.json").read_bytes()
    said = r"metadata\.json: cannot be written again \(record\.cost: nan is not JSON\)\. Correct the value there$"
    with pytest.raises(StoreDamaged, match=said):
        await store.update("s", name="Renamed")
    assert (folder / "metadata.json").read_bytes() == before
    assert await store.read("s") == MESSAGES


async def test_a_session_of_another_tool_goes_on_and_keeps_what_is_theirs(folder: Path, store: JsonlStore) -> None:
    write_session(folder, METADATA)
    assert await store.append("s", [{"role": "user", "content": "Thanks\x85\u2029"}], at=5) == 6
    await store.update("s", name="Renamed", turn_count=2)
    messages, metadata = read_session(folder)
    assert messages == [*MESSAGES, {"role": "user", "content": "Thanks\x85\u2029"}]
    assert metadata["updated"] > METADATA["created"]
    del metadata["updated"], metadata["counted"]
    assert metadata == {**METADATA, "name": "Renamed", "turn_count": 2}
    assert len((folder / "transcript.jsonl").read_text(encoding="utf-8").splitlines()) == 6 + 1, "theirs has a U+2028"


async def test_what_another_tool_wrote_anew_counts_even_when_it_is_shorter(folder: Path, store: JsonlStore) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    await store.append("s", MESSAGES, at=0)
    messages, _ = read_session(folder)
    assert messages == MESSAGES
    lines = [json.dumps(message) + "\n" for message in messages[:2]]
    (folder / "transcript.jsonl").write_text("".join(lines))
    assert await store.read("s") == MESSAGES[:2]
    assert await store.examine("s") == []
    assert await store.append("s", [{"role": "user", "content": "again"}], at=2) == 3


async def test_our_metadata_has_the_names_that_other_tools_know(folder: Path, store: JsonlStore) -> None:
    record = SessionRecord("s", parent_id="p", name="n", bundle="reviewer", project="/work/app", turn_count=2)
    await store.create(record)
    _, metadata = read_session(folder)
    known = {"session_id": "s", "parent_id": "p", "name": "n", "bundle": "bundle:reviewer", "working_dir": "/work/app"}
    assert known.items() <= metadata.items()
    assert (metadata["turn_count"], metadata["created"]) == (2, record.created.isoformat())


async def test_a_materialized_fork_is_whole_for_other_tools(store: JsonlStore, folder: Path) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    await store.append("s", MESSAGES, at=0)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=2, project="/work/app"))
    await store.append("fork", MESSAGES[4:], at=2)
    assert read_session(folder.with_name("fork"))[0] == MESSAGES[4:]
    before = await store.get("fork")
    await store.materialize("fork")
    assert read_session(folder.with_name("fork"))[0] == MESSAGES[:2] + MESSAGES[4:]
    after = await store.get("fork")
    assert (after.fork_of, after.fork_at, after.message_count) == (before.fork_of, before.fork_at, 3)
    assert await store.append("fork", MESSAGES[:1], at=3) == 4
    assert await store.read("fork", 1, 4) == [MESSAGES[1], MESSAGES[4], MESSAGES[0]]


async def test_a_materialized_fork_that_is_cut_is_said_too(store: JsonlStore, folder: Path) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    await store.append("s", MESSAGES, at=0)
    await store.create(SessionRecord("fork", fork_of="s", project="/work/app"))
    await store.materialize("fork")
    transcript = folder.with_name("fork") / "transcript.jsonl"
    transcript.write_bytes(b"".join(transcript.read_bytes().splitlines(keepends=True)[:3]))
    with pytest.raises(StoreDamaged, match="it has 3 messages of 5"):
        await store.read("fork")


async def test_a_name_that_is_no_session_id_is_no_session(folder: Path, store: JsonlStore) -> None:
    write_session(folder.with_name("a.b c"), METADATA)
    folder.with_name("empty").mkdir()
    folder.with_name(".x.1234.new").mkdir()
    assert await store.sessions() == []


def test_a_project_is_a_folder_name_as_other_tools_make_it() -> None:
    assert slug("/work/app") == "-work-app"
    assert slug("C:\\work\\app") == "-C-work-app"
    assert slug("") == "-"
    assert slug("..") == "-.."
    assert slug("/a\0\ud800b") == "-a--b"
    assert len(slug("/" + "é" * 300).encode()) < 255
    assert slug("/" + "é" * 300) != slug("/" + "é" * 301)
