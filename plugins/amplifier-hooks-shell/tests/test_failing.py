"""Have commands crash, hang, flood and vanish: a guard that fails denies."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks_shell.describing import MOST_INPUT, TooLongError, describe
from amplifier_hooks_shell.running import make_environment, run_command

FAILURES = [
    ("exit 1", "ended with the exit code 1"),
    ("echo Traceback >&2; exit 1", "ended with the exit code 1: Traceback"),
    ("kill -SEGV $$", "was killed by the signal SIGSEGV"),
    ("./no-such-guard", "ended with the exit code 127"),
    ("echo checking", "printed what is no answer (neither a JSON object nor nothing)"),
    ("echo '{\"decision\": '", "printed what is no answer"),
    ('echo \'{"decision": "perhaps"}\'', "printed what is no answer (the decision 'perhaps')"),
    ("echo '{\"decision\": 7}'", "printed what is no answer ('decision' is no str)"),
    ('echo \'{"hookSpecificOutput": {"hookEventName": "Stop"}}\'', "printed what is no answer (it is about Stop)"),
    ('echo \'{"hookSpecificOutput": {"updatedInput": []}}\'', "'updatedInput' is no dict"),
    ('echo \'{"decison": "block"}\'', "printed what is no answer (unknown key 'decison'; did you mean 'decision'?)"),
    ('echo \'{"permissionDecision": "deny"}\'', "('permissionDecision' belongs into 'hookSpecificOutput')"),
    ('echo \'{"hookSpecificOutput": {"permissionDecison": "deny"}}\'', "did you mean 'permissionDecision'?"),
    ('echo \'{"hookSpecificOutput": {"decision": "block"}}\'', "('decision' belongs beside 'hookSpecificOutput')"),
    ("echo '{\"ok\": false}'", "printed what is no answer (unknown key 'ok')"),
    ("yes", "printed more than 1048576 bytes, and was killed"),
    ("yes >&2", "printed more than 1048576 bytes, and was killed"),
]


@pytest.mark.parametrize(("command", "problem"), FAILURES)
async def test_a_guard_that_fails_denies(make: Any, work: Path, command: str, problem: str, texts_of: Any) -> None:
    session = make(PreToolUse=command)
    await session.execute("write a.txt")
    [said] = await texts_of(session, "tool")
    assert problem in said
    assert said.endswith("With 'on_error: continue' it would not deny")
    assert not (work / "a.txt").exists()


@pytest.mark.parametrize(("command", "problem"), FAILURES[:4])
async def test_a_guard_may_be_told_to_let_calls_through(
    make: Any, work: Path, answers: Any, command: str, problem: str
) -> None:
    session = make(PreToolUse=[{"hooks": [{"command": command, "on_error": "continue"}]}])
    await session.execute("write a.txt")
    assert (work / "a.txt").exists()
    assert problem in answers.shown[0]


async def test_a_prompt_whose_guard_fails_is_refused(make: Any) -> None:
    assert "ended with the exit code 1" in await make(UserPromptSubmit="exit 1").execute("hello")


async def test_a_prompt_whose_guard_misspells_its_denial_is_refused(make: Any) -> None:
    said = await make(UserPromptSubmit='echo \'{"decison": "block"}\'').execute("hello")
    assert "unknown key 'decison'; did you mean 'decision'?" in said


async def test_keys_of_claude_code_without_an_effect_here_are_an_answer(make: Any, work: Path) -> None:
    prompt = '{"suppressOutput": true, "terminalSequence": "", "hookSpecificOutput": {"sessionTitle": "one"}}'
    call = '{"continue": true, "suppressOutput": true, "hookSpecificOutput": {"hookEventName": "PreToolUse"}}'
    await make(UserPromptSubmit=f"echo '{prompt}'", PreToolUse=f"echo '{call}'").execute("write a.txt")
    assert (work / "a.txt").exists()


async def test_nothing_and_json_of_a_guards_own_hold_no_denial(make: Any, work: Path) -> None:
    prompt = '{"branch": "main", "dirty": 3}'
    call = '{"continue": true, "decision": null, "permissionDecision": null, "async": false, "asyncTimeout": 15000}'
    await make(UserPromptSubmit=f"echo '{prompt}'", PreToolUse=f"echo '{call}'").execute("write a.txt")
    assert (work / "a.txt").exists()


async def test_a_command_that_is_no_guard_fails_in_the_open(make: Any, work: Path, answers: Any) -> None:
    session = make(**dict.fromkeys(("PostToolUse", "Stop", "SessionStart", "SessionEnd"), "echo broken >&2; exit 7"))
    await session.execute("write a.txt")
    assert (work / "a.txt").exists()
    assert [text.partition("' ")[2] for text in answers.shown] == ["ended with the exit code 7: broken"] * 3


@pytest.mark.parametrize("hang", ["sleep 1000", "kill -STOP $$", "trap '' TERM; while :; do sleep 1; done"])
async def test_a_guard_that_hangs_is_killed_with_everything_below_it(
    make: Any, work: Path, hang: str, texts_of: Any, is_running: Any
) -> None:
    command = f"sleep 2000 & echo $! > one; setsid sleep 2000 & echo $! > two; echo $$ > three; {hang}"
    session = make(PreToolUse=[{"hooks": [{"command": command, "timeout": 0.5}]}])
    await session.execute("write a.txt")
    assert "took longer than 0.5 s, and was killed" in (await texts_of(session, "tool"))[0]
    pids = [int((work / name).read_text()) for name in ("one", "two", "three")]
    while any(map(is_running, pids)):
        await asyncio.sleep(0.01)


async def test_a_child_that_holds_the_output_does_not_hold_the_session(make: Any, work: Path) -> None:
    session = make(PreToolUse="setsid sleep 2000 & echo $! > pid")
    await session.execute("write a.txt")
    assert (work / "a.txt").exists()
    os.kill(int((work / "pid").read_text()), signal.SIGKILL)


async def test_a_cancelled_turn_ends_its_commands(make: Any, work: Path, is_running: Any) -> None:
    session = make(PreToolUse="sleep 2000 & echo $! > pid; wait")
    turn = asyncio.create_task(session.execute("write a.txt"))
    while not (work / "pid").exists() or not (work / "pid").read_text().strip():
        await asyncio.sleep(0.01)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    while is_running(int((work / "pid").read_text())):
        await asyncio.sleep(0.01)
    assert not (work / "a.txt").exists()


async def test_an_ended_session_ends_its_notifications(make: Any, work: Path, is_running: Any) -> None:
    session = make(Notification="echo $$ > pid; sleep 2000")
    await session.initialize()
    await session.coordinator.hooks.emit("user:notification", {"message": "look"})
    while not (work / "pid").exists() or not (work / "pid").read_text().strip():
        await asyncio.sleep(0.01)
    await session.cleanup()
    assert not is_running(int((work / "pid").read_text()))


async def test_a_script_that_changed_since_the_session_began_does_not_run(make: Any, work: Path, texts_of: Any) -> None:
    script = work / "guard.sh"
    script.write_text("cat >/dev/null\n")
    session = make(PreToolUse='bash "$CLAUDE_PROJECT_DIR"/guard.sh', PostToolUse="sh ./guard.sh")
    await session.execute("write a.txt")
    assert (work / "a.txt").exists()
    await session.execute("write guard.sh")
    await session.execute("write b.txt")
    assert "guard.sh has changed since the session began" in (await texts_of(session, "tool"))[-1]
    assert not (work / "b.txt").exists()


async def test_a_script_that_appears_in_the_session_does_not_run(make: Any, work: Path, answers: Any) -> None:
    session = make(PostToolUse="./late.sh")
    await session.initialize()
    (work / "late.sh").write_text("#!/bin/sh\ntouch ran\n")
    (work / "late.sh").chmod(0o755)
    await session.execute("write a.txt")
    assert not (work / "ran").exists()
    assert "late.sh has changed since the session began" in answers.shown[0]


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("cd sub; sh ./s.sh", "sub/s.sh", "touch ../ran"),
        ("for f in sub/*.sh; do sh $f; done", "sub/s.sh", "touch ran"),
        ("make fmt", "Makefile", "fmt:\n\ttouch ran"),
        ("python3 -m fmt", "fmt.py", "open('ran', 'w')"),
    ],
)
async def test_what_a_command_runs_by_other_names_does_not_run_once_it_changed(
    make: Any, work: Path, command: str, name: str, text: str
) -> None:
    (work / "sub").mkdir()
    (work / name).write_text("")
    session = make(PreToolUse=command)
    await session.initialize()
    (work / name).write_text(text)
    await session.execute("write a.txt")
    assert not (work / "ran").exists()
    assert not (work / "a.txt").exists()


async def test_a_command_gets_a_short_list_of_the_environment(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-hooks")
    monkeypatch.setenv("BUILD_ID", "7")
    environment = make_environment({"CLAUDE_PROJECT_DIR": str(work)}, ["BUILD_ID"])
    ran = await run_command("env", b"", folder=str(work), environment=environment, seconds=60)
    named = {line.partition("=")[0] for line in ran.stdout.splitlines()}
    assert "OPENAI_API_KEY" not in named
    assert {"PATH", "BUILD_ID", "CLAUDE_PROJECT_DIR"} <= named


async def test_a_command_that_reads_nothing_gets_a_large_input(work: Path) -> None:
    ran = await run_command("exit 0", b"x" * 5_000_000, folder=str(work), environment={}, seconds=60)
    assert ran == (0, "", "", "")


def test_a_long_result_is_shortened_and_a_long_question_is_not() -> None:
    about = describe("PostToolUse", {"tool_response": {"output": "x" * 2 * MOST_INPUT}}, {})
    assert len(about) < MOST_INPUT
    assert b'"truncated": true' in about
    with pytest.raises(TooLongError):
        describe("PreToolUse", {"tool_input": {"content": "x" * 2 * MOST_INPUT}}, {})


async def test_a_call_too_long_for_its_guard_is_denied(
    make: Any, monkeypatch: pytest.MonkeyPatch, texts_of: Any
) -> None:
    monkeypatch.setattr("amplifier_hooks_shell.describing.MOST_INPUT", 100)
    session = make(PreToolUse="cat >/dev/null")
    await session.execute("write a.txt")
    assert "cannot be asked" in (await texts_of(session, "tool"))[0]


async def test_no_folder_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    ran = await run_command("true", b"", folder=str(tmp_path / "gone"), environment={}, seconds=60)
    assert ran.problem.startswith("cannot be started: ")


async def test_no_descriptor_is_left_open(work: Path) -> None:
    async def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    await run_command("true", b"", folder=str(work), environment={}, seconds=60)
    before = await count()
    for command in ("true", "exit 3", "yes", "sleep 9"):
        await run_command(command, b"x", folder=str(work), environment=dict(os.environ), seconds=0.3)
    await run_command("true", b"", folder=str(work / "gone"), environment={}, seconds=60)
    await asyncio.sleep(0)
    assert await count() == before
