"""The foreman by the real command line: issues, workers, branches, and other processes beside them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits
from tests.programs import require

from .yard import PATIENCE, RULES, Yard, providers, wait_for_line, workers

pytestmark = pytest.mark.slow

MakeYard = Callable[..., Yard]
SPAWN = "Create an issue: Add unit tests for spawn module"
NO_MODEL = "No model is configured, so no worker can do it. Add one with: amplifier auth login"
FAILING = {"add": ("a + b", "a, b", "2, 3", 5), "mul": ("a * b", "a, b", "2, 3", 6), "neg": ("-a", "a", "2", -2)}
"""Functions with their bodies, arguments and a call with its result."""
REPAIRS: list[dict[str, Any]] = [
    {
        "when": {"user": "make the tests pass"},
        "call": [
            {"tool": "issue", "input": {"operation": "create", "title": f"Fix {name}", "type": "bug"}}
            for name in FAILING
        ],
    },
    {"when": {"tool": "issue"}, "say": "Three tests fail; issues 1 to 3 ask for their repair."},
    *(
        {
            "when": {"user": f"^Work on issue [0-9]+: Fix {name}"},
            "say": f"Repaired {name}.",
            "call": {
                "tool": "write_file",
                "input": {"file_path": f"{name}.py", "content": f"def {name}({given}):\n    return {body}\n"},
            },
        }
        for name, (body, given, _, _) in FAILING.items()
    ),
    {"when": {"tool": "write_file"}, "say": "Repaired {file_path}; its test passes."},
]
PIPELINE = {
    "name": "test-runner",
    "bundle": "./worker.md",
    "runner": "subprocess",
    "debounce": {"period": 0.1},
    "triggers": [
        {
            "module": "trigger-session-event",
            "config": {"event_names": ["work:completed"]},
            "instruction_template": "A worker has finished: {output}",
        },
        {"module": "trigger-file-watcher", "config": {"patterns": ["tests/**/*.py"], "debounce_ms": 20}},
    ],
    "on_complete_emit": "tests:completed",
}


@pytest.fixture
async def make_yard(tmp_path: Path) -> AsyncIterator[MakeYard]:
    """Make a project with a foreman; further ones share the data folder."""
    made: list[Yard] = []

    def make(name: str = "yard", **sections: Any) -> Yard:
        made.append(Yard(tmp_path / name, tmp_path / "home", **sections))
        return made[-1]

    yield make
    for each in made:
        await each.store.close()


def make_repository(yard: Yard) -> None:
    """Write functions that fail, and a test of each."""
    (yard.folder / "tests").mkdir()
    for name, (_, _, call, result) in FAILING.items():
        (yard.folder / f"{name}.py").write_text(f"def {name}(*given):\n    raise NotImplementedError\n")
        test = f"from {name} import {name}\n\ndef test_{name}():\n    assert {name}({call}) == {result}\n"
        (yard.folder / "tests" / f"test_{name}.py").write_text(test)
    yard.commit_all()


def failing_tests(folder: Path) -> list[str]:
    """Return the functions whose tests fail in a folder."""
    program = "import sys; sys.path[:0] = ['.', 'tests']; import test_{0}; test_{0}.test_{0}()"
    return [
        name
        for name in FAILING
        if subprocess.run([sys.executable, "-Bc", program.format(name)], cwd=folder, capture_output=True).returncode
    ]


async def test_the_bundle_is_valid(make_yard: MakeYard) -> None:
    done = await make_yard().succeed("bundle", "validate", "foreman:bundle")
    assert done.stdout == "foreman:bundle: valid\n"


async def test_foreman_end_to_end(make_yard: MakeYard) -> None:
    """The spec's own example, without a model: the stand-in files the issue, and its worker escalates it."""
    yard = make_yard()
    done = await yard.succeed("run", "-b", "foreman:bundle", SPAWN)
    assert done.stdout.startswith("Issue 1 is filed: Add unit tests for spawn module.")
    [issue] = await yard.issues()
    assert (issue.title, issue.state, issue.reason) == ("Add unit tests for spawn module", "escalated", NO_MODEL)
    assert f"! 1 Add unit tests for spawn module {NO_MODEL}"[:40] in " ".join(done.stderr.split())
    assert {each.state for each in (await yard.deliveries()).values()} == {"done"}
    again = await yard.succeed("run", "-b", "foreman:bundle", "What is the progress?")
    assert '"state": "escalated"' in again.stdout


async def test_event_driven_pipeline(make_yard: MakeYard) -> None:
    """From the issue over the worker to the tests; a changed test file has them run, too."""
    yard = make_yard(background_sessions=[workers(), PIPELINE])
    async with yard.up():
        await yard.succeed("issue", "create", "write note.txt hello")

        async def are_tested(count: int) -> bool:
            return len(await yard.events("tests:completed")) == count

        await yard.until(lambda: are_tested(1))
        [tested] = await yard.events("tests:completed")
        assert await yard.chain(tested) == ["issue:created", "work:completed", "tests:completed"]
        (yard.folder / "tests").mkdir()
        (yard.folder / "tests" / "test_new.py").write_text("def test_new(): pass\n")
        await yard.until(lambda: are_tested(2))
        _, tested = await yard.events("tests:completed")
        assert await yard.chain(tested) == ["file_change", "tests:completed"]
    assert (yard.folder / "note.txt").read_text() == "hello\n"


async def test_multi_worker_pool(make_yard: MakeYard) -> None:
    """Three workers work side by side, and no fourth one beside them."""
    yard = make_yard(background_sessions=[workers(pool_size=3)])
    for _ in range(5):
        await yard.tracker.create("hold")
    async with yard.up():
        await yard.until_states(*["in_progress"] * 3, "open", "open")
        yard.go()
        done = await yard.until_states(*["closed"] * 5)
    assert len({each.assignee for each in done}) == 5
    assert [each.result for each in done] == ["Held."] * 5


async def test_file_trigger_and_worker(make_yard: MakeYard) -> None:
    """A changed file wakes a session that files an issue, and a worker does it."""
    rules = [
        {
            "when": {"user": "^Changed: (?P<path>\\S+)"},
            "call": {
                "tool": "issue",
                "input": {"operation": "create", "title": "write seen.txt {path}", "labels": ["found"]},
            },
        },
        *RULES,
    ]
    looking = {
        "name": "looker",
        "bundle": "foreman:workers/research-worker",
        "triggers": [{"type": "file_change", "config": {"patterns": ["*.py"], "debounce_ms": 20}}],
        "instruction_template": "Changed: {file_path}",
    }
    yard = make_yard(background_sessions=[looking, workers()], providers=providers(rules))
    async with yard.up():
        (yard.folder / "app.py").write_text("x = 1\n")
        [issue] = await yard.until_states("closed")
        [closed] = await yard.events("issue:closed")
        assert await yard.chain(closed) == ["file_change", "issue:created", "issue:closed"]
    assert (issue.labels, (yard.folder / "seen.txt").read_text()) == (["found"], "app.py\n")


@pytest.mark.parametrize("finish", ["branch", "merge"])
async def test_the_tests_of_a_repository_are_repaired_side_by_side(make_yard: MakeYard, finish: str) -> None:
    require("git")
    coding = workers(pool_size=3, worktree={"branch": "issue-{issue_id}", "finish": finish})
    yard = make_yard(background_sessions=[coding, PIPELINE], providers=providers(REPAIRS))
    make_repository(yard)
    assert failing_tests(yard.folder) == list(FAILING)
    done = await yard.succeed("run", "make the tests pass")
    assert done.stdout == "Three tests fail; issues 1 to 3 ask for their repair.\n"
    issues = await yard.issues()
    assert [each.state for each in issues] == ["closed"] * 3
    assert len(await yard.events("issue:closed")) == 3
    for each in issues:
        assert f"✓ {each.id} {each.title} issue-{each.id}" in " ".join(done.stderr.split()), "the report names it"
    assert len(yard.git("worktree", "list").splitlines()) == 1
    assert yard.git("status", "--porcelain") == ""
    if finish == "merge":
        assert (yard.branches(), failing_tests(yard.folder)) == (["main"], [])
        assert all(each.metadata["merged"] for each in issues)
        return
    assert yard.branches() == ["issue-1", "issue-2", "issue-3", "main"]
    for each, name in zip(issues, [issue.title.removeprefix("Fix ") for issue in issues], strict=True):
        copy = yard.home / f"copy-{each.id}"
        yard.git("clone", "--quiet", "--branch", f"issue-{each.id}", str(yard.folder), str(copy))
        assert failing_tests(copy) == [other for other in FAILING if other != name]


async def test_workers_run_without_a_conversation_for_issues_of_other_processes(make_yard: MakeYard) -> None:
    yard = make_yard()
    async with yard.up("foreman:bundle"):
        made = await yard.succeed("issue", "create", "Add unit tests", "-p", "1")
        assert made.stdout == "1  open  Add unit tests\n"
        [issue] = await yard.until_states("escalated")
        await yard.succeed("issue", "create", "Find out why", "-t", "research")
        _, found = await yard.until_states("escalated", "escalated")
    queues = [str(each.queue) for each in (issue, found)]
    assert queues == ["foreman/coding-workers", "foreman/research-workers"]


async def test_issues_from_before_the_very_first_start_are_worked(make_yard: MakeYard) -> None:
    yard = make_yard()
    for number in range(3):
        await yard.succeed("issue", "create", f"write {number}.txt hello")
    await yard.succeed("issue", "depend", "1", "3")
    await yard.succeed("up", "--once")
    assert [each.state for each in await yard.issues()] == ["closed"] * 3
    assert [event.data["id"] for event in await yard.events("issue:closed")][-1] == 1
    assert len(await yard.events("issue:closed")) == 3
    await yard.succeed("up", "--once")
    assert len(await yard.deliveries()) == 3 + len(await yard.events("work:completed")), "no issue was taken twice"


async def test_a_conversation_leaves_the_workers_to_the_process_that_has_them(make_yard: MakeYard) -> None:
    yard = make_yard()
    async with yard.up() as process:
        done = await yard.succeed("run", "file hold")
        assert done.stdout == "Filed 1.\n"
        assert f"foreman: the workers of this folder run in process {process.pid} (yard)" in done.stderr
        await yard.until_states("in_progress")
        yard.go()
        await yard.until_states("closed")


async def test_two_projects_of_a_machine_have_workers_at_the_same_time(make_yard: MakeYard) -> None:
    yards = [make_yard("one"), make_yard("two")]
    async with yards[0].up(), yards[1].up():
        for yard in yards:
            await yard.succeed("issue", "create", "hold")
        for yard in yards:
            await yard.until_states("in_progress")
        yards[0].go()
        await yards[0].until_states("closed")
        await yards[1].until_states("in_progress")
        yards[1].go()
        await yards[1].until_states("closed")


async def test_pools_and_routes_are_another_spelling(make_yard: MakeYard) -> None:
    require("git")
    pools = [
        {"name": "coding-pool", "worker_bundle": "./worker.md", "max_concurrent": 2, "route_types": ["coding"]},
        {"name": "reading-pool", "worker_bundle": "./worker.md"},
    ]
    routing = {"default_pool": "coding-pool", "rules": [{"if_metadata_type": ["bug"], "then_pool": "reading-pool"}]}
    config = {"worker_pools": pools, "routing": routing}
    orchestrator = {"module": "orchestrator-foreman", "config": config}
    sections = {"session": {"orchestrator": orchestrator, "context": "context-simple"}, "includes": []}
    yard = make_yard(**sections, tools=[{"module": "tool-issue"}], background_sessions=[])
    yard.commit_all()
    for kind in ("coding", "bug"):
        await yard.tracker.create(f"write {kind}.txt hello", type=kind)
    await yard.succeed("bundle", "validate", ".")
    await yard.succeed("run", "file write other.txt hello")
    issues = await yard.issues()
    assert [each.state for each in issues] == ["closed"] * 3
    queues = [str(each.queue) for each in issues]
    assert queues == ["yard/coding-pool", "yard/reading-pool", "yard/coding-pool"]
    assert len(yard.branches()) == 4, "each has a branch of its own"


async def test_what_a_worker_cannot_do_is_tried_again_then_waits_for_a_person(make_yard: MakeYard) -> None:
    once = workers(max_attempts=1)
    yard = make_yard(background_sessions=[once])
    first = await yard.run("run", "--name", "chief", "file fail at this")
    assert first.returncode == exits.FAILED, "work was given up"
    [issue] = await yard.issues()
    assert (issue.state, issue.failures) == ("escalated", 2)
    assert "unknown" in issue.reason
    assert "! 1 fail at this" in " ".join(first.stderr.split())
    rules = [{"when": {"user": "^Work on issue [0-9]+: fail"}, "say": "Now I can."}, *RULES]
    yard.write(background_sessions=[once], providers=providers(rules))
    await yard.succeed("issue", "update", "1", "--status", "open")
    await yard.succeed("up", "--once")
    [issue] = await yard.issues()
    assert (issue.state, issue.failures, issue.result) == ("closed", 0, "Now I can.")
    [chief] = [each for each in await yard.store.sessions() if each.name == "chief"]
    again = await yard.succeed("run", "--accept", "--resume", chief.session_id, "hello")
    assert "issue 1 is closed (completed): fail at this. Now I can." in " ".join(again.stderr.split())


@pytest.mark.parametrize("how", ["close", "update", "unseen"])
async def test_work_on_an_issue_that_a_person_closes_meanwhile_is_not_merged(make_yard: MakeYard, how: str) -> None:
    require("git")
    calls = [
        {"tool": "write_file", "input": {"file_path": "new.txt", "content": "new\n"}},
        {"tool": "hold", "input": {}},
    ]
    rules = [{"when": {"user": "^Work on issue [0-9]+: keep"}, "call": calls}, *RULES]
    merging = workers(worktree={"branch": "issue-{issue_id}", "finish": "merge"})
    yard = make_yard(background_sessions=[merging], providers=providers(rules))
    yard.commit_all()
    await yard.tracker.create("keep")
    async with yard.up():
        [issue] = await yard.until_states("in_progress")
        session_id = str(issue.assignee)

        async def has_written() -> bool:
            return any(yard.home.glob("worktrees/**/new.txt"))

        await yard.until(has_written)
        if how == "unseen":  # as where no process can be asked
            await yard.tracker.close(1, resolution="wontfix")
            yard.go()
        elif how == "close":
            done = await yard.succeed("issue", "close", "1", "--resolution", "wontfix")
            assert (done.stdout, done.stderr) == ("1  closed  keep\n", f"Its session {session_id} is stopped.\n")
        else:
            done = await yard.succeed("issue", "update", "1", "--status", "closed")
            assert done.stderr == f"Its session {session_id} is stopped.\n"

        async def is_skipped() -> bool:
            return [each.state for each in (await yard.deliveries()).values()] == ["skipped"]

        await yard.until(is_skipped)
    [delivery] = (await yard.deliveries()).values()
    assert str(delivery.reason).startswith("issue 1 is closed (wontfix)" if how == "unseen" else "cancelled by ")
    [issue] = await yard.issues()
    assert (issue.state, issue.result, issue.assignee) == ("closed", "", session_id)
    assert (await yard.store.get(session_id)).status == "cancelled"
    assert (yard.git("log", "--format=%s", "main"), (yard.folder / "new.txt").exists()) == ("first", False)
    assert yard.branches() == ["issue-1", "main"]
    assert await yard.events("work:completed") == []


async def test_an_issue_that_is_closed_before_its_work_begins_is_skipped_without_a_warning(make_yard: MakeYard) -> None:
    yard = make_yard(background_sessions=[workers(pool_size=1)])
    for title in ("hold", "write note.txt hello"):
        await yard.tracker.create(title)
    with yard.start("up", "--once") as process:
        await yard.until_states("in_progress", "open")
        await yard.succeed("issue", "close", "2", "--resolution", "wontfix")
        yard.go()
        out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert (process.returncode, "WARNING" in err, "✗" in out + err) == (0, False, False)
    assert any("⊘ coding-workers" in line and "issue 2 is closed (wontfix)" in line for line in out.splitlines()), out
    assert not (yard.folder / "note.txt").exists()


async def test_ctrl_c_ends_a_run_and_the_next_one_goes_on(make_yard: MakeYard) -> None:
    yard = make_yard(background_sessions=[workers(pool_size=1)])
    await yard.tracker.create("hold")
    with yard.start("run", "file write note.txt hello") as process:
        assert await wait_for_line(process.stderr, "▶ coding-workers"), "the turn is over"
        await yard.until_states("in_progress", "open")
        process.send_signal(signal.SIGINT)
        told = await wait_for_line(process.stderr, "stopping the workers")
        assert told == "amplifier: stopping the workers; their work goes on with: amplifier up\n"
        yard.go()  # what runs may finish
        await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert process.returncode == exits.INTERRUPTED
    assert [each.state for each in await yard.issues()] == ["closed", "open"]
    await yard.succeed("run", "hello")
    assert [each.state for each in await yard.issues()] == ["closed", "closed"]


async def test_work_that_a_second_ctrl_c_cuts_is_taken_up_by_the_next_run(make_yard: MakeYard) -> None:
    yard = make_yard()
    with yard.start("run", "file hold") as process:
        assert await wait_for_line(process.stderr, "▶ coding-workers"), "the turn is over"
        await yard.until_states("in_progress")
        process.send_signal(signal.SIGINT)
        assert await wait_for_line(process.stderr, "stopping the workers")
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert process.returncode == exits.INTERRUPTED, err
    assert "Traceback" not in err, err
    yard.go()
    await yard.succeed("up", "--once")
    [issue] = await yard.issues()
    assert (issue.state, len(await yard.events("issue:closed"))) == ("closed", 1)
    [delivery] = [each for each in (await yard.deliveries()).values() if each.queue == "yard/coding-workers"]
    assert delivery.session_id == issue.assignee, "the session that had begun has done it"


ACCEPTANCE = """
set -eu
amplifier bundle validate foreman:bundle
amplifier up foreman:bundle --detach
trap 'amplifier stop --all' EXIT
amplifier logs | grep 'coding-workers *running'
amplifier logs | grep 'test-runner *running'
amplifier run -b foreman:bundle "Create an issue: Add unit tests for spawn module"
wait_for() { until "$@" > found 2>&1; do sleep 0.2; done; cat found; }
logged() { amplifier logs | grep "$1"; }
listed() { amplifier issue list --all | grep "$1"; }
wait_for listed '1 *escalated .*Add unit tests for spawn module'
wait_for logged 'test-runner *event work:completed of coding-workers'
wait_for logged '✓ test-runner'
amplifier logs | grep '✓ coding-workers'
"""


async def test_the_steps_of_acceptance_run_as_a_script(make_yard: MakeYard) -> None:
    yard = make_yard()
    (yard.folder / "amplifier").write_text(f'#!/bin/sh\nexec {sys.executable} -m amplifier_foundation "$@"\n')
    (yard.folder / "amplifier").chmod(0o755)
    environment = {**yard.environment, "PATH": f"{yard.folder}:{yard.environment['PATH']}"}
    script = partial(
        subprocess.run, ["sh", "-c", ACCEPTANCE], cwd=yard.folder, env=environment, capture_output=True, text=True
    )
    done = await asyncio.to_thread(script, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(no answer)" not in done.stdout
    assert "has ended" in done.stdout + done.stderr
