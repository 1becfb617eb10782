"""Kill, cut, flip and fill: acknowledged messages are there, or their loss is reported."""

from __future__ import annotations

import signal
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import SessionConflict, SessionNotFound, StoreDamaged
from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import open_jsonl
from amplifier_storage_jsonl.repairing import examine
from amplifier_storage_jsonl.sessions import Sessions
from amplifier_storage_jsonl.store import JsonlStore

if TYPE_CHECKING:
    from .conftest import Start

APPEND_FOR_EVER = """
async def main(base):
    store = open_jsonl({"path": base})
    await store.create(SessionRecord("s", project="/work/app"))
    count = 0
    while True:
        count = await store.append("s", [{"n": count, "text": "x" * 5000}], at=count)
        say(count)

asyncio.run(main(sys.argv[1]))
"""

APPEND_A_HUNDRED = """
async def main(base, name):
    store = open_jsonl({"path": base})
    say("ready")
    sys.stdin.readline()
    won = 0
    while won < 100:
        count = (await store.get("s")).message_count
        try:
            await store.append("s", [{"by": name, "n": won, "half": 1}, {"by": name, "n": won, "half": 2}], at=count)
        except SessionConflict:
            continue
        won += 1
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""

FILL_UP = """
import resource
async def main(base):
    store = open_jsonl({"path": base})
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        await store.append("s", [{"text": "x" * 50_000}], at=2)
    except StoreUnavailable as error:
        say(error)
    say(await store.append("s", [{"n": 2}], at=2))
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


def _messages(count: int, size: int = 60) -> list[dict[str, object]]:
    return [{"role": "user", "content": f"message {number} " + "é" * size} for number in range(count)]


async def _stored(store: JsonlStore, count: int = 10, size: int = 60) -> list[dict[str, object]]:
    await store.create(SessionRecord("s", name="kept", project="/work/app"))
    for number, message in enumerate(_messages(count, size)):
        await store.append("s", [message], at=number)
    return _messages(count, size)


async def test_kill_9_loses_nothing_acknowledged_and_leaves_no_half_message(base: Path, start: Start) -> None:
    process = start(APPEND_FOR_EVER, base)
    assert process.stdout is not None
    said = ""
    for _ in range(20):
        said = process.stdout.readline()
    process.kill()
    acknowledged = int([said, *process.stdout.read().split()][-1])
    assert process.wait() == -signal.SIGKILL
    store = open_jsonl({"path": base})
    count = (await store.get("s")).message_count
    assert [message["n"] for message in await store.read("s")] == list(range(count))
    assert count in (acknowledged, acknowledged + 1)
    assert await store.append("s", [{"n": -1}], at=count) == count + 1
    await store.close()


async def test_two_processes_on_one_session_never_interleave_a_turn(
    base: Path, store: JsonlStore, start: Start
) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    processes = [start(APPEND_A_HUNDRED, base, name) for name in ("one", "two")]
    _let_go(processes)
    messages = await store.read("s")
    assert len(messages) == 400
    turns = list(zip(messages[::2], messages[1::2], strict=True))
    assert all({**first, "half": 2} == second for first, second in turns)
    for name in ("one", "two"):
        assert [first["n"] for first, _ in turns if first["by"] == name] == list(range(100))


def _let_go(processes: list[Popen[str]]) -> None:
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait() for process in processes] == [0] * len(processes)


@pytest.mark.parametrize("turns", [1, 2], ids=["the first turn", "a later turn"])
async def test_a_turn_that_a_crash_cut_anywhere_is_there_whole_or_not_at_all(
    turns: int, base: Path, folder: Path, store: JsonlStore
) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    transcript, lock = folder / "transcript.jsonl", folder / ".lock"
    for turn in range(turns):
        mark, before = lock.read_bytes(), transcript.stat().st_size
        await store.append("s", [{"turn": turn, "n": n} for n in range(3)], at=turn * 3)
    whole = transcript.read_bytes()
    for length in range(before, len(whole)):
        transcript.write_bytes(whole[:length])
        lock.write_bytes(mark)
        sessions = Sessions(base)
        messages = sessions.read("s", 0, None)
        complete = length == len(whole) - 1  # all but the end of the line
        assert messages == [{"turn": n // 3, "n": n % 3} for n in range(turns * 3 if complete else turns * 3 - 3)]
        assert len(messages) == sessions.get("s").message_count
        assert sessions.append("s", [b"{}"], len(messages)) == len(messages) + 1
        assert sessions.read("s", 0, None) == [*messages, {}]
        assert examine(sessions, "s") == []
        kept = b"".join(path.read_bytes() for path in folder.glob("*.cut-*"))
        assert kept == (b"" if complete else whole[before:length])
        for path in folder.glob("*.cut-*"):
            path.unlink()
        sessions.close()


async def test_a_full_disk_loses_nothing_and_the_store_works_again(
    base: Path, folder: Path, store: JsonlStore, start: Start
) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    await store.append("s", [{"n": 0}, {"n": 1}], at=0)
    out, _ = start(FILL_UP, base).communicate()
    said, count = out.splitlines()
    assert "cannot be written (File too large); what was acknowledged is kept. Free some space and try again" in said
    assert count == "3"
    assert await store.read("s") == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert await store.examine("s") == []
    assert list(folder.glob("*.cut-*")) == [], "what was written of the refused message was taken back"


async def test_a_write_that_a_crash_cut_is_no_message_and_is_set_aside(folder: Path, store: JsonlStore) -> None:
    messages = await _stored(store)
    with (folder / "transcript.jsonl").open("ab") as transcript:
        transcript.write(b'{"role":"assistant","content":"ha')
    assert await store.read("s") == messages
    assert [(finding.kind, finding.position) for finding in await store.examine("s")] == [("torn_tail", 10)]
    assert await store.append("s", [{"n": 10}], at=10) == 11
    assert await store.read("s") == [*messages, {"n": 10}]
    [cut] = folder.glob("transcript.jsonl.cut-*")
    assert cut.read_bytes() == b'{"role":"assistant","content":"ha'
    assert await store.examine("s") == []


async def test_a_bad_message_is_cut_away_and_kept_beside(folder: Path, store: JsonlStore) -> None:
    messages = await _stored(store)
    transcript = folder / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b"message 4", b"massage 4"))
    with pytest.raises(StoreDamaged, match=r"transcript\.jsonl: is damaged \(message m5 .* session repair s$"):
        await store.read("s")
    assert await store.read("s", 0, 4) == messages[:4]
    found = await store.repair("s")
    assert [(finding.kind, finding.position) for finding in found] == [("bad_message", 4)]
    assert await store.read("s") == messages[:4] + messages[5:]
    assert await store.examine("s") == []
    [cut] = folder.glob("transcript.jsonl.cut-*")
    assert b"massage 4" in cut.read_bytes()
    assert await store.append("s", [{"n": 9}], at=9) == 10


async def test_lost_messages_are_said_and_mended_for_the_session_and_its_forks(folder: Path, store: JsonlStore) -> None:
    messages = await _stored(store)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=8))
    await store.append("fork", [{"own": 1}], at=8)
    transcript = folder / "transcript.jsonl"
    transcript.write_bytes(b"".join(transcript.read_bytes().splitlines(keepends=True)[:6]))
    with pytest.raises(StoreDamaged, match="it has 6 messages of 10"):
        await store.append("s", [{"n": 6}], at=6)
    with pytest.raises(StoreDamaged):
        await store.read("fork")
    await store.repair("s")
    assert await store.read("s") == messages[:6]
    await store.append("s", [{"n": 6}, {"n": 7}], at=6)
    with pytest.raises(StoreDamaged, match="message m7 is not what was written"):
        await store.read("fork")
    await store.repair("fork")
    assert await store.read("fork") == [*messages[:6], {"own": 1}], "and nothing of what the source got since"
    assert await store.examine("fork") == []


async def test_an_emptied_or_missing_file_is_never_an_empty_session(folder: Path, store: JsonlStore) -> None:
    await _stored(store)
    (folder / "transcript.jsonl").write_bytes(b"")
    with pytest.raises(StoreDamaged, match="it has 0 messages of 10"):
        await store.read("s")
    for name in ("transcript.jsonl", "metadata.json"):
        (folder / name).unlink()
        with pytest.raises((StoreDamaged, SessionNotFound)) as caught:
            await store.read("s")
        assert isinstance(caught.value, StoreDamaged) is (name == "transcript.jsonl")


async def test_a_damaged_session_is_a_row_that_says_so(folder: Path, store: JsonlStore) -> None:
    await _stored(store)
    await store.create(SessionRecord("other"))
    (folder / "metadata.json").write_text("{")
    with pytest.raises(StoreDamaged, match=r"metadata\.json: is damaged"):
        await store.get("s")
    rows = {record.session_id: record.error for record in await store.sessions()}
    assert rows["other"] is None
    assert "metadata.json: is damaged" in (rows["s"] or "")


async def test_a_fork_whose_source_was_removed_by_hand_keeps_its_own(folder: Path, store: JsonlStore) -> None:
    await _stored(store)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=3))
    await store.append("fork", [{"own": 1}], at=3)
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(
        StoreDamaged, match=r"is a fork of session 's', which is gone\. .* amplifier session repair fork$"
    ):
        await store.read("fork")
    assert [finding.kind for finding in await store.repair("fork")] == ["missing_source"]
    assert await store.read("fork") == [{"own": 1}]
    assert await store.examine("fork") == []


async def test_a_copy_that_a_crash_cut_is_finished_or_dropped(folder: Path, store: JsonlStore) -> None:
    messages = await _stored(store)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=3))
    await store.append("fork", [{"own": 1}], at=3)
    fork = next(folder.parents[2].glob("*/sessions/fork"))
    own = (fork / "transcript.jsonl").read_bytes()
    (fork / ".transcript.jsonl.whole").write_bytes(b"void")  # killed before metadata.json said so
    assert await store.read("fork") == [*messages[:3], {"own": 1}]
    await store.materialize("fork")
    whole = (fork / "transcript.jsonl").read_bytes()
    assert whole.endswith(own) and whole.count(b"\n") == 4
    (fork / "transcript.jsonl").write_bytes(own)  # killed before the copy was moved to its place
    (fork / ".transcript.jsonl.whole").write_bytes(whole)
    (fork / ".lock").write_bytes(b"")
    assert await store.read("fork") == [*messages[:3], {"own": 1}]
    assert await store.append("fork", [{"own": 2}], at=4) == 5
    assert await store.read("fork") == [*messages[:3], {"own": 1}, {"own": 2}]
    assert not (fork / ".transcript.jsonl.whole").exists()


async def test_forks_of_each_other_are_no_endless_loop(folder: Path, store: JsonlStore) -> None:
    await _stored(store, 3)
    text = (folder / "metadata.json").read_text().rstrip()
    (folder / "metadata.json").write_text(
        text.replace('"fork_of": null', '"fork_of": "s"').replace('"fork_at": null', '"fork_at": 2')
    )
    with pytest.raises(StoreDamaged, match="is a fork of session 's', which is a fork of it"):
        await store.read("s")


async def test_a_turn_of_another_process_is_a_conflict(base: Path, store: JsonlStore) -> None:
    other = open_jsonl({"path": base})
    await _stored(store, 2)
    assert await other.append("s", [{"n": 2}], at=2) == 3
    with pytest.raises(SessionConflict, match=r"session 's' has 3 messages, not 2: somebody else wrote it\. Resume it"):
        await store.append("s", [{"n": 2}], at=2)
    await other.close()
