"""What goes wrong on the way: statuses, cut and stalled streams, time limits, proxies, and a user who stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from amplifier_core import llm_errors
from amplifier_core.llm_errors import LLMError
from tests.wire import anthropic as wire
from tests.wire.mounted import ask_slowly, require_kept_at_its_place, require_sent_on_at_its_place
from tests.wire.server import NEVER, Answer, WireServer, json_answer, show_error, sse, stream_answer

KEY = "sk-ant-the-key-of-the-tests"
LONG = "prompt is too long: 1000001 tokens > 1000000 maximum"
TOO_LARGE = "'max_tokens' is too large: 9. This model's maximum context length is 8 tokens"
STATUSES = [
    (400, "invalid_request_error", "max_tokens: must be positive", "InvalidRequestError", False),
    (400, "invalid_request_error", LONG, "ContextLengthError", False),
    (400, "invalid_request_error", "Input is too long for requested model", "ContextLengthError", False),
    (500, "api_error", "Context size has been exceeded", "ContextLengthError", False),
    (400, "invalid_request_error", "Your credit balance is too low", "QuotaExceededError", False),
    (400, "invalid_request_error", "Output blocked by content filtering policy", "ContentFilterError", False),
    (400, "invalid_request_error", TOO_LARGE, "InvalidRequestError", False),
    (401, "authentication_error", "invalid api key", "AuthenticationError", False),
    (402, "billing_error", "no credit", "QuotaExceededError", False),
    (403, "permission_error", "not for you", "AccessDeniedError", False),
    (403, "permission_error", LONG, "AccessDeniedError", False),
    (404, "not_found_error", "model: claude-nine", "NotFoundError", False),
    (408, "timeout_error", "too slow", "LLMTimeoutError", True),
    (413, "request_too_large", "Request exceeds the maximum size", "ContextLengthError", False),
    (422, "invalid_request_error", "odd", "InvalidRequestError", False),
    (429, "rate_limit_error", "too many tokens a minute", "RateLimitError", True),
    (500, "api_error", "Internal server error", "ProviderUnavailableError", True),
    (503, "api_error", "down", "ProviderUnavailableError", True),
    (504, "timeout_error", "late", "LLMTimeoutError", True),
    (529, "overloaded_error", "Overloaded", "ProviderUnavailableError", True),
]


async def failure(service: Any, **more: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await service.ask(**more)
    assert (caught.value.provider, caught.value.model) == ("anthropic", wire.MODEL)
    assert "\n" not in str(caught.value)
    assert KEY not in f"{caught.value!r}{show_error(caught.value)}{caught.value.__cause__}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


async def closed(service: Any) -> None:
    """Wait until the client has left, if its request had arrived before its time limit."""
    if service.server.requests:
        await service.server.left.wait()


# answers that are errors


@pytest.mark.parametrize(("status", "kind", "message", "error", "retryable"), STATUSES)
async def test_a_status_is_an_error_with_its_cause_and_a_remedy(
    serve: Any, status: int, kind: str, message: str, error: str, retryable: bool
) -> None:
    service = await serve(wire.fails(status, kind, message))
    caught = await failure(service)
    assert (type(caught).__name__, caught.status_code, caught.retryable) == (error, status, retryable)
    assert show_error(caught).startswith(f"{status}: {message}. ")
    assert show_error(caught).endswith(".")


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
    service = await serve(wire.fails(429, "rate_limit_error", "slow down", **headers))
    caught = await failure(service)
    assert caught.retry_after == seconds
    remedy = "Wait, or ask for a higher limit at" if seconds is None else f"Try again in {seconds:g} s."
    assert remedy in show_error(caught)


async def test_a_pause_until_a_time_is_in_seconds(serve: Any) -> None:
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    service = await serve(wire.fails(529, "overloaded_error", "Overloaded", retry_after=past))
    assert (await failure(service)).retry_after == 0.0


async def test_a_spent_budget_is_no_rate_that_recovers(serve: Any) -> None:
    service = await serve(wire.fails(429, "rate_limit_error", "spent", code="contract_spend_limit_reached"))
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.QuotaExceededError, False)


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"{", b'"text"', b"[1]", b'{"error": "x"}'])
async def test_an_error_of_something_in_between_is_told_as_it_is(serve: Any, body: bytes) -> None:
    service = await serve(json_answer(body, 502))
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (llm_errors.ProviderUnavailableError, 502)


SECRETS = [
    KEY,
    "sk-ant-another",
    "https://me:hidden-word@gateway/v1",
    "https://gateway/v1?api_key=hidden-word&x=1",
    "authorization: Bearer hidden-word",
    '{"x-api-key": "hidden-word"}',
    "access_token=hidden-word",
]


@pytest.mark.parametrize("secret", SECRETS)
async def test_no_secret_is_in_an_error(serve: Any, secret: str) -> None:
    service = await serve(wire.fails(401, "authentication_error", f"refused {secret} here"))
    said = show_error(await failure(service))
    assert [each for each in (KEY, "another", "hidden") if each in said] == []
    assert said.startswith("401: refused ")
    assert "[REDACTED]" in said
    assert " here. Check the API key (ANTHROPIC_API_KEY" in said
    assert KEY not in str(service.events)


async def test_words_about_tokens_stay(serve: Any) -> None:
    message = "max_tokens: 99999 > 8192, the maximum; total_tokens: 200000; the api key is missing"
    assert message in show_error(await failure(await serve(wire.fails(400, "invalid_request_error", message))))


async def test_a_long_error_is_cut(serve: Any) -> None:
    service = await serve(wire.fails(400, "invalid_request_error", "x" * 10_000))
    said = show_error(await failure(service))
    assert len(said) < 800
    assert said.endswith("Check the model's name and the provider's config.")


# further attempts


async def test_a_failure_that_passes_is_tried_again(serve: Any) -> None:
    service = await serve(wire.fails(529, "overloaded_error", "Overloaded"), wire.says("done"), max_retries=2)
    assert (await service.ask()).content[0].text == "done"
    [retry] = service.heard("provider:retry")
    assert (retry["attempt"], retry["max_retries"], retry["error_type"]) == (1, 2, "ProviderUnavailableError")
    assert len(service.heard("llm:request")) == len(service.heard("llm:response")) == 1


async def test_attempts_end(serve: Any) -> None:
    service = await serve(answer=lambda _: wire.fails(500, "api_error", "Internal server error"), max_retries=2)
    await failure(service)
    assert len(service.server.requests) == 3


async def test_a_wrong_key_is_asked_with_once(serve: Any) -> None:
    service = await serve(wire.fails(401, "authentication_error", "invalid"), max_retries=5)
    await failure(service)
    assert len(service.server.requests) == 1


async def test_a_pause_longer_than_the_longest_is_left_to_the_caller(serve: Any) -> None:
    service = await serve(wire.fails(429, "rate_limit_error", "slow down", retry_after="3600"), max_retries=5)
    assert (await failure(service)).retry_after == 3600
    assert len(service.server.requests) == 1


async def test_another_attempt_voids_the_pieces_of_the_first(serve: Any) -> None:
    whole = wire.says(wire.text("Good", " day"))
    service = await serve(whole.cut(after=4), whole, max_retries=1)
    assert (await service.ask()).content[0].text == "Good day"
    names = [event for event, _ in service.events if "stream" in event]
    void = names.index("llm:stream_aborted")
    assert names[:void] == ["llm:stream_block_start", "llm:stream_block_delta"]
    later = [data for event, data in service.events if "stream_block" in event][void:]
    assert later[0]["block_index"] == 0


async def test_a_failed_attempt_is_paid_too(serve: Any) -> None:
    whole = wire.says(wire.text("Good", " day"))
    service = await serve(whole.cut(after=4), whole, max_retries=1)
    answer = await service.ask()
    [told] = service.heard("llm:response")
    assert (told["usage"]["requests"], told["usage"]["cost_is_partial"]) == (2, False)
    assert told["usage"]["input_tokens"] == 2 * answer.usage.input_tokens
    assert told["usage"]["output_tokens"] > answer.usage.output_tokens
    service = await serve(answer=lambda _: whole.cut(after=4), max_retries=2)
    await failure(service)
    [told] = service.heard("llm:response")
    assert (told["status"], told["usage"]["requests"]) == ("error", 3)
    assert told["usage"]["input_tokens"] == 3 * answer.usage.input_tokens


# broken streams

BLOCKS = (wire.thinking("hm", signature="s"), wire.text("Good", " day"), wire.call("1", "look", at="a.py"))
COUNT = len(wire.events_of(*BLOCKS))


@pytest.mark.parametrize("after", range(COUNT))
@pytest.mark.parametrize("kind", ["cut", "end"])
async def test_a_stream_that_ends_after_any_event_is_no_answer(serve: Any, kind: str, after: int) -> None:
    whole: Answer = wire.says(*BLOCKS)
    service = await serve(getattr(whole, kind)(after=after))
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.StreamError, True)
    began = bool(service.heard("llm:stream_block_start"))
    assert len(service.heard("llm:stream_aborted")) == began


@pytest.mark.parametrize("after", range(COUNT))
async def test_an_error_after_any_event_is_told(serve: Any, after: int) -> None:
    events = wire.events_of(*BLOCKS)
    service = await serve(stream_answer([*events[:after], wire.error_event("overloaded_error", "Overloaded")]))
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (llm_errors.ProviderUnavailableError, 529)


@pytest.mark.parametrize(
    "odd", [b"event: message_delta\ndata: {nonsense\n\n", b"event: content_block_stop\ndata: \xff\n\n"]
)
async def test_an_event_that_cannot_be_read_breaks_the_answer(serve: Any, odd: bytes) -> None:
    events = wire.events_of(wire.text("Good day"))
    service = await serve(stream_answer([*events[:4], odd, *events[4:]]))
    assert type(await failure(service)) is llm_errors.StreamError


async def test_events_out_of_order_break_the_answer(serve: Any) -> None:
    events = wire.events_of(wire.text("Good", " day"))
    service = await serve(stream_answer([events[0], *events[3:]]))
    assert type(await failure(service)) is llm_errors.StreamError


async def test_an_event_of_an_unknown_kind_does_no_harm(serve: Any) -> None:
    events = wire.events_of(wire.text("Good day"))
    odd = [sse({"type": "new"}, event="new"), b": a comment\n\n"]
    service = await serve(stream_answer([*events[:3], *odd, *events[3:]]))
    assert (await service.ask()).content[0].text == "Good day"


async def test_a_page_instead_of_an_answer_points_to_the_address(serve: Any) -> None:
    service = await serve(Answer((b"<html>Sign in</html>",), headers={"content-type": "text/html"}))
    assert "is base_url right?" in show_error(await failure(service))


async def test_an_answer_that_its_server_calls_html_is_an_answer(serve: Any) -> None:
    """As Flask calls all answers of which nothing else is said."""
    said = replace(wire.says("Good day"), headers={"content-type": "text/html; charset=utf-8"})
    service = await serve(said)
    assert (await service.ask()).content[0].text == "Good day"


async def test_an_answer_byte_by_byte_is_an_answer(serve: Any) -> None:
    service = await serve(wire.says(wire.text("Grüße, ", "世界")).slowly())
    assert (await service.ask()).content[0].text == "Grüße, 世界"


# time limits


@pytest.mark.parametrize("after", [0, 2])
async def test_an_answer_that_does_not_begin_is_given_up(serve: Any, after: int) -> None:
    service = await serve(wire.says("x").stall(after=after), first_token_timeout=0.05)
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.LLMTimeoutError, True)
    assert "did not begin in 0.05 s" in show_error(caught)
    await closed(service)


async def test_a_service_without_any_answer_is_given_up(serve: Any) -> None:
    service = await serve(NEVER, first_token_timeout=0.05)
    assert type(await failure(service)) is llm_errors.LLMTimeoutError
    await closed(service)


@pytest.mark.parametrize("after", [0, 2])
async def test_a_slow_beginning_is_waited_for_longer_than_silence(
    serve: Any, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    answer = wire.says("Good day").hold(after=after, until=asyncio.Event())
    service = await serve(answer, first_token_timeout=600, idle_timeout=30)
    assert (await ask_slowly(service, answer, monkeypatch, 60)).content[0].text == "Good day"


async def test_an_answer_that_falls_silent_is_given_up(serve: Any) -> None:
    service = await serve(wire.says("Good day").stall(after=4), idle_timeout=0.5)
    assert type(await failure(service)) is llm_errors.LLMTimeoutError
    assert len(service.heard("llm:stream_aborted")) == bool(service.heard("llm:stream_block_start"))
    await closed(service)


@pytest.mark.parametrize("where", ["config", "request"])
async def test_a_whole_answer_has_a_limit(serve: Any, where: str) -> None:
    config, request = ({"timeout": 0.5}, {}) if where == "config" else ({}, {"timeout": 0.5})
    service = await serve(wire.says("Good day").stall(after=4), max_retries=9, **config)
    caught = await failure(service, **request)
    assert "no whole answer in 0.5 s" in show_error(caught)
    assert getattr(caught, "has_answered", False) == bool(service.heard("llm:stream_block_start"))
    assert len(service.heard("llm:stream_aborted")) == bool(service.heard("llm:stream_block_start"))
    await closed(service)


# the way to the service


async def test_nobody_at_the_address_is_a_matter_of_the_network(serve: Any) -> None:
    async with WireServer() as closed:
        address = closed.url
    service = await serve(base_url=address)
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.NetworkError, True)


async def test_a_proxy_of_the_environment_is_used(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer([wire.says("through the proxy")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        service = await serve(base_url="http://api.example.test")
        assert (await service.ask()).content[0].text == "through the proxy"
        assert proxy.requests[0].target == "http://api.example.test/v1/messages"
        await service.provider.close()


async def test_a_proxy_that_refuses_is_told(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer([json_answer(b"<html>login please</html>", 407)]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("://", "://me:word@"))
        service = await serve(base_url="http://api.example.test")
        caught = await failure(service)
        assert "of HTTP_PROXY answers 407 Proxy Authentication Required" in str(caught)
        assert "before the host in HTTP_PROXY" in vars(caught)["remedy"]
        assert vars(caught)["is_of_environment"]  # events wait
        assert "me:word" not in show_error(caught)


@pytest.mark.parametrize("status", [307, 308])
async def test_a_request_is_not_sent_on_to_another_host_or_port(serve: Any, status: int) -> None:
    await require_kept_at_its_place(serve, status, failure)


async def test_a_request_is_sent_on_whole_at_the_same_host_and_port_but_not_on_and_on(serve: Any) -> None:
    await require_sent_on_at_its_place(serve, wire.says("moved"), failure)


# a user who stops


async def test_cancelling_closes_the_connection_at_once(serve: Any) -> None:
    service = await serve(wire.says(wire.text("Good", " day")).stall(after=4))
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
    [(event, end)] = service.events[told:]
    assert (event, end["status"], end["usage"]["input_tokens"]) == ("llm:response", "error", 10)


async def test_cancelling_while_nothing_comes_closes_the_connection(serve: Any) -> None:
    service = await serve(NEVER)
    asking = asyncio.create_task(service.ask())
    await service.server.arrived.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await service.server.left.wait()


async def test_cancelling_while_a_hook_hears_a_piece_is_not_lost(serve: Any) -> None:
    service = await serve(wire.says(wire.text("Good", " day")))
    heard = asyncio.Event()

    async def linger(event: str, data: dict[str, Any]) -> None:
        heard.set()
        await asyncio.Event().wait()

    service.coordinator.hooks.register("llm:stream_block_delta", linger)
    asking = asyncio.create_task(service.ask())
    await heard.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_the_provider_goes_on_after_a_cancelled_request(serve: Any) -> None:
    service = await serve(NEVER, wire.says("again"))
    asking = asyncio.create_task(service.ask())
    await service.server.arrived.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await service.ask()).content[0].text == "again"


async def test_a_request_that_cannot_be_written_is_no_fault_of_the_service(serve: Any) -> None:
    service = await serve()
    caught = await failure(service, tools=[{"name": "look", "parameters": {"default": object()}}])
    assert (type(caught), caught.retryable) == (llm_errors.InvalidRequestError, False)
    assert str(caught) == "the request cannot be written (TypeError: Object of type object is not JSON serializable)"
    assert service.bodies == []
