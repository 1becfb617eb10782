"""Test the playbook provider with the kernel's real messages, on its real coordinator."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from amplifier_core import ChatRequest, ChatResponse, HookResult, InvalidRequestError, ModuleCoordinator
from amplifier_core.interfaces import Provider
from amplifier_core.loader import ModuleLoader
from amplifier_core.message_models import Message
from amplifier_provider_playbook import config_schema, mount
from amplifier_provider_playbook.provider import PlaybookProvider

REVIEW: list[dict[str, Any]] = [
    {"when": {"user": r"File changed: (?P<path>\S+)"}, "call": {"tool": "check", "input": {"file_path": "{path}"}}},
    {
        "when": {"tool": "check", "where": {"ok": False}},
        "say": "I found a problem.",
        "call": {"tool": "write_file", "input": {"file_path": "REVIEW.md", "content": "{path}:{line}: {message}\n"}},
    },
    {"when": {"tool": "write_file"}, "say": "{path}: line {line}: {message}"},
    {"when": {"tool": "check"}, "say": "{path} is fine."},
]


async def playbook(rules: list[dict[str, Any]], **config: Any) -> PlaybookProvider:
    coordinator = ModuleCoordinator(session_id="test")
    await mount(coordinator, {"rules": rules, **config})
    provider = coordinator.get("providers", "playbook")
    assert isinstance(provider, PlaybookProvider)
    return provider


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def result(tool: str, output: Any, call_id: str = "call_1") -> dict[str, Any]:
    text = output if isinstance(output, str) else json.dumps(output)
    return {"role": "tool", "tool_call_id": call_id, "name": tool, "content": text}


def as_message(response: ChatResponse) -> dict[str, Any]:
    """Record a response as the published loop does."""
    calls = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in response.tool_calls or ()]
    content = [block.model_dump() for block in response.content]
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


async def ask(provider: PlaybookProvider, *messages: dict[str, Any]) -> ChatResponse:
    return await provider.complete(ChatRequest(messages=[Message(**message) for message in messages]))


def said(response: ChatResponse) -> str:
    return "".join(block.text for block in response.content if block.type == "text")


def called(response: ChatResponse) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in response.tool_calls or ()]


async def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as caught:
        await mount(ModuleCoordinator(session_id="test"), config)
    return str(caught.value)


async def test_a_review_goes_from_the_file_to_the_finding_to_the_note() -> None:
    provider = await playbook(REVIEW)
    talk = [{"role": "system", "content": "You review."}, user("File changed: src/app.py")]

    first = await ask(provider, *talk)
    assert called(first) == [("check", {"file_path": "src/app.py"})]

    talk += [as_message(first), result("check", {"ok": False, "line": 3, "message": "bad indent"})]
    second = await ask(provider, *talk)
    assert said(second) == "I found a problem."
    assert called(second) == [("write_file", {"file_path": "REVIEW.md", "content": "src/app.py:3: bad indent\n"})]

    talk += [as_message(second), result("write_file", {"bytes": 25})]
    last = await ask(provider, *talk)
    assert (said(last), called(last), last.finish_reason) == ("src/app.py: line 3: bad indent", [], "stop")


async def test_the_first_rule_that_fits_answers() -> None:
    provider = await playbook(REVIEW)
    talk = (user("File changed: a.py"), result("check", {"ok": True}))
    response = await ask(provider, *talk)
    assert (said(response), response.metadata) == ("a.py is fine.", {"rule": "rules[3]"})


async def test_fields_are_compared_as_json_has_them_so_that_false_is_not_zero() -> None:
    provider = await playbook(
        [
            {"when": {"tool": "t", "where": {"n": 0}}, "say": "zero"},
            {"when": {"tool": "t", "where": {"n": False}}, "say": "false"},
            {"when": {"tool": "t", "where": {"n": None}}, "say": "null"},
        ],
        otherwise={"say": "none of them"},
    )
    answers = [said(await ask(provider, result("t", {"n": value}))) for value in (0, False, None, "0")]
    assert answers == ["zero", "false", "null", "none of them"]
    assert said(await ask(provider, result("t", {}))) == "none of them"


async def test_a_pattern_on_a_tools_output_gives_names_too() -> None:
    provider = await playbook([{"when": {"tool": "run", "output": r"exit (?P<code>\d+)"}, "say": "It was {code}."}])
    assert said(await ask(provider, result("run", "done, exit 3"))) == "It was 3."
    with pytest.raises(InvalidRequestError, match="result of tool 'run': 'still running'"):
        await ask(provider, result("run", "still running"))


async def test_a_group_that_took_no_part_is_empty_text() -> None:
    provider = await playbook([{"when": {"user": r"hello(?P<who> \w+)?"}, "say": "<{who}>"}])
    assert said(await ask(provider, user("hello"))) == "<>"


async def test_without_a_fitting_rule_otherwise_answers() -> None:
    provider = await playbook(REVIEW, otherwise={"say": "Nothing to do for: {prompt}"})
    assert said(await ask(provider, user("good morning"))) == "Nothing to do for: good morning"


async def test_without_otherwise_the_error_names_the_message_and_the_remedy() -> None:
    provider = await playbook(REVIEW)
    with pytest.raises(InvalidRequestError) as caught:
        await ask(provider, user("good morning"))
    assert str(caught.value) == (
        "no rule of the playbook fits the user's message: 'good morning'. "
        "Add a rule with when: {user: PATTERN}, or 'otherwise' to the provider's config"
    )
    assert (caught.value.provider, caught.value.retryable) == ("playbook", False)


async def test_an_unknown_name_is_an_error_that_lists_the_names_there_are() -> None:
    provider = await playbook([{"when": {"user": r"(?P<path>\w+)"}, "say": "{path} {line}"}])
    with pytest.raises(InvalidRequestError) as caught:
        await ask(provider, user("a"))
    assert str(caught.value) == "playbook rules[0]: there is no value for {line}; known are path, prompt"


async def test_names_of_earlier_turns_stay_and_later_ones_win() -> None:
    provider = await playbook(
        [{"when": {"user": r"open (?P<path>\w+)"}, "say": "ok"}, {"when": {"user": "again"}, "say": "{path}"}]
    )
    done = {"role": "assistant", "content": "ok"}
    assert said(await ask(provider, user("open a"), done, user("again"))) == "a"
    assert said(await ask(provider, user("open a"), done, user("open b"), done, user("again"))) == "b"


async def test_later_results_win_and_prompt_and_result_always_mean_the_texts() -> None:
    provider = await playbook([{"when": {"tool": "b"}, "say": "{n}|{prompt}|{result}"}])
    second = '{"n": 2, "prompt": "no", "result": "no"}'
    response = await ask(provider, user("go"), result("a", {"n": 1}), result("b", second))
    assert said(response) == f"2|go|{second}"


async def test_a_text_that_is_one_name_keeps_the_type_through_lists_and_mappings() -> None:
    given = {"line": "{line}", "deep": [{"ok": "{ok}"}, "{none}", 7], "text": "at {line}: {ok}, {none}", "{line}": 1}
    provider = await playbook([{"when": {"tool": "check"}, "call": {"tool": "note", "input": given}}])
    response = await ask(provider, result("check", {"line": 3, "ok": True, "none": None}))
    wanted = {"line": 3, "deep": [{"ok": True}, None, 7], "text": "at 3: true, null", "{line}": 1}
    assert called(response) == [("note", wanted)]


async def test_doubled_braces_are_braces_and_values_are_never_templates() -> None:
    provider = await playbook([{"when": {"user": "(?P<x>.*)"}, "say": "{{x}} = {x}"}])
    assert said(await ask(provider, user("{prompt} {0.__class__}"))) == "{x} = {prompt} {0.__class__}"


async def test_of_results_in_a_row_the_last_decides_and_all_give_names() -> None:
    provider = await playbook(
        [{"when": {"tool": "b"}, "say": "{from_a} {from_b}"}, {"when": {"tool": "a"}, "say": "no"}]
    )
    talk = (user("go"), result("a", {"from_a": 1}, "call_1"), result("b", {"from_b": 2}, "call_2"))
    assert said(await ask(provider, *talk)) == "1 2"


async def test_an_interrupted_call_is_made_again_with_a_new_id() -> None:
    provider = await playbook(REVIEW)
    start = user("File changed: a.py")
    first = await ask(provider, start)
    cut = [start, as_message(first), result("check", {"interrupted": True, "line": 99})]
    again = await ask(provider, *cut)
    assert called(again) == called(first)
    assert again.tool_calls and first.tool_calls and again.tool_calls[0].id != first.tool_calls[0].id

    whole = [*cut, as_message(again), result("check", {"ok": True})]
    assert said(await ask(provider, *whole)) == "a.py is fine."


async def test_an_interruption_in_the_middle_of_a_turn_goes_back_one_step_only() -> None:
    provider = await playbook(REVIEW)
    talk = [user("File changed: a.py")]
    talk += [as_message(await ask(provider, *talk)), result("check", {"ok": False, "line": 1, "message": "m"})]
    writing = await ask(provider, *talk)
    talk += [as_message(writing), result("write_file", {"interrupted": True})]
    assert called(await ask(provider, *talk)) == called(writing) != []


async def test_calls_made_at_once_are_all_made_again_when_one_was_interrupted() -> None:
    both = [{"tool": "a", "input": {}}, {"tool": "b"}]
    provider = await playbook([{"when": {"user": "go"}, "call": both}])
    first = await ask(provider, user("go"))
    assert called(first) == [("a", {}), ("b", {})]
    results = (result("a", {"interrupted": True}, "call_1"), result("b", {"x": 1}, "call_2"))
    assert called(await ask(provider, user("go"), as_message(first), *results)) == called(first)


async def test_the_same_request_gets_the_same_answer_from_another_provider() -> None:
    talk = (user("File changed: a.py"), result("check", {"ok": False, "line": 1, "message": "m"}))
    one, two = await ask(await playbook(REVIEW), *talk), await ask(await playbook(REVIEW), *talk)
    assert one.model_dump() == two.model_dump()


async def test_ids_of_calls_never_repeat_even_when_old_messages_were_cut_away() -> None:
    provider = await playbook([{"when": {"user": "go"}, "call": [{"tool": "a"}, {"tool": "a"}]}])
    talk: list[dict[str, Any]] = []
    ids: list[str] = []
    for _ in range(5):
        talk.append(user("go"))
        response = await ask(provider, *talk)
        ids += [call.id for call in response.tool_calls or ()]
        talk += [as_message(response), *(result("a", "ok", call_id) for call_id in ids[-2:])]
        talk = talk[-4:]
    assert len(set(ids)) == 10


async def test_a_tool_is_known_by_the_id_of_its_call_when_its_result_has_no_name() -> None:
    provider = await playbook(REVIEW)
    for shape in ("tool_calls", "content"):
        recorded = as_message(await ask(provider, user("File changed: a.py")))
        call_id = recorded["tool_calls"][0]["id"]
        recorded[shape] = None if shape == "tool_calls" else "calling"
        answer = {"role": "tool", "tool_call_id": call_id, "content": '{"ok": true}'}
        assert said(await ask(provider, user("File changed: a.py"), recorded, answer)) == "a.py is fine."


async def test_a_result_may_be_a_block_of_a_users_message() -> None:
    provider = await playbook(REVIEW)
    start = user("File changed: a.py")
    recorded = as_message(await ask(provider, start))
    block = {"type": "tool_result", "tool_call_id": recorded["tool_calls"][0]["id"], "output": {"ok": True}}
    assert said(await ask(provider, start, recorded, {"role": "user", "content": [block]})) == "a.py is fine."


@pytest.mark.parametrize(
    "added",
    [
        {"role": "system", "content": "Mind the style."},
        user("\n<system-reminder>Mind the style.</system-reminder>"),
        user("Mind the style.", metadata={"source": "hook"}),
    ],
    ids=["system", "reminder", "hook"],
)
async def test_what_hooks_add_is_not_looked_at(added: dict[str, Any]) -> None:
    provider = await playbook([{"when": {"user": ".*"}, "say": "you said {prompt}"}])
    assert said(await ask(provider, user("hello"), added)) == "you said hello"


async def test_text_that_only_looks_like_json_has_no_fields() -> None:
    provider = await playbook([{"when": {"tool": "t"}, "say": "{result}"}])
    for text in ('{"n": 1', "[1, 2]", '{"n": ' * 100_000):
        assert said(await ask(provider, result("t", text))) == text


async def test_a_pattern_is_not_searched_beyond_the_limit() -> None:
    provider = await playbook([{"when": {"user": "needle"}, "say": "found"}], otherwise={"say": "not found"})
    assert said(await ask(provider, user("x" * 65_530 + "needle"))) == "found"
    assert said(await ask(provider, user("x" * 65_531 + "needle"))) == "not found"


async def test_usage_counts_a_token_for_four_characters_begun_and_costs_nothing() -> None:
    provider = await playbook([{"when": {"user": "."}, "say": "12345"}])
    usage = (await ask(provider, {"role": "system", "content": "1234"}, user("1"))).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2, 2, 4)
    assert usage.cost_usd == Decimal("0")


async def test_hooks_see_the_request_the_response_and_the_error() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    events: list[tuple[str, str, str]] = []

    async def record(event: str, data: dict[str, Any]) -> HookResult:
        events.append((event, data["model"], data.get("status", "")))
        return HookResult()

    for event in ("llm:request", "llm:response"):
        coordinator.hooks.register(event, record)
    await mount(coordinator, {"rules": [{"when": {"user": "hello"}, "say": "hi"}]})
    provider = coordinator.get("providers", "playbook")
    await ask(provider, user("hello"))
    with pytest.raises(InvalidRequestError):
        await ask(provider, user("bye"))
    assert events == [
        ("llm:request", "playbook", ""),
        ("llm:response", "playbook", "ok"),
        ("llm:request", "playbook", ""),
        ("llm:response", "playbook", "error"),
    ]


async def test_a_delay_can_be_cancelled() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    asked = asyncio.Event()

    async def note(event: str, data: dict[str, Any]) -> None:
        asked.set()

    coordinator.hooks.register("llm:request", note)
    await mount(coordinator, {"otherwise": {"say": "late"}, "delay_ms": 3_600_000})
    answering = asyncio.create_task(ask(coordinator.get("providers", "playbook"), user("hello")))
    await asked.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


async def test_a_short_delay_only_delays() -> None:
    assert said(await ask(await playbook([{"when": {"user": "."}, "say": "late"}], delay_ms=1), user("x"))) == "late"


async def test_it_is_a_provider_with_one_model_and_no_credentials() -> None:
    provider = await playbook([])
    assert isinstance(provider, Provider)
    assert [model.id for model in await provider.list_models()] == ["playbook"]
    assert (provider.get_info().id, provider.get_info().credential_env_vars) == ("playbook", [])
    assert provider.parse_tool_calls(ChatResponse(content=[])) == []


async def test_the_installed_entry_point_mounts_it() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    mounted = await ModuleLoader().load("provider-playbook", {"rules": []}, coordinator=coordinator)
    await mounted(coordinator)
    assert coordinator.get("providers", "playbook").name == "playbook"


async def test_a_request_without_messages_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no message to answer"):
        await ask(await playbook([], otherwise={"say": "x"}))


RULE = {"when": {"user": "x"}, "say": "y"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rule": []}, "rule: unknown key; did you mean 'rules'?"),
        ({"rules": {}}, "rules: must be a list"),
        ({"rules": [RULE, "x"]}, "rules[1]: must be a mapping of names to values"),
        ({"rules": [{**RULE, "sya": 1}]}, "rules[0].sya: unknown key; did you mean 'say'?"),
        ({"rules": [{"say": "y"}]}, "rules[0].when: this key is required"),
        ({"rules": [{"when": {}, "say": "y"}]}, "rules[0].when: needs either 'user' or 'tool'"),
        ({"rules": [{"when": {"user": "x", "tool": "t"}}]}, "rules[0].when: needs either 'user' or 'tool'"),
        (
            {"rules": [{"when": {"user": "x", "where": {}}}]},
            "rules[0].when.where: goes with 'tool', not with 'user'",
        ),
        ({"rules": [{"when": {"user": "("}, "say": "y"}]}, "rules[0].when.user: not a regular expression: "),
        ({"rules": [{"when": {"user": 5}, "say": "y"}]}, "rules[0].when.user: must be a regular expression in quotes"),
        (
            {"rules": [{"when": {"tool": "t", "output": "(?P<result>.)"}}]},
            "rules[0].when.output: a group cannot be named 'result'",
        ),
        (
            {"rules": [{"when": {"tool": ""}, "say": "y"}]},
            "rules[0].when.tool: String should have at least 1 character",
        ),
        ({"rules": [{"when": {"user": "x"}}]}, "rules[0]: needs 'say', 'call', or both"),
        ({"rules": [{"when": {"user": "x"}, "say": 5}]}, "rules[0].say: must be text; put it in quotes"),
        ({"rules": [{"when": {"user": "x"}, "say": "{a.b}"}]}, "rules[0].say: a brace must enclose a name"),
        ({"rules": [{"when": {"user": "x"}, "call": []}]}, "rules[0].call: List should have at least 1 item"),
        ({"rules": [{"when": {"user": "x"}, "call": {}}]}, "rules[0].call.tool: this key is required"),
        (
            {"rules": [{"when": {"user": "x"}, "call": [{"tool": "t"}, {"tool": "t", "input": []}]}]},
            "rules[0].call[1].input: must be a mapping",
        ),
        (
            {"rules": [{"when": {"user": "x"}, "call": {"tool": "t", "input": {"a": ["}"]}}}]},
            "rules[0].call.input.a[0]: a brace must enclose a name",
        ),
        ({"otherwise": {"say": "x", "when": {}}}, "otherwise.when: unknown key; known are say, call"),
        ({"delay_ms": -1}, "delay_ms: Input should be greater than or equal to 0"),
        ({"delay_ms": float("nan")}, "delay_ms: Input should be a finite number"),
        ({"priority": "high"}, "priority: Input should be a valid integer"),
    ],
)
async def test_a_rule_that_cannot_work_is_refused_by_its_key(config: dict[str, Any], message: str) -> None:
    assert (await refusal(config)).startswith(f"provider-playbook: {message}")


def test_the_schema_describes_every_key() -> None:
    schema = config_schema()
    assert set(schema["properties"]) == {"rules", "otherwise", "delay_ms", "priority", "default_model"}
    assert all(about["description"] for about in schema["properties"].values())
    assert set(schema["$defs"]["When"]["properties"]) == {"user", "tool", "where", "output"}


def test_importing_the_package_loads_neither_pydantic_nor_asyncio() -> None:
    code = (
        "import sys, amplifier_provider_playbook; "
        "print([name for name in ('pydantic', 'asyncio', 'amplifier_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
