"""Recordings: made of a run, played back exactly, and broken by every other request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ChatRequest, Message
from amplifier_core.llm_errors import InvalidRequestError, RateLimitError
from amplifier_core.testing import TestCoordinator, check_provider
from amplifier_provider_replay import check_config
from amplifier_provider_replay.files import RecordingError, append_line, normalise, read_recording, render_request
from amplifier_provider_replay.playing import DriftError, Player
from amplifier_provider_replay.recording import Recorder

pytestmark = pytest.mark.slow

KEY = "sk-abcdefghijklmnopqrstuvwxyz012345"

STREAMING = f"""
import asyncio, os
from pathlib import Path
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolCallBlock
from amplifier_core.events import LLM_RESPONSE
from amplifier_core.llm_errors import RateLimitError
from amplifier_core.message_models import Usage
from amplifier_core.streaming import STREAM_BLOCK_DELTA, STREAM_BLOCK_END, STREAM_BLOCK_START

class Streaming:
    name = "streaming"
    priority = 7
    def __init__(self, coordinator): self.coordinator = coordinator
    def get_info(self): return ProviderInfo(id="streaming", display_name="Streaming", defaults={{"api_key": "{KEY}"}})
    async def list_models(self): return []
    def parse_tool_calls(self, response): return list(response.tool_calls or ())
    async def complete(self, request, **kwargs):
        Path(os.environ["ASKED"]).open("a").write("x")
        last = request.messages[-1]
        if last.role == "user" and "fail" in last.content:
            raise RateLimitError("slow down", provider="streaming", status_code=429, retry_after=3.5)
        usage = Usage(input_tokens=10, output_tokens=2, total_tokens=12, cost_usd="0.01")
        if last.role == "user":
            call = ToolCall(id=f"call_{{len(request.messages)}}", name="write_file",
                            arguments={{"file_path": "out.txt", "content": "hello"}})
            block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
            return ChatResponse(content=[block], tool_calls=[call], usage=usage)
        emit = self.coordinator.hooks.emit
        about = {{"request_id": "r1", "block_index": 0, "block_type": "text"}}
        await emit(STREAM_BLOCK_START, about)
        for sequence, text in enumerate(("Written", ", I {KEY} think.")):
            await emit(STREAM_BLOCK_DELTA, {{**about, "sequence": sequence, "text": text}})
        await emit(STREAM_BLOCK_END, about)
        told = {{"provider": "streaming", "model": "m", "usage": usage.model_dump(mode="json"), "status": "ok"}}
        await emit(LLM_RESPONSE, told)
        return ChatResponse(content=[TextBlock(text="Written, I {KEY} think.")], usage=usage)

async def mount(coordinator, config):
    await coordinator.mount("providers", Streaming(coordinator))
"""


class Project:
    """A folder with a bundle, and the program in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        folder.mkdir(exist_ok=True)
        (folder / "streaming.py").write_text(STREAMING)
        self.write("You write files.")

    def write(self, instruction: str) -> None:
        sections = {
            "bundle": {"name": "writer"},
            "providers": [{"module": "provider-streaming", "source": "./streaming.py"}],
            "tools": [{"module": "tool-filesystem"}],
        }
        (self.folder / "bundle.md").write_text(f"---\n{json.dumps(sections)}\n---\n{instruction}\n")

    def run(self, *arguments: str, code: int = 0, program: str = "amplifier_foundation") -> Any:
        done = subprocess.run(
            [sys.executable, "-m", program, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={
                **os.environ,
                "AMPLIFIER_HOME": str(self.folder / "home"),
                "AMPLIFIER_TRUST": "1",
                "ASKED": str(self.asked),
            },
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    @property
    def requests(self) -> int:
        """How often the model was asked so far."""
        return len(self.asked.read_text()) if self.asked.exists() else 0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_a_recorded_run_is_played_back_without_its_model_and_its_tools(project: Project) -> None:
    first = json.loads(project.run("run", "--json", "--record", "rec", "go").stdout)["data"]
    project.run("session", "record", "rec", "--resume", first["session_id"], "again")
    (project.folder / "out.txt").unlink()
    asked, stored = project.requests, project.run("session", "list", "--json").stdout
    played = project.run("session", "replay", "rec")
    assert played.stdout.splitlines() == ["Written, I [REDACTED] think."] * 2
    assert played.stderr == "replayed as recorded: 2 turns\n"
    assert (project.requests, project.run("session", "list", "--json").stdout) == (asked, stored)
    assert not (project.folder / "out.txt").exists()
    shown = json.loads(project.run("session", "replay", "rec", "--json", "--run-tools").stdout)["data"]
    assert [turn["usage"]["cost_usd"] for turn in shown["turns"]] == ["0.02", "0.04"]
    assert (project.folder / "out.txt").exists()


def test_no_secret_is_in_a_recording_and_nobody_else_reads_it(project: Project) -> None:
    project.run("run", "--record", "rec", f"go {KEY}")
    (file,) = (project.folder / "rec").iterdir()
    assert KEY not in file.read_text()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.chmod(0o644)
    append_line(file, {})
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_pipe_with_a_recording_keeps_its_mode(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o666)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    append_line(tmp_path / "pipe", {"type": "turn"})
    assert json.loads(os.read(reader, 10_000)) == {"type": "turn"}
    os.close(reader)
    assert (tmp_path / "pipe").stat().st_mode & 0o777 == 0o666


def test_another_prompt_is_an_error_with_both(project: Project) -> None:
    project.run("run", "--record", "rec", "go")
    project.write("You write files, and you are polite.")
    drifted = project.run("session", "replay", "rec", code=1)
    assert "-    You write files." in drifted.stderr
    assert "+    You write files, and you are polite." in drifted.stderr
    assert "Traceback" not in drifted.stderr


def test_a_tool_that_answers_otherwise_is_an_error_when_it_runs(project: Project) -> None:
    project.run("run", "--record", "rec", "go")
    (project.folder / "out.txt").unlink()
    project.run("session", "replay", "rec")
    (project.folder / "out.txt").mkdir()
    drifted = project.run("session", "replay", "rec", "--run-tools", code=1)
    assert "request 2 is not the recorded one" in drifted.stderr


def test_the_sessions_of_agents_are_recorded_and_played_back_with_their_parent(project: Project) -> None:
    rules = [
        {
            "when": {"user": "^check"},
            "call": [
                {"tool": "delegate", "input": {"agent": name, "instruction": f"as {name}"}} for name in ("one", "two")
            ],
        },
        {"when": {"tool": "delegate"}, "say": "Both: {response}"},
    ]
    sections = {
        "bundle": {"name": "lead"},
        "providers": [
            {"module": "provider-playbook", "config": {"rules": rules, "otherwise": {"say": "You said: {prompt}"}}}
        ],
        "tools": [{"module": "tool-delegate"}],
        "agents": {name: {"description": name, "instruction": f"You are {name}."} for name in ("one", "two")},
    }
    (project.folder / "bundle.md").write_text(f"---\n{json.dumps(sections)}\n---\n")
    project.run("run", "--record", "rec", "check")
    assert len(list((project.folder / "rec").iterdir())) == 3
    for options in ([], ["--run-tools"]):
        assert project.run("session", "replay", "rec", *options).stdout == "Both: You said: as two\n"
    sections["agents"]["two"]["instruction"] = "You are the second."
    (project.folder / "bundle.md").write_text(f"---\n{json.dumps(sections)}\n---\n")
    drifted = project.run("session", "replay", "rec", "--run-tools", code=1)
    assert "+    You are the second." in drifted.stderr


def test_an_error_is_played_back_as_it_was(project: Project) -> None:
    project.run("run", "--record", "rec", "fail", code=75)
    played = project.run("session", "replay", "rec", "--json")
    (turn,) = json.loads(played.stdout)["data"]["turns"]
    assert (turn["status"], turn["error"]) == ("failed", "slow down")


def test_every_recording_of_a_folder_is_a_test(project: Project) -> None:
    project.run("run", "--record", "recordings/one", "go")
    project.run("run", "--record", "recordings/two", "go")
    project.run("-q", "--amplifier-replay", "recordings", "-p", "no:cacheprovider", program="pytest")
    project.write("Other words.")
    failed = project.run("-q", "--amplifier-replay", "recordings/two", program="pytest", code=1)
    assert "+    Other words." in failed.stdout
    missing = project.run("-q", "--amplifier-replay", "home", program="pytest", code=4)
    assert "there is no recording in" in missing.stderr


def test_a_session_without_a_bundle_is_played_back(project: Project) -> None:
    text = (project.folder / "bundle.md").read_text()
    (project.folder / "bundle.md").unlink()
    project.run("run", "--record", "recordings/one", "read streaming.py")
    (project.folder / "streaming.py").unlink()
    for _ in ("without a bundle", "with one"):
        assert project.run("session", "replay", "recordings/one").stderr.endswith("replayed as recorded: 1 turn\n")
        project.run("-q", "--amplifier-replay", "recordings", "-p", "no:cacheprovider", program="pytest")
        (project.folder / "bundle.md").write_text(text)


def test_a_bundle_records_and_replays_by_itself(project: Project) -> None:
    text = (project.folder / "bundle.md").read_text()
    entry = '{"module": "provider-replay", "config": {"record": "rec"}}'
    (project.folder / "bundle.md").write_text(
        text.replace('"source": "./streaming.py"}', f'"source": "./streaming.py"}}, {entry}')
    )
    recorded = project.run("run", "go")
    assert (len(list((project.folder / "rec").iterdir())), project.requests) == (1, 2)
    _, line, body = text.split("---\n")
    plan = json.loads(line) | {"providers": [{"module": "provider-replay", "config": {"replay": "rec"}}]}
    (project.folder / "bundle.md").write_text(f"---\n{json.dumps(plan)}\n---\n{body}")
    assert project.run("run", "go").stdout == recorded.stdout.replace(KEY, "[REDACTED]")
    assert project.requests == 2


def test_a_run_that_cannot_be_recorded_is_told_why(project: Project) -> None:
    session = json.loads(project.run("run", "--json", "go").stdout)["data"]["session_id"]
    late = project.run("run", "--record", "rec", "--resume", session, "again", code=4)
    assert "there is no recording in this folder" in late.stderr
    project.run("run", "--record", "rec", "--fork", session, "again", code=4)
    project.run("session", "replay", "home", code=4)
    project.run("run", "--record", "rec", "go")
    second = project.run("run", "--record", "rec", "go", code=4)
    assert "rec holds a recording already" in second.stderr


async def test_a_recorder_and_a_player_keep_streams_and_errors(tmp_path: Path) -> None:
    recorded, heard = TestCoordinator(), []
    recorded.session_id = "s-1"
    await recorded.mount("providers", Model(recorded), name="model")
    recorder = Recorder(tmp_path / "rec")
    recorder.attach(recorded)
    provider = recorded.get("providers")["model"]
    greeting = ChatRequest(messages=[Message(role="user", content="Hello")])
    whole = await provider.complete(greeting)
    with pytest.raises(RateLimitError):
        await provider.complete(ChatRequest(messages=[Message(role="user", content="fail")]))
    played = TestCoordinator()
    player = Player(tmp_path / "rec")
    player.attach(played)
    played.hooks.register("llm:stream_block_delta", lambda event, data: heard.append(data["text"]))
    replaying = played.get("providers")["model"]
    again = await replaying.complete(greeting)
    assert (again.model_dump(), heard) == (whole.model_dump(), ["Hi"])
    with pytest.raises(RateLimitError) as raised:
        await replaying.complete(ChatRequest(messages=[Message(role="user", content="fail")]))
    assert (raised.value.status_code, raised.value.retry_after, raised.value.retryable) == (429, 3.5, True)
    player.check_end()
    with pytest.raises(InvalidRequestError, match="request 3 is not the recorded one"):
        await replaying.complete(greeting)
    with pytest.raises(DriftError, match="request 3"):
        player.check_end()


async def test_requests_that_were_not_made_are_missed(tmp_path: Path) -> None:
    recorded = TestCoordinator()
    await recorded.mount("providers", Model(recorded), name="model")
    Recorder(tmp_path / "rec").attach(recorded)
    for text in ("one\u2028\x85", "two"):  # ends of lines in a text
        question = ChatRequest(messages=[Message(role="user", content=text)])
        await recorded.get("providers")["model"].complete(question)
    player = Player(tmp_path / "rec")
    player.attach(played := TestCoordinator())
    await played.get("providers")["model"].complete(
        ChatRequest(messages=[Message(role="user", content="one\u2028\x85")])
    )
    with pytest.raises(DriftError, match="1 recorded requests were not made"):
        player.check_end()


async def test_a_replaying_provider_keeps_the_contract_of_providers(tmp_path: Path) -> None:
    recorded = TestCoordinator()
    await recorded.mount("providers", Model(recorded), name="model")
    Recorder(tmp_path / "rec").attach(recorded)
    await check_provider(recorded.get("providers")["model"])
    player = Player(tmp_path / "rec")
    player.attach(played := TestCoordinator())
    await check_provider(played.get("providers")["model"])


@pytest.mark.parametrize(
    "text", ["", "[1]\n", '{"type": "session", "format": 2}\n', '{"type": "session", "format": 1}\nx']
)
def test_a_broken_recording_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "001-s.jsonl").write_text(text)
    with pytest.raises(RecordingError, match=r"001-s\.jsonl"):
        read_recording(tmp_path)


@pytest.mark.parametrize(
    "config", [{}, {"record": "a", "replay": "b"}, {"replay": 5}, {"replay": "a", "run_tools": "x"}, {"replai": "a"}]
)
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="^provider-replay: "):
        check_config(config)


def test_what_differs_from_run_to_run_is_no_difference() -> None:
    assert normalise('in /work/a: reader-0123456789ab took {"duration": 0.25}', "/work/a") == (
        'in {working_dir}: {id} took {"duration": 0}'
    )
    request = {"messages": [{"role": "user", "content": "a\nb", "metadata": {"timestamp": 5}}], "stream": False}
    assert render_request(request, "") == ["[1] user", "    a", "    b", "stream: false"]


class Model:
    """A model that greets in a stream."""

    name = "model"

    def __init__(self, coordinator: Any) -> None:
        self.coordinator = coordinator

    def get_info(self) -> Any:
        from amplifier_core import ProviderInfo

        return ProviderInfo(id="model", display_name="Model")

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or ())

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        from amplifier_core import ChatResponse, TextBlock

        if request.messages[-1].content == "fail":
            raise RateLimitError("slow down", status_code=429, retry_after=3.5)
        about = {"request_id": "r", "block_index": 0, "block_type": "text"}
        await self.coordinator.hooks.emit("llm:stream_block_delta", {**about, "sequence": 0, "text": "Hi"})
        return ChatResponse(content=[TextBlock(text="Hi")])
