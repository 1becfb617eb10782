"""What goes wrong on the way, by both APIs: statuses, cut and stalled streams, time limits, and a user who stops."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from amplifier_core import llm_errors
from amplifier_core.llm_errors import LLMError
from tests.wire import openai as wire
from tests.wire.mounted import ask_slowly, require_kept_at_its_place, require_sent_on_at_its_place
from tests.wire.server import NEVER, Answer, WireServer, json_answer, show_error, sse, stream_answer

KEY = "sk-the-key-of-the-tests"
both = pytest.mark.parametrize("api", ["responses", "chat"])
TOKENS = "in organization o on tokens per min (TPM): Limit 6000, "
STATUSES = [
    (400, "invalid_value", "odd", "InvalidRequestError", False),
    (400, "context_length_exceeded", "Your input exceeds the context window", "ContextLengthError", False),
    (400, "content_filter", "The response was filtered", "ContentFilterError", False),
    (401, "invalid_api_key", "Incorrect API key provided", "AuthenticationError", False),
    (402, None, "no credit", "QuotaExceededError", False),
    (403, "unsupported_country", "not from here", "AccessDeniedError", False),
    (404, "model_not_found", "The model does not exist", "NotFoundError", False),
    (408, None, "too slow", "LLMTimeoutError", True),
    (413, None, "too large", "ContextLengthError", False),
    (422, None, "odd", "InvalidRequestError", False),
    (429, "rate_limit_exceeded", "Rate limit reached", "RateLimitError", True),
    (413, "rate_limit_exceeded", f"Request too large for m {TOKENS}Requested 9000", "ContextLengthError", False),
    (429, "rate_limit_exceeded", f"Request too large for m {TOKENS}Requested 9000", "ContextLengthError", False),
    (429, "rate_limit_exceeded", "Daily tokens limit reached for this key", "RateLimitError", True),
    (429, "rate_limit_exceeded", f"Rate limit reached for m {TOKENS}Used 5000, Requested 2000", "RateLimitError", True),
    (429, "insufficient_quota", "You exceeded your current quota", "QuotaExceededError", False),
    (500, "server_error", "The server had an error", "ProviderUnavailableError", True),
    (503, None, "overloaded", "ProviderUnavailableError", True),
    (504, None, "late", "LLMTimeoutError", True),
    (529, None, "overloaded", "ProviderUnavailableError", True),
]
PARTS = (wire.thinking("hm", encrypted="x"), wire.text("Good", " day"), wire.call("1", "look", at="a.py"))
PIECES = [("responses", number) for number in range(len(wire.events_of(*PARTS)))]
PIECES += [("chat", number) for number in range(len(wire.chunks_of(*PARTS)) - 1)]  # without [DONE]
ENDS = [(kind, *piece) for kind in ("cut", "end") for piece in PIECES]
ENDS.remove(("end", "chat", PIECES[-1][1]))  # the reason of its end has come: some services leave out the rest


async def failure(service: Any, **more: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await service.ask(**more)
    assert (caught.value.provider, caught.value.model) == ("openai", wire.MODEL)
    assert "\n" not in str(caught.value)
    assert KEY not in f"{caught.value!r}{show_error(caught.value)}{caught.value.__cause__}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


async def closed(service: Any) -> None:
    """Wait until the client has left, if its request had arrived before its time limit."""
    if service.server.requests:
        await service.server.left.wait()


# answers that are errors


@both
@pytest.mark.parametrize(("status", "code", "message", "error", "retryable"), STATUSES)
async def test_a_status_is_an_error_with_its_cause_and_a_remedy(
    serve: Any, api: str, status: int, code: str | None, message: str, error: str, retryable: bool
) -> None:
    service = await serve(wire.fails(status, code, message), api=api)
    caught = await failure(service)
    assert (type(caught).__name__, caught.status_code, caught.retryable) == (error, status, retryable)
    assert show_error(caught).startswith(f"{status}: {message}. ")
    [told] = service.heard("llm:response")
    assert (told["status"], told["error"]["type"]) == ("error", error)


def overflow(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


TOO_LARGE, LENGTH = "'max_tokens' or 'max_completion_tokens' is too large", "This model's maximum context length"
SPLIT = [
    "you requested {1} output tokens and your prompt contains at least {0} input tokens",
    "{} `inputs` tokens and {} `max_new_tokens`",
]
OVERFLOWS = [
    (400, overflow("the request exceeds the available context size", code=400, type="exceed_context_size_error")),
    (400, overflow("request (9 tokens) exceeds the available context size (8 tokens)", type="server_error")),
    (500, overflow("Context size has been exceeded.", code=500, type="server_error")),
    (400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length."}),
    (400, {"error": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}),
    (400, {"error": "the model is loaded with context length of only 8 tokens, which is not enough."}),
    (400, overflow("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.")),
    (400, {"object": "error", "message": "The prompt (total length 9) is too long to fit into the model", "code": 400}),
    (400, {"message": "Prompt contains 9 tokens, too large for model with 8 maximum context length", "code": 3051}),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096", "code": None}),
    (422, {"error": "Input validation error: `inputs` must have less than 2048 tokens. Given: 2222"}),
    (400, overflow("Input is too long for requested model.")),
    (400, overflow("The input token count (9) exceeds the maximum number of tokens allowed (8).")),
    (400, overflow("prompt token count of 9 exceeds the limit of 8", code="model_max_prompt_tokens_exceeded")),
    (400, overflow("Please reduce the length of the messages or completion.", type="invalid_request_error")),
    (400, overflow("This model's maximum prompt length is 8 but the request contains 9 tokens")),
    (400, overflow("Input length 9 exceeds the maximum allowed input length of 8 tokens.")),
    (400, overflow("The input (9 tokens) is longer than the model's context length (8 tokens).")),
    (400, overflow("Your request exceeded model token limit: 8 (requested: 9)")),
    (400, overflow("Range of input length should be [1, 129024]", code="invalid_parameter_error")),
    (400, overflow("Requested tokens (2285) exceed context window of 2048")),
    (400, overflow("invalid params, context window exceeds limit")),
    (400, overflow("It failed.", code="model_context_window_exceeded")),
    (400, overflow("Max size: 8000 tokens.", code="tokens_limit_reached")),
    (400, overflow(f"{TOO_LARGE}: 4000. {LENGTH} is 32768 tokens and your request has 30000 input tokens")),
    (400, overflow(f"{LENGTH} is 32768 tokens. However, {SPLIT[0].format(30000, 4000)}.")),
    (422, {"error": f"`inputs` tokens + `max_new_tokens` must be <= 4096. Given: {SPLIT[1].format(4000, 1000)}"}),
    (400, overflow("Provider returned error", code=400, metadata={"raw": json.dumps(overflow("prompt is too long"))})),
]


@pytest.mark.parametrize(("status", "body"), OVERFLOWS)
async def test_a_request_that_a_server_calls_too_long_in_its_own_words_is_too_long(
    serve: Any, status: int, body: dict[str, Any]
) -> None:
    service = await serve(json_answer(body, status), api="chat", max_retries=5)
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (llm_errors.ContextLengthError, status)
    assert len(service.server.requests) == 1
    assert show_error(caught).endswith("Begin a new session, or set max_tokens of the context lower.")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens is too large: 9. This model supports at most 8 completion tokens"),
        (400, f"{TOO_LARGE}: 40000. {LENGTH} is 32768 tokens and your request has 12 input tokens"),
        (400, f"{LENGTH} is 32768 tokens. However, {SPLIT[0].format(12, 40000)}."),
        (400, f"{LENGTH} is 8 tokens. However, you requested 21 tokens (1 in the messages, 20 in the completion)."),
        (400, f"Requested token count exceeds the model's {LENGTH[13:]} of 8 tokens. 20 tokens for the completion."),
        (400, f"{LENGTH} is 8 tokens. However, you requested about 21 tokens (1 of text input, 20 in the output)."),
        (422, f"`inputs` tokens + `max_new_tokens` must be <= 4096. Given: {SPLIT[1].format(10, 5000)}"),
    ],
)
async def test_a_limit_of_the_answer_beyond_the_window_is_no_long_session(
    serve: Any, status: int, message: str
) -> None:
    caught = await failure(await serve(wire.fails(status, None, message), api="chat"))
    assert (type(caught), caught.status_code) == (llm_errors.InvalidRequestError, status)
    assert show_error(caught).endswith("Set max_tokens of the provider's config lower.")


QUOTED = "prompt is too long?"


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (400, "tool_input is too long", llm_errors.InvalidRequestError),
        (400, "the token count of its thinking exceeds max_tokens", llm_errors.InvalidRequestError),
        (400, f"1 error: [type=string_type, input_value='{QUOTED}']", llm_errors.InvalidRequestError),
        (422, f"[{{'msg': 'Field required', 'input': {{'x': '{QUOTED}'}}}}]", llm_errors.InvalidRequestError),
        (400, json.dumps({"messages": [{"role": "odd", "content": QUOTED}]}), llm_errors.InvalidRequestError),
        (401, "invalid key: the maximum context length is for members", llm_errors.AuthenticationError),
        (403, "your plan's maximum context length is 8", llm_errors.AccessDeniedError),
        (503, "no server with this maximum context length is up", llm_errors.ProviderUnavailableError),
    ],
)
async def test_a_refusal_for_another_cause_is_no_long_session(
    serve: Any, status: int, message: str, error: type[LLMError]
) -> None:
    caught = await failure(await serve(wire.fails(status, None, message), api="chat"))
    assert (type(caught), caught.status_code) == (error, status)


async def test_an_error_within_a_stream_that_tells_of_a_long_request_is_no_fault_of_the_service(serve: Any) -> None:
    broken = sse(overflow("The number of tokens to keep from the initial prompt is greater than the context length"))
    service = await serve(stream_answer([broken]), api="chat", max_retries=5)
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (llm_errors.ContextLengthError, 400)
    assert len(service.server.requests) == 1


async def test_a_wrong_request_in_unknown_words_has_the_key_for_the_length_in_its_remedy(serve: Any) -> None:
    caught = await failure(await serve(wire.fails(400, None, "prompt: string too long"), api="chat"))
    assert type(caught) is llm_errors.InvalidRequestError
    assert show_error(caught).endswith("If the session is too long for the model, set context_window there.")


async def test_a_request_that_alone_has_more_tokens_than_a_minute_is_not_waited_for(serve: Any) -> None:
    large = wire.fails(429, "rate_limit_exceeded", f"Request too large for m {TOKENS}Requested 9000", retry_after="60")
    caught = await failure(await serve(large))
    assert show_error(caught).endswith("Begin a new session, or set max_tokens of the context lower.")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "Fri, 31 Dec 99999 23:59:59 GMT"}, None),
    ],
)
async def test_the_pause_that_the_service_asks_for_is_in_the_error(serve: Any, headers: Any, seconds: Any) -> None:
    service = await serve(wire.fails(429, "rate_limit_exceeded", "slow down", **headers))
    caught = await failure(service)
    assert caught.retry_after == seconds
    assert show_error(caught).endswith("for a higher limit." if seconds is None else f"Try again in {seconds:g} s.")


async def test_a_pause_of_thousands_of_years_is_not_told_in_seconds(serve: Any) -> None:
    service = await serve(wire.fails(429, None, "slow down", retry_after="Fri, 31 Dec 9999 23:59:59 GMT"))
    assert show_error(await failure(service)) == "429: slow down. Wait, or ask the service for a higher limit."


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"{", b'"text"', b"[1]", b'{"error": "x"}'])
async def test_an_error_of_something_in_between_is_told_as_it_is(serve: Any, body: bytes) -> None:
    service = await serve(json_answer(body, 502))
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (llm_errors.ProviderUnavailableError, 502)


SECRETS = [
    KEY,
    "sk-proj-hidden1234",
    "sk-proj-****1234",
    "https://me:hidden-word@gateway/v1",
    "https://gateway/v1?api-key=hidden-word&x=1",
    "authorization: Bearer hidden-word",
]


@pytest.mark.parametrize("secret", SECRETS)
async def test_no_secret_is_in_an_error(serve: Any, secret: str) -> None:
    service = await serve(wire.fails(401, "invalid_api_key", f"refused {secret} here"))
    said = show_error(await failure(service))
    assert [each for each in (KEY, "sk-proj", "1234", "hidden") if each in said] == []
    assert "[REDACTED]" in said
    assert " here. Check the API key (OPENAI_API_KEY" in said


# further attempts


@both
async def test_a_failure_that_passes_is_tried_again(serve: Any, api: str) -> None:
    busy = wire.fails(503, None, "overloaded")
    service = await serve(busy, wire.says("done", api=api), api=api, max_retries=2)
    assert (await service.ask()).content[0].text == "done"
    [retry] = service.heard("provider:retry")
    assert (retry["attempt"], retry["max_retries"], retry["error_type"]) == (1, 2, "ProviderUnavailableError")


async def test_attempts_end(serve: Any) -> None:
    service = await serve(answer=lambda _: wire.fails(500, "server_error", "error"), max_retries=2)
    await failure(service)
    assert len(service.server.requests) == 3


@pytest.mark.parametrize(
    "answer", [wire.fails(401, "invalid_api_key", "wrong"), wire.fails(429, "insufficient_quota", "x")]
)
async def test_what_waiting_does_not_mend_is_asked_once(serve: Any, answer: Answer) -> None:
    service = await serve(answer, max_retries=5)
    await failure(service)
    assert len(service.server.requests) == 1


async def test_a_pause_longer_than_the_longest_is_left_to_the_caller(serve: Any) -> None:
    service = await serve(wire.fails(429, "rate_limit_exceeded", "slow", retry_after="3600"), max_retries=5)
    assert (await failure(service)).retry_after == 3600
    assert len(service.server.requests) == 1


@both
async def test_another_attempt_voids_the_pieces_of_the_first(serve: Any, api: str) -> None:
    whole = wire.says(wire.text("Good", " day"), api=api)
    service = await serve(whole.cut(after=4 if api == "responses" else 2), whole, api=api, max_retries=1)
    assert (await service.ask()).content[0].text == "Good day"
    names = [event for event, _ in service.events if "stream" in event]
    void = names.index("llm:stream_aborted")
    assert names[:void] == ["llm:stream_block_start", "llm:stream_block_delta"]
    later = [data for event, data in service.events if "stream_block" in event][void:]
    assert later[0]["block_index"] == 0


# broken streams


@pytest.mark.parametrize(("kind", "api", "after"), ENDS)
async def test_a_stream_that_ends_after_any_event_is_no_answer(serve: Any, kind: str, api: str, after: int) -> None:
    whole: Answer = wire.says(*PARTS, api=api)
    service = await serve(getattr(whole, kind)(after=after), api=api)
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.StreamError, True)
    assert len(service.heard("llm:stream_aborted")) == bool(service.heard("llm:stream_block_start"))


@pytest.mark.parametrize(("api", "after"), PIECES)
async def test_an_error_after_any_event_is_told(serve: Any, api: str, after: int) -> None:
    pieces = wire.says(*PARTS, api=api).pieces
    if api == "responses":
        error = wire.error_event("rate_limit_exceeded", "Rate limit reached")
    else:
        error = sse({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}})
    service = await serve(stream_answer([*pieces[:after], error]), api=api)
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (llm_errors.RateLimitError, 429)


@pytest.mark.parametrize(
    ("code", "error", "status"),
    [
        ("server_error", llm_errors.ProviderUnavailableError, 500),
        ("rate_limit_exceeded", llm_errors.RateLimitError, 429),
        ("invalid_prompt", llm_errors.InvalidRequestError, 400),
        ("bio_policy", llm_errors.ContentFilterError, 400),
        ("context_length_exceeded", llm_errors.ContextLengthError, 400),
        ("billing_not_active", llm_errors.QuotaExceededError, 429),
        ("insufficient_balance", llm_errors.QuotaExceededError, 429),
        ("quota_exceeded", llm_errors.QuotaExceededError, 429),
        ("account_deactivated", llm_errors.AuthenticationError, 401),
        ("moderation_blocked", llm_errors.ContentFilterError, 400),
        ("unknown_parameter", llm_errors.InvalidRequestError, 400),
    ],
)
async def test_an_answer_that_failed_tells_its_cause(serve: Any, code: str, error: Any, status: int) -> None:
    service = await serve(stream_answer([*wire.events_of(wire.text("Go"))[:4], wire.failed(code, "It failed.")]))
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (error, status)
    assert show_error(caught).startswith(f"{status}: It failed. ")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (429, llm_errors.RateLimitError),
        ("502", llm_errors.ProviderUnavailableError),
        (401, llm_errors.AuthenticationError),
        (1302, llm_errors.ProviderUnavailableError),
    ],
)
async def test_the_code_of_an_error_within_a_stream_may_be_a_status(serve: Any, code: Any, error: Any) -> None:
    broken = sse({"error": {"message": "The provider behind it is away", "code": code}})
    service = await serve(stream_answer([*wire.says("Good day", api="chat").pieces[:2], broken]), api="chat")
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (error, int(code) if int(code) < 1000 else 500)


@pytest.mark.parametrize(
    ("told", "error", "status"),
    [
        ({"type": "overloaded_error"}, llm_errors.ProviderUnavailableError, 529),
        ({"code": "overloaded"}, llm_errors.ProviderUnavailableError, 529),
        ({"code": "server_overloaded", "type": "invalid_request_error"}, llm_errors.ProviderUnavailableError, 529),
        ({"type": "rate_limit_error"}, llm_errors.RateLimitError, 429),
        ({"type": "RateLimitError"}, llm_errors.RateLimitError, 429),
        ({"type": "api_error"}, llm_errors.ProviderUnavailableError, 500),
        ({"code": "service_unavailable"}, llm_errors.ProviderUnavailableError, 500),
        ({"code": "timeout"}, llm_errors.LLMTimeoutError, 504),
        ({"code": "a_new_word"}, llm_errors.ProviderUnavailableError, 500),
        ({"code": "a_new_word", "type": "invalid_request_error"}, llm_errors.InvalidRequestError, 400),
        ({"type": "authentication_error"}, llm_errors.AuthenticationError, 401),
        ({"code": "model_not_found", "type": "invalid_request_error"}, llm_errors.NotFoundError, 404),
        ({"code": "content_filter", "type": "server_error"}, llm_errors.ContentFilterError, 400),
        ({"code": "invalid_response", "type": "server_error"}, llm_errors.ProviderUnavailableError, 500),
        ({"code": "invalid_api_key", "type": "server_error"}, llm_errors.AuthenticationError, 401),
        ({"code": "upstream_invalid_response"}, llm_errors.ProviderUnavailableError, 500),
        ({"code": "internal_error_invalid_state"}, llm_errors.ProviderUnavailableError, 500),
        ({"code": "load_balancer_error"}, llm_errors.ProviderUnavailableError, 500),
    ],
)
async def test_an_error_within_a_stream_is_tried_again_unless_it_tells_of_a_wrong_request(
    serve: Any, told: dict[str, str], error: Any, status: int
) -> None:
    pieces = wire.says("Good day", api="chat").pieces
    broken = stream_answer([*pieces[:2], sse({"error": {"message": "It failed", **told}})])
    service = await serve(broken, api="chat")
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (error, status)
    assert caught.retryable == (status == 429 or status >= 500)


@both
@pytest.mark.parametrize("odd", [b"data: {nonsense\n\n", b"data: \xff\n\n"])
async def test_an_event_that_cannot_be_read_breaks_the_answer(serve: Any, api: str, odd: bytes) -> None:
    pieces = wire.says("Good day", api=api).pieces
    service = await serve(stream_answer([*pieces[:3], odd, *pieces[3:]]), api=api)
    assert type(await failure(service)) is llm_errors.StreamError


async def test_an_event_of_an_unknown_kind_does_no_harm(serve: Any) -> None:
    events = wire.events_of(wire.text("Good day"))
    odd = [sse({"type": "response.new", "sequence_number": 3}, event="response.new"), b": a comment\n\n"]
    service = await serve(stream_answer([*events[:3], *odd, *events[3:]]))
    assert (await service.ask()).content[0].text == "Good day"


@both
async def test_an_answer_byte_by_byte_is_an_answer(serve: Any, api: str) -> None:
    service = await serve(wire.says(wire.text("Grüße, ", "世界"), api=api).slowly(), api=api)
    assert (await service.ask()).content[0].text == "Grüße, 世界"


@both
async def test_a_page_instead_of_an_answer_is_no_answer(serve: Any, api: str) -> None:
    service = await serve(Answer((b"<html>Sign in</html>",), headers={"content-type": "text/html"}), api=api)
    caught = await failure(service)
    assert type(caught) is llm_errors.StreamError
    assert "is base_url right?" in show_error(caught)


@both
async def test_an_answer_that_its_server_calls_html_is_an_answer(serve: Any, api: str) -> None:
    """As Flask calls all answers of which nothing else is said."""
    said = replace(wire.says("Good day", api=api), headers={"content-type": "text/html; charset=utf-8"})
    service = await serve(said, api=api)
    assert (await service.ask()).content[0].text == "Good day"


# time limits


@both
@pytest.mark.parametrize("answer", ["never", "nothing"])
async def test_an_answer_that_does_not_begin_is_given_up(serve: Any, api: str, answer: str) -> None:
    silent = NEVER if answer == "never" else wire.says("x", api=api).stall(after=0)
    service = await serve(silent, api=api, first_token_timeout=0.05)
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.LLMTimeoutError, True)
    assert "did not begin in 0.05 s" in show_error(caught)
    await closed(service)


@both
async def test_a_slow_beginning_is_waited_for_longer_than_silence(
    serve: Any, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    answer = wire.says("Good day", api=api).hold(after=0, until=asyncio.Event())
    service = await serve(answer, api=api, first_token_timeout=600, idle_timeout=30)
    assert (await ask_slowly(service, answer, monkeypatch, 60)).content[0].text == "Good day"


@both
async def test_an_answer_that_falls_silent_is_given_up(serve: Any, api: str) -> None:
    service = await serve(wire.says("Good day", api=api).stall(after=4), api=api, idle_timeout=0.5)
    assert type(await failure(service)) is llm_errors.LLMTimeoutError
    assert len(service.heard("llm:stream_aborted")) == bool(service.heard("llm:stream_block_start"))
    await closed(service)


@both
async def test_a_whole_answer_has_a_limit(serve: Any, api: str) -> None:
    service = await serve(wire.says("Good day", api=api).stall(after=4), api=api, max_retries=9, timeout=0.5)
    assert "no whole answer in 0.5 s" in show_error(await failure(service))
    assert len(service.heard("llm:stream_aborted")) == bool(service.heard("llm:stream_block_start"))
    await closed(service)


# the way to the service


async def test_nobody_at_the_address_is_a_matter_of_the_network(serve: Any) -> None:
    async with WireServer() as nobody:
        address = nobody.url
    service = await serve(base_url=address)
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.NetworkError, True)


async def test_a_proxy_of_the_environment_is_used(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer([wire.says("through the proxy")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        service = await serve(base_url="http://api.example.test/v1")
        assert (await service.ask()).content[0].text == "through the proxy"
        assert proxy.requests[0].target == "http://api.example.test/v1/responses"
        await service.provider.close()


@pytest.mark.parametrize("status", [307, 308])
async def test_a_request_is_not_sent_on_to_another_host_or_port(serve: Any, status: int) -> None:
    await require_kept_at_its_place(serve, status, failure)


async def test_a_request_is_sent_on_whole_at_the_same_host_and_port_but_not_on_and_on(serve: Any) -> None:
    await require_sent_on_at_its_place(serve, wire.says("moved"), failure)


# a user who stops


@both
async def test_cancelling_closes_the_connection_at_once(serve: Any, api: str) -> None:
    service = await serve(wire.says(wire.text("Good", " day"), api=api).stall(after=4), api=api)
    began = asyncio.Event()

    async def note(event: str, data: dict[str, Any]) -> None:
        began.set()

    service.coordinator.hooks.register("llm:stream_block_delta", note)
    asking = asyncio.create_task(service.ask())
    await began.wait()
    told = len(service.events)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await service.server.left.wait()
    assert len(service.events) == told


@both
async def test_the_provider_goes_on_after_a_cancelled_request(serve: Any, api: str) -> None:
    service = await serve(NEVER, wire.says("again", api=api), api=api)
    asking = asyncio.create_task(service.ask())
    await service.server.arrived.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await service.server.left.wait()
    assert (await service.ask()).content[0].text == "again"


async def test_a_request_that_cannot_be_written_is_no_fault_of_the_service(serve: Any) -> None:
    service = await serve()
    caught = await failure(service, tools=[{"name": "look", "parameters": {"type": {1, 2}}}])
    assert (type(caught), caught.retryable) == (llm_errors.InvalidRequestError, False)
    assert str(caught) == "the request cannot be written (TypeError: Object of type set is not JSON serializable)"
    assert service.bodies == []
