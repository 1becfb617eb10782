"""Read parts of a transcript as slices of the whole, and append after any change of the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import StoreDamaged
from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import appending, open_jsonl
from amplifier_storage_jsonl.folder import SessionFolder
from amplifier_storage_jsonl.store import JsonlStore

if TYPE_CHECKING:
    from .conftest import Start

COUNT = 2000


def _messages(count: int = COUNT) -> list[dict[str, Any]]:
    return [{"n": n, "text": "x" * (n % 97) * (1 + n % 3)} for n in range(count)]


async def _stored(store: JsonlStore, messages: list[dict[str, Any]]) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    for at in range(0, len(messages), 500):
        await store.append("s", messages[at : at + 500], at=at)


RANGES = [(0, 1), (0, 256), (255, 257), (700, 750), (1023, 1025), (1300, 1900), (1999, 2000), (1950, 5000), (0, None)]


async def test_any_part_is_the_slice_of_the_whole_in_any_order(store: JsonlStore) -> None:
    messages = _messages()
    await _stored(store, messages)
    for start, stop in [*RANGES, *reversed(RANGES)]:
        assert store.read_sync("s", start, stop) == messages[start:stop]
    await store.append("s", [{"n": COUNT}], at=COUNT)
    assert store.read_sync("s", COUNT - 1) == [messages[-1], {"n": COUNT}]
    assert store.read_sync("s", 1900, 1910) == messages[1900:1910]


async def test_the_end_is_read_without_the_beginning(store: JsonlStore, folder: Path) -> None:
    messages = _messages()
    await _stored(store, messages)
    transcript = folder / "transcript.jsonl"
    whole = bytearray(transcript.read_bytes())
    whole[3] ^= 1
    transcript.write_bytes(whole)
    assert await store.read("s", COUNT - 50) == messages[-50:]
    with pytest.raises(StoreDamaged, match="message m1 is not what was written"):
        await store.read("s", 0, 10)
    with pytest.raises(StoreDamaged, match="message m1 is not what was written"):
        await store.read("s")


@pytest.mark.parametrize("bit", range(8))
async def test_lines_that_became_one_are_never_another_message(store: JsonlStore, folder: Path, bit: int) -> None:
    messages = _messages()
    await _stored(store, messages)
    transcript = folder / "transcript.jsonl"
    whole = bytearray(transcript.read_bytes())
    lines = bytes(whole).split(b"\n")
    for number in (255, 1000, 1023):  # some of the places that are remembered are next to them
        end = sum(len(line) + 1 for line in lines[: number + 1]) - 1
        assert whole[end] == ord("\n")
        transcript.write_bytes(whole[:end] + bytes([whole[end] ^ 1 << bit]) + whole[end + 1 :])
        for reader in (store, open_jsonl({"folder": folder.parents[3]})):
            for start in (0, 200, 256, 900, 1001, 1024, 1100, 1990):
                try:
                    assert reader.read_sync("s", start, start + 10) == messages[start : start + 10]
                except StoreDamaged as error:
                    assert "is not what was written" in str(error)
            with pytest.raises(StoreDamaged, match=f"message m({number + 1}|{number + 2}) is not what was written"):
                reader.read_sync("s", number - 5, number + 5)
        transcript.write_bytes(whole)


async def test_what_was_remembered_of_a_file_is_not_believed_of_another_one(store: JsonlStore, folder: Path) -> None:
    messages = _messages()
    await _stored(store, messages)
    assert store.read_sync("s", 1000, 1010) == messages[1000:1010]
    others = [{"n": -n} for n in range(COUNT)]
    transcript = folder / "transcript.jsonl"
    transcript.write_bytes(b"".join(b'{"n": %d}\n\n' % -n for n in range(COUNT)))
    assert store.read_sync("s", 1000, 1010) == others[1000:1010]
    await store.append("s", [{"n": "new"}, {"n": "last"}], at=COUNT)
    assert store.read_sync("s", 1000, 1010) == others[1000:1010]
    assert store.read_sync("s", COUNT - 1) == [others[-1], {"n": "new"}, {"n": "last"}]
    await store.delete("s")
    await _stored(store, messages[:1500])
    assert store.read_sync("s", 1400, 1410) == messages[1400:1410]


async def test_parts_of_forks_come_from_the_folders_that_hold_them(store: JsonlStore) -> None:
    messages = _messages()
    await _stored(store, messages)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=1500))
    await store.append("fork", [{"own": n} for n in range(300)], at=1500)
    await store.create(SessionRecord("deep", fork_of="fork", fork_at=1700))
    await store.append("deep", [{"deep": 1}], at=1700)
    await store.append("s", [{"later": 1}], at=COUNT)
    expected = messages[:1500] + [{"own": n} for n in range(200)] + [{"deep": 1}]
    for start, stop in [
        (0, None),
        (1490, 1510),
        (1400, 1450),
        (1699, None),
        (1650, 1690),
        (1700, 1701),
        (0, 3),
        (9, 2),
    ]:
        assert store.read_sync("deep", start, stop) == expected[start:stop]


async def test_a_part_does_not_need_what_another_process_is_about_to_acknowledge(
    store: JsonlStore, folder: Path
) -> None:
    messages = _messages()
    await _stored(store, messages)
    with (folder / "transcript.jsonl").open("ab") as transcript:
        transcript.write(b'{"n": 2000, "by": "another tool"}\n{"n": 20')
    assert store.read_sync("s", COUNT - 3, COUNT) == messages[-3:]
    assert store.read_sync("s", COUNT - 1) == [messages[-1], {"n": 2000, "by": "another tool"}]


# appends to sessions whose files are open, and to those that are only remembered


@pytest.fixture(params=[0, 32])
def open_sessions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "_OPEN", request.param)


@pytest.mark.usefixtures("open_sessions")
async def test_an_append_finds_a_session_that_was_moved_replaced_or_made_again(store: JsonlStore, folder: Path) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    assert await store.append("s", [{"n": 0}], at=0) == 1
    moved = folder.parents[2] / "-work-other" / "sessions" / "s"
    moved.parent.mkdir(parents=True)
    folder.rename(moved)
    assert await store.append("s", [{"n": 1}], at=1) == 2
    assert not folder.exists()
    transcript = moved / "transcript.jsonl"
    transcript.rename(moved / "transcript.jsonl.backup")
    transcript.write_text('{"n": 0}\n{"n": "rewritten"}\n')
    assert await store.append("s", [{"n": 2}], at=2) == 3
    assert await store.read("s") == [{"n": 0}, {"n": "rewritten"}, {"n": 2}]
    other = open_jsonl({"folder": folder.parents[3]})
    await other.delete("s")
    await other.create(SessionRecord("s", project="/work/app"))
    assert await store.append("s", [{"n": "again"}], at=0) == 1
    assert await other.read("s") == [{"n": "again"}]
    await other.close()


@pytest.mark.usefixtures("open_sessions")
async def test_an_append_sees_what_other_processes_did_to_a_session(store: JsonlStore, base: Path) -> None:
    other = open_jsonl({"folder": base})
    await store.create(SessionRecord("s"))
    await store.append("s", [{"n": 0}, {"n": 1}], at=0)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=1))
    assert await store.append("fork", [{"own": 1}], at=1) == 2
    await other.materialize("fork")
    assert await store.append("fork", [{"own": 2}], at=2) == 3
    assert await other.append("fork", [{"own": 3}], at=3) == 4
    assert await store.append("fork", [{"own": 4}], at=4) == 5
    assert await store.read("fork") == [{"n": 0}, *({"own": n} for n in range(1, 5))]
    await other.close()


async def test_the_facts_of_a_closed_session_are_read_once_and_those_of_few_are_remembered(
    store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def document(folder: SessionFolder) -> dict[str, Any]:
        read.append(folder.session_id)
        return read_document(folder)

    read_document = SessionFolder.document
    for name, most in (("_OPEN", 0), ("_KNOWN", 2)):
        monkeypatch.setattr(appending, name, most)
    for number in range(3):
        await store.create(SessionRecord(f"s{number}"))
    monkeypatch.setattr(SessionFolder, "document", document)
    for at in range(3):
        for name in ("s0", "s1"):
            assert await store.append(name, [{"n": at}], at=at) == at + 1
    assert read == ["s0", "s1"]
    await store.append("s2", [{}], at=0)  # pushes out the one that was closed first
    await store.append("s0", [{}], at=3)
    assert read == ["s0", "s1", "s2", "s0"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells which files are open")
async def test_few_files_stay_open_and_none_when_the_store_is_closed(store: JsonlStore, base: Path) -> None:
    for number in range(50):
        await store.create(SessionRecord(f"s{number}"))
        await store.append(f"s{number}", [{}], at=0)
        await store.append("s0", [{}], at=number + 1)
    assert len(_open_files(base)) == 2 * 32
    await store.close()
    assert _open_files(base) == []


def _open_files(base: Path) -> list[Path]:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link.readlink() for link in links if link.readlink().is_relative_to(base)]


APPEND_BESIDE_A_FORKED_PROCESS = """
async def main(base):
    store, other = open_jsonl({"folder": base}), open_jsonl({"folder": base})
    await store.create(SessionRecord("s"))
    await store.append("s", [{}], at=0)
    read, write = os.pipe()
    if not (child := os.fork()):
        os.close(write)
        os.read(read, 1)  # until the parent has closed it
        os._exit(0)
    say(await other.append("s", [{}], at=1), await store.append("s", [{}], at=2))
    os.close(write)
    os.waitpid(child, 0)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_process_that_was_forked_meanwhile_keeps_no_lock(base: Path, start: Start) -> None:
    out, _ = start(APPEND_BESIDE_A_FORKED_PROCESS, base).communicate(timeout=60)
    assert out == "2 3\n"
