"""What a line shows of an event: JSON whatever was emitted, not too long, no secrets, whole requests on demand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.message_models import ChatResponse, TextBlock, ToolCallBlock
from amplifier_hooks_logging.lines import LONGEST_LINE, line_of
from amplifier_hooks_logging.redaction import redact_text

SESSION = {"session_id": "s"}


def line(data: Any, event: str = "tool:post", *, raw: bool = False) -> dict[str, Any]:
    encoded = line_of(event, data, SESSION, raw=raw)
    assert len(encoded) <= LONGEST_LINE
    assert encoded.count(b"\n") == 1
    assert len(encoded.decode().splitlines()) == 1
    record: dict[str, Any] = json.loads(encoded, parse_constant=pytest.fail)
    return record


def shown(data: Any, event: str = "tool:post", *, raw: bool = False) -> Any:
    record = line(data, event, raw=raw)
    assert "truncated" not in record
    return record["data"]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@dataclass
class Account:
    name: str
    api_key: str


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        ({"a": [1, 2.5, True, None, "é\u2028\x85"]}, {"a": [1, 2.5, True, None, "é\u2028\x85"]}),
        ((1, {2}), [1, [2]]),
        ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "None": "b", "<tuple>": "c"}),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (10**30, "1" + "0" * 30),
        pytest.param(10**5000, "<int: ValueError>", id="a number too long to be text"),
        (Decimal("1.50"), "1.50"),
        (Path("/a/b"), "/a/b"),
        (b"\x00\xff", "<2 bytes>"),
        (ValueError("wrong"), "wrong"),
        (Unprintable(), "<Unprintable: RuntimeError>"),
        (TextBlock(text="hi"), {"type": "text", "text": "hi", "visibility": None}),
        (Account("me", "abc"), {"name": "me", "api_key": "[REDACTED]"}),
        ("\ud800", "\ud800"),
    ],
)
def test_whatever_an_event_carries_becomes_json(value: Any, as_json: Any) -> None:
    assert shown({"value": value}) == {"value": as_json}


@pytest.mark.parametrize("data", [None, "text", 17, ["a"]])
def test_data_that_are_no_mapping_are_logged_all_the_same(data: Any) -> None:
    assert shown(data) == {"value": data}


def test_what_contains_itself_ends() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    text = json.dumps(shown({"loop": loop}))
    assert text.count("again") == 29
    assert "<dict>" in text


def test_the_text_of_an_object_is_bounded() -> None:
    class Long:
        def __str__(self) -> str:
            return "x" * 5000

    assert shown({"value": Long()}) == {"value": "x" * 1000}


def test_a_long_line_has_its_strings_cut_and_says_so() -> None:
    record = line({"tool_name": "read", "result": "é" * 60_000, "more": {"n": 1}})
    assert record["truncated"] is True
    assert record["data"]["result"].startswith("é" * 8192 + "... (truncated")
    assert {**record["data"], "result": ""} == {"tool_name": "read", "result": "", "more": {"n": 1}}


@pytest.mark.parametrize(
    "data",
    [
        {"value": "x" * 10_000_000},
        {"value": ["x" * 1000] * 100_000},
        {"value": list(range(1_000_000))},
        {f"{n}" * 50: n for n in range(100_000)},
        {"value": "\x00" * 100_000},
        {"value": ["\x00" * 20] * 10_000},
        {"x" * 100_000: "\udc00" * 60_000},
        {"value": [[[[["deep"] * 10] * 10] * 10] * 10] * 10},
    ],
    ids=["text", "texts", "numbers", "names", "escapes", "many escapes", "one name", "nested"],
)
def test_no_line_is_longer_than_64_kib(data: dict[str, Any]) -> None:
    record = line(data)
    assert record["truncated"] is True
    assert record["data"]


def test_a_line_that_just_fits_is_whole() -> None:
    room = LONGEST_LINE - len(line_of("tool:post", {"result": ""}, SESSION, raw=False))
    assert shown({"result": "x" * room}) == {"result": "x" * room}
    assert line({"result": "x" * (room + 1)})["truncated"] is True


WHOLE = {"model": "m", "usage": {"input_tokens": 3}, "messages": [{"role": "user"}], "raw": {"all": 1}, "response": "r"}


@pytest.mark.parametrize(
    ("event", "kept"),
    [
        ("llm:request", {"model", "usage"}),
        ("llm:response", {"model", "usage"}),
        ("provider:response", {"model", "usage"}),
        ("llm:request:raw", {"model"}),
        ("llm:response:debug", {"model"}),
        ("execution:end", {"model", "usage", "messages", "response"}),
        ("session:fork", {"model", "usage", "messages", "response"}),
    ],
)
def test_whole_requests_and_responses_are_logged_only_when_wanted(event: str, kept: set[str]) -> None:
    assert set(shown(WHOLE, event)) == kept
    assert shown(WHOLE, event, raw=True) == WHOLE


def test_what_a_provider_sent_for_a_block_is_left_out_and_the_block_is_not() -> None:
    block = {"type": "text", "text": "hi", "raw": {"all": 1}}
    assert shown({"block": block}, "content_block:end") == {"block": {"type": "text", "text": "hi"}}
    assert shown({"block": block}, "content_block:end", raw=True) == {"block": block}


async def test_a_session_logs_whole_responses_when_its_configuration_says_so(
    session: Any, work: Path, read: Any
) -> None:
    response = ChatResponse(content=[ToolCallBlock(id="1", name="get", input={"password": "hidden"})])
    for raw in (False, True):
        path = f"{raw}.jsonl"
        made = session(("provider:response", {"response": response}), path=path, raw=raw, events=["provider:*"])
        await made.execute("hello")
    assert "response" not in read(work / "False.jsonl")[0]["data"]
    assert read(work / "True.jsonl")[0]["data"]["response"]["content"][0]["input"] == {"password": "[REDACTED]"}


HIDDEN = "[REDACTED]"


def test_the_values_of_sensitive_keys_are_not_logged_wherever_they_stand() -> None:
    data = {"config": [{"api_key": "a", "x-api-key": "b", "GITHUB_TOKEN": "c", "max_tokens": 5}], "password": {"d": 1}}
    assert shown(data) == {
        "config": [{"api_key": HIDDEN, "x-api-key": HIDDEN, "GITHUB_TOKEN": HIDDEN, "max_tokens": 5}],
        "password": HIDDEN,
    }


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("clone https://me:p4ss-w0rd@example.org/x.git now", f"clone https://{HIDDEN}@example.org/x.git now"),
        ("redis://:hush@localhost:6379/0", f"redis://{HIDDEN}@localhost:6379/0"),
        ("http://localhost:8080/a@b and ssh://git@example.org:22/x", None),
        ("https://example.org/x?access_token=abc&page=2", f"https://example.org/x?access_token={HIDDEN}&page=2"),
        ("https://example.org/x?page=2&key=abc#top", f"https://example.org/x?page=2&key={HIDDEN}#top"),
        ("use sk-ant-api03-abcdefghij0123456789 please", f"use {HIDDEN} please"),
        ("task-abcdefghijklmnopqrst1 and risk-management-of-2 are words", None),
        ("ghp_abcdefghijklmnopqrst0123456789abcdef", HIDDEN),
        ("AKIAIOSFODNN7EXAMPLE", HIDDEN),
        ("Authorization: Bearer abcdef.123456", f"Authorization: Bearer {HIDDEN}"),
        ("the basic functionality, a bearer certificate", None),
        ("OPENAI_API_KEY=abc PATH=/bin", f"OPENAI_API_KEY={HIDDEN} PATH=/bin"),
        ("key = value; token = tokens.next()", None),
        ('{"db": {"password": "a b", "port": 5}}', f'{{"db": {{"password": "{HIDDEN}", "port": 5}}}}'),
        ("{'api_key': 'abc'}", f"{{'api_key': '{HIDDEN}'}}"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc", HIDDEN),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", f"a\n{HIDDEN}"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_inside_a_text_is_not_logged(text: str, redacted: str | None) -> None:
    assert shown({"result": {"output": text}}) == {"result": {"output": redacted or text}}


def test_a_secret_is_not_halved_by_the_cut_before_it_is_seen() -> None:
    key = "sk-" + "a1" * 500
    for before in range(64 * 1024 - 1100, 64 * 1024, 50):
        assert "a1a1" not in line_of("tool:post", {"v": "x " * (before // 2) + key}, SESSION, raw=False).decode()


@pytest.mark.parametrize(
    "text", ["A", "eyJ-", "sk-", "://", "://a:", "&", "?token", "'", "\"api_", "-----BEGIN PRIVATE KEY-----", "bearer "]
)  # fmt: skip
def test_no_text_makes_the_search_for_secrets_endless(text: str) -> None:
    assert redact_text(text * (64 * 1024 // len(text)))


async def test_secrets_of_a_session_are_in_none_of_its_files(session: Any, work: Path) -> None:
    story = [
        ("tool:pre", {"tool_input": {"url": "https://me:hush-hush@example.org", "api_key": "the-key"}}),
        ("tool:post", {"result": "export SECRET_TOKEN=hush-hush; curl -H 'Authorization: Bearer hush-hush1'"}),
    ]
    made = session(*story, max_bytes=500, raw=True)
    await made.execute("hello")
    await made.cleanup()
    written = b"".join(path.read_bytes() for path in work.iterdir())
    assert b"tool_input" in written
    assert b"hush-hush" not in written
    assert b"the-key" not in written
