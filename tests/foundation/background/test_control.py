"""What the process that runs background sessions answers at its socket."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import Bundle
from amplifier_foundation.background import asking, control
from amplifier_foundation.background.control import answering, socket_path
from amplifier_foundation.background.up import Control, run_background
from amplifier_foundation.sessions.lock import running_owner

LANES = [{"name": "one"}, {"name": "two"}]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    sections: dict[str, Any] = {"providers": [{"module": "provider-playbook"}], "background_sessions": LANES}
    return Bundle.from_dict({"bundle": {"name": "demo"}, **sections}, tmp_path)


async def ask(owner: Mapping[str, Any], operation: str, **arguments: Any) -> Any:
    """Ask as another process does, while this one's event loop answers."""
    return await asyncio.to_thread(asking.ask, owner, operation, **arguments)


async def echo(operation: str, arguments: Mapping[str, Any]) -> Any:
    if operation == "fail":
        raise SessionConflict("x", "it is taken")
    return {operation: dict(arguments)}


async def test_an_answer_is_what_the_handler_returns_and_an_error_its_words() -> None:
    path = socket_path()
    async with answering(path, echo):
        assert await ask({"socket": str(path)}, "wake", name="one") == {"wake": {"name": "one"}}
        with pytest.raises(SessionConflict, match="it is taken"):
            await ask({"socket": str(path)}, "fail")
    with pytest.raises(SessionConflict, match="process 7 does not answer"):
        await ask({"socket": str(path), "pid": 7}, "status")


def test_two_processes_with_one_number_have_two_sockets() -> None:
    assert socket_path() != socket_path()


async def test_a_process_that_is_stopped_is_not_waited_for() -> None:
    path = socket_path()

    async def hang(operation: str, arguments: Mapping[str, Any]) -> Any:
        await never.wait()

    never = asyncio.Event()
    async with answering(path, hang):
        with pytest.raises(SessionConflict, match=r"does not answer at .*: nothing came within 0\.01 s; it may be"):
            await ask({"socket": str(path)}, "status", patience=0.01)
        with pytest.raises(SessionConflict, match=r"\. It may still carry out this stop when it goes on$"):
            await ask({"socket": str(path)}, "stop", patience=0.01, name="queue")
        never.set()


@pytest.mark.parametrize("turns", range(5))
async def test_a_client_that_comes_at_the_end_harms_nobody(turns: int) -> None:
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    path = socket_path()
    with socket.socket(socket.AF_UNIX) as client:
        async with answering(path, echo):
            client.connect(str(path))
            for _ in range(turns):  # of the loop: its connection is accepted, then given to the server
                await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
    assert problems == []


async def test_a_request_that_does_not_end_is_explained_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.01)
    path, ends, ended = socket_path(), asyncio.Event(), asyncio.Event()

    async def stop(operation: str, arguments: Mapping[str, Any]) -> Any:
        await ends.wait()
        ended.set()

    async with answering(path, stop):
        with pytest.raises(SessionConflict, match=r"^'stop one' has not ended after 0\.01 s, and goes on: "):
            await ask({"socket": str(path)}, "stop", name="one")
        ends.set()
        await asyncio.wait_for(ended.wait(), 60)


async def test_the_socket_is_for_its_user_alone_and_goes_with_the_process() -> None:
    path = socket_path()
    async with answering(path, echo):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.exists()


async def test_a_data_folder_with_a_long_path_has_its_socket_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / ("long" * 30)))
    path = socket_path()
    assert len(str(path)) <= 100
    async with answering(path, echo):
        assert await ask({"socket": str(path)}, "status") == {"status": {}}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


@pytest.mark.parametrize("line", [b"\n", b"[]\n", b"{}\n", b"\xff\n", b"{" * 3000 + b"\n", b"[" * 200_000 + b"\n"])
async def test_what_is_no_request_is_answered_and_harms_nobody(line: bytes) -> None:
    path = socket_path()
    async with answering(path, echo):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(line)
        answer = json.loads(await reader.readline())
        writer.close()
        assert (answer["ok"], answer["kind"]) == (False, "ValueError")
        assert await ask({"socket": str(path)}, "status") == {"status": {}}


async def test_the_lock_names_the_socket_and_the_status_every_background_session(
    bundle: Bundle, store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    async with run_background([bundle], store, plugins):
        [status] = await ask(running_owner() or {}, "status")
        assert (status["bundle"], status["project"]) == ("demo", str(tmp_path.resolve()))
        states = {row["name"]: row["status"] for row in status["sessions"].values()}
        assert states == {"one": "running", "two": "running"}


async def test_each_operation_is_done_and_an_unknown_one_refused(
    bundle: Bundle, store: DurableStore, plugins: Plugins
) -> None:
    asked: list[str] = []
    control = Control(
        asked_to_stop=lambda: asked.append("stop"), asked_to_reload=lambda: asked.append("reload"), tell=asked.append
    )
    async with run_background([bundle], store, plugins, control=control):
        owner = running_owner() or {}
        await ask(owner, "reload")
        await ask(owner, "wake", name="one")
        await ask(owner, "wake", name="absent")
        assert await ask(owner, "stop", name="demo/one") == ["bg-one-0001"]
        with pytest.raises(SessionConflict, match=r"no background session 'absent'\. There are: one, two"):
            await ask(owner, "stop", name="absent")
        with pytest.raises(SessionConflict, match="ValueError"):
            await ask(owner, "unheard")
        await ask(owner, "stop")
    assert asked == ["reload", "one is to stop, as another process asks", "stop"]
