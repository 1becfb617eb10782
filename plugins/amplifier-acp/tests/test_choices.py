"""What a person chooses in the editor: whom to trust, the mode, the provider, the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

OWN = """---
bundle: {name: stranger}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
hooks: [{module: hooks-own, source: ./own.py}]
---
You are a stranger.
"""
HOOK = """
from pathlib import Path
Path(__file__).with_name("ran").write_text("VERSION")

async def mount(coordinator, config):
    return None
"""
TWO = """---
bundle: {name: two}
providers:
  - module: provider-playbook
    instance_id: swift
    config:
      priority: 1
      rules:
        - {when: {user: "^write"}, call: {tool: write_file, input: {file_path: a.txt, content: x}}}
        - {when: {tool: write_file}, say: "Done."}
      otherwise: {say: "swift"}
  - module: provider-playbook
    instance_id: thorough
    config: {priority: 2, otherwise: {say: "thorough"}}
tools: [{module: tool-filesystem}]
---
You are two.
"""
LEAD = """---
bundle: {name: lead}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {tool: delegate}, say: "It has ended."}
        - {when: {tool: write_file}, say: "Tried."}
        - {when: {tool: wait}, call: {tool: write_file, input: {file_path: a.txt, content: x}}}
        - {when: {user: do the work}, call: {tool: wait, input: {}}}
        - {when: {user: delegate}, call: {tool: delegate, input: {agent: worker, instruction: do the work}}}
tools: [{module: tool-delegate}, {module: tool-filesystem}, {module: wait, source: ./wait.py}]
permissions: {allow: [wait, delegate]}
agents:
  worker: {description: Works.}
---
You lead.
"""
WAIT = """
import asyncio
from pathlib import Path

class Wait:
    name, description = "wait", "Waits."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        Path(__file__).with_name("waits").touch()
        while not Path(__file__).with_name("goes").exists():
            await asyncio.sleep(0.01)
        return "done"

async def mount(coordinator, config):
    await coordinator.mount("tools", Wait())
"""


def choose(name: str) -> Callable[[dict[str, Any]], str]:
    """Return a person who chooses the option with this beginning."""
    return lambda asked: next(each["optionId"] for each in asked["options"] if each["name"].startswith(name))


def option(told: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one of the options that are told."""
    return next(each for each in told["configOptions"] if each["id"] == name)


# trust


SAYS = '{otherwise: {say: "You said: {prompt}"}}'


@pytest.fixture(scope="module")
def careful_editor(editors: Any) -> Any:
    """An editor of a person who is asked about strangers."""
    environment = {name: value for name, value in editors.environment.items() if name != "AMPLIFIER_TRUST"}
    return editors.start(environment=environment)


@pytest.fixture
def careful(careful_editor: Any) -> Any:
    """The careful editor, which has heard nothing yet."""
    for heard in (careful_editor.updates, careful_editor.questions):
        heard.clear()
    return careful_editor


@pytest.fixture
def stranger(make: Any) -> Path:
    """A project whose bundle runs code of its own."""
    return make(OWN, "stranger", own_py=HOOK)  # type: ignore[no-any-return]


def test_a_strange_bundle_is_asked_about_at_the_first_prompt(careful: Any, stranger: Path) -> None:
    careful.allow = choose("Trust")
    session = careful.new(stranger)
    assert not careful.questions and not (stranger / "ran").exists()
    assert careful.prompt(session, "one")["stopReason"] == "end_turn"
    (asked,) = careful.questions
    assert asked["params"]["sessionId"] == session
    assert str(stranger) in asked["params"]["toolCall"]["title"]
    assert "own.py" in asked["params"]["toolCall"]["content"][0]["content"]["text"]
    assert [each["kind"] for each in asked["params"]["options"]] == ["allow_always", "reject_once"]
    assert (stranger / "ran").exists()
    careful.prompt(session, "two")
    assert careful.prompt(careful.new(stranger), "three")["stopReason"] == "end_turn"
    assert len(careful.questions) == 1


def test_a_bundle_that_is_not_trusted_runs_nothing(careful: Any, stranger: Path) -> None:
    careful.allow = choose("Do not")
    session = careful.new(stranger)
    for count in (1, 2):
        error = careful.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "one"}])
        assert error["code"] == -32603 and "trust" in error["message"]
        assert len(careful.questions) == count  # each prompt asks anew, and once
    assert not (stranger / "ran").exists()
    assert careful.call("session/list", cwd=str(stranger))["sessions"] == []
    careful.call("session/close", sessionId=session)


def test_a_question_about_trust_is_withdrawn_with_its_prompt(careful: Any, stranger: Path) -> None:
    careful.allow = lambda _: None
    session = careful.new(stranger)
    prompt = careful.say(session, "one")
    careful.until(lambda: careful.questions)
    careful.notify("session/cancel", sessionId=session)
    assert careful.wait(prompt)["stopReason"] == "cancelled"
    assert not (stranger / "ran").exists()


def test_a_bundle_that_has_changed_is_asked_about_again(careful: Any, stranger: Path) -> None:
    careful.allow = choose("Trust")
    session = careful.new(stranger)
    careful.prompt(session, "one")
    (stranger / "own.py").write_text(HOOK.replace("VERSION", "second"))
    careful.allow = choose("Do not")
    second = careful.new(stranger)
    careful.refusal("session/prompt", sessionId=second, prompt=[{"type": "text", "text": "one"}])
    assert "changed" in careful.questions[-1]["params"]["toolCall"]["content"][0]["content"]["text"]
    assert (stranger / "ran").read_text() == "VERSION"
    assert careful.prompt(session, "two")["stopReason"] == "end_turn"  # it runs what was trusted
    careful.call("session/close", sessionId=session)
    careful.load(session, stranger)
    careful.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "three"}])
    for its_id in (session, second):
        careful.call("session/close", sessionId=its_id)
    careful.allow = choose("Trust")
    careful.load(session, stranger)
    assert careful.prompt(session, "three")["stopReason"] == "end_turn"


def test_the_settings_of_a_strange_project_are_asked_about(careful: Any, folder: Path) -> None:
    (folder / ".amplifier").mkdir()
    (folder / ".amplifier" / "settings.yaml").write_text("permissions: {allow: [write_file]}\nbundle: bundle.md\n")
    careful.allow = choose("Do not")
    session = careful.new(folder)
    error = careful.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "one"}])
    assert "settings.yaml" in error["message"] or "trust" in error["message"]
    careful.call("session/close", sessionId=session)
    careful.allow = choose("Trust")
    assert careful.prompt(careful.new(folder), "two")["stopReason"] == "end_turn"


@pytest.mark.parametrize(("answer", "said"), [("Trust", "Say hello to you."), ("Do not", "/hello you")])
def test_the_commands_of_a_strange_project_are_asked_about_at_the_first_prompt(
    careful: Any, make: Any, answer: str, said: str
) -> None:
    tools = "tools: [{module: tool-skills, config: {sources: [project]}}]"
    chat = f"---\nbundle: {{name: chat}}\nproviders: [{{module: provider-playbook, config: {SAYS}}}]\n{tools}\n---\n"
    folder = make(chat, answer.replace(" ", "-"))
    (folder / ".claude" / "commands").mkdir(parents=True)
    (folder / ".claude" / "commands" / "hello.md").write_text("Say hello to $1.")
    careful.allow = choose("Trust")
    careful.prompt(careful.new(folder), "the bundle is trusted")
    careful.questions.clear()
    (folder / ".claude" / "commands" / "hello.md").write_text("Say hello to $1.\n")
    careful.allow = choose(answer)
    session = careful.new(folder)
    assert careful.prompt(session, "/hello you")["stopReason"] == "end_turn"
    assert careful.text_of(session) == f"You said: {said}"
    (asked,) = careful.questions
    assert "hello.md" in asked["params"]["toolCall"]["content"][0]["content"]["text"]
    assert careful.prompt(session, "again")["stopReason"] == "end_turn"
    assert len(careful.questions) == 1


def test_a_fork_of_a_strange_bundle_is_asked_about_at_its_first_prompt(
    careful: Any, editor: Any, stranger: Path
) -> None:
    session = editor.new(stranger)  # by a person who trusts everything
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    (stranger / "ran").unlink()
    careful.allow = choose("Trust")
    fork = careful.call("session/fork", sessionId=session, cwd=str(stranger))["sessionId"]
    assert not careful.questions and not (stranger / "ran").exists()
    assert careful.prompt(fork, "two")["stopReason"] == "end_turn"
    assert len(careful.questions) == 1


# modes


@pytest.mark.parametrize("way", ["session/set_mode", "session/set_config_option"])
def test_a_mode_holds_from_its_choice_on(editor: Any, make: Any, way: str) -> None:
    two = make(TWO)
    session = editor.new(two)

    def set_mode(mode: str) -> None:
        if way == "session/set_mode":
            editor.call(way, sessionId=session, modeId=mode)
        else:
            told = editor.call(way, sessionId=session, configId="mode", value=mode)
            assert option(told, "mode")["currentValue"] == mode
        assert editor.updates_of(session, "current_mode_update")[-1]["currentModeId"] == mode

    editor.prompt(session, "write")
    assert editor.questions == [] and (two / "a.txt").exists()
    set_mode("ask")
    editor.prompt(session, "write")
    assert len(editor.questions) == 1
    set_mode("read-only")
    editor.prompt(session, "write")
    assert len(editor.questions) == 1
    assert editor.updates_of(session, "tool_call_update")[-1]["status"] == "failed"
    set_mode("auto")
    editor.prompt(session, "write")
    assert len(editor.questions) == 1
    assert editor.updates_of(session, "tool_call_update")[-1]["status"] == "completed"


@pytest.mark.parametrize("mode", ["read-only", "ask"])
def test_a_mode_holds_for_an_agent_at_work_too(editor: Any, make: Any, mode: str) -> None:
    lead = make(LEAD, wait_py=WAIT)
    editor.allow = choose("Deny")
    session = editor.new(lead)
    prompt = editor.say(session, "delegate")
    while not (lead / "waits").exists():
        pass
    editor.call("session/set_mode", sessionId=session, modeId=mode)
    (lead / "goes").touch()
    assert editor.wait(prompt)["stopReason"] == "end_turn"
    assert not (lead / "a.txt").exists()
    assert len(editor.questions) == (mode == "ask")


def test_a_bundle_leaves_only_stricter_modes_to_choose(editor: Any, make: Any) -> None:
    strict = make(TWO.replace("tools:", "permissions: {mode: ask}\ntools:"))
    told = editor.call("session/new", cwd=str(strict), mcpServers=[])
    assert told["modes"]["currentModeId"] == "ask"
    assert [each["id"] for each in told["modes"]["availableModes"]] == ["ask", "read-only"]
    error = editor.refusal("session/set_mode", sessionId=told["sessionId"], modeId="auto")
    assert error["code"] == -32602


@pytest.mark.parametrize("mode", ["nonsense", "", "AUTO"])
def test_an_unknown_mode_is_refused(editor: Any, folder: Path, mode: str) -> None:
    session = editor.new(folder)
    error = editor.refusal("session/set_mode", sessionId=session, modeId=mode)
    assert (error["code"], error["message"].partition(":")[0]) == (-32602, "modeId")


# providers and models


def test_another_provider_answers_from_its_choice_on(editor: Any, make: Any) -> None:
    told = editor.call("session/new", cwd=str(make(TWO)), mcpServers=[])
    session = told["sessionId"]
    assert option(told, "provider")["currentValue"] == "swift"
    assert [each["value"] for each in option(told, "provider")["options"]] == ["swift", "thorough"]
    editor.prompt(session, "one")
    told = editor.call("session/set_config_option", sessionId=session, configId="provider", value="thorough")
    assert option(told, "provider")["currentValue"] == "thorough"
    editor.prompt(session, "two")
    assert editor.text_of(session) == "swiftthorough"


def test_the_default_provider_of_the_orchestrator_is_the_first_choice(editor: Any, make: Any) -> None:
    default = "session: {orchestrator: {module: loop-basic, config: {default_provider: thorough}}}\n---\nYou"
    told = editor.call("session/new", cwd=str(make(TWO.replace("---\nYou", default))), mcpServers=[])
    assert option(told, "provider")["currentValue"] == "thorough"
    editor.prompt(told["sessionId"], "one")
    assert editor.text_of(told["sessionId"]) == "thorough"


def test_choices_stay_with_their_session_and_its_forks(editor: Any, editors: Any, make: Any) -> None:
    two = make(TWO)
    session = editor.new(two)
    editor.prompt(session, "one")
    editor.call("session/set_config_option", sessionId=session, configId="provider", value="thorough")
    editor.call("session/set_config_option", sessionId=session, configId="model", value="deep")
    editor.call("session/set_mode", sessionId=session, modeId="ask")
    fork = editor.call("session/fork", sessionId=session, cwd=str(two))
    editor.call("session/close", sessionId=session)
    other = editors.start()
    loaded = other.call("session/load", sessionId=session, cwd=str(two), mcpServers=[])
    later = other.call("session/fork", sessionId=session, cwd=str(two))
    for told in (fork, loaded, later):
        assert told["modes"]["currentModeId"] == option(told, "mode")["currentValue"] == "ask"
        assert option(told, "provider")["currentValue"] == "thorough"
        assert option(told, "model")["currentValue"] == "deep"
    other.prompt(session, "two")
    assert other.text_of(session).endswith("thorough")
    editor.prompt(fork["sessionId"], "three")
    assert editor.text_of(fork["sessionId"]) == "thorough"
    assert other.close() == 0
    untouched = editor.call("session/new", cwd=str(two), mcpServers=[])
    assert untouched["modes"]["currentModeId"] == "auto"
    assert option(untouched, "provider")["currentValue"] == "swift"


def test_a_choice_in_a_fork_leaves_its_source_alone(editor: Any, make: Any) -> None:
    two = make(TWO)
    session = editor.new(two)
    editor.prompt(session, "one")
    fork = editor.call("session/fork", sessionId=session, cwd=str(two))["sessionId"]
    editor.call("session/set_config_option", sessionId=fork, configId="provider", value="thorough")
    editor.call("session/set_mode", sessionId=fork, modeId="read-only")
    told = editor.call("session/resume", sessionId=session, cwd=str(two))
    assert (told["modes"]["currentModeId"], option(told, "provider")["currentValue"]) == ("auto", "swift")


@pytest.mark.parametrize(
    ("name", "value"),
    [("provider", "nobody"), ("provider", True), ("provider", ""), ("mode", "x"), ("nonsense", "x"), ("model", False)],
)
def test_what_cannot_be_chosen_is_refused(editor: Any, make: Any, name: str, value: Any) -> None:
    session = editor.new(make(TWO))
    params = {"type": "boolean"} if isinstance(value, bool) else {}
    error = editor.refusal("session/set_config_option", sessionId=session, configId=name, value=value, **params)
    assert error["code"] == -32602
    assert editor.prompt(session, "one")["stopReason"] == "end_turn"
    assert editor.text_of(session) == "swift"


def test_a_model_is_the_default_again(editor: Any, make: Any) -> None:
    told = editor.call("session/new", cwd=str(make(TWO)), mcpServers=[])
    session, default = told["sessionId"], option(told, "model")["currentValue"]
    for value, current in (("deep", "deep"), ("default", default)):
        told = editor.call("session/set_config_option", sessionId=session, configId="model", value=value)
        assert option(told, "model")["currentValue"] == current


def test_a_provider_is_not_changed_in_the_middle_of_a_prompt(editor: Any, make: Any) -> None:
    asks = make(TWO.replace("tools:", "permissions: {ask: [write_file]}\ntools:"))
    editor.allow = lambda _: None
    session = editor.new(asks)
    prompt = editor.say(session, "write")
    editor.until(lambda: editor.questions)
    error = editor.refusal("session/set_config_option", sessionId=session, configId="provider", value="thorough")
    assert error["code"] == -32600
    editor.call("session/set_mode", sessionId=session, modeId="read-only")
    editor.answer(editor.questions[0], {"outcome": "selected", "optionId": "0"})
    assert editor.wait(prompt)["stopReason"] == "end_turn"
