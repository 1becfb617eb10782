"""The process: what its modules do to stdin, stdout and threads, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from amplifier_acp.leftovers import clear_leftovers
from amplifier_foundation.cli import exits, invoke
from amplifier_storage_sqlite import FILE_NAME, open_sqlite

from .test_conversations import PIXEL

pytestmark = pytest.mark.slow

OWN = """---
bundle: {name: own}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: "^use"}, call: {tool: own, input: {}}}
        - {when: {tool: own}, say: "It says: {result}"}
      otherwise: {say: "You said: {prompt}"}
tools: [{module: own, source: ./own.py}]
---
You have a tool.
"""
TOOL = """
BEGIN

class Own:
    name, description = "own", "A tool."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        EXECUTE

async def mount(coordinator, config):
    MOUNT
    await coordinator.mount("tools", Own())
"""
SLOW = """---
bundle: {name: slow}
providers: [{module: provider-playbook, config: {delay_ms: 600000, otherwise: {say: "late"}}}]
---
You are slow.
"""
LOUD = """---
bundle: {name: loud}
providers: [{module: loud, source: ./loud.py}]
---
You are loud.
"""
LOOP = """---
bundle: {name: own}
session: {orchestrator: {module: loop-own, source: ./loop.py}}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
---
You have a loop.
"""
FAILURES = ["raise RuntimeError('no luck')", "import sys; sys.exit(3)", "raise KeyboardInterrupt", "import nonsense"]
PROVIDER = """
from amplifier_core import ProviderInfo
from amplifier_core.message_models import ChatResponse, TextBlock

class Loud:
    name, priority = "loud", 1

    def get_info(self):
        return ProviderInfo(id="loud", display_name="Loud")

    async def list_models(self):
        return []

    def parse_tool_calls(self, response):
        return []

    async def complete(self, request, **kwargs):
        return ChatResponse(content=[TextBlock(text="x" * 6_000_000)])

async def mount(coordinator, config):
    await coordinator.mount("providers", Loud(), name="loud")
"""


def tool(execute: str = "return 'done'", begin: str = "", mount: str = "pass") -> str:
    """Return the source of a tool."""
    return TOOL.replace("BEGIN", begin).replace("EXECUTE", execute).replace("MOUNT", mount)


def loop(begin: str = "", mount: str = "pass") -> str:
    """Return the source of a loop."""
    return f"""
from pathlib import Path
import amplifier_loop_basic
{begin}

async def mount(coordinator, config):
    {mount}
    return await amplifier_loop_basic.mount(coordinator, config)
"""


def statuses(editors: Any, folder: Path) -> dict[str, str]:
    """Return the states of all stored sessions of a folder, by their ids."""
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setenv("AMPLIFIER_HOME", str(editors.home))
        assert invoke(["session", "list", "--all", "--limit", "1000", "--json"]) == exits.OK
    listed = json.loads(printed.getvalue())["data"]
    return {each["session_id"]: each["status"] for each in listed if each["project"] == str(folder)}


# what modules do


@pytest.mark.parametrize(
    ("execute", "begin", "mount"),
    [
        ("print('noise'); return 'done'", "print('noise')", "print('noise')"),
        ("import sys; sys.stdout.write('{}'); sys.stdout.flush(); return 'done'", "", ""),
        ("import os; os.write(1, b'noise'); return 'done'", "import os; os.write(1, b'noise')", ""),
        ("import sys; sys.__stdout__.write('noise'); return 'done'", "", ""),
        ("import subprocess; subprocess.run(['echo', 'noise']); return 'done'", "", ""),
        ("import subprocess; subprocess.run(['cat']); return 'done'", "", ""),
        ("import sys; sys.stdin.read(); return 'done'", "", "import sys; sys.stdin.read()"),
        ("import os; os.read(0, 9); return 'done'", "", ""),
    ],
)
def test_no_module_disturbs_the_protocol(editor: Any, make: Any, execute: str, begin: str, mount: str) -> None:
    session = editor.new(make(OWN, own_py=tool(execute, begin, mount or "pass")))
    assert editor.prompt(session, "use")["stopReason"] == "end_turn"
    assert editor.text_of(session) == "It says: done"
    assert not editor.unasked


@pytest.mark.parametrize("fails", FAILURES)
def test_what_cannot_be_opened_leaves_no_session(editor: Any, editors: Any, make: Any, fails: str) -> None:
    own = make(LOOP, loop_py=loop(mount=f"if Path(__file__).with_name('broken').exists():\n        {fails}"))
    session = editor.new(own)
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    (own / "broken").touch()
    for method in ("session/fork", "session/new"):
        error = editor.refusal(method, valid=False, cwd=str(own), mcpServers=[], sessionId=session)
        assert error["code"] == -32603 and "Traceback" not in error["message"], error
    assert list(statuses(editors, own)) == [session]
    (own / "broken").unlink()
    fork = editor.call("session/fork", sessionId=session, cwd=str(own))["sessionId"]
    assert editor.prompt(fork, "two")["stopReason"] == "end_turn"


@pytest.mark.parametrize("fails", FAILURES)
def test_a_module_that_cannot_be_imported_ends_nothing_else(
    editor: Any, editors: Any, make: Any, folder: Path, fails: str
) -> None:
    other = editor.new(folder)
    own = make(LOOP, loop_py=loop(begin=fails))
    error = editor.refusal("session/new", cwd=str(own), mcpServers=[])
    assert error["code"] == -32603 and "Traceback" not in error["message"], error
    assert statuses(editors, own) == {}
    assert editor.prompt(other, "one")["stopReason"] == "end_turn"


@pytest.mark.parametrize("ends", ["import sys; sys.exit(3)", "raise KeyboardInterrupt", "raise SystemExit"])
def test_a_tool_that_wants_to_end_the_program_ends_its_turn_alone(
    editor: Any, make: Any, folder: Path, ends: str
) -> None:
    other = editor.new(folder)
    session = editor.new(make(OWN, own_py=tool(ends)))
    try:
        editor.prompt(session, "use")
    except Exception as error:  # as a failure, or as what the tool says
        assert "-32603" in str(error)
    assert editor.prompt(other, "one")["stopReason"] == "end_turn"
    editor.load(session, folder.parent / "own")
    assert editor.prompt(session, "two")["stopReason"] == "end_turn"


def test_a_bundle_with_a_mistake_is_told_with_its_place(editor: Any, editors: Any, make: Any) -> None:
    wrong = make(OWN.replace("./own.py", "./nowhere.py"))
    error = editor.refusal("session/new", cwd=str(wrong), mcpServers=[])
    assert error["code"] == -32603 and "nowhere" in error["message"] and "bundle.md" in error["message"]
    assert statuses(editors, wrong) == {}


def test_a_cancelled_opening_gives_the_session_back(editor: Any, make: Any) -> None:
    waits = "Path(__file__).with_name('mounting').touch(); import asyncio; await asyncio.sleep(600)"
    own = make(LOOP, loop_py=loop(mount=f"if Path(__file__).with_name('slow').exists():\n        {waits}"))
    session = editor.new(own)
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    (own / "slow").touch()
    loading = editor.start("session/load", {"sessionId": session, "cwd": str(own), "mcpServers": []})
    while not (own / "mounting").exists():
        pass
    editor.notify("$/cancel_request", requestId=loading)
    with pytest.raises(Exception, match="-32800"):
        editor.wait(loading)
    (own / "slow").unlink()
    assert editor.prompt(session, "two")["stopReason"] == "end_turn"


def test_a_session_that_is_closed_while_it_is_loaded_can_be_loaded_again(editors: Any, folder: Path) -> None:
    editor = editors.start()
    session = editor.new(folder)
    editor.prompt(session, "x" * 6_000_000)
    editor.call("session/close", sessionId=session)
    editor.pause()
    loading = editor.start("session/load", {"sessionId": session, "cwd": str(folder), "mcpServers": []})
    editor.until(lambda: bool(editor.updates_of(session, "user_message_chunk")))
    closing = editor.start("session/close", {"sessionId": session})
    editor.start("session/fork", {"sessionId": session, "cwd": str(folder)})
    while len(statuses(editors, folder)) < 2:  # what was sent before the fork has happened
        pass
    editor.resume()
    editor.wait(closing)
    with pytest.raises(Exception, match=session):
        editor.wait(loading)
    editor.load(session, folder)
    assert editor.prompt(session, "two")["stopReason"] == "end_turn"


def test_a_tool_that_blocks_its_thread_holds_up_neither_its_cancellation_nor_other_sessions(
    editor: Any, make: Any, folder: Path
) -> None:
    blocks = "from pathlib import Path; Path(__file__).with_name('blocks').touch(); import time; time.sleep(600)"
    own = make(OWN, own_py=tool(blocks))
    session = editor.new(own)
    prompt = editor.say(session, "use")
    editor.until(lambda: editor.updates_of(session, "tool_call"))
    other = editor.new(folder)
    assert editor.prompt(other, "one")["stopReason"] == "end_turn"
    editor.notify("session/cancel", sessionId=session)
    assert editor.prompt(other, "two")["stopReason"] == "end_turn"
    assert editor.wait(prompt)["stopReason"] == "cancelled"
    error = editor.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "again"}])
    assert error["code"] == -32600


def test_an_editor_that_stops_reading_holds_up_nothing_but_itself(editors: Any, make: Any) -> None:
    editor = editors.start()
    sessions = [editor.new(make(LOUD, f"loud{number}", loud_py=PROVIDER)) for number in range(2)]
    editor.pause()
    prompts = [editor.say(session, "one") for session in sessions]
    more = [editor.start("session/list", {}) for _ in range(50)]
    editor.resume()
    for prompt in prompts:
        assert editor.wait(prompt)["stopReason"] == "end_turn"
    for number in more:
        editor.wait(number)
    for session in sessions:
        assert len(editor.text_of(session)) == 6_000_000
    assert editor.close() == 0


# how it ends


@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("eof", exits.OK),
        (signal.SIGTERM, exits.TERMINATED),
        (signal.SIGINT, exits.INTERRUPTED),
        (signal.SIGHUP, exits.TERMINATED),
    ],
)
def test_an_end_in_the_middle_of_a_prompt_leaves_a_session_that_goes_on(
    editors: Any, make: Any, way: Any, code: int
) -> None:
    slow = make(SLOW)
    editor = editors.start()
    session = editor.new(slow)
    editor.new(slow)
    editor.say(session, "one")
    editor.until_running(session)
    if way != "eof":
        editor.process.send_signal(way)
        assert editor.process.wait(60) == code
    assert editor.close() == code
    assert "Traceback" not in editor.complaints()
    assert statuses(editors, slow) == {session: "cancelled"}  # the other one has no message
    again = editors.start()
    history = [each["content"]["text"] for each in again.load(session, slow) if "content" in each]
    assert history[0] == "one"
    assert again.close() == 0


def test_an_end_in_the_middle_of_a_question_is_no_answer_to_it(editors: Any, folder: Path) -> None:
    editor = editors.start()
    editor.allow = lambda _: None
    session = editor.new(folder)
    editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    assert editor.close() == 0
    assert "Traceback" not in editor.complaints()
    assert not (folder / "a.txt").exists()
    again = editors.start()
    shown = again.load(session, folder)
    kinds = [each["sessionUpdate"] for each in shown]
    assert kinds.count("tool_call") == kinds.count("tool_call_update")
    assert "cancelled before the tool call began" in json.dumps(shown)
    assert again.prompt(session, "two")["stopReason"] == "end_turn"
    assert again.close() == 0


def test_a_prompt_that_was_killed_is_continued(editors: Any, folder: Path) -> None:
    editor = editors.start()
    editor.allow = lambda _: None
    session = editor.new(folder)
    editor.say(session, "write a.txt")
    editor.until(lambda: editor.questions)
    editor.kill()
    again = editors.start()
    again.load(session, folder)
    assert again.prompt(session, "/continue")["stopReason"] == "end_turn"
    assert len(again.questions) == 1 and (folder / "a.txt").exists()
    assert again.close() == 0


def test_a_persons_fork_of_one_that_is_not_to_be_kept_stays(editors: Any, folder: Path) -> None:
    editor = editors.start()
    source = editor.new(folder)
    editor.prompt(source, "one")
    meta = {"amplifier": {"fork": {"ephemeral": True}}}
    fork = editor.call("session/fork", sessionId=source, cwd=str(folder), _meta=meta)["sessionId"]
    editor.prompt(fork, "two")
    own = json.loads(editors.run("-q", "run", "--json", "--fork", fork, "three", folder=folder))["data"]["session_id"]
    editor.load(own, folder)
    for each in (own, fork):
        editor.call("session/close", sessionId=each)
    assert {each["sessionId"] for each in editor.call("session/list", cwd=str(folder))["sessions"]} == {source, own}
    assert editor.close() == 0


def test_a_later_agent_deletes_what_a_killed_one_has_left_and_nothing_in_use(
    editors: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = {"amplifier": {"fork": {"ephemeral": True}}}

    def begin() -> tuple[Any, list[str]]:
        editor = editors.start()
        source, empty = editor.new(folder), editor.new(folder)
        editor.prompt(source, "one")
        forks = [editor.call("session/fork", sessionId=source, cwd=str(folder), _meta=meta) for _ in range(3)]
        kept, dropped, resumed = (each["sessionId"] for each in forks)
        for each in (dropped, resumed):
            editor.prompt(each, "two")
        editor.call("_amplifier/session/keep", sessionId=kept)
        return editor, [source, kept, dropped, resumed, empty]

    async def clear(after: timedelta) -> set[str]:
        store = open_sqlite({"path": editors.home / FILE_NAME})
        await clear_leftovers(store, datetime.now(UTC) + after)
        stored = {each.session_id for each in await store.sessions()}
        await store.close()
        return stored

    monkeypatch.setenv("AMPLIFIER_HOME", str(editors.home))
    killed, [source, kept, dropped, resumed, empty] = begin()
    running, in_use = begin()
    own = editors.run("-q", "run", "--json", "--fork", dropped, "three", folder=folder)  # it has inherited the choices
    of_person = json.loads(own)["data"]["session_id"]
    killed.kill()
    editors.run("run", "--resume", resumed, "three", folder=folder)
    stored = {source, kept, dropped, resumed, empty, of_person, *in_use}
    assert asyncio.run(clear(timedelta())) >= stored  # the editor may start its agent again
    left = asyncio.run(clear(timedelta(hours=2)))
    assert (left >= stored - {dropped, empty}, left & {dropped, empty}) == (True, set())
    assert running.prompt(in_use[2], "four")["stopReason"] == "end_turn"
    assert running.close() == 0


def test_an_editor_that_is_gone_ends_the_process(editors: Any, folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "amplifier_foundation", "acp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=editors.environment,
        cwd=folder,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        ask = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        for _ in range(2):
            process.stdin.write(json.dumps(ask).encode() + b"\n")
            process.stdin.flush()
            if not process.stdout.closed:
                assert process.stdout.readline()
                process.stdout.close()
        assert process.wait(60) == 0
        assert b"Traceback" not in process.stderr.read()


def test_a_child_of_a_tool_does_not_outlive_the_stdin_of_the_editor(editors: Any, make: Any) -> None:
    """A child that holds inherited pipes would keep the editor waiting for the end of stdout."""
    child = "import subprocess; subprocess.Popen(['sleep', '600'], stderr=subprocess.DEVNULL); return 'done'"
    editor = editors.start()
    session = editor.new(make(OWN, own_py=tool(child)))
    editor.prompt(session, "use")
    assert editor.close() == 0


def test_files_serve_as_well_as_pipes(editors: Any, folder: Path, tmp_path: Path) -> None:
    requests = [
        ("initialize", {"protocolVersion": 1}),
        ("session/new", {"cwd": str(folder), "mcpServers": []}),
        ("session/list", {}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(requests)
    ]
    (tmp_path / "asked").write_text("\n".join(lines) + "\n")
    with (tmp_path / "asked").open() as asked, (tmp_path / "told").open("w") as told:
        done = subprocess.run(
            [sys.executable, "-m", "amplifier_foundation", "acp"],
            stdin=asked,
            stdout=told,
            stderr=subprocess.PIPE,
            env=editors.environment,
            cwd=folder,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    lines = (tmp_path / "told").read_text().splitlines()
    answers = {each["id"]: each for each in map(json.loads, lines) if "id" in each}
    for number, (method, _) in enumerate(requests):
        editors.protocol.check(answers[number], method)


def test_an_editor_that_says_nothing_is_no_failure(editors: Any, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", "acp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=editors.environment,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_nothing_is_left_behind_but_the_store(editors: Any, folder: Path) -> None:
    editor = editors.start()
    session = editor.new(folder)
    editor.prompt(session, "one")
    assert editor.close() == 0
    assert sorted(os.listdir(folder)) == ["bundle.md"]  # noqa: PTH208 - names alone
    assert statuses(editors, folder) == {session: "completed"}


# what a provider cannot do


BLIND = """
from amplifier_core import ProviderInfo
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_core.message_models import ChatResponse, TextBlock

class Blind:
    name, priority = "blind", 1

    def get_info(self):
        return ProviderInfo(id="blind", display_name="Blind")

    async def list_models(self):
        raise RuntimeError("there are none")

    def parse_tool_calls(self, response):
        return []

    async def complete(self, request, **kwargs):
        if "image" in repr(request.messages):
            raise InvalidRequestError("this model sees no images")
        return ChatResponse(content=[TextBlock(text="seen")])

async def mount(coordinator, config):
    await coordinator.mount("providers", Blind(), name="blind")
"""


def test_a_provider_that_sees_no_images_says_so_and_a_fork_before_it_goes_on(editor: Any, make: Any) -> None:
    blind = make(LOUD, loud_py=BLIND)
    session = editor.new(blind)
    editor.prompt(session, "one")
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    error = editor.refusal("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "two"}, image])
    assert error["code"] == -32603 and "sees no images" in error["message"]
    meta = {"amplifier": {"fork": {"messageId": "m2"}}}
    fork = editor.call("session/fork", sessionId=session, cwd=str(blind), _meta=meta)["sessionId"]
    assert editor.prompt(fork, "three")["stopReason"] == "end_turn"
