"""Test the content of a line, the modes of files, and the README."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import subprocess
import sys
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import open_jsonl
from amplifier_storage_jsonl.lines import is_good, is_sealed, loads, seal
from amplifier_storage_jsonl.sessions import Sessions
from amplifier_storage_jsonl.store import JsonlStore

README = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")


async def test_text_with_lone_surrogates_and_a_message_of_10_mb_come_back(store: JsonlStore) -> None:
    messages: list[dict[str, Any]] = [
        {"content": "\ud800 é \udc80"},
        {"content": "x" * 10_000_000},
        {"content": "\u2028\x85\r\n\0", "\ud8ff": 1},
    ]
    await store.create(SessionRecord("s", name="\udc80", project="/w\udcff"))
    assert await store.append("s", messages, at=0) == 3
    assert await store.read("s") == messages
    assert ((await store.get("s")).name, (await store.get("s")).project) == ("\udc80", "/w\udcff")


async def test_what_is_not_json_is_refused_by_its_place(store: JsonlStore) -> None:
    await store.create(SessionRecord("s"))
    looped: list[object] = []
    looped.append(looped)
    refused: dict[str, dict[str, Any]] = {
        r"messages\[1\]\.usage\.cost: nan is not JSON": {"usage": {"cost": float("nan")}},
        r"messages\[1\]\.a\[0\]: -inf is not JSON": {"a": [float("-inf")]},
        r"messages\[1\]\.a: object is not JSON": {"a": object()},
        r"messages\[1\]\.a\[0\]: contains itself": {"a": looped},
    }
    for place, message in refused.items():
        with pytest.raises(TypeError, match=f"^{place}$"):
            await store.append("s", [{"fine": 1}, message], at=0)
    with pytest.raises(TypeError, match=r"^record\.config\.x: nan is not JSON$"):
        await store.create(SessionRecord("t", config={"x": float("nan")}))
    with pytest.raises(TypeError, match=r"^record\.metadata\.x: inf is not JSON$"):
        await store.update("s", metadata={"x": float("inf")})
    assert await store.read("s") == []
    assert [record.session_id for record in await store.sessions()] == ["s"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_files_are_their_owners_alone_whatever_the_umask(base: Path, store: JsonlStore, umask: int) -> None:
    before = os.umask(umask)
    try:
        await store.create(SessionRecord("s", project="/work/app"))
        await store.append("s", [{"n": 0}], at=0)
        await store.update("s", name="x")
        await store.create(SessionRecord("fork", fork_of="s"))
        await store.materialize("fork")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (base, *base.rglob("*"))}
    assert len(modes) >= 11
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


async def test_a_session_is_locked_while_it_is_written(base: Path, folder: Path, store: JsonlStore) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    with (folder / ".lock").open() as other:
        with Sessions(base).tree.find("s").hold_lock(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_a_base_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_jsonl({"path": tmp_path / "file"})
    with pytest.raises(StoreUnavailable, match=r"file: cannot be used \(Not a directory\)\. Check that you may write"):
        await store.create(SessionRecord("s"))
    await store.close()


async def test_one_more_message_writes_that_message_and_nothing_else(folder: Path, store: JsonlStore) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    await store.append("s", [{"n": number} for number in range(1000)], at=0)
    metadata, size = (folder / "metadata.json").stat(), (folder / "transcript.jsonl").stat().st_size
    assert await store.append("s", [{"n": 1000}], at=1000) == 1001
    assert (folder / "transcript.jsonl").stat().st_size - size == len('{"n":1000}') + 32 + 1
    assert (folder / "metadata.json").stat() == metadata


async def test_a_fork_of_a_long_session_writes_no_message(folder: Path, store: JsonlStore) -> None:
    await store.create(SessionRecord("s", project="/work/app"))
    await store.append("s", [{"n": number} for number in range(1000)], at=0)
    await store.create(SessionRecord("fork", fork_of="s", project="/work/app"))
    written = {path.name: path.stat().st_size for path in folder.with_name("fork").iterdir()}
    assert written["transcript.jsonl"] == 0
    assert sum(written.values()) < 1024


def test_a_checksum_is_blanks_and_tells_a_changed_line() -> None:
    line = seal(b'{"a":1}')
    assert line.strip() == b'{"a":1}' and len(line) == 7 + 32
    assert is_sealed(line) and loads(line) == {"a": 1}
    assert not is_good(line.replace(b"1", b"2"))
    with pytest.raises(ValueError, match="its checksum is another"):
        loads(line.replace(b"1", b"2"))
    assert loads(b'{"a":2}') == {"a": 2} and not is_sealed(b'{"a":2}')
    assert not is_good(b"[1]") and not is_good(b'{"a":') and not is_good(b"[" * 100_000)


async def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    running = eval(compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})
    assert isawaitable(running)
    await running
    store = open_jsonl({"path": "sessions"})
    assert await store.read("first") == [{"role": "user", "content": "Hello"}]
    await store.close()


def test_the_keys_of_the_readme_are_those_that_are_known() -> None:
    [table] = re.findall(r"^\| key \|.*?\n\n", README, re.MULTILINE | re.DOTALL)
    keys = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    with pytest.raises(ValueError, match=f"Known: {', '.join(keys)}$"):
        open_jsonl({"path": "x", "no such key": 1})


def test_importing_the_plugin_imports_no_asyncio() -> None:
    check = "import sys, amplifier_storage_jsonl; print(sorted({'sqlite3', 'asyncio', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "[]\n"
