"""Check the contract of a provider; its author runs the check.

    async def test_the_contract():
        await check_provider(MyProvider(api_key="test", base_url=fake_server))

The provider gets two short questions: connect it to a stand-in for its service, or pay for them. A broken rule raises
`AssertionError` with a sentence about it. Nothing here needs a test runner.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..llm_errors import LLMError
from ..message_models import ChatRequest, ChatResponse, Message, TextBlock, ToolCall, ToolCallBlock, ToolSpec
from ..models import ModelInfo, ProviderInfo
from .store_checks.rules import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..interfaces import Provider

PROTOCOL = ("name", "get_info", "list_models", "complete", "parse_tool_calls")


async def check_provider(provider: Provider | Callable[[], Any], *, request: ChatRequest | None = None) -> None:
    """Check the provider's description and its answers; the request must stay unchanged.

    `provider` is a provider or a factory (plain or async). `request` replaces the greeting. Raises `AssertionError`,
    and the provider's own `LLMError`.
    """
    is_factory = isinstance(provider, type) or not hasattr(provider, "complete")
    made: Any = provider() if is_factory and callable(provider) else provider
    subject = await made if inspect.isawaitable(made) else made
    missing = [name for name in PROTOCOL if not hasattr(subject, name)]
    require(not missing, f"a provider must have {', '.join(PROTOCOL)}; missing: {', '.join(missing)}")
    check_description(subject)
    await check_models(subject)
    check_parsing(subject)
    greeting = ChatRequest(messages=[Message(role="user", content="Hello")])
    for question in (request or greeting, _with_a_finished_tool_call()):
        await check_answer(subject, question)


def check_description(provider: Any) -> None:
    """Check the name, and the result of `get_info`."""
    name = provider.name
    require(isinstance(name, str) and bool(name), f"a provider's name must be a text that is not empty, not {name!r}")
    info = provider.get_info()
    if inspect.iscoroutine(info):
        info.close()
    require(isinstance(info, ProviderInfo), f"get_info must return ProviderInfo, not {type(info).__name__}")
    require(bool(info.id and info.display_name), "get_info must give an id and a display name that are not empty")


async def check_models(provider: Any) -> None:
    """Check the result of `list_models`."""
    listing = provider.list_models()
    require(inspect.isawaitable(listing), "list_models must be async")
    models = await listing
    require(isinstance(models, list), f"list_models must return a list, not {type(models).__name__}")
    for model in models:
        require(isinstance(model, ModelInfo), f"list_models must list ModelInfo, not {type(model).__name__}")
    ids = [model.id for model in models]
    require(len(ids) == len(set(ids)), f"list_models must list a model once: {', '.join(sorted(ids))}")


def check_parsing(provider: Any) -> None:
    """Check that `parse_tool_calls` finds the calls of a response, and none in a response without calls."""
    _check_calls(_parse_calls(provider, ChatResponse(content=[TextBlock(text="Hello")])), [])
    call = ToolCall(id="call-1", name="read_file", arguments={"path": "notes.txt"})
    block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
    _check_calls(_parse_calls(provider, ChatResponse(content=[block], tool_calls=[call])), [call])


async def check_answer(provider: Any, request: ChatRequest) -> None:
    """Ask once; check the response and its tool calls, and that the request is unchanged."""
    before = request.model_dump()
    try:
        answering = provider.complete(request)
        require(inspect.isawaitable(answering), "complete must be async")
        response = await answering
    except (LLMError, AssertionError):
        raise
    except Exception as error:
        raise AssertionError(f"complete must raise an LLMError, not {type(error).__name__}: {error}") from error
    require(request.model_dump() == before, "complete must not change the request: it is the session's own")
    require(isinstance(response, ChatResponse), f"complete must return ChatResponse, not {type(response).__name__}")
    for call in _parse_calls(provider, response):
        _check_call(call)
    if response.usage is not None:
        counts = (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens)
        require(min(counts) >= 0, f"tokens must not be counted below zero: {counts}")
        cached = (response.usage.cache_read_tokens or 0) + (response.usage.cache_write_tokens or 0)
        require(cached <= counts[0], f"input_tokens must count cached tokens, too: {cached} are more than {counts[0]}")


def _parse_calls(provider: Any, response: ChatResponse) -> list[Any]:
    calls = provider.parse_tool_calls(response)
    if inspect.iscoroutine(calls):
        calls.close()
    require(isinstance(calls, list), f"parse_tool_calls must return a list at once, not {type(calls).__name__}")
    return list(calls)


def _check_calls(calls: list[Any], expected: list[ToolCall]) -> None:
    for call in calls:
        _check_call(call)
    facts = [(call.id, call.name, call.arguments) for call in calls]
    wanted = [(call.id, call.name, call.arguments) for call in expected]
    require(facts == wanted, f"parse_tool_calls must return the calls of the response, {wanted}, not {facts}")


def _check_call(call: object) -> None:
    require(isinstance(call, ToolCall), f"parse_tool_calls must list ToolCall, not {type(call).__name__}")
    assert isinstance(call, ToolCall)
    require(bool(call.id and call.name), "a tool call must have an id and a name: its result is matched by them")


def _with_a_finished_tool_call() -> ChatRequest:
    """Return the request of a loop after a tool's answer."""
    asking = {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": "call-1", "name": "read_file", "input": {"path": "notes.txt"}}],
        "tool_calls": [{"id": "call-1", "tool": "read_file", "arguments": {"path": "notes.txt"}}],
    }
    tool = ToolSpec(name="read_file", description="Read a file", parameters={"type": "object", "properties": {}})
    return ChatRequest(
        messages=[
            Message(role="system", content="Be brief."),
            Message(role="user", content="What is in notes.txt?"),
            Message.model_validate(asking),
            Message(role="tool", tool_call_id="call-1", name="read_file", content="Buy milk."),
        ],
        tools=[tool],
    )
