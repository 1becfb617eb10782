"""The commands `amplifier flow …`: runs, their ends, and what is said of mistakes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.flows.asking import ask_to_cancel
from amplifier_foundation.sessions.storages import open_store
from tests import forks

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: work}
providers:
  - module: provider-playbook
    config: {delay_ms: DELAY, otherwise: {say: "You said: {prompt}"}}
workflows:
  chain:
    steps:
STEPS
---
You work.
"""
WORDS = ("one", "two", "three", "four", "five", "six")


def write(folder: Path, steps: list[str], delay: int = 0) -> None:
    text = "\n".join(f"      - {step}" for step in steps)
    (folder / "bundle.md").write_text(BUNDLE.replace("DELAY", str(delay)).replace("STEPS", text))


def chain() -> list[str]:
    first = f"{{id: {WORDS[0]}, agent: self, prompt: {WORDS[0]}}}"
    return [
        first,
        *(f"{{id: {b}, agent: self, prompt: {b}, fork: {a}}}" for a, b in itertools.pairwise(WORDS)),
    ]


@pytest.fixture
def folder(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    return project


def flow(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = exits.OK) -> Any:
    capsys.readouterr()
    assert invoke(["flow", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)["data"]


def test_a_run_is_listed_shown_and_forked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, chain())
    done = flow(capsys, "run")
    assert done["outputs"]["six"] == "You said: six"
    assert [(each["run"], each["workflow"]) for each in flow(capsys, "list")] == [(done["run"], "chain")]
    assert [each["task"] for each in flow(capsys, "show", done["run"])["tasks"]] == list(WORDS)
    fork = flow(capsys, "fork", done["run"], "--at", "four")["run"]
    assert [each["task"] for each in flow(capsys, "show", fork)["tasks"]] == ["one", "two", "three"]
    assert flow(capsys, "resume", fork)["outputs"] == done["outputs"]
    assert [each["status"] for each in flow(capsys, "graph", fork)["tasks"]] == ["completed"] * 6


def test_a_task_with_items_left_is_not_drawn_as_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    each = "{max_concurrency: 1, for_each: input.n, do: [{id: a, agent: self, prompt: '{item}'}]}"
    write(folder, ["{id: first, value: 1}", each])
    run = flow(capsys, "run", "-i", "n=[1, 2, 3]")["run"]
    fork = flow(capsys, "fork", run, "--at", "a#3")["run"]
    assert [each["status"] for each in flow(capsys, "graph", fork)["tasks"]] == ["completed", None]
    for shape, told in (("text", "· a  (agent self) 2 of 3\n"), ("mermaid", '["a 2 of 3<br/>')):
        assert invoke(["flow", "graph", fork, "--format", shape]) == exits.OK
        assert told in capsys.readouterr().out
    assert invoke(["session", "tree", fork, "--format", "html"]) == exits.OK
    [drawn] = re.findall(r'<svg class="flow".*?</svg>', capsys.readouterr().out, re.DOTALL)
    assert drawn.count("✓") == 1
    assert flow(capsys, "resume", fork)["outputs"]["first"] == 1
    assert [each["status"] for each in flow(capsys, "graph", fork)["tasks"]] == ["completed", "completed"]
    assert invoke(["flow", "graph", fork]) == exits.OK
    assert "✓ a  (agent self)\n" in capsys.readouterr().out


def test_a_run_takes_no_turn_of_a_conversation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, chain())
    run = flow(capsys, "run")["run"]
    for command in (["run", "--resume", run, "hello"], ["session", "resume", run, "hello"]):
        assert invoke(command) == exits.CONFLICT
        assert f"Run the rest of it: amplifier flow resume {run}" in capsys.readouterr().err
    assert invoke(["run", "--resume", f"{run}-six-1", "hello"]) == exits.OK


def test_the_run_of_a_background_session_is_listed_with_its_workflow(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ["{id: one, value: 1}"])
    path = folder / "bundle.md"
    path.write_text(
        path.read_text().replace("workflows:", "background_sessions: [{name: back, workflow: chain}]\nworkflows:")
    )
    assert invoke(["trigger", "fire", "back"]) == exits.OK
    assert invoke(["up", "--once", str(path)]) == exits.OK
    assert [each["workflow"] for each in flow(capsys, "list")] == ["chain"]


def test_a_cancelled_run_of_a_background_session_goes_on_when_it_is_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ["{id: one, value: 1}", "{approval: sure}", "{id: two, value: 2}"])
    path = folder / "bundle.md"
    path.write_text(
        path.read_text().replace("workflows:", "background_sessions: [{name: back, workflow: chain}]\nworkflows:")
    )
    up = ["up", "--once", str(path)]
    assert invoke(["trigger", "fire", "back"]) == exits.OK
    assert invoke(up) == exits.FAILED  # it waits for an answer
    [run] = [each["run"] for each in flow(capsys, "list")]
    assert invoke(["flow", "resume", run]) == exits.CONFLICT
    assert "amplifier up goes on with it" in capsys.readouterr().err
    assert invoke(["flow", "cancel", run]) == exits.OK
    assert invoke(up) == exits.OK
    assert flow(capsys, "list")[0]["status"] == "cancelled"
    assert invoke(["flow", "resume", run, "--accept"]) == exits.OK
    how = "with the bundle as it is there: --accept changes nothing"
    assert capsys.readouterr().out == f"{run} goes on at the next: amplifier up, {how}\n"
    assert invoke(up) == exits.FAILED
    assert flow(capsys, "list")[0]["status"] == "waiting"
    assert invoke(["flow", "approve", run]) == exits.OK
    assert invoke(up) == exits.OK
    assert flow(capsys, "list")[0]["status"] == "completed"
    assert invoke(["flow", "resume", run]) == exits.CONFLICT
    assert "it is completed" in capsys.readouterr().err


@pytest.mark.parametrize("approves", [False, True])
def test_a_run_that_goes_on_with_a_changed_bundle_asks_anew_and_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str], approves: bool
) -> None:
    write(folder, ["{approval: sure, question: Sure?}"])
    assert invoke(["flow", "run"]) == exits.WAITING
    if approves:
        assert invoke(["flow", "approve", "last"]) == exits.OK
    write(folder, ["{approval: sure, question: Sure?}", "{id: more, value: 1}"])
    assert invoke(["flow", "resume", "last", "--accept"]) == exits.WAITING
    assert "task sure: Sure? (asked anew: the bundle has changed)" in capsys.readouterr().err
    assert invoke(["flow", "approve", "last"]) == exits.OK
    assert invoke(["flow", "resume", "last"]) == exits.OK


def test_each_failure_of_a_run_is_shown_with_its_attempt_and_its_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ["{id: one, agent: self, prompt: one, retries: 0}"])
    path = folder / "bundle.md"
    path.write_text(path.read_text().replace('otherwise: {say: "You said: {prompt}"}', "rules: []"))
    assert invoke(["flow", "run"]) == exits.FAILED
    assert invoke(["flow", "resume", "last"]) == exits.FAILED
    capsys.readouterr()
    assert invoke(["flow", "show", "last"]) == exits.OK
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["TASK", "STATUS", "ATTEMPT", "SESSION", "OUTPUT"]
    assert [row.split()[:3] for row in rows] == [["one", "failed", "1"], ["one", "failed", "2"]]
    assert all("playbook" in row for row in rows)


def test_the_remedy_of_a_provider_has_one_full_stop(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("amplifier_provider_openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write(folder, ["{id: one, agent: self, prompt: one, retries: 0}"])
    path = folder / "bundle.md"
    path.write_text(
        path.read_text()
        .replace("provider-playbook", "provider-openai")
        .replace("delay_ms: 0, ", "")
        .replace('otherwise: {say: "You said: {prompt}"}', "model: gpt-5")
    )
    assert invoke(["flow", "run"]) == exits.FAILED
    assert "in the provider's config. Go on with: amplifier flow resume" in capsys.readouterr().err


def test_a_killed_run_goes_on_and_takes_no_turn_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, chain(), delay=60)
    command = ["flow", "run"]
    run_id = ""
    for done in (1, 3, 5):
        process = forks.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(f"{WORDS[done]}: begins"):
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
        [found] = flow(capsys, "list")
        assert found["status"] == "interrupted"
        run_id = found["run"]
        assert len(flow(capsys, "show", run_id)["tasks"]) == done
        command = ["flow", "resume", run_id]
    result = flow(capsys, "resume", run_id)
    assert result["outputs"] == {word: f"You said: {word}" for word in WORDS}
    capsys.readouterr()
    assert invoke(["session", "show", f"{run_id}-six-1"]) == exits.OK
    shown = capsys.readouterr().out
    assert [len(re.findall(f"You said: {word}\\b", shown)) for word in WORDS] == [1] * 6


def test_a_changed_bundle_is_noticed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, [*chain(), "{id: last, agent: ./gone.md, prompt: last}"])
    failed = flow(capsys, "run", code=exits.FAILED)
    assert (failed["status"], failed["error"]["task"]) == ("failed", "last")
    write(folder, [*chain(), "{id: last, agent: self, prompt: last}"])
    capsys.readouterr()
    assert invoke(["flow", "resume", failed["run"]]) == exits.CONFLICT
    assert "has changed since. Go on with its present version: --accept" in capsys.readouterr().err
    assert flow(capsys, "resume", failed["run"], "--accept")["outputs"]["last"] == "You said: last"


def test_a_run_is_drawn_as_it_was_after_its_bundle_has_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, chain())
    run = flow(capsys, "run")["run"]
    write(folder, ["{id: other, value: 1}"])
    assert [each["id"] for each in flow(capsys, "graph", run)["tasks"]] == list(WORDS)
    assert [each["id"] for each in flow(capsys, "graph", "chain")["tasks"]] == ["other"]
    assert invoke(["session", "tree", run, "--format", "html"]) == exits.OK
    page = capsys.readouterr().out
    assert re.findall(r'class="task (\w+)" data-session="([^"]*)"', page) == [
        ("completed", f"{run}-{word}-1") for word in WORDS
    ]
    assert f'data-run="{run}"' in page


def test_a_run_that_went_on_with_a_changed_bundle_is_drawn_as_it_went_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ["{id: first, value: 1}", "{id: last, agent: ./gone.md, prompt: last}"])
    run = flow(capsys, "run", code=exits.FAILED)["run"]
    write(folder, ["{id: first, value: 1}", "{id: added, value: 2}", "{id: last, agent: self, prompt: last}"])
    assert flow(capsys, "resume", run, "--accept")["status"] == "completed"
    drawn = [(each["id"], each["status"]) for each in flow(capsys, "graph", run)["tasks"]]
    assert drawn == [(name, "completed") for name in ("first", "added", "last")]
    assert invoke(["session", "tree", run, "--format", "html"]) == exits.OK
    assert re.findall(r'class="task (\w+)"', capsys.readouterr().out) == ["completed"] * 3
    assert flow(capsys, "resume", run)["status"] == "completed"  # the change is accepted
    write(folder, ["{id: first, value: 1}"])
    assert invoke(["flow", "resume", run]) == exits.CONFLICT
    assert f"the run {run} is completed. Run what its changed bundle adds with: --accept" in capsys.readouterr().err


def test_a_run_of_an_older_version_is_drawn_from_its_bundle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, chain())
    run = flow(capsys, "run")["run"]

    async def age() -> str:
        store = open_inbox(load_plugins(environ={}))
        try:
            record, messages = await store.get(run), await store.read(run)
            about = {name: value for name, value in record.metadata["flow"].items() if name != "digest"}
            await store.create(replace(record, session_id="old", metadata={"flow": about}, message_count=0))
            await store.append("old", [{"role": "user", "content": "Run chain with {}"}, *messages[1:]], at=0)
            return "old"
        finally:
            await store.close()

    run = asyncio.run(age())
    assert [each["status"] for each in flow(capsys, "graph", run)["tasks"]] == ["completed"] * 6
    assert invoke(["session", "tree", run, "--format", "html"]) == exits.OK
    assert "data-run" not in capsys.readouterr().out.partition("<script>")[0]
    assert flow(capsys, "resume", run)["outputs"]["six"] == "You said: six"


@pytest.mark.parametrize(
    ("value", "kind"), [("1,2,3", "text"), ("5", "a whole number"), ('{"a": 1}', "a mapping"), (None, "nothing")]
)
def test_an_input_that_is_no_list_is_said_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], value: str | None, kind: str
) -> None:
    each = "{parallel: [{loop: [{for_each: input.n, do: [{id: a, value: 1}]}], until: 'a == a'}]}"
    may = "{if: input.m, then: [{for_each: input.m, do: [{id: b, value: 1}]}]}"
    write(folder, ["{id: paid, agent: self, prompt: costs}", each, may])
    assert invoke(["flow", "run", *([] if value is None else ["-i", f"n={value}"])]) == exits.USAGE
    told = f"for_each: input.n: it must be a list, not {kind}. Give the input 'n' as JSON: -i 'n=[1, 2, 3]'"
    assert told in capsys.readouterr().err
    assert flow(capsys, "list") == []
    assert flow(capsys, "run", "-i", "n=[1, 2]")["outputs"]["a"] == [1, 1]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("{id: a, agnt: self, prompt: x}", "workflows.chain.steps[1].agnt: unknown key; did you mean 'agent'?"),
        (
            "{id: a, agent: self, prompt: x, budget: {turn: 1}}",
            "workflows.chain.steps[1].budget.turn: unknown key; did you mean 'turns'?",
        ),
        (
            "{id: a, agent: self, prompt: x, retry_policy: {pause: 1}}",
            "workflows.chain.steps[1].retry_policy.pause: unknown key; known are first, factor, longest",
        ),
        ("{id: a}", "task 'a': it has neither an agent nor a value"),
        ("{agent: self, prompt: x}", "workflows.chain.steps[1]: a step has one of id, approval, parallel"),
        (
            "{id: a, agent: self, prompt: x, fork: b}",
            "TASK_FORK_SOURCE_NOT_FOUND: task 'a': there is no task 'b' to fork",
        ),
        (
            "{sequence: [{id: v, value: 1}, {id: a, agent: self, prompt: x, fork: v}]}",
            "TASK_FORK_SESSION_UNAVAILABLE: task 'a': 'v' is no agent's, and has no session",
        ),
        ("{id: a, agent: slf, prompt: x}", "task 'a': unknown agent 'slf'; did you mean 'self'? There are: self"),
        ("{id: a, agent: self, prompt: x, runner: subproces}", "unknown runner 'runner-subproces'; did you mean"),
        ("{loop: [{id: a, value: 1}], until: 'a =='}", "the condition 'a =='"),
        ("{id: a, value: 1, timeout: soon}", "workflows.chain.steps[1].timeout"),
        ("{for_each: 5, do: [{id: a, value: 1}]}", "workflows.chain.steps[1].for_each"),
    ],
)
def test_a_mistake_is_said_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], step: str, told: str
) -> None:
    write(folder, ["{id: paid, agent: self, prompt: costs}", step])
    assert invoke(["bundle", "validate", "--strict"]) == exits.USAGE
    assert told in capsys.readouterr().err
    assert invoke(["flow", "run"]) == exits.USAGE
    assert told in capsys.readouterr().err
    assert flow(capsys, "list") == [], "nothing has run"


def test_a_workflow_or_run_that_is_not_there_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, chain())
    assert invoke(["flow", "run", "chian"]) == exits.NOT_FOUND
    assert "did you mean 'chain'?" in capsys.readouterr().err
    assert invoke(["flow", "show", "abcd"]) == exits.NOT_FOUND


ASKS = [
    "{id: plan, agent: self, prompt: plan}",
    '{approval: publish, question: "Publish {plan}?", deps: plan}',
    "{id: tell, agent: self, fork: plan, prompt: tell}",
]


def test_a_run_without_a_terminal_waits_for_an_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ASKS)
    assert invoke(["flow", "run"]) == exits.WAITING
    told = capsys.readouterr().err
    [run] = flow(capsys, "list")
    assert (run["status"], f"amplifier flow approve {run['run']}" in told) == ("waiting", True)
    assert "task publish: Publish You said: plan?" in told
    assert [each["status"] for each in flow(capsys, "show", run["run"])["tasks"]] == ["completed", "waiting"]
    capsys.readouterr()
    assert invoke(["flow", "graph", run["run"]]) == exits.OK
    assert "? publish  (approval" in capsys.readouterr().out
    [question] = waiting(capsys)
    assert question["project"] == f"flow:{run['run']}"
    waits = flow(capsys, "resume", run["run"], code=exits.WAITING)
    assert [each["task"] for each in waits["waiting"]] == ["publish"]
    assert flow(capsys, "approve", run["run"])["left"] == 0
    assert flow(capsys, "resume", run["run"])["outputs"]["tell"] == "You said: tell"
    assert waiting(capsys) == []


def waiting(capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert invoke(["approvals", "list", "--json"]) == exits.OK
    return json.loads(capsys.readouterr().out)["data"]


def test_a_denied_run_fails_and_says_how_to_ask_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ASKS)
    run = flow(capsys, "run", code=exits.WAITING)["run"]
    flow(capsys, "deny", run, "publish", "--reason", "too early")
    capsys.readouterr()
    assert invoke(["flow", "resume", run]) == exits.FAILED
    told = capsys.readouterr().err
    assert "TASK_DENIED: task 'publish': it was denied: too early" in told
    assert f"Ask anew with a fork: amplifier flow fork {run} --at publish" in told
    fork = flow(capsys, "fork", run, "--at", "publish")["run"]
    assert flow(capsys, "resume", fork, code=exits.WAITING)["status"] == "waiting"


def test_a_question_is_chosen_by_its_task_and_the_others_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ["{parallel: [{approval: one}, {approval: two}]}"])
    run = flow(capsys, "run", code=exits.WAITING)["run"]
    capsys.readouterr()
    assert invoke(["flow", "approve", run]) == exits.CONFLICT
    assert "several questions wait" in capsys.readouterr().err
    assert invoke(["flow", "approve", run, "three"]) == exits.CONFLICT
    assert "nothing of 'three' waits" in capsys.readouterr().err
    assert flow(capsys, "approve", run, "two")["left"] == 1
    assert flow(capsys, "approve", run)["left"] == 0
    assert flow(capsys, "resume", run)["outputs"]["two"]["approved"] is True


def test_a_waiting_run_is_cancelled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ASKS)
    run = flow(capsys, "run", code=exits.WAITING)["run"]
    assert flow(capsys, "cancel", run)["cancelled"] is True
    assert [each["status"] for each in flow(capsys, "list")] == ["cancelled"]
    capsys.readouterr()
    assert invoke(["flow", "cancel", run]) == exits.CONFLICT
    assert "has ended: it is cancelled" in capsys.readouterr().err


def test_a_running_run_is_cancelled_from_another_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ["{id: slow, agent: self, prompt: slow}"], delay=60_000)
    command = ["flow", "run"]
    with forks.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        [run] = flow(capsys, "list")
        assert flow(capsys, "cancel", run["run"])["cancelled"] is True
        assert "RUN_CANCELLED" in process.stderr.read()
    assert process.returncode == exits.CANCELLED
    assert [each["status"] for each in flow(capsys, "list")] == ["cancelled"]


def test_a_person_at_a_terminal_is_asked_there(
    folder: Path, terminals: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ASKS)
    terminal = terminals("flow", "run")
    terminal.until(r"asks: [^\n]*Publish You said: plan\?")
    terminal.type("1\n")
    terminal.until("tell: You said: tell")
    assert terminal.ended() == exits.OK
    assert [each["status"] for each in flow(capsys, "list")] == ["completed"]


def test_a_mistake_in_a_workflow_is_found_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ["{id: a, agent: self, prompt: a, fork: b}"])
    assert invoke(["bundle", "validate", "--strict"]) == exits.USAGE
    assert "TASK_FORK_SOURCE_NOT_FOUND: task 'a'" in capsys.readouterr().err


def test_the_run_of_a_workflow_is_no_conversation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ASKS)
    run = flow(capsys, "run", code=exits.WAITING)["run"]
    capsys.readouterr()
    for command in (["run", "--fork", run, "hello"], ["run", "--resume", run, "hello"], ["session", "fork", run]):
        assert invoke(command) == exits.CONFLICT
        assert f"amplifier flow fork {run} --at TASK" in capsys.readouterr().err
    assert invoke(["session", "delete", run, "--yes"]) == exits.CONFLICT
    assert "end the run: amplifier flow cancel" in capsys.readouterr().err
    assert invoke(["logs"]) == exits.OK
    assert run not in capsys.readouterr().out


def test_a_wish_to_cancel_that_nobody_heard_ends_no_later_resume(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ["{id: slow, agent: self, prompt: slow}"], delay=1000)
    command = ["flow", "run"]
    with forks.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        os.kill(process.pid, signal.SIGKILL)
    [run] = flow(capsys, "list")
    store = open_store(load_plugins(), None)
    asyncio.run(ask_to_cancel(store, str(folder.resolve()), run["run"]))  # as `flow cancel` did before the kill
    asyncio.run(store.close())
    assert flow(capsys, "resume", run["run"])["status"] == "completed"


def test_an_input_that_the_workflow_does_not_have_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ['{id: a, agent: self, prompt: "{input.items} of {input.place}"}'])
    path = folder / "bundle.md"
    path.write_text(path.read_text().replace("chain:\n", "chain:\n    input: {items: none}\n"))
    for given, told in (("itmes", "; did you mean 'items'?"), ("x", "; it has items, place")):
        assert invoke(["flow", "run", "-i", f"{given}=1"]) == exits.USAGE
        assert f"the workflow 'chain' has no input '{given}'{told}" in capsys.readouterr().err
    assert flow(capsys, "list") == []
    assert flow(capsys, "run", "-i", "place=here")["outputs"] == {"a": "You said: none of here"}
    write(folder, ['{id: a, agent: self, prompt: "{input}"}'])
    assert flow(capsys, "run", "-i", "any=1")["outputs"] == {"a": 'You said: {"any": 1}'}
    write(folder, ["{id: a, value: 1}"])
    assert invoke(["flow", "run", "-i", "x=1"]) == exits.USAGE
    assert "has no input 'x'; it has none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("steps", "line", "column", "told"),
    [
        (
            ["{id: ready, value: 1}", "{loop: [{id: a, value: 1}], until: raedy.done}"],
            11,
            44,
            "'raedy.done' names 'raedy', which is no task and no input; did you mean 'ready'?",
        ),
        (["{id: a, value: 1, skip_if: zz.hh == 1}"], 10, 36, "task 'a': 'zz.hh == 1' names 'zz', which is no task"),
        (["{if: item.x, then: [{id: a, value: 1}]}"], 10, 14, "'item.x' names 'item', which is no task"),
        (
            ["{for_each: imput.x, do: [{id: a, value: 1}]}"],
            10,
            20,
            "names 'imput', which is no task and no input; did you",
        ),
        (
            ['{id: a, agent: self, prompt: "{input.palce}"}'],
            10,
            38,
            "the workflow 'chain' declares no input 'palce'; did you mean 'place'?",
        ),
        (
            ["{id: a, value: 1, skip_if: input.gg}"],
            10,
            36,
            "the workflow 'chain' declares no input 'gg'; without -i gg=VALUE it is empty",
        ),
    ],
)
def test_a_name_in_a_workflow_that_never_has_a_value_is_told_at_its_place(
    steps: list[str], line: int, column: int, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, steps)
    path = folder / "bundle.md"
    path.write_text(path.read_text().replace("chain:\n    steps", "chain:\n    input: {place: here}\n    steps"))
    assert invoke(["bundle", "validate", "--strict"]) == exits.USAGE
    out = capsys.readouterr()
    assert f"bundle.md:{line}:{column}: error[AMP120]" in out.out + out.err
    assert told in out.out + out.err
    if "is no task" in told:
        assert invoke(["flow", "run"]) == exits.USAGE
        assert told in capsys.readouterr().err
        assert flow(capsys, "list") == []


def test_a_run_that_another_process_has_is_gone_on_with_by_the_fork_that_is_advised(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, ["{id: first, value: 1}", "{id: slow, agent: self, prompt: slow}"], delay=60_000)
    command = ["flow", "run"]
    with forks.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if "slow" in line)
        [run] = [each["run"] for each in flow(capsys, "list")]
        assert invoke(["flow", "resume", run]) == exits.CONFLICT
        advice = f"takes the steps of run '{run}'. Wait until that has ended, or go on with a fork of it: "
        assert f"{advice}amplifier flow fork {run} --at TASK" in capsys.readouterr().err
        assert flow(capsys, "fork", run, "--at", "first")["fork_of"] == run
        process.kill()
    capsys.readouterr()


def test_a_null_is_called_null_in_a_prompt_as_on_the_display(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ["{id: a, value: null}", '{id: b, agent: self, prompt: "uses {a}", deps: a}'])
    assert invoke(["flow", "run"]) == exits.OK
    assert capsys.readouterr().out == "a: null\nb: You said: uses null\n"


def test_runs_and_workflows_that_are_not_there_are_told_as_such(
    project: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        return invoke(["flow", *arguments]), capsys.readouterr().err

    none = "amplifier: no workflow has run in this folder. See: amplifier flow list\n"
    for verb in ("show", "approve", "cancel", "deny", "resume"):
        assert told(verb, "last") == (exits.NOT_FOUND, none)
    assert told("fork", "last", "--at", "one") == (exits.NOT_FOUND, none)
    assert told("show", "nope-1") == (exits.NOT_FOUND, "amplifier: no run 'nope-1'. See: amplifier flow list\n")
    tasks = "steps: [{id: one, prompt: hi, agent: a}]"
    workflows = f"workflows: {{one: {{{tasks}}}, two: {{{tasks}}}}}"
    (project / "bundle.md").write_text(f"---\nbundle: {{name: b}}\n{workflows}\n---\n")
    missing = "amplifier: the bundle b has no workflow 'onne'; did you mean 'one'?\n"
    assert told("run", "onne") == (exits.NOT_FOUND, missing)
    assert told("run") == (exits.USAGE, "amplifier: the bundle has several workflows; name one of one, two\n")
