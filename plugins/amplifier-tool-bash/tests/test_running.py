"""Commands run to their end, are stopped with all their processes, and say what they have said."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_sandbox.choosing import NoSandbox, find_sandbox
from amplifier_sandbox.contracts import Run
from amplifier_tool_bash.client_terminal import TERMINAL, TERMINALS
from amplifier_tool_bash.output import Output
from amplifier_tool_bash.running import Command
from amplifier_tool_bash.tools import OUTPUT


def find_processes(mark: str) -> list[int]:
    """Return the processes with `mark` among their arguments, on the whole machine."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            if mark.encode() in arguments and (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def children() -> set[int]:
    """Return the processes that this one has started."""
    lists = [listed.read_text().split() for listed in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for each in lists for pid in each}


async def until_gone(mark: str) -> None:
    """Wait until no process has `mark` among its arguments; the time limit of the tests ends it."""
    while find_processes(mark):
        await asyncio.sleep(0.01)


async def until_there(mark: str, count: int = 1) -> None:
    while len(find_processes(mark)) < count:
        await asyncio.sleep(0.01)


async def test_a_command_returns_its_output_and_its_exit_code(bash: Any) -> None:
    result = await bash("echo one; echo two >&2; exit 3")
    assert (result.success, result.output) == (True, {"output": "one\ntwo\n", "exit_code": 3, "status": "ended"})


async def test_each_call_is_a_fresh_shell_in_the_folder_that_it_names(bash: Any, work: Path) -> None:
    (work / "sub").mkdir()
    await bash("x=1; cd sub")
    assert (await bash('echo "[$x]"; pwd')).output["output"] == f"[]\n{work}\n"
    assert (await bash("pwd", cwd="sub")).output["output"] == f"{work}/sub\n"


@pytest.mark.parametrize("cwd", ["..", "/", "/etc", "sub/../..", "away", "a\0b"])
async def test_a_folder_outside_is_refused(bash: Any, work: Path, outside: Path, cwd: str) -> None:
    (work / "away").symlink_to(outside)
    result = await bash("pwd", cwd=cwd)
    assert (result.success, result.error["type"]) == (False, "InvalidInput")
    assert "is outside of the working folder" in result.error["message"]


async def test_a_command_that_takes_too_long_is_asked_to_end_and_what_it_said_stays(bash: Any) -> None:
    result = await bash("trap 'echo goodbye; exit 5' TERM; echo hello; sleep 4711.1 & wait", timeout=2)
    assert not result.success
    assert result.output["output"] == "hello\ngoodbye\n"
    assert result.error == {
        "message": "ended after 2 s; give a longer timeout, or run it in the background",
        "type": "TimeoutError",
    }
    await until_gone("4711.1")


PROGRAM = """
import asyncio, os, signal, sys
from amplifier_sandbox.choosing import find_sandbox
from amplifier_sandbox.contracts import Run
from amplifier_tool_bash.output import Output
from amplifier_tool_bash.running import Command
kind, folder = sys.argv[1:]
mark = os.environ["MARK"]  # which is no argument: the processes with that are counted

async def main():
    shell = ["/bin/bash", "-c", f"trap '' TERM; sleep {mark} & sleep {mark}; echo"]
    launch = find_sandbox(kind).launch(Run(shell, folder, folder, scratch=folder))
    command = await Command.start(launch, folder, Output(1000))
    fork = os.fork()  # as a tool may do
    if fork == 0:
        os.close(1)
        signal.pause()
    print(fork, flush=True)
    await command.finish(None, 1)

asyncio.run(main())
"""


@pytest.mark.parametrize(("kind", "mark"), [("bubblewrap", "4715.1"), ("landlock", "4715.2"), ("off", "4715.3")])
@pytest.mark.parametrize("count", [0, 2])
async def test_a_command_ends_with_a_program_that_is_killed(kind: str, mark: str, count: int, work: Path) -> None:
    with suppress(NoSandbox):
        find_sandbox(kind)
        argv, environment = [sys.executable, "-c", PROGRAM, kind, str(work)], {**os.environ, "MARK": f"{mark}{count}"}
        program = await asyncio.create_subprocess_exec(*argv, env=environment, stdout=asyncio.subprocess.PIPE)
        assert program.stdout is not None
        fork = int(await program.stdout.readline())
        try:
            await until_there(f"{mark}{count}", count)
            program.kill()
            await program.wait()
            await until_gone(f"{mark}{count}")
        finally:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["landlock", "off"])
async def test_the_environment_of_a_command_is_no_code_for_what_starts_it(
    kind: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped = tmp_path / "escaped"
    (work / "env.sh").write_text(f"touch {escaped}\n")
    with suppress(NoSandbox):
        made = find_sandbox(kind).launch(Run(["/bin/true"], str(work), str(work), scratch=str(work)))
        codes = {"BASH_ENV": "env.sh", "ENV": "env.sh", "SHELLOPTS": "xtrace", "PS4": f"$(touch {escaped})"}
        environment = made.environment | codes | {"BASH_FUNC_kill%%": f"() {{ touch {escaped}; }}"}
        command = await Command.start(made._replace(environment=environment), str(work), Output(1000))
        assert await command.finish(60, 1)
        assert command.code == 0
        assert not escaped.exists()


@pytest.mark.parametrize("kind", ["landlock", "off"])
async def test_all_of_the_environment_reaches_a_command(kind: str, work: Path) -> None:
    names = {"a.b": "1", "npm_config_//reg/:x": "2", "BASH_FUNC_module%%": "() {  echo loaded\n}", "LC_ALL": "xx_XX"}
    with suppress(NoSandbox):
        made = find_sandbox(kind).launch(Run(["/usr/bin/env", "-0"], str(work), str(work), scratch=str(work)))
        environment = made.environment | names | {"SHLVL": "3"}
        output = Output(10_000)
        command = await Command.start(made._replace(environment=environment), str(work), output)
        assert await command.finish(60, 1)
        arrived = dict(each.partition("=")[::2] for each in output.take().split("\0"))
        assert names.items() | {("SHLVL", "3")} <= arrived.items()
        assert not any("setlocale" in each for each in arrived)


async def test_a_command_that_does_not_end_when_asked_is_killed(bash: Any) -> None:
    result = await bash("trap '' TERM; echo hello; (trap '' TERM; sleep 4711.2); sleep 4711.2", timeout=2)
    assert (result.output["status"], result.output["exit_code"]) == ("timed out", 137)
    await until_gone("4711.2")


async def test_a_cancelled_call_leaves_no_process(bash: Any) -> None:
    call = asyncio.create_task(bash("trap '' TERM; setsid sleep 4711.3 & setsid sleep 4711.3 & sleep 4711.3"))
    await until_there("4711.3", 3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_gone("4711.3")


async def test_what_a_command_leaves_behind_ends_with_it(bash: Any) -> None:
    result = await bash("nohup setsid sleep 4711.4 >/dev/null 2>&1 & sleep 4711.4 & echo done")
    assert result.output["output"] == "done\n"
    await until_gone("4711.4")


async def test_a_command_in_the_background_says_what_is_new_and_ends_when_told(
    bash: Any, coordinator: ModuleCoordinator, work: Path
) -> None:
    os.mkfifo(work / "go")
    started = await bash("echo first; read -r line <go; echo second; sleep 4711.5", background=True)
    assert started.output["status"] == "running"
    one = {"id": started.output["id"]}
    read, kill = (coordinator.get("tools", name).execute for name in ("bash_output", "bash_kill"))
    said = ""
    while "first\n" not in said:
        said += (await read(one)).output["output"]
        await asyncio.sleep(0.01)
    await asyncio.to_thread((work / "go").write_text, "go\n")
    await until_there("4711.5")
    while "second\n" not in said:
        said += (await read(one)).output["output"]
        await asyncio.sleep(0.01)
    assert said == "first\nsecond\n"
    assert (await kill(one)).output == {**one, "status": "killed", "output": ""}
    assert (await read(one)).error["type"] == "UnknownId"
    await until_gone("4711.5")


async def test_a_command_that_ended_in_the_background_tells_its_code_once(
    bash: Any, coordinator: ModuleCoordinator
) -> None:
    one = {"id": (await bash("echo over; exit 4", background=True)).output["id"]}
    output, said = {"status": "running"}, ""
    while output["status"] == "running":
        output = (await coordinator.get("tools", "bash_output").execute(one)).output
        said += output["output"]
        await asyncio.sleep(0.01)
    assert (output["status"], output["exit_code"], said) == ("ended", 4, "over\n")
    gone = await coordinator.get("tools", "bash_kill").execute(one)
    assert gone.error["message"] == f"no command in the background has the id {one['id']!r}; known are: none"


async def test_the_end_of_a_session_ends_its_commands(mount_tools: Any) -> None:
    coordinator = await mount_tools(grace=0.1)
    begun = [
        await coordinator.get("tools", "bash").execute({"command": "sleep 4711.6", "background": True})
        for _ in range(2)
    ]
    assert [each.success for each in begun] == [True, True], begun
    await until_there("4711.6", 2)
    await coordinator.cleanup()
    await until_gone("4711.6")


async def test_a_command_that_began_just_before_ends_with_its_session(mount_tools: Any) -> None:
    before = children()
    coordinator = await mount_tools()
    assert (await coordinator.get("tools", "bash").execute({"command": "sleep 4711.9", "background": True})).success
    await coordinator.cleanup()
    assert children() <= before


class Editor:
    """Runs programs in terminals of its own, as an editor does."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.subprocess.Process] = {}

    async def create(self, argv: Sequence[str], folder: str, most: int) -> str:
        self.open["t1"] = await asyncio.create_subprocess_exec(*argv, cwd=folder)
        return "t1"

    async def wait(self, terminal: str) -> int:
        return await self.open[terminal].wait()

    async def read_output(self, terminal: str) -> tuple[str, bool]:
        return "", False

    async def kill(self, terminal: str) -> None:
        self.open[terminal].kill()

    async def release(self, terminal: str) -> None:
        del self.open[terminal]


async def test_a_call_cancelled_before_its_terminal_is_told_leaves_no_command(mount_tools: Any) -> None:
    told, editor, coordinator = asyncio.Event(), Editor(), await mount_tools()

    async def wait(event: str, data: dict[str, Any]) -> None:
        told.set()
        await asyncio.Event().wait()

    coordinator.hooks.register(TERMINAL, wait)
    coordinator.register_capability(TERMINALS, editor)
    call = asyncio.create_task(coordinator.get("tools", "bash").execute({"command": "sleep 4711.9"}))
    await told.wait()
    call.cancel()
    await asyncio.wait([call])
    assert (call.cancelled(), editor.open) == (True, {})
    await until_gone("4711.9")


async def test_only_so_many_commands_run_in_the_background(mount_tools: Any) -> None:
    tool = (await mount_tools(max_background=1)).get("tools", "bash")
    assert (await tool.execute({"command": "sleep 4711.7", "background": True})).success
    refused = await tool.execute({"command": "sleep 4711.7", "background": True})
    assert refused.error == {
        "message": "1 commands run in the background; end one with bash_kill",
        "type": "TooMany",
    }


async def test_long_output_keeps_its_beginning_and_its_end(bash: Any) -> None:
    output = (await bash("seq 1 200000")).output["output"]
    assert output.startswith("1\n2\n3\n") and output.endswith("199999\n200000\n")
    assert len(output) < 10_100
    assert f"\n[{sum(len(str(n)) + 1 for n in range(1, 200_001)) - 10_000} characters are missing here]\n" in output


async def test_bytes_besides_utf_8_are_replaced(bash: Any) -> None:
    assert (await bash(r"printf 'a\xffb\xe2\x82'")).output["output"] == "a\ufffdb\ufffd"


def test_a_character_in_two_pieces_is_one() -> None:
    output = Output(100)
    assert output.add("ä".encode()[:1]) == ""
    assert output.add("ä".encode()[1:]) == "ä"
    assert output.take() == "ä"
    assert output.take() == ""


async def test_hooks_see_the_output_as_it_comes(bash: Any, coordinator: ModuleCoordinator, work: Path) -> None:
    os.mkfifo(work / "go")
    heard: list[str] = []

    async def hear(event: str, data: dict[str, Any]) -> None:
        heard.append(data["text"])
        if "ready" in data["text"]:
            await asyncio.to_thread((work / "go").write_text, "go\n")

    coordinator.hooks.register(OUTPUT, hear)
    assert (await bash("echo ready; read -r line <go; echo done")).output["output"] == "ready\ndone\n"
    assert "".join(heard) == "ready\ndone\n" and len(heard) >= 2


async def test_hooks_see_no_more_than_a_call_returns(bash: Any, coordinator: ModuleCoordinator) -> None:
    heard: list[str] = []
    coordinator.hooks.register(OUTPUT, lambda event, data: heard.append(data["text"]))
    await bash("seq 1 200000")
    assert len("".join(heard)) == 10_000


@pytest.mark.parametrize(
    ("limits", "command", "limit"),
    [
        ({"cpu_seconds": 1}, "while true; do true; done", "processor time was reached: cpu_seconds, 1"),
        (
            {"file_size_mb": 1},
            "dd if=/dev/zero of=big bs=1M count=3 2>/dev/null",
            "a file's size was reached: file_size_mb, 1",
        ),
        (
            {"open_files": 16},
            'for n in {3..40}; do eval "exec $n</dev/null" || exit; done',
            "open files was reached: open_files, 16",
        ),
        (
            {"memory_mb": 64},
            'x=$(head -c 200000000 /dev/zero | tr "\\0" x); echo ${#x}',
            "memory was reached: memory_mb, 64",
        ),
    ],
)  # fmt: skip
async def test_the_limit_that_a_command_reaches_is_named(
    mount_tools: Any, limits: dict[str, int], command: str, limit: str
) -> None:
    tool = (await mount_tools(limits=limits)).get("tools", "bash")
    result = await tool.execute({"command": command, "timeout": 60})
    assert result.output["exit_code"] != 0
    assert result.output["limit"] == f"the limit of {limit}"


async def test_calls_side_by_side_do_not_mix(bash: Any) -> None:
    results = await asyncio.gather(*(bash(f"echo {number}; sleep 0.1; echo {number}") for number in range(6)))
    assert [each.output["output"] for each in results] == [f"{number}\n{number}\n" for number in range(6)]


async def test_git_commits_with_the_name_of_the_person(bash: Any, work: Path) -> None:
    for command in ("git init -q", "echo a >a && git add a && git commit -qm a --author 'A <a@example.com>'"):
        result = await bash(f"export GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@example.com; {command}")
        assert result.output["exit_code"] == 0, result.output
    assert (await bash("git log --format=%an; git status --short")).output["output"] == "A\n"
