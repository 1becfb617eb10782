"""Lines that are no messages, requests that cannot be met, and how the rest goes on."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from .test_conversations import PIXEL

CODES = {-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002}
"""The error codes of the protocol."""
OF_SESSION = {
    "session/load": {"mcpServers": []},
    "session/resume": {},
    "session/fork": {},
    "session/close": {},
    "session/prompt": {"prompt": [{"type": "text", "text": "hi"}]},
    "session/set_mode": {"modeId": "ask"},
    "session/set_config_option": {"configId": "mode", "value": "ask"},
}
"""The methods that need a session, with their further parameters."""


def test_what_is_no_message_is_answered_by_its_code(editor: Any, folder: Path) -> None:
    lines = {
        b"{": -32700,
        b"nonsense": -32700,
        b"\xff\xfe": -32700,
        b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"session/list"}': -32700,  # no UTF-8
        '{"jsonrpc":"2.0","id":1,"method":"session/list"}'.encode("utf-16"): -32700,
        b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"x":NaN}}': -32700,
        b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"x":-Infinity}}': -32700,
        b"[" * 100_000 + b"]" * 100_000: -32700,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000: -32700,
        b"1" * 5_000: -32700,  # more digits than Python reads
        b"[]": -32600,
        b'[{"jsonrpc":"2.0","id":1,"method":"session/list"},{"jsonrpc":"2.0","id":2,"method":"session/list"}]': -32600,
        b"7": -32600,
        b'"text"': -32600,
        b"null": -32600,
        b"{}": -32600,
        b'{"jsonrpc":"2.0","id":1,"method":7}': -32600,
        b'{"jsonrpc":"2.0","id":{},"method":"session/list"}': -32600,
        b'{"jsonrpc":"2.0","id":true,"method":"session/list"}': -32600,
        b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}': -32600,
    }
    for line, code in lines.items():
        editor.write(line)
        editor.until(lambda: editor.unasked)
        answer = editor.unasked.pop()
        assert (answer["id"], answer["error"]["code"]) == (None, code), (line[:80], answer)
        assert len(answer["error"]["message"]) < 500
    assert editor.prompt(editor.new(folder), "one")["stopReason"] == "end_turn"


def test_a_message_of_another_version_is_refused_by_its_id(editor: Any) -> None:
    for number, line in enumerate(
        (b'{"id":"v%d","method":"session/list"}', b'{"jsonrpc":"1.0","id":"v%d","method":"session/list"}')
    ):
        editor.expect(f"v{number}", "session/list")
        editor.write(line % number)
        editor.until(lambda: f"v{number}" in editor.answers)  # noqa: B023 - it is called within the turn of the loop
        assert editor.answers[f"v{number}"]["error"]["code"] == -32600


def test_empty_lines_mean_nothing(editor: Any) -> None:
    editor.write(b"", b"  ", b"\r")
    assert "sessions" in editor.call("session/list")
    assert not editor.unasked


def test_a_line_beyond_the_limit_is_refused_and_the_next_one_is_read(editor: Any, folder: Path) -> None:
    editor.write(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (65 << 20) + b'"}')
    editor.until(lambda: editor.unasked)
    assert editor.unasked[0]["error"]["code"] == -32600
    assert "67108864 bytes" in editor.unasked[0]["error"]["message"]
    assert editor.prompt(editor.new(folder), "one")["stopReason"] == "end_turn"


def test_a_message_of_many_megabytes_is_taken(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    assert editor.prompt(session, "x" * (3 << 20))["stopReason"] == "end_turn"


@pytest.mark.parametrize("method", ["session/nonsense", "initialized", "_custom/method", "", "fs/read_text_file"])
def test_an_unknown_method_is_refused_by_its_name(editor: Any, method: str) -> None:
    error = editor.refusal(method, valid=False)
    assert (error["code"], error["data"]) == (-32601, {"method": method})


def test_unknown_notifications_and_answers_mean_nothing(editor: Any, folder: Path) -> None:
    editor.write(
        b'{"jsonrpc":"2.0","method":"session/nonsense","params":{}}',
        b'{"jsonrpc":"2.0","method":"_custom","params":[1]}',
        b'{"jsonrpc":"2.0","method":"session/cancel","params":[1]}',
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":7}}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"nobody"}}',
        b'{"jsonrpc":"2.0","id":"amplifier-999","result":{}}',
        b'{"jsonrpc":"2.0","id":"amplifier-1","result":{"outcome":{"outcome":"selected","optionId":"0"}}}',
        b'{"jsonrpc":"2.0","id":null,"result":null}',
        b'{"jsonrpc":"2.0","id":[],"error":7}',
    )
    assert editor.prompt(editor.new(folder), "one")["stopReason"] == "end_turn"
    assert not editor.unasked


def test_nonsense_as_the_answer_to_a_question_denies(editor: Any, folder: Path) -> None:
    editor.allow = lambda _: None
    session = editor.new(folder)
    for result in ({}, None, 7, [], {"outcome": 7}, {"outcome": {"outcome": "selected"}},
                   {"outcome": {"outcome": "selected", "optionId": 0}},
                   {"outcome": {"outcome": "selected", "optionId": "Allow once"}},
                   {"outcome": {"outcome": "nonsense", "optionId": "0"}}):  # fmt: skip
        prompt = editor.say(session, "write a.txt")
        editor.until(lambda: editor.questions)
        editor.write(json.dumps({"jsonrpc": "2.0", "id": editor.questions.pop()["id"], "result": result}).encode())
        assert editor.wait(prompt)["stopReason"] == "end_turn"
    prompt = editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    editor.write(json.dumps({"jsonrpc": "2.0", "id": editor.questions[0]["id"], "error": [{}]}).encode())
    assert editor.wait(prompt)["stopReason"] == "end_turn"
    assert not (folder / "a.txt").exists()


def test_a_request_that_was_cancelled_before_it_began_is_answered_and_its_id_is_free_again(editor: Any) -> None:
    for number in range(20):
        its_id = f"early-{number % 2}"
        editor.expect(its_id, "session/list")
        request = json.dumps({"jsonrpc": "2.0", "id": its_id, "method": "session/list", "params": {}}).encode()
        cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": its_id}}
        editor.write(json.dumps(cancel).encode(), request)
        editor.until(lambda: its_id in editor.answers)  # noqa: B023 - it is called within the turn of the loop
        answer = editor.answers.pop(its_id)
        assert "result" in answer or answer["error"]["code"] == -32800


def test_what_a_closed_session_was_asked_for_is_answered(editor: Any, folder: Path) -> None:
    for _ in range(10):
        session = editor.new(folder)
        with editor.at_once():
            asked = [editor.start("session/set_mode", {"sessionId": session, "modeId": "ask"}) for _ in range(3)]
            closing = editor.start("session/close", {"sessionId": session})
        editor.until(lambda: all(number in editor.answers for number in asked))  # noqa: B023 - it is called here
        assert editor.wait(closing) == {}


def test_a_second_request_with_the_id_of_a_running_one_is_refused(editor: Any, folder: Path) -> None:
    editor.allow = lambda _: None
    session = editor.new(folder)
    prompt = editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    editor.write(json.dumps({"jsonrpc": "2.0", "id": prompt, "method": "session/list"}).encode())
    editor.until(lambda: prompt in editor.answers)
    assert editor.answers.pop(prompt)["error"]["code"] == -32600
    editor.answer(editor.questions[0], {"outcome": "selected", "optionId": "0"})
    assert editor.wait(prompt)["stopReason"] == "end_turn"


# parameters


def test_the_members_of_meta_change_nothing(editor: Any, folder: Path) -> None:
    evil = {"session_id": "evil", "sessionId": "evil", "cwd": "/nowhere", "prompt": 7, "self": 1, "traceparent": "00"}
    session = editor.call("session/new", cwd=str(folder), mcpServers=[], _meta=evil)["sessionId"]
    blocks = [{"type": "text", "text": "one", "_meta": {"text": "evil"}}]
    editor.call("session/prompt", sessionId=session, prompt=blocks, _meta=evil)
    fork = editor.call("session/fork", sessionId=session, cwd=str(folder), _meta=evil)["sessionId"]
    assert editor.text_of(session) == "You said: one"
    editor.call("session/load", sessionId=fork, cwd=str(folder), mcpServers=[], _meta=evil)
    assert editor.text_of(fork) == "You said: one"
    editor.call("session/close", sessionId=fork, _meta=evil)
    assert len(editor.call("session/list", cwd=str(folder), _meta=evil)["sessions"]) == 2


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume", "session/fork", "session/list"])
def test_a_folder_must_be_absolute_and_exist(editor: Any, folder: Path, method: str) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    (folder / "file").write_text("")
    wrong = [
        "relative",
        "",
        ".",
        "~",
        "\0",
        "/a\0b",
        7,
        None,
        [],
        str(folder / "file"),
        str(folder / "nowhere"),
        "/" + "x" * 5000,
    ]
    for cwd in wrong[:5] + wrong[6:9] if method == "session/list" else wrong:
        if method == "session/list" and cwd is None:
            continue
        params = {"sessionId": session, "cwd": cwd, "mcpServers": []}
        error = editor.refusal(method, valid=False, **params)
        assert error["code"] == -32602 and error["message"].startswith("cwd"), (cwd, error)
        assert len(error["message"]) < 5000
    assert editor.call("session/list", cwd=str(folder / "nowhere")) == {"sessions": []}


@pytest.mark.parametrize("method", OF_SESSION)
def test_an_unknown_session_is_named(editor: Any, folder: Path, method: str) -> None:
    for number in ("nobody", "../x", "", "/etc/passwd", "a\0b", "☃", "\ud800", "x" * 1_000_000, "a\nb", "-" * 300):
        error = editor.refusal(method, valid=False, sessionId=number, cwd=str(folder), **OF_SESSION[method])
        expected = number.replace("\ud800", "?")
        assert (error["code"], error["data"]["sessionId"]) == (-32002, expected), (number[:50], str(error)[:500])
        assert len(error["message"]) < 5000


@pytest.mark.parametrize("method", OF_SESSION)
def test_a_wrong_session_id_is_refused_by_its_member(editor: Any, folder: Path, method: str) -> None:
    params = {"cwd": str(folder), **OF_SESSION[method]}
    for extra in ({}, {"sessionId": None}, {"sessionId": 7}, {"sessionId": ["x"]}, {"sessionId": {}}):
        error = editor.refusal(method, valid=False, **params, **extra)
        assert (error["code"], error["data"]) == (-32602, {"member": "sessionId"})


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume", "session/fork"])
def test_what_this_agent_does_not_offer_is_refused_by_its_name(editor: Any, folder: Path, method: str) -> None:
    session = editor.new(folder)
    editor.prompt(session, "one")
    params = {"cwd": str(folder), "mcpServers": []}
    if method != "session/new":
        params["sessionId"] = session
    server = {"type": "sse", "name": "notes", "url": "https://notes.example/sse", "headers": []}
    for member, value in (
        ("additionalDirectories", ["/tmp"]),
        ("mcpServers", [server]),
        ("systemPrompt", {"type": "replace", "text": "x"}),
    ):
        error = editor.refusal(method, valid=False, **{**params, member: value})
        assert (error["code"], error["data"]) == (-32602, {"member": member})
        assert "secret" not in error["message"]
    for member, value in (("additionalDirectories", []), ("additionalDirectories", None), ("systemPrompt", None)):
        editor.call(method, valid=False, **{**params, member: value})


def test_required_members_are_required(editor: Any, folder: Path) -> None:
    session = editor.new(folder)
    for method, params, member in (
        ("session/new", {"cwd": str(folder)}, "mcpServers"),
        ("session/load", {"cwd": str(folder), "sessionId": session}, "mcpServers"),
        ("session/prompt", {"sessionId": session}, "prompt"),
        ("session/prompt", {"sessionId": session, "prompt": []}, "prompt"),
        ("session/prompt", {"sessionId": session, "prompt": "hi"}, "prompt"),
        ("session/set_mode", {"sessionId": session}, "modeId"),
        ("session/set_config_option", {"sessionId": session, "value": "x"}, "configId"),
    ):
        error = editor.refusal(method, valid=False, **params)
        assert (error["code"], error["data"]) == (-32602, {"member": member})
    empty = editor.refusal("session/prompt", sessionId=session, prompt=[])
    assert empty["message"] == "prompt: it is empty"
    for params in ([], "x", 7):
        number = editor.start("session/list", params, valid=False)
        editor.until(lambda: number in editor.answers)  # noqa: B023 - it is called within the turn of the loop
        assert editor.answers[number]["error"]["code"] == -32602


@pytest.mark.parametrize("version", [None, "1", 1.5, True, -1, 65536, [], 10**30])
def test_a_protocol_version_is_a_number(editor: Any, version: Any) -> None:
    assert editor.refusal("initialize", valid=False, protocolVersion=version)["code"] == -32602


@pytest.mark.parametrize("version", [0, 1, 2, 65535])
def test_an_editor_with_another_version_is_told_the_own_one(editor: Any, version: int) -> None:
    assert editor.call("initialize", protocolVersion=version)["protocolVersion"] == 1


def test_keys_are_kept_elsewhere(editor: Any) -> None:
    error = editor.refusal("authenticate", methodId="login-x")
    assert error["code"] == -32602 and "amplifier auth login" in error["message"]


# a campaign


def record_conversation(folder: Path, session: str) -> list[dict[str, Any]]:
    """Return the requests and notifications of a usual conversation."""
    where = {"cwd": str(folder)}
    own = {"sessionId": session}
    text = {"type": "text", "text": "hi"}
    link = {"type": "resource_link", "name": "a", "uri": "file:///a"}
    resource = {"type": "resource", "resource": {"uri": "file:///a", "text": "x", "mimeType": "text/plain"}}
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    fork = {"amplifier": {"fork": {"messageId": "m2"}}, "jetbrains": {"air": {"fork": {"version": 1}}}}
    said: list[tuple[str, dict[str, Any]]] = [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": True}}}),
        ("authenticate", {"methodId": "login"}),
        ("session/new", {**where, "mcpServers": []}),
        ("session/load", {**own, **where, "mcpServers": []}),
        ("session/resume", {**own, **where, "mcpServers": []}),
        ("session/fork", {**own, **where, "mcpServers": [], "_meta": fork}),
        ("session/list", {**where, "cursor": None}),
        ("session/prompt", {**own, "prompt": [text, link, resource, image]}),
        ("session/set_mode", {**own, "modeId": "ask"}),
        ("session/set_config_option", {**own, "configId": "mode", "value": "auto"}),
        ("session/close", {**own}),
        ("session/cancel", {**own}),
        ("$/cancel_request", {"requestId": 1}),
    ]
    return [{"jsonrpc": "2.0", "id": 0, "method": method, "params": params} for method, params in said]


STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 1.5, 1e308, 10**40, "", "x", "m2", "☃", "\ud83d\ude00", "\u0000", "a\nb", "../x",
    "/", "x" * 70_000, [], {}, [[]], [None], {"a": None}, {"type": "text"}, {"": ""}, [7] * 50,
]  # fmt: skip


def mutate(chance: random.Random, message: dict[str, Any]) -> bytes:
    """Return a message with one or more changes, as a line."""
    message = json.loads(json.dumps(message))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holder: Any = message
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = "params" if holder is message and "params" in keys and chance.random() < 0.7 else chance.choice(keys)
            if isinstance(holder[key], dict | list) and holder[key] and chance.random() < 0.7:
                holder = holder[key]
                continue
            if chance.random() < 0.25:
                del holder[key]
            elif isinstance(holder, dict) and chance.random() < 0.1:
                holder[chance.choice(["_meta", "sessionId", "id", "x", "cwd"])] = deepcopy(chance.choice(STRANGE))
            else:
                holder[key] = deepcopy(chance.choice(STRANGE))
            break
    line = json.dumps(message, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    if chance.random() < 0.15:
        place = chance.randrange(len(line))
        line = line[:place] + chance.choice([b"", bytes([chance.randrange(256)]), line[place + 2 :]])
    return line.replace(b"\n", b"")


def expected_answer(line: bytes) -> tuple[bool, Any]:
    """Return whether a line is to be answered, and with which id."""
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        return bool(line.strip()), None
    if not isinstance(message, dict):
        return True, None
    number, method = message.get("id"), message.get("method")
    if method is None and "id" in message and ("result" in message or "error" in message):
        return False, None
    if not isinstance(method, str) or isinstance(number, bool) or not isinstance(number, str | int | None):
        return True, None
    return "id" in message, number.encode("utf-8", "replace").decode() if isinstance(number, str) else number


class Campaign:
    """Sends mutated messages, and counts the answers."""

    def __init__(self, editor: Any, seed: int) -> None:
        self.editor = editor
        self.chance = random.Random(seed)
        self.open: Counter[Any] = Counter()
        """The ids of requests without an answer so far."""
        self.codes: Counter[Any] = Counter()
        self.begun: list[str] = []
        editor.on_answer = self.take

    def take(self, answer: dict[str, Any]) -> None:
        """Count an answer."""
        number = answer["id"]
        assert self.open[number] > 0, f"an answer to no request, or a second one: {str(answer)[:500]}"
        self.open[number] -= 1
        if "error" in answer:
            assert set(answer["error"]) <= {"code", "message", "data"} and isinstance(answer["error"]["message"], str)
            assert answer["error"]["code"] in CODES and "Traceback" not in answer["error"]["message"]
        elif "sessionId" in answer["result"]:
            self.begun.append(answer["result"]["sessionId"])
        self.codes[answer.get("error", {}).get("code", "result")] += 1

    def send(self, line: bytes) -> None:
        """Send a line, and expect its answer."""
        is_answered, number = expected_answer(line)
        if is_answered:
            self.open[number] += 1
        self.editor.write(line)

    def ask(self, method: str, **params: Any) -> None:
        """Send a request without a fault, and hear answers until none is missing."""
        self.send(json.dumps({"jsonrpc": "2.0", "id": "sound", "method": method, "params": params}).encode())
        self.editor.until(lambda: not +self.open)

    def run(self, count: int, folder: Path, source: str) -> None:
        """Send so many lines, by the fifty; each fifty has a fork as its session, and its sessions are deleted."""
        for start in range(0, count, 50):
            self.ask("session/fork", sessionId=source, cwd=str(folder))
            recorded = record_conversation(folder, self.begun[-1])
            for number in range(start, min(start + 50, count)):
                message = {**self.chance.choice(recorded), "id": number}
                if message["method"] in ("session/cancel", "$/cancel_request") and self.chance.random() < 0.9:
                    del message["id"]
                self.send(mutate(self.chance, message))
            self.editor.until(lambda: not +self.open)
            while self.begun:
                self.ask("session/delete", sessionId=self.begun.pop())
            self.editor.updates.clear()


def test_no_mutation_of_a_message_stops_the_agent(editors: Any, folder: Path) -> None:
    editor = editors.start()
    source = editor.new(folder)
    editor.prompt(source, "one")
    campaign = Campaign(editor, seed=20)
    campaign.run(int(os.environ.get("MUTATIONS", "100")), folder, source)
    editor.on_answer = None
    print(dict(campaign.codes))  # noqa: T201 - the report of `make editors`
    assert campaign.codes["result"] and campaign.codes[-32602] and campaign.codes[-32700]
    assert editor.prompt(editor.new(folder), "two")["stopReason"] == "end_turn"
    assert [each["content"]["text"] for each in editor.load(source, folder) if "content" in each][:1] == ["one"]
    assert editor.close() == 0
    assert "Traceback" not in editor.complaints()
