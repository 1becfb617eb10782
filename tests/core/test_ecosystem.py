"""Modules as others write and install them, one of each kind, through one turn together: see `tests/ecosystem`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

TURN = Path(__file__).parents[1] / "ecosystem" / "turn.py"

BEGINNING = ["session:fork", "session:start", "session:config", "prompt:submit", "execution:start"]
ASKED_AND_REFUSED_FOR_NOW = ["provider:request", "llm:request", "llm:request:raw", "provider:retry", "llm:response"]
ASKED = ["provider:request", "llm:request", "llm:request:raw", "llm:response"]
BLOCK = ["content_block:start", "content_block:end"]
READ_AND_NOTED = ["tool:pre", "artifact:read", "tool:post", "tool:pre", "tool:post"]
WRITTEN_AND_DENIED = [
    "approval:required",
    "approval:granted",
    "tool:pre",
    "artifact:write",
    "tool:post",
    "approval:required",
    "approval:denied",
]
ENDING = ["execution:end", "orchestrator:complete", "prompt:complete"]

Happened = dict[str, Any]


def turn(folder: Path, found: str, *options: str) -> Happened:
    """Run the turn in a process of its own, in which every warning is an error."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", str(TURN), str(folder), found, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    happened: Happened = json.loads(done.stdout)
    return happened


@pytest.fixture(scope="module", params=["entry-points", "source"])
def happened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Happened:
    """What happened in a turn whose modules were found as installed packages, or in the folders that the plan names."""
    return turn(tmp_path_factory.mktemp("ecosystem"), request.param)


def names(happened: Happened) -> list[str]:
    return [each["event"] for each in happened["log"]]


def data_of(happened: Happened, event: str) -> list[dict[str, Any]]:
    return [each["data"] for each in happened["log"] if each["event"] == event]


def test_a_turn_is_told_event_by_event(happened: Happened) -> None:
    assert names(happened) == [
        *BEGINNING,
        *ASKED_AND_REFUSED_FOR_NOW,
        *BLOCK * 4,
        *READ_AND_NOTED,
        "orchestrator:steered",
        *ASKED,
        *BLOCK * 2,
        *WRITTEN_AND_DENIED,
        *ASKED,
        *BLOCK,
        *ENDING,
        "session:end",
    ]


def test_every_event_says_whose_it_is_and_when(happened: Happened) -> None:
    assert {(each["data"]["session_id"], each["data"]["parent_id"]) for each in happened["log"]} == {("s", "p")}
    stamps = [datetime.fromisoformat(each["data"]["timestamp"]) for each in happened["log"]]
    assert {stamp.utcoffset() for stamp in stamps} == {timedelta(0)}


def test_a_request_its_retry_and_its_response_have_one_id(happened: Happened) -> None:
    asked, answered = data_of(happened, "llm:request"), data_of(happened, "llm:response")
    ids = [data["request_id"] for data in asked]
    assert ids == [data["request_id"] for data in answered]
    assert len({*ids}) == 3
    assert data_of(happened, "provider:retry")[0]["request_id"] == ids[0]


def test_tools_run_in_the_session_s_folder_and_know_its_mentions(happened: Happened) -> None:
    assert happened["mounted"] == {"providers": ["cloud"], "tools": ["read_file", "write_file", "todo"]}
    assert happened["files"] == {"notes.md": "b\na\n", "sorted.md": "a\nb\n"}
    assert [data["tool_name"] for data in data_of(happened, "tool:pre")] == ["read_file", "todo", "write_file"]


def test_modules_share_what_they_leave_on_the_coordinator(happened: Happened) -> None:
    assert happened["todos"] == [{"content": "sort", "status": "pending"}]
    assert (happened["dispatching"], happened["running"]) == ({}, [])
    assert happened["cost"] == ["0.000990"]


def test_the_history_is_what_the_loop_wrote(happened: Happened) -> None:
    assert [role for role, _ in happened["history"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    results = [content for role, content in happened["history"] if role == "tool"]
    assert results == [
        '{"path": "notes.md", "content": "b\\na\\n"}',
        '{"todos": [{"content": "sort", "status": "pending"}], "beside": 2}',
        '{"path": "sorted.md", "bytes": 4}',
        "Denied by hook: secrets stay",
    ]
    assert happened["answer"] == "Sorted."


def test_the_model_reads_the_system_prompt_the_steering_and_the_goal(happened: Happened) -> None:
    refused, first, second, third = (request["messages"] for request in happened["requests"])
    assert refused == first
    told = [[(message["role"], message["content"]) for message in messages] for messages in (first, second, third)]
    assert all(messages[0] == ("system", "You tidy.") for messages in told)
    assert all(messages[-1] == ("developer", "The goal: tidy notes") for messages in told)
    assert [("user", "Keep it short.") in messages for messages in told] == [False, True, True]
    assert [tool["name"] for tool in happened["requests"][0]["tools"]] == happened["mounted"]["tools"]


def test_the_key_reaches_the_service_and_no_event(happened: Happened) -> None:
    assert happened["keys"] == ["key-of-the-cloud"]
    assert "key-of-the-cloud" not in json.dumps(happened["log"])
    [told] = data_of(happened, "session:config")
    assert told["raw"]["providers"][0]["config"]["api_key"] == "[REDACTED]"
    assert {data["api_key"] for data in data_of(happened, "llm:request:raw")} == {"[REDACTED]"}


def test_the_end_of_the_session_closes_what_a_module_opened(happened: Happened) -> None:
    assert happened["closed"] is True
    assert [data["status"] for data in data_of(happened, "session:end")] == ["completed"]


def test_a_loop_that_takes_its_own_part_in_a_cancellation_ends_as_it_expects(tmp_path: Path) -> None:
    happened = turn(tmp_path, "source", "--cancel")
    told = [event for event in names(happened) if event.startswith(("tool:", "cancel:")) or event in ENDING]
    assert told == [
        "tool:pre",
        "cancel:requested",
        "tool:post",
        "tool:pre",
        "tool:post",
        "cancel:requested",
        *ENDING,
        "cancel:completed",
    ]
    assert [data["level"] for data in data_of(happened, "cancel:requested")] == ["graceful", "graceful"]
    assert [data["status"] for data in data_of(happened, "session:end")] == ["cancelled"]
    assert happened["todos"] == []
