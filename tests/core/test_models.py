"""The kernel's data models, errors and the small functions that work on them."""

from __future__ import annotations

import json
import pickle
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from amplifier_core import capabilities, llm_errors
from amplifier_core.content_models import TextContent, ThinkingContent, ToolCallContent, ToolResultContent
from amplifier_core.interfaces import ApprovalRequest, ContextManager, Orchestrator, Provider, Tool
from amplifier_core.llm_errors import (
    AuthenticationError,
    ContextLengthError,
    InvalidToolCallError,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
)
from amplifier_core.message_models import (
    ChatRequest,
    ChatResponse,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolSpec,
    Usage,
    make_request,
)
from amplifier_core.models import ContextInjection, HookResult, SessionStatus, ToolResult, continue_with
from amplifier_core.module_sources import FileSystemModuleSource, ModuleNotFoundError
from amplifier_core.testing import MockContextManager
from amplifier_core.utils import redact_secrets, truncate_values
from amplifier_core.utils.retry import RetryConfig, classify_error_message, retry_with_backoff

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo"}}
USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}


# messages


@pytest.mark.parametrize("model", [Message, ToolSpec, ChatRequest, ChatResponse, Usage, TextBlock])
def test_what_goes_over_the_wire_keeps_fields_that_nobody_here_knows(model: Any) -> None:
    required: dict[Any, dict[str, Any]] = {
        Message: {"role": "user", "content": "hi"},
        ToolSpec: {"name": "read", "parameters": {}},
        ChatRequest: {"messages": []},
        ChatResponse: {"content": []},
        Usage: USAGE,
        TextBlock: {"text": "hi"},
    }
    assert model.model_validate({**required[model], "vendor": {"a": 1}}).model_dump()["vendor"] == {"a": 1}


def test_blocks_are_told_apart_by_their_type() -> None:
    message = Message.model_validate(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "tool_call", "id": "1", "name": "x", "input": {}}],
        }
    )
    assert [type(block) for block in message.content] == [TextBlock, ToolCallBlock]


def test_a_block_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValidationError, match="hologram"):
        Message.model_validate({"role": "user", "content": [{"type": "hologram"}]})


def test_a_request_is_not_streamed_unless_asked() -> None:
    assert ChatRequest(messages=[Message(role="user", content="hi")]).stream is False


@pytest.mark.parametrize(
    ("model", "required"), [(Usage, USAGE), (SessionStatus, {"session_id": "s"})], ids=["usage", "status"]
)
def test_a_cost_is_never_a_float_and_is_written_digit_by_digit(model: Any, required: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="must be Decimal"):
        model.model_validate({**required, "cost_usd": 0.1})
    priced = model.model_validate({**required, "cost_usd": Decimal("0.10")})
    assert json.loads(priced.model_dump_json())["cost_usd"] == "0.10"
    assert model.model_validate_json(priced.model_dump_json()).cost_usd == Decimal("0.10")
    assert model.model_validate(required).model_dump()["cost_usd"] is None


def test_a_session_status_becomes_json_types() -> None:
    status = SessionStatus(session_id="s", cost_usd=Decimal("1.5"))
    assert json.loads(json.dumps(status.to_dict()))["cost_usd"] == "1.5"


def test_a_hook_result_lets_pass_by_default_and_denies_what_nobody_approved() -> None:
    result = HookResult()
    assert (result.action, result.approval_default, result.approval_timeout) == ("continue", "deny", 300.0)


# tool results


def test_a_failed_tool_tells_the_model_the_error_as_its_output() -> None:
    assert ToolResult(success=False, error={"message": "no such file"}).output == "no such file"


def test_a_successful_result_has_no_output_of_its_error() -> None:
    result = ToolResult(error={"message": "a warning"})
    assert (result.output, result.get_serialized_output()) == (None, "Success")


def test_an_output_is_not_replaced_by_the_error() -> None:
    assert ToolResult(success=False, output="half", error={"message": "broke"}).output == "half"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("plain", "plain"),
        ("a\x00b\x1b[31mc\x9b\x7f\td\r\n", "ab[31mc\td\r\n"),
        ({"a": "x\x00y", "b": [1, "ü"]}, '{"a": "xy", "b": [1, "ü"]}'),
        ({"path": "C:\\u0000"}, '{"path": "C:\\\\u0000"}'),
        ("lone \ud800 surrogate", "lone  surrogate"),
        (True, "true"),
        (7, "7"),
        (None, "Success"),
        ({"cost": Decimal("0.10")}, '{"cost": "0.10"}'),
        ({"cost\x00": [Decimal("0.10")]}, '{"cost": ["0.10"]}'),
    ],
)
def test_what_a_model_reads_is_text_or_json_without_control_characters(output: Any, text: str) -> None:
    assert ToolResult(output=output).get_serialized_output() == text


def test_a_failure_that_says_nothing_is_an_empty_text() -> None:
    assert ToolResult(success=False).get_serialized_output() == ""


@pytest.mark.parametrize("output", [{"when": object()}, [{1, 2}], {"a\x00": b"bytes"}], ids=["object", "set", "bytes"])
def test_an_output_that_json_cannot_hold_is_refused(output: Any) -> None:
    with pytest.raises(TypeError, match="is not JSON serializable"):
        ToolResult(output=output).get_serialized_output()


def test_blocks_are_read_when_there_is_no_output() -> None:
    result = ToolResult(content=[TextBlock(text="a chart"), ImageBlock(source=IMAGE["source"])])  # type: ignore[arg-type]
    assert result.get_serialized_output() == "a chart\n[image]"


def test_one_block_or_a_text_becomes_a_list_of_blocks() -> None:
    assert ToolResult.model_validate({"content": "hi"}).content == [TextBlock(text="hi")]
    assert ToolResult.model_validate({"content": IMAGE}).content == [ImageBlock.model_validate(IMAGE)]


def test_a_result_without_blocks_is_written_without_the_field() -> None:
    assert ToolResult(output=1).model_dump() == {"success": True, "output": 1, "error": None}
    assert ToolResult.model_validate({"content": "hi"}).model_dump()["content"] == [{"type": "text", "text": "hi"}]


def test_a_copy_checks_the_blocks_that_it_is_given() -> None:
    copied = ToolResult(output=1).model_copy(update={"content": "hi"})
    assert (copied.output, copied.content) == (1, [TextBlock(text="hi")])
    with pytest.raises(ValidationError):
        copied.model_copy(update={"content": [{"type": "hologram"}]})


@pytest.mark.parametrize("where", [{"content": [IMAGE]}, {"output": IMAGE}, {"output": [IMAGE, "text"]}])
def test_hooks_never_see_the_bytes_of_an_image(where: dict[str, Any]) -> None:
    shown = json.dumps(ToolResult.model_validate(where).safe_hook_presentation())
    assert "image/png" in shown
    assert "iVBORw0KGgo" not in shown


def test_hooks_see_everything_else() -> None:
    shown = ToolResult(success=False, output={"a": 1}, error={"message": "m"}).safe_hook_presentation()
    assert shown == {"success": False, "output": {"a": 1}, "error": {"message": "m"}}


# streaming blocks, capabilities, sources


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (TextContent(text="a"), {"type": "text", "text": "a"}),
        (ThinkingContent(text="a", raw={"r": 1}), {"type": "thinking", "text": "a", "raw": {"r": 1}}),
        (
            ToolCallContent(id="1", name="x", arguments={}),
            {"type": "tool_call", "id": "1", "name": "x", "arguments": {}},
        ),
        (
            ToolResultContent(tool_call_id="1", output=2),
            {"type": "tool_result", "tool_call_id": "1", "output": 2, "error": None},
        ),
    ],
)
def test_a_content_block_becomes_json_types(block: Any, data: dict[str, Any]) -> None:
    assert block.to_dict() == data
    assert json.loads(json.dumps(block.to_dict())) == data


def test_every_capability_is_listed_once() -> None:
    named = {value for name, value in vars(capabilities).items() if name.isupper() and isinstance(value, str)}
    assert len(capabilities.ALL_WELL_KNOWN_CAPABILITIES) == len(named)
    assert set(capabilities.ALL_WELL_KNOWN_CAPABILITIES) == named


def test_a_source_is_the_first_folder_that_exists(tmp_path: Path) -> None:
    source = FileSystemModuleSource([tmp_path / "gone", tmp_path])
    assert source.resolve() == tmp_path.resolve()
    assert source.get_module_paths() == [str(tmp_path)]
    with pytest.raises(ModuleNotFoundError, match="gone"):
        FileSystemModuleSource(tmp_path / "gone").resolve()


def test_an_approval_does_not_take_a_timeout_that_has_passed() -> None:
    with pytest.raises(ValidationError, match="timeout must be positive"):
        ApprovalRequest(tool_name="bash", action="run", risk_level="high", timeout=0)


def test_protocols_tell_a_context_from_a_provider() -> None:
    context = MockContextManager()
    assert isinstance(context, ContextManager)
    assert not isinstance(context, Provider)


@pytest.mark.parametrize("protocol", [Tool, Orchestrator])
def test_tools_and_orchestrators_are_not_told_by_isinstance(protocol: Any) -> None:
    with pytest.raises(TypeError, match="runtime"):
        isinstance(object(), protocol)


# errors


def drawn_tree() -> dict[str, tuple[str, bool]]:
    """Return class → (base, retryable) as the module's docstring draws it."""
    tree: dict[str, tuple[str, bool]] = {}
    stack: list[str] = []
    for line in (llm_errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)(\w+Error)(\s+retryable)?$", line)
        if found:
            depth = len(found[1]) // 4
            stack[depth:] = [found[2]]
            tree[found[2]] = (stack[depth - 1] if depth else "Exception", bool(found[3]))
    return tree


def test_the_error_tree_is_drawn_as_it_is() -> None:
    classes = {name: value for name, value in vars(llm_errors).items() if isinstance(value, type)}
    actual = {name: (cls.__bases__[0].__name__, cls("m").retryable) for name, cls in classes.items()}
    assert drawn_tree() == actual


def test_an_error_carries_its_facts_also_to_another_process() -> None:
    error = RateLimitError("slow down", provider="p", model="m", status_code=429, retry_after=3.0)
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.provider, copied.model, copied.status_code) == ("slow down", "p", "m", 429)
    assert (copied.retryable, copied.retry_after, copied.delay_multiplier) == (True, 3.0, 1.0)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LLMError("Broken"), "LLMError('Broken')"),
        (
            RateLimitError("Too fast", provider="anthropic", model="m", status_code=429, retry_after=3.0),
            "RateLimitError('Too fast', provider='anthropic', model='m', status_code=429, retryable=True, "
            "retry_after=3.0)",
        ),
        (
            NetworkError("Gone", retryable=False, retry_after=0.0, delay_multiplier=2.0),
            "NetworkError('Gone', retry_after=0.0, delay_multiplier=2.0)",
        ),
        (
            InvalidToolCallError("No JSON", tool_name="read", raw_arguments="{"),
            "InvalidToolCallError('No JSON', tool_name='read')",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_repr_of_an_error_names_the_attributes_that_are_set(error: LLMError, text: str) -> None:
    assert repr(error) == text


@pytest.mark.parametrize(
    ("given", "wait"),
    [("30", 30), (2.5, 2.5), ("soon", None), (float("nan"), None), (float("inf"), None), (-5, None), ([], None)],
)
def test_the_wait_of_an_error_is_a_number_of_seconds_or_none(given: Any, wait: float | None) -> None:
    error = RateLimitError("slow", retry_after=given)
    assert error.retry_after == wait
    error.retry_after = given
    assert error.retry_after == wait


def test_an_error_whose_class_does_not_call_its_base_has_the_usual_facts() -> None:
    class Own(LLMError):
        def __init__(self) -> None:
            Exception.__init__(self, "broken")

    assert (repr(Own()), Own().retryable, Own().retry_after) == ("Own('broken')", False, None)


def test_an_invalid_tool_call_says_what_the_model_wrote() -> None:
    error = InvalidToolCallError("not JSON", tool_name="read", raw_arguments="{path:")
    assert (error.tool_name, error.raw_arguments, error.retryable) == ("read", "{path:", False)


# retrying


def failing(*errors: LLMError) -> Any:
    left = list(errors)

    async def operation() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return operation


async def test_a_retryable_error_is_tried_again_and_each_wait_is_announced() -> None:
    waits: list[tuple[int, str]] = []

    async def on_retry(attempt: int, delay: float, error: LLMError) -> None:
        waits.append((attempt, str(error)))

    operation = failing(NetworkError("one"), RateLimitError("two"))
    answer = await retry_with_backoff(operation, RetryConfig(initial_delay=0), on_retry=on_retry)
    assert (answer, waits) == ("answer", [(1, "one"), (2, "two")])


async def test_an_error_that_waiting_does_not_cure_is_raised_at_once() -> None:
    error = AuthenticationError("wrong key")
    with pytest.raises(AuthenticationError) as caught:
        await retry_with_backoff(failing(error), RetryConfig(initial_delay=0))
    assert caught.value is error


async def test_the_last_error_is_raised_when_the_retries_are_used_up() -> None:
    errors = [NetworkError(str(number)) for number in range(3)]
    with pytest.raises(NetworkError) as caught:
        await retry_with_backoff(failing(*errors), RetryConfig(max_retries=2, initial_delay=0))
    assert caught.value is errors[2]


def test_delays_grow_up_to_their_limit() -> None:
    config = RetryConfig(initial_delay=1, backoff_factor=3, max_delay=10, jitter=False)
    assert [config.delay(attempt, NetworkError("")) for attempt in (1, 2, 3, 4)] == [1, 3, 9, 10]
    assert config.delay(1, NetworkError("", delay_multiplier=5)) == 5


def test_jitter_spreads_a_delay_and_never_past_its_limit() -> None:
    delays = {RetryConfig(initial_delay=10, max_delay=11).delay(1, NetworkError("")) for _ in range(200)}
    assert len(delays) > 1
    assert min(delays) >= 8
    assert max(delays) <= 11


@pytest.mark.parametrize(("given", "fraction"), [(True, 0.2), (False, 0.0), (None, 0.2), (0.5, 0.5), (1, 1.0)])
def test_jitter_reads_back_as_a_fraction(given: bool | float | None, fraction: float) -> None:
    jitter = RetryConfig(jitter=given).jitter
    assert (jitter, type(jitter)) == (fraction, float)
    assert RetryConfig().jitter == 0.2


def test_delays_go_by_their_older_names_too() -> None:
    assert RetryConfig(min_delay=2, backoff_multiplier=3) == RetryConfig(initial_delay=2, backoff_factor=3)
    assert RetryConfig(min_delay=0, jitter=False).delay(1, NetworkError("")) == 0


def test_the_wait_that_a_service_asks_for_is_a_lower_bound() -> None:
    error = RateLimitError("", retry_after=90)
    assert RetryConfig(jitter=False).delay(1, error) == 90
    assert RetryConfig(jitter=False, honor_retry_after=False).delay(1, error) == 1


@pytest.mark.parametrize(
    ("message", "status", "expected"),
    [
        ("maximum context length is 8192 tokens", 400, ContextLengthError),
        ("bad field", 400, llm_errors.InvalidRequestError),
        ("You exceeded your current quota", 429, QuotaExceededError),
        ("context window busy", 429, RateLimitError),
        ("nope", 401, AuthenticationError),
        ("nope", 403, llm_errors.AccessDeniedError),
        ("rate limit", 503, ProviderUnavailableError),
        ("Overloaded", None, ProviderUnavailableError),
        ("request timed out", None, LLMTimeoutError),
        ("who knows", None, LLMError),
        ("who knows", 599, ProviderUnavailableError),
    ],
)
def test_a_service_message_is_classified_by_its_status_and_its_words(
    message: str, status: int | None, expected: type[LLMError]
) -> None:
    assert classify_error_message(message, status_code=status) is expected


# data fit to be logged


def test_secrets_are_redacted_at_any_depth_and_the_original_is_left_alone() -> None:
    data = {"GITHUB_TOKEN": "g", "providers": [{"config": {"api_key": "k", "model": "m"}}, ({"X-Api-Key": "x"},)]}
    redacted = redact_secrets(data)
    hidden = "[REDACTED]"
    assert redacted == {
        "GITHUB_TOKEN": hidden,
        "providers": [{"config": {"api_key": hidden, "model": "m"}}, ({"X-Api-Key": hidden},)],
    }
    assert data["GITHUB_TOKEN"] == "g"


def test_names_that_only_resemble_a_secret_are_shown() -> None:
    assert redact_secrets({"max_tokens": 5, "author": "a", 7: "b"}) == {"max_tokens": 5, "author": "a", 7: "b"}


def test_other_keys_can_be_called_sensitive() -> None:
    assert redact_secrets({"pin": 1, "token": 2}, frozenset({"pin"})) == {"pin": "[REDACTED]", "token": 2}


def test_long_strings_are_cut_at_any_depth_and_say_so() -> None:
    assert truncate_values({"a": ["x" * 12, 3]}, max_length=10) == {"a": ["x" * 10 + "... (truncated 2 chars)", 3]}
    assert truncate_values("x" * 180) == "x" * 180


def test_a_request_made_the_short_way_is_the_same_and_copies_as_well() -> None:
    messages = [
        {"role": "user", "content": "hi", "metadata": {"source": "hook"}},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "1", "name": "a", "input": {}}],
            "tool_calls": [],
        },
        {"role": "tool", "content": "done", "tool_call_id": "1", "name": "a"},
    ]
    tools = [ToolSpec(name="a", parameters={"type": "object"})]
    made, known = make_request(messages, tools), ChatRequest.model_validate({"messages": messages, "tools": tools})
    assert made == known
    assert made.model_dump_json() == known.model_dump_json()
    assert made.model_dump(exclude_unset=True) == known.model_dump(exclude_unset=True)
    assert pickle.loads(pickle.dumps(made)) == known
    changed = made.model_copy(update={"model": "m"})
    assert (changed.model, made.model, make_request(messages).model) == ("m", None, None)
    made.extra = 1  # type: ignore[attr-defined]
    assert made.tools is not None
    made.tools.clear()  # as a provider may do that offers fewer
    assert make_request(messages, tools) == known, "two requests share nothing"


def test_a_request_made_the_short_way_refuses_what_is_no_message() -> None:
    for wrong in ({"role": "nobody", "content": "hi"}, {"role": "user"}, {"role": "user", "content": [{"type": "?"}]}):
        with pytest.raises(ValidationError):
            make_request([wrong])


def test_a_model_of_values_that_are_right_is_the_same_without_a_validation() -> None:
    given: dict[str, Any] = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "cost_usd": Decimal("0.1")}
    usage = Usage.unchecked(**given)
    parts = {"content": [TextBlock.unchecked(text="hi")], "usage": usage, "finish_reason": "stop"}
    made = ChatResponse.unchecked(**parts)
    known = ChatResponse(content=[TextBlock(text="hi")], usage=Usage(**given), finish_reason="stop")
    assert (type(made), made, repr(made)) == (ChatResponse, known, repr(known))
    assert made.model_dump_json() == known.model_dump_json()
    assert made.model_dump(exclude_unset=True) == known.model_dump(exclude_unset=True)
    assert pickle.loads(pickle.dumps(made)) == made.model_copy(deep=True) == known
    made.extra = 1  # type: ignore[attr-defined]
    made.metadata = {"a": 1}
    assert made.model_extra == {"extra": 1}
    assert ChatResponse.unchecked(**parts) == known, "two of them share nothing"


def test_the_result_of_an_event_without_an_answer_is_a_model_like_any_other() -> None:
    made, known = continue_with({"n": 1}), HookResult(data={"n": 1})
    assert (type(made), made, repr(made)) == (HookResult, known, repr(known))
    assert made.model_dump(exclude_unset=True) == {"data": {"n": 1}}
    assert pickle.loads(pickle.dumps(made)) == made.model_copy(update={"reason": None}) == known
    made.action = "deny"
    made.context_injections.append(ContextInjection(content="x"))
    assert continue_with({"n": 1}) == known
    with pytest.raises(ValueError, match="no field"):
        made.unknown = 1  # type: ignore[attr-defined]
