"""`amplifier session show --follow` and `session cancel`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits

pytestmark = pytest.mark.slow

Say = Callable[..., Awaitable[tuple[int, str, str]]]
PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
PATIENCE = 60


async def hold(running: Any) -> str:
    """Have a session hold in its tool, and return its id."""
    await running.up.manager.fire("holding")
    await running.until("holding", "session")
    [session_id] = [each for row in running.up.manager.get_status().values() for each in row["running"]]
    return str(session_id)


async def test_a_running_turn_is_shown_as_it_comes_to_its_end(
    running: Any, background: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(background.parent)
    session_id = await hold(running)
    followers = [
        await asyncio.create_subprocess_exec(
            *PROGRAM, "session", "show", session_id, "--follow", *more,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        for more in ((), ("--jsonl",))
    ]  # fmt: skip
    assert followers[1].stdout is not None
    lines: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        while not lines or lines[-1]["type"] != "waiting":
            lines.append(json.loads(await followers[1].stdout.readline()))
        while len(running.control.feed._listeners.get(session_id, ())) < 2:
            await asyncio.sleep(0.01)
    (background.parent / "go").touch()
    ended = await asyncio.wait_for(asyncio.gather(*(each.communicate() for each in followers)), PATIENCE)
    lines += map(json.loads, ended[1][0].decode().splitlines())
    assert [each.returncode for each in followers] == [exits.OK, exits.OK]
    said = [each for each in lines if each["type"] not in ("usage", "waiting")]
    assert [each["type"] for each in said] == ["message", "message", "session", "tool_result", "text", "end"]
    assert said[-2] == {"type": "text", "text": "held"}
    out = ended[0][0].decode()
    assert f"session   {session_id}" in out
    assert "hold" in out
    assert out.endswith("held\n")


async def test_a_session_that_nobody_runs_is_shown_and_the_command_ends(
    running: Any, background: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(background.parent)
    await running.up.manager.fire("asked", {"what": "hello"})
    await running.until("asked", "completed")
    code, out, err = await say("session", "show", "last", "--follow")
    assert (code, err) == (exits.OK, "")
    assert "You said: say hello" in out
    code, out, _ = await say("session", "show", "last", "--follow", "--jsonl")
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["message", "message", "end"]
    code, _, err = await say("session", "show", "last", "--jsonl")
    assert (code, "--jsonl belongs to --follow" in err) == (exits.USAGE, True)


async def test_a_cancelled_turn_is_skipped_and_the_log_tells_by_whom(
    running: Any, background: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(background.parent)
    monkeypatch.setattr("amplifier_foundation.background.cancelling.GRACE", 0.1)
    session_id = await hold(running)
    code, out, err = await say("session", "cancel", session_id)
    assert (code, out) == (exits.OK, "")
    assert err.splitlines()[-2:] == [
        f"The turn of session {session_id} is cancelled.",
        f"Go on with it: amplifier run --resume {session_id}",
    ]
    await running.until("holding", "cancelled")
    code, _, err = await say("session", "cancel", session_id)
    assert code == exits.NOT_FOUND
    assert err == f"amplifier: session '{session_id}' has no turn to cancel: nobody runs it\n"
    code, out, _ = await say("session", "show", session_id)
    assert (code, "status    cancelled" in out) == (exits.OK, True)
    code, out, _ = await say("why", session_id)
    assert "cancelled by" in out
