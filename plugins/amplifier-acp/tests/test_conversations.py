"""What an editor does all day: sessions, prompts, permissions, forks, histories."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SLOW = """---
bundle: {name: slow}
providers: [{module: provider-playbook, config: {delay_ms: 600000, otherwise: {say: "late"}}}]
---
You are slow.
"""
SHOP = """---
bundle: {name: shop}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: "pay"}, call: {tool: pay, input: {bank: bank.example}}}
        - {when: {tool: pay}, say: "{result}"}
tools: [{module: pay, source: ./pay.py}]
---
You sell.
"""
PAY = """
from pathlib import Path

class Pay:
    name, description = "pay", "Pays."
    input_schema = {"type": "object", "properties": {"bank": {"type": "string"}}}
    accesses = {"bank": "host"}

    async def execute(self, input):
        with Path(__file__).with_name("ledger.txt").open("a") as ledger:
            ledger.write("paid\\n")
        return "paid"

async def mount(coordinator, config):
    await coordinator.mount("tools", Pay())
"""
LEAD = """---
bundle: {name: lead}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {tool: delegate, output: '(?s)(?P<what>.*)'}, say: "It said: {what}"}
        - {when: {user: do the work}, say: "I work."}
        - {when: {user: delegate}, call: {tool: delegate, input: {agent: worker, instruction: do the work}}}
tools: [{module: tool-delegate}]
agents:
  worker: {description: Works.}
---
You lead.
"""
CLOSED = """---
bundle: {name: closed}
providers: [{module: provider-playbook}]
hooks: [{module: hooks-shell, config: {hooks: {UserPromptSubmit: [{hooks: [{command: "echo closed >&2; exit 2"}]}]}}}]
---
You are closed.
"""
ENDLESS = """---
bundle: {name: endless}
session: {orchestrator: {module: loop-basic, config: {max_iterations: 2}}}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: .}, call: {tool: glob}}
        - {when: {tool: glob}, call: {tool: glob}}
---
You are endless.
"""
CUT = """---
bundle: {name: cut}
providers: [{module: provider-cut, source: ./cut.py}]
---
You are cut.
"""
CUTTING = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock

class Cut:
    name, priority = "cut", 1
    def get_info(self):
        return ProviderInfo(id="cut", display_name="Cut")
    async def list_models(self):
        return []
    def parse_tool_calls(self, response):
        return []
    async def complete(self, request, **options):
        return ChatResponse(content=[TextBlock(text="Once upon")], finish_reason="length")

async def mount(coordinator, config):
    await coordinator.mount("providers", Cut(), name="cut")
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def texts(updates: list[dict[str, Any]]) -> list[str]:
    """Return the texts of chunks, in order."""
    return [each["content"]["text"] for each in updates if each["sessionUpdate"].endswith("_message_chunk")]


def choose(name: str) -> Callable[[dict[str, Any]], str]:
    """Return a person who chooses the option with this beginning."""
    return lambda asked: next(each["optionId"] for each in asked["options"] if each["name"].startswith(name))


def fork_at(editor: Any, session: str, folder: Path, message: str) -> Any:
    """Fork a session at a message."""
    meta = {"amplifier": {"fork": {"messageId": message}}}
    return editor.call("session/fork", sessionId=session, cwd=str(folder), _meta=meta)


# prompts


def test_an_answer_comes_as_chunks_of_one_message_before_the_result_of_the_prompt(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    assert editor.prompt(session, "one")["stopReason"] == "end_turn"
    assert editor.text_of(session) == "You said: one"
    assert {each["messageId"] for each in editor.updates_of(session, "agent_message_chunk")} == {"m2"}


def test_a_prompt_that_a_hook_refuses_is_told_as_a_message_of_the_agent(editor: Any, make: Any) -> None:
    session = editor.new(make(CLOSED))
    assert editor.prompt(session, "one")["stopReason"] == "end_turn"
    assert editor.text_of(session).endswith("(stopped before an answer: Denied by hook: closed)")


def test_a_turn_that_its_limit_of_requests_stops_says_so(editor: Any, make: Any) -> None:
    session = editor.new(make(ENDLESS))
    assert editor.prompt(session, "one")["stopReason"] == "max_turn_requests"
    assert "Stopped after 2 model calls, before an answer (max_iterations)" in editor.text_of(session)


def test_an_answer_that_is_cut_is_shown_with_the_reason(editor: Any, make: Any) -> None:
    session = editor.new(make(CUT, cut_py=CUTTING))
    assert editor.prompt(session, "one")["stopReason"] == "max_tokens"
    answer, _, reason = editor.text_of(session).partition("\n\n")
    assert answer == "Once upon" and "the answer is cut" in reason


def test_the_title_and_the_time_follow_the_first_prompt(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "mend the\nroof")
    (told,) = editor.updates_of(session, "session_info_update")
    assert told["title"] == "mend the roof" and told["updatedAt"]
    editor.prompt(session, "and the door")
    assert "title" not in editor.updates_of(session, "session_info_update")[1]


def test_a_secret_is_shown_neither_in_the_title_nor_when_the_history_is_loaded(editor: Any, folder: Path) -> None:
    session, key = editor.new(folder), "sk-ant-api03-0123456789abcdefghij"
    editor.prompt(session, f"\x1b[31mmy key is {key}")
    assert "my key is" in str(loaded := editor.load(session, folder)) and key not in str(loaded)
    (told,) = editor.updates_of(session, "session_info_update")
    (listed,) = editor.call("session/list", cwd=str(folder))["sessions"]
    assert told["title"] == listed["title"] == "[31mmy key is [REDACTED]"


def test_a_call_is_shown_with_its_change_and_its_end(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "write a.txt")
    (call,) = editor.updates_of(session, "tool_call")
    path = str(folder / "a.txt")
    assert (call["kind"], call["name"], call["locations"]) == ("edit", "write_file", [{"path": path}])
    assert call["content"] == [{"type": "diff", "path": path, "newText": "hello\n"}]
    ends = editor.updates_of(session, "tool_call_update")
    assert {each["toolCallId"] for each in ends} == {call["toolCallId"]}
    assert ends[-1]["status"] == "completed"
    assert (folder / "a.txt").read_text() == "hello\n"


def test_a_question_names_the_call_that_it_is_about(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "write a.txt")
    (asked,) = editor.questions
    (call,) = editor.updates_of(session, "tool_call")
    assert asked["params"]["sessionId"] == session
    assert asked["params"]["toolCall"]["toolCallId"] == call["toolCallId"]
    assert asked["params"]["toolCall"]["rawInput"] == {"file_path": "a.txt", "content": "hello\n"}
    shown = asked["params"]["toolCall"]["content"]
    assert shown[1:] == [{"type": "diff", "path": str(folder / "a.txt"), "newText": "hello\n"}]
    kinds = {each["name"].split(":")[0]: each["kind"] for each in asked["params"]["options"]}
    assert kinds == {"Allow once": "allow_once", "Allow for this session": "allow_always", "Deny": "reject_once"}


@pytest.mark.parametrize(("answer", "questions"), [("Allow once", 2), ("Allow for this session", 1)])
def test_a_permission_holds_once_or_for_the_session(editor: Any, folder: Path, answer: str, questions: int) -> None:
    editor.allow = choose(answer)
    session = editor.new(folder)
    for _ in range(2):
        editor.prompt(session, "write a.txt")
    assert len(editor.questions) == questions
    assert [each["status"] for each in editor.updates_of(session, "tool_call_update")].count("completed") == 2


def test_a_permission_for_good_is_a_rule_of_the_person(editor: Any, editors: Any, make: Any) -> None:
    editor.allow = choose("Allow always")
    shop = make(SHOP, pay_py=PAY)
    session = editor.new(shop)
    editor.prompt(session, "pay")
    (asked,) = editor.questions
    kinds = {each["name"].partition(":")[0]: each["kind"] for each in asked["params"]["options"]}
    assert kinds["Allow always"] == "allow_always"
    assert "pay" in (editors.home / "settings.yaml").read_text(encoding="utf-8")
    editor.prompt(editor.new(shop), "pay")
    assert len(editor.questions) == 1
    assert (shop / "ledger.txt").read_text() == "paid\npaid\n"


def test_a_refused_call_does_nothing_and_fails(editor: Any, folder: Path) -> None:
    editor.allow = choose("Deny")
    session = editor.new(folder)
    assert editor.prompt(session, "write a.txt")["stopReason"] == "end_turn"
    assert editor.updates_of(session, "tool_call_update")[-1]["status"] == "failed"
    assert editor.text_of(session).endswith("Refused.")
    assert not (folder / "a.txt").exists()


def test_a_question_that_the_person_cancels_denies(editor: Any, folder: Path) -> None:
    editor.allow = lambda _: None
    session = editor.new(folder)
    prompt = editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    editor.answer(editor.questions[0], {"outcome": "cancelled"})
    assert editor.wait(prompt)["stopReason"] == "end_turn"
    assert not (folder / "a.txt").exists()


def test_an_editor_that_answers_a_question_with_an_error_denies(editor: Any, folder: Path) -> None:
    editor.allow = lambda _: None
    session = editor.new(folder)
    prompt = editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    editor.send(id=editor.questions[0]["id"], error={"code": -32601, "message": "there is no such method"})
    assert editor.wait(prompt)["stopReason"] == "end_turn"
    assert not (folder / "a.txt").exists()


def test_a_cancelled_prompt_ends_as_cancelled_and_the_session_goes_on(editor: Any, make: Any, folder: Path) -> None:
    slow = make(SLOW)
    session = editor.new(slow)
    prompt = editor.say(session, "one")
    editor.until_running(session)
    editor.notify("session/cancel", sessionId=session)
    assert editor.wait(prompt)["stopReason"] == "cancelled"
    with editor.at_once():
        again = editor.say(session, "two")
        editor.notify("session/cancel", sessionId=session)
    assert editor.wait(again)["stopReason"] == "cancelled"


def test_a_prompt_can_be_cancelled_by_its_request_however_often_and_early(editor: Any, make: Any) -> None:
    session = editor.new(make(SLOW))
    for times in (1, 3):
        with editor.at_once():
            prompt = editor.say(session, "one")
            for _ in range(times):
                editor.notify("$/cancel_request", requestId=prompt)
        assert editor.wait(prompt)["stopReason"] == "cancelled"
    prompt = editor.say(session, "two")
    editor.until_running(session)
    for _ in range(3):
        editor.notify("$/cancel_request", requestId=prompt)
    assert editor.wait(prompt)["stopReason"] == "cancelled"


def test_a_cancelled_question_is_withdrawn(editor: Any, folder: Path) -> None:
    editor.allow = lambda _: None
    session = editor.new(folder)
    prompt = editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    editor.notify("session/cancel", sessionId=session)
    editor.answer(editor.questions[0], {"outcome": "cancelled"})
    assert editor.wait(prompt)["stopReason"] == "cancelled"
    assert not (folder / "a.txt").exists()
    editor.allow = choose("Allow once")
    assert editor.prompt(session, "write b.txt")["stopReason"] == "end_turn"


def test_to_cancel_what_does_not_run_changes_nothing(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.notify("session/cancel", sessionId=session)
    editor.notify("session/cancel", sessionId="nobody")
    assert editor.prompt(session, "one")["stopReason"] == "end_turn"


def test_one_prompt_runs_at_a_time_in_a_session_and_many_in_many(editor: Any, make: Any, folder: Path) -> None:
    session, other = editor.new(make(SLOW)), editor.new(folder)
    prompt = editor.say(session, "one")
    error = editor.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "two"}])
    assert error["code"] == -32600 and session in error["message"]
    assert editor.prompt(other, "one")["stopReason"] == "end_turn"
    editor.notify("session/cancel", sessionId=session)
    assert editor.wait(prompt)["stopReason"] == "cancelled"


# what a prompt holds


def test_links_and_resources_become_text_of_the_prompt(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    blocks = [
        {"type": "text", "text": "look at"},
        {"type": "resource_link", "name": "a b.py", "uri": (folder / "a b.py").as_uri()},
        {
            "type": "resource",
            "resource": {"uri": "file:///x/notes.md", "text": "remember", "mimeType": "text/markdown"},
        },
    ]
    editor.call("session/prompt", sessionId=session, prompt=blocks)
    said = editor.text_of(session)
    assert said.startswith(f"You said: look at [a b.py]({folder / 'a b.py'})")
    assert "remember" in said and "/x/notes.md" in said


@pytest.mark.parametrize("uri", ["http://[", "file://[x"])
def test_a_link_to_no_address_stays_as_it_is(editor: Any, folder: Path, uri: str) -> None:
    session = editor.new(folder)
    editor.call("session/prompt", sessionId=session, prompt=[{"type": "resource_link", "name": "a", "uri": uri}])
    assert editor.text_of(session) == f"You said: [a]({uri})"


SEEING = """---
bundle: {name: seeing}
providers: [{module: provider-seeing, source: ./seeing.py}]
---
You see.
"""
EYES = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock

class Seeing:
    name, priority = "seeing", 1
    def get_info(self):
        return ProviderInfo(id="seeing", display_name="Seeing", capabilities=["vision"])
    async def list_models(self):
        return []
    def parse_tool_calls(self, response):
        return []
    async def complete(self, request, **kwargs):
        return ChatResponse(content=[TextBlock(text="seen" if "image" in repr(request.messages) else "nothing")])

async def mount(coordinator, config):
    await coordinator.mount("providers", Seeing(), name="seeing")
"""
LOOK = [{"type": "text", "text": "what is it?"}, {"type": "image", "data": PIXEL, "mimeType": "image/png"}]


def test_an_image_reaches_the_provider_and_stays_in_the_history(editor: Any, make: Any) -> None:
    seeing = make(SEEING, seeing_py=EYES)
    session = editor.new(seeing)
    assert editor.call("session/prompt", sessionId=session, prompt=LOOK)["stopReason"] == "end_turn"
    assert editor.text_of(session) == "seen"
    shown = [each["content"] for each in editor.load(session, seeing) if each["sessionUpdate"] == "user_message_chunk"]
    assert {"type": "image", "data": PIXEL, "mimeType": "image/png"} in shown


@pytest.mark.parametrize("default", ["seeing", "provider-playbook"])
def test_an_image_is_taken_where_the_default_provider_of_the_orchestrator_sees(
    editor: Any, make: Any, default: str
) -> None:
    blind = "{module: provider-playbook, config: {priority: 0, otherwise: {say: blind}}}"
    both = f"providers: [{{module: provider-seeing, source: ./seeing.py}}, {blind}]"
    chosen = f"session: {{orchestrator: {{module: loop-basic, config: {{default_provider: {default}}}}}}}"
    bundle = SEEING.replace("providers: [{module: provider-seeing, source: ./seeing.py}]", f"{both}\n{chosen}")
    session = editor.new(make(bundle, seeing_py=EYES))
    if default == "seeing":
        assert editor.call("session/prompt", sessionId=session, prompt=LOOK)["stopReason"] == "end_turn"
        assert editor.text_of(session) == "seen"
    else:
        assert "sees no images" in editor.refusal("session/prompt", sessionId=session, prompt=LOOK)["message"]


def test_an_image_for_a_provider_without_eyes_is_refused_and_kept_nowhere(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    error = editor.refusal("session/prompt", sessionId=session, prompt=LOOK)
    assert (error["code"], "sees no images" in error["message"]) == (-32602, True)
    document = {"type": "resource", "resource": {"uri": "a:b", "blob": PIXEL, "mimeType": "application/pdf"}}
    for prompt, kinds in (([document], "PDFs"), ([document, *LOOK], "images or PDFs")):
        error = editor.refusal("session/prompt", sessionId=session, prompt=prompt)
        assert error["message"] == f"prompt: the provider of this session sees no {kinds}"
    assert editor.prompt(session, "one")["stopReason"] == "end_turn"
    assert "image" not in json.dumps(editor.load(session, folder))


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "image", "data": "%%%", "mimeType": "image/png"}, "base64"),
        ({"type": "image", "data": PIXEL[:40], "mimeType": "image/png"}, "damaged"),
        ({"type": "image", "data": PIXEL, "mimeType": "image/tiff"}, "image/tiff"),
        ({"type": "audio", "data": PIXEL, "mimeType": "audio/wav"}, "audio/wav"),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": PIXEL, "mimeType": "application/zip"}}, "zip"),
        ({"type": "text", "text": " \n"}, "empty"),
    ],
)
def test_what_no_model_can_be_shown_is_refused_by_its_place(
    editor: Any, folder: Path, block: dict[str, Any], text: str
) -> None:
    session = editor.new(folder)
    error = editor.refusal("session/prompt", sessionId=session, prompt=[block])
    assert error["code"] == -32602 and text in error["message"] and error["message"].startswith("prompt")


# forks


def test_a_fork_goes_its_own_way_and_its_source_is_unchanged(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    told = editor.call("session/fork", sessionId=session, cwd=str(folder))
    fork = told["sessionId"]
    assert told["_meta"]["amplifier"]["forkOf"] == session
    assert told["modes"]["currentModeId"] == "auto" and told["configOptions"]
    assert not [each for its_id, each in editor.updates if its_id == fork and "chunk" in each["sessionUpdate"]]
    editor.prompt(fork, "two")
    assert texts(editor.load(session, folder)) == ["one", "You said: one"]
    assert texts(editor.load(fork, folder)) == ["one", "You said: one", "two", "You said: two"]


@pytest.mark.parametrize("meta", ["amplifier", "jetbrains"])
def test_a_session_is_forked_at_a_message(editor: Any, folder: Path, meta: str) -> None:
    session = editor.new(folder)
    for text in ("one", "two", "three"):
        editor.prompt(session, text)
    at = editor.updates_of(session, "agent_message_chunk")[1]["messageId"]
    metas = {
        "amplifier": {"amplifier": {"fork": {"messageId": at}}},
        "jetbrains": {"jetbrains": {"air": {"fork": {"version": 1, "messageId": at}}}},
    }
    told = editor.call("session/fork", sessionId=session, cwd=str(folder), _meta=metas[meta])
    assert texts(editor.load(told["sessionId"], folder)) == ["one", "You said: one", "two", "You said: two"]
    about = told["_meta"]["amplifier"]
    assert (about["forkOf"], about["messages"]) == (session, 4)


def test_a_session_is_forked_after_a_turn(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    editor.prompt(session, "two")
    meta = {"amplifier": {"fork": {"turn": 1}}}
    fork = editor.call("session/fork", sessionId=session, cwd=str(folder), _meta=meta)["sessionId"]
    assert texts(editor.load(fork, folder)) == ["one", "You said: one"]


@pytest.mark.parametrize("message", ["m3", "m0", "nobody", 7, "m999999999", "m1 ", "m٣"])
def test_a_fork_at_an_unknown_message_is_refused(editor: Any, folder: Path, message: Any) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    meta = {"amplifier": {"fork": {"messageId": message}}}
    error = editor.refusal("session/fork", sessionId=session, cwd=str(folder), _meta=meta)
    assert (error["code"], error["data"]) == (-32602, {"messageId": message})


@pytest.mark.parametrize("turn", [0, 9, -1, "1", True])
def test_a_fork_after_an_unknown_turn_is_refused(editor: Any, folder: Path, turn: Any) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    meta = {"amplifier": {"fork": {"turn": turn}}}
    assert editor.refusal("session/fork", sessionId=session, cwd=str(folder), _meta=meta)["code"] == -32602


def test_a_fork_while_a_prompt_runs_holds_neither_an_open_call_nor_its_prompt_alone(editor: Any, folder: Path) -> None:
    editor.allow = lambda _: None
    session = editor.new(folder)
    editor.prompt(session, "one")
    prompt = editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    fork = editor.call("session/fork", sessionId=session, cwd=str(folder))["sessionId"]
    assert texts(editor.load(fork, folder)) == ["one", "You said: one"]
    about = fork_at(editor, session, folder, "m3")["_meta"]["amplifier"]
    assert (about["messages"], about["leftOut"]) == (2, 1)
    assert editor.prompt(fork, "two")["stopReason"] == "end_turn"
    assert editor.text_of(fork).endswith("You said: two")
    editor.answer(editor.questions[0], {"outcome": "selected", "optionId": "0"})
    assert editor.wait(prompt)["stopReason"] == "end_turn"
    assert (folder / "a.txt").exists()


def test_a_fork_works_in_the_folder_of_its_request(editor: Any, folder: Path, make: Any) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    other = make(SLOW, "other")
    fork = editor.call("session/fork", sessionId=session, cwd=str(other))["sessionId"]
    editor.prompt(fork, "write a.txt")
    assert (other / "a.txt").exists() and not (folder / "a.txt").exists()
    listed = editor.call("session/list", cwd=str(other))["sessions"]
    assert [(each["sessionId"], each["cwd"]) for each in listed] == [(fork, str(other))]


def test_a_fork_of_a_fork_of_a_closed_session_works(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    fork = editor.call("session/fork", sessionId=session, cwd=str(folder))["sessionId"]
    editor.prompt(fork, "two")
    second = editor.call("session/fork", sessionId=fork, cwd=str(folder))["sessionId"]
    editor.call("session/delete", sessionId=session)
    editor.call("session/delete", sessionId=fork)
    editor.prompt(second, "three")
    assert texts(editor.load(second, folder))[::2] == ["one", "two", "three"]


def test_a_fork_of_a_session_without_a_message_can_be_prompted(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    fork = editor.call("session/fork", sessionId=session, cwd=str(folder))["sessionId"]
    assert editor.prompt(fork, "one")["stopReason"] == "end_turn"


def test_a_fork_that_is_not_to_be_kept_is_listed_nowhere_and_goes_with_its_end(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    meta = {"amplifier": {"fork": {"ephemeral": True}}}
    kept, dropped = (
        editor.call("session/fork", sessionId=session, cwd=str(folder), _meta=meta)["sessionId"] for _ in range(2)
    )
    editor.prompt(kept, "two")
    editor.prompt(dropped, "two")
    assert [each["sessionId"] for each in editor.call("session/list", cwd=str(folder))["sessions"]] == [session]
    editor.call("_amplifier/session/keep", sessionId=kept)
    for fork in (kept, dropped):
        editor.call("session/close", sessionId=fork)
    assert {each["sessionId"] for each in editor.call("session/list", cwd=str(folder))["sessions"]} == {session, kept}
    assert editor.refusal("session/load", sessionId=dropped, cwd=str(folder), mcpServers=[])["code"] == -32002


# stored sessions


def test_a_history_is_replayed_as_it_was_shown(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "write a.txt")
    shown = texts([each for its_id, each in editor.updates if its_id == session])
    ids = [each["messageId"] for each in editor.updates_of(session, "agent_message_chunk")]
    replayed = editor.load(session, folder)
    assert texts(replayed) == ["write a.txt", *shown]
    assert [each["messageId"] for each in replayed if each["sessionUpdate"] == "agent_message_chunk"] == ids
    (call,) = [each for each in replayed if each["sessionUpdate"] == "tool_call"]
    (end,) = [each for each in replayed if each["sessionUpdate"] == "tool_call_update"]
    assert call["toolCallId"] == end["toolCallId"] and end["status"] == "completed"


def test_a_resumed_session_shows_nothing_and_goes_on(editor: Any, editors: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    editor.updates.clear()
    assert editor.call("session/resume", sessionId=session, cwd=str(folder))["modes"]
    assert texts([each for _, each in editor.updates]) == []
    editor.prompt(session, "two")
    assert texts(editor.load(session, folder)) == ["one", "You said: one", "two", "You said: two"]


def test_a_closed_session_is_prompted_only_after_it_is_opened_again(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    assert editor.call("session/close", sessionId=session) == {}
    error = editor.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "two"}])
    assert (error["code"], error["data"]) == (-32002, {"sessionId": session})
    editor.load(session, folder)
    assert editor.prompt(session, "two")["stopReason"] == "end_turn"


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_to_close_or_delete_a_session_cancels_its_prompt(editor: Any, make: Any, method: str) -> None:
    slow = make(SLOW)
    session = editor.new(slow)
    with editor.at_once():
        prompt = editor.say(session, "one")
        closing = editor.start(method, {"sessionId": session})
    assert editor.wait(prompt)["stopReason"] == "cancelled"
    editor.wait(closing)
    session = editor.new(slow)
    prompt = editor.say(session, "one")
    editor.until_running(session)
    editor.call(method, sessionId=session)
    assert editor.wait(prompt)["stopReason"] == "cancelled"


def test_a_session_without_a_message_is_not_kept(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.call("session/close", sessionId=session)
    assert editor.refusal("session/load", sessionId=session, cwd=str(folder), mcpServers=[])["code"] == -32002


def test_a_deleted_session_is_gone_and_may_be_deleted_again(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    for _ in range(2):
        assert editor.call("session/delete", sessionId=session) == {}
    assert editor.call("session/delete", sessionId="../nobody") == {}
    assert editor.call("session/list", cwd=str(folder)) == {"sessions": []}
    assert editor.refusal("session/resume", sessionId=session, cwd=str(folder))["code"] == -32002


def test_sessions_are_listed_by_their_folder_with_their_titles_and_lineage(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "mend the roof")
    fork = fork_at(editor, session, folder, "m2")["sessionId"]
    listed = {each["sessionId"]: each for each in editor.call("session/list", cwd=str(folder))["sessions"]}
    assert set(listed) == {session, fork}
    assert (listed[session]["title"], listed[session]["cwd"]) == ("mend the roof", str(folder))
    assert listed[fork]["title"] == "mend the roof (fork)"
    assert listed[fork]["_meta"]["amplifier"]["forkOf"] == session
    assert listed[fork]["_meta"]["amplifier"]["forkAt"] == "m2"


def test_long_lists_come_in_pages(editor: Any, folder: Path) -> None:
    source = editor.new(folder)
    editor.prompt(source, "one")
    made = {source}
    for _ in range(60):
        made.add(editor.call("session/fork", sessionId=source, cwd=str(folder))["sessionId"])
    first = editor.call("session/list", cwd=str(folder))
    second = editor.call("session/list", cwd=str(folder), cursor=first["nextCursor"])
    assert "nextCursor" not in second
    found = [each["sessionId"] for each in first["sessions"] + second["sessions"]]
    assert len(found) == len(made) and set(found) == made
    everywhere = editor.call("session/list")
    assert len(everywhere["sessions"]) == len(first["sessions"]) == 50
    for session in made:
        editor.call("session/close", sessionId=session)


def test_a_cursor_of_somebody_else_is_refused(editor: Any) -> None:
    encoded = [base64.b64encode(each).decode() for each in (b"-5", b"9" * 30, b"9" * 5000, b"1.5")]
    for cursor in ("x", "", "☃", *encoded):
        assert editor.refusal("session/list", cursor=cursor)["code"] == -32602


def test_a_session_is_opened_in_its_own_folder(editor: Any, folder: Path, make: Any) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    other = make(SLOW, "other")
    for method in ("session/load", "session/resume"):
        error = editor.refusal(method, sessionId=session, cwd=str(other), mcpServers=[])
        assert (error["code"], error["data"]) == (-32602, {"cwd": str(folder)})


def test_a_session_goes_on_in_another_process(editor: Any, editors: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    other = editors.start()
    assert texts(other.load(session, folder)) == ["one", "You said: one"]
    other.prompt(session, "two")
    assert other.close() == 0
    assert texts(editor.load(session, folder)) == ["one", "You said: one", "two", "You said: two"]


def test_a_session_that_another_process_runs_is_shown_and_cannot_be_prompted(
    editor: Any, editors: Any, make: Any
) -> None:
    slow = make(SLOW)
    session = editor.new(slow)
    prompt = editor.say(session, "one")
    editor.until_running(session)
    other = editors.start()
    assert texts(other.load(session, slow))[:1] == ["one"]
    error = other.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "two"}])
    assert (error["code"], error["data"]) == (-32600, {"sessionId": session})
    fork = other.call("session/fork", sessionId=session, cwd=str(slow))["sessionId"]
    assert other.call("session/close", sessionId=fork) == {}
    editor.notify("session/cancel", sessionId=session)
    assert editor.wait(prompt)["stopReason"] == "cancelled"
    assert other.close() == 0


def test_a_session_that_another_editor_has_open_is_followed_and_goes_on_here_after_it(
    editor: Any, editors: Any, folder: Path
) -> None:
    one = editors.start()
    session = one.new(folder)
    one.prompt(session, "one")
    other = editors.start()
    assert texts(other.load(session, folder)) == ["one", "You said: one"]
    seen = len(other.updates)
    shown = lambda: "|".join(texts([each for _, each in other.updates[seen:]]))  # noqa: E731
    one.prompt(session, "two")
    other.until(lambda: shown() == "two|You said: two")
    one.prompt(session, "three")
    assert one.close() == 0
    assert other.prompt(session, "four")["stopReason"] == "end_turn"
    assert shown().replace("|", "") == "twoYou said: twothreeYou said: threeYou said: four"
    assert other.close() == 0


def test_a_refused_deletion_changes_nothing(editors: Any, folder: Path) -> None:
    one, other = editors.start(), editors.start()
    session = one.new(folder)
    one.prompt(session, "one")
    other.load(session, folder)
    error = other.refusal("session/delete", sessionId=session)
    assert (error["code"], "has session" in error["message"]) == (-32600, True)
    one.call("session/close", sessionId=session)
    assert other.prompt(session, "two")["stopReason"] == "end_turn"
    assert other.text_of(session).endswith("You said: two")
    assert other.call("session/delete", sessionId=session) == {}
    assert other.refusal("session/load", sessionId=session, cwd=str(folder), mcpServers=[])["code"] == -32002
    assert one.close() == other.close() == 0


def test_a_session_whose_folder_is_gone_goes_on_in_a_fork_elsewhere(editor: Any, folder: Path, make: Any) -> None:
    gone = make((folder / "bundle.md").read_text(encoding="utf-8"), "gone")
    session = editor.new(gone)
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    shutil.rmtree(gone)
    error = editor.refusal("session/load", sessionId=session, cwd=str(folder), mcpServers=[])
    assert error["message"] == f"cwd: the folder of session '{session}', {gone}, is gone; fork it here"
    fork = editor.call("session/fork", sessionId=session, cwd=str(folder))["sessionId"]
    assert editor.prompt(fork, "two")["stopReason"] == "end_turn"
    assert texts(editor.load(fork, folder)) == ["one", "You said: one", "two", "You said: two"]


# slash commands


def test_the_commands_of_a_session_are_offered_and_run(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    editor.until(lambda: editor.updates_of(session, "available_commands_update"))
    (offered,) = editor.updates_of(session, "available_commands_update")
    assert {each["name"] for each in offered["availableCommands"]} == {"continue", "cost", "agents", "rename"}
    for heard in ([], ["one", "You said: one"]):
        error = editor.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "/continue"}])
        assert (error["code"], error["message"]) == (-32600, "the last turn was not interrupted; give a prompt")
        assert texts(editor.load(session, folder)) == heard
        editor.updates.clear()
        if not heard:
            editor.prompt(session, "one")
    assert editor.prompt(session, "/cost")["stopReason"] == "end_turn"
    assert "1 requests" in editor.text_of(session)
    assert editor.prompt(session, "/agents")["stopReason"] == "end_turn"
    assert editor.text_of(session).endswith("The bundle has no agents.")
    editor.prompt(session, "/rename roof")
    assert editor.updates_of(session, "session_info_update")[-1]["title"] == "roof"
    assert editor.call("session/list", cwd=str(folder))["sessions"][0]["title"] == "roof"
    assert json.dumps(texts(editor.load(session, folder))) == json.dumps(["one", "You said: one"])
    assert editor.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "/rename "}])


OFFERED = """---
bundle: {name: offered}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
tools: [{module: own, source: ./own.py}]
---
"""
OFFERING = """
import asyncio
from pathlib import Path


async def mount(coordinator, config):
    async def review(argument):
        if argument == "nothing":
            raise ValueError("there is nothing to review")
        if argument == "forever":
            Path(__file__).with_name("hangs").touch()
            await asyncio.Event().wait()
        return f"Review {argument!r}."

    def offer():
        more = ["late"] if Path(__file__).with_name("late").exists() else []
        return [{"name": name, "description": "Review", "hint": "FILE", "expand": review}
                for name in ("review", "cost", *more)]

    coordinator.register_contributor("prompt.commands", "tool-own", offer)
"""


def test_the_commands_of_modules_are_offered_and_expanded(editor: Any, make: Any) -> None:
    folder = make(OFFERED, own_py=OFFERING)
    session = editor.new(folder)
    editor.until(lambda: len(editor.updates_of(session, "available_commands_update")) == 2)
    offered = editor.updates_of(session, "available_commands_update")[-1]["availableCommands"]
    assert [each["name"] for each in offered] == ["continue", "cost", "agents", "rename", "review"]
    assert offered[-1] == {"name": "review", "description": "Review", "input": {"hint": "FILE"}}
    assert editor.prompt(session, "/review a.py")["stopReason"] == "end_turn"
    assert editor.text_of(session) == "You said: Review 'a.py'."
    (folder / "late").touch()
    refused = editor.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "/review nothing"}])
    assert refused == {"code": -32600, "message": "/review of tool-own failed: there is nothing to review"}
    hanging = editor.say(session, "/review forever")
    while not (folder / "hangs").exists():
        editor.call("session/list")
    editor.notify("session/cancel", sessionId=session)
    assert editor.wait(hanging)["stopReason"] == "cancelled"
    assert editor.prompt(session, "/late b.py")["stopReason"] == "end_turn"
    assert texts(editor.load(session, folder)) == [
        "Review 'a.py'.", "You said: Review 'a.py'.", "Review 'b.py'.", "You said: Review 'b.py'."
    ]  # fmt: skip
    offered = editor.updates_of(session, "available_commands_update")[-1]["availableCommands"]
    assert [each["name"] for each in offered][-2:] == ["review", "late"]


# agents


def test_an_editor_that_understands_sessions_below_is_shown_them(editors: Any, make: Any) -> None:
    lead = make(LEAD)
    editor = editors.start(subagents={})
    session = editor.new(lead)
    assert editor.prompt(session, "delegate")["stopReason"] == "end_turn"
    first, last = editor.updates_of(session, "subagent_update")
    assert first["state"] == {"state": "running"}
    assert last["state"] == {"state": "idle", "stopReason": "end_turn"}
    assert editor.text_of(first["sessionId"]) == "I work."
    assert editor.text_of(session).startswith("It said: ")
    listed = [each["sessionId"] for each in editor.call("session/list", cwd=str(lead))["sessions"]]
    assert listed == [session]
    assert editor.close() == 0


def test_an_editor_without_that_hears_of_the_call_alone(editors: Any, make: Any) -> None:
    editor = editors.start()
    session = editor.new(make(LEAD))
    editor.prompt(session, "delegate")
    assert {its_id for its_id, _ in editor.updates} == {session}
    assert len(editor.updates_of(session, "tool_call")) == 1
