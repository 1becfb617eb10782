"""What goes wrong on the way: statuses, broken streams, time limits, and a user who stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from amplifier_core import llm_errors
from amplifier_core.llm_errors import LLMError
from tests.wire import gemini as wire
from tests.wire.mounted import require_kept_at_its_place, require_sent_on_at_its_place
from tests.wire.server import NEVER, Answer, WireServer, json_answer, show_error, sse, stream_answer

KEY = "AIzaTheKeyOfTheTests"
PER_DAY = {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}
STATUSES = [
    (400, "INVALID_ARGUMENT", "odd", (), "InvalidRequestError", False),
    (400, "INVALID_ARGUMENT", "API key not valid", ({"reason": "API_KEY_INVALID"},), "AuthenticationError", False),
    (400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum", (), "ContextLengthError", False),
    (
        400,
        "INVALID_ARGUMENT",
        "input token count is 9 but model only supports up to 8",
        (),
        "ContextLengthError",
        False,
    ),
    (400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 9 bytes", (), "ContextLengthError", False),
    (400, "FAILED_PRECONDITION", "User location is not supported", (), "AccessDeniedError", False),
    (401, "UNAUTHENTICATED", "no key", (), "AuthenticationError", False),
    (403, "PERMISSION_DENIED", "not you", (), "AccessDeniedError", False),
    (404, "NOT_FOUND", "models/x is not found", (), "NotFoundError", False),
    (429, "RESOURCE_EXHAUSTED", "quota exceeded", (), "RateLimitError", True),
    (429, "RESOURCE_EXHAUSTED", "quota exceeded", (PER_DAY,), "QuotaExceededError", False),
    (500, "INTERNAL", "an error", (), "ProviderUnavailableError", True),
    (503, "UNAVAILABLE", "overloaded", (), "ProviderUnavailableError", True),
    (504, "DEADLINE_EXCEEDED", "late", (), "LLMTimeoutError", True),
]
WHOLE = wire.says(wire.thinking("hm"), wire.text("Good", " day"), wire.call("look", at="a.py"))


async def failure(service: Any, **more: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await service.ask(**more)
    assert (caught.value.provider, caught.value.model) == ("gemini", wire.MODEL)
    assert "\n" not in str(caught.value)
    assert KEY not in f"{caught.value!r}{show_error(caught.value)}{caught.value.__cause__}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


# answers that are errors


@pytest.mark.parametrize(("status", "word", "message", "details", "error", "retryable"), STATUSES)
async def test_a_status_is_an_error_with_its_cause_and_a_remedy(
    serve: Any, status: int, word: str, message: str, details: Any, error: str, retryable: bool
) -> None:
    service = await serve(wire.fails(status, word, message, *details))
    caught = await failure(service)
    assert (type(caught).__name__, caught.status_code, caught.retryable) == (error, status, retryable)
    assert show_error(caught).startswith(f"{status}: {message}. ")
    [told] = service.heard("llm:response")
    assert (told["status"], told["error"]["type"]) == ("error", error)


DELAY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}


@pytest.mark.parametrize(
    ("details", "headers", "seconds"),
    [
        ((), {}, None),
        ((DELAY,), {}, 34.5),
        (({**DELAY, "retryDelay": "1.2.3s"},), {}, None),
        ((DELAY,), {"retry_after": "7"}, 7.0),
        ((), {"retry_after": "soon"}, None),
        ((), {"retry_after": "Fri, 31 Dec 99999 23:59:59 GMT"}, None),
    ],
)
async def test_the_pause_that_the_service_asks_for_is_in_the_error(
    serve: Any, details: Any, headers: Any, seconds: Any
) -> None:
    service = await serve(wire.fails(429, "RESOURCE_EXHAUSTED", "slow down", *details, **headers))
    caught = await failure(service)
    assert caught.retry_after == seconds
    assert show_error(caught).endswith("aistudio.google.com." if seconds is None else f"Try again in {seconds:g} s.")


@pytest.mark.parametrize("status", [307, 308])
async def test_a_request_is_not_sent_on_to_another_host_or_port(serve: Any, status: int) -> None:
    await require_kept_at_its_place(serve, status, failure)


async def test_a_request_is_sent_on_whole_at_the_same_host_and_port_but_not_on_and_on(serve: Any) -> None:
    await require_sent_on_at_its_place(serve, wire.says("moved"), failure)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_reason_for_the_end_with_each_piece_is_none(serve: Any, count: int) -> None:
    pieces = wire.pieces_of(wire.text("one", " two", " three"))
    each = [piece.replace(b'"index": 0', b'"index": 0, "finishReason": "STOP"', 1) for piece in pieces[:-1]]
    assert all(b"finishReason" in piece for piece in each)
    whole = stream_answer([*each, pieces[-1]])
    service = await serve(whole.cut(count), whole, max_retries=1)
    assert (await service.ask()).content[0].text == "one two three"
    assert len(service.heard("llm:stream_aborted")) == 1


async def test_nobody_at_the_address_is_a_matter_of_the_network(serve: Any) -> None:
    async with WireServer() as nobody:
        address = nobody.url
    caught = await failure(await serve(base_url=address))
    assert (type(caught), caught.retryable) == (llm_errors.NetworkError, True)


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[1]", b'"text"', b'{"error": {"x": 1}}'])
async def test_an_error_of_something_in_between_is_told_as_it_is(serve: Any, body: bytes) -> None:
    service = await serve(json_answer(body, 502))
    caught = await failure(service)
    assert (type(caught), caught.status_code) == (llm_errors.ProviderUnavailableError, 502)


@pytest.mark.parametrize(
    "secret", [KEY, "AIzaSyhidden-word", "https://me:hidden@gateway/v1", "authorization: Bearer hidden-word"]
)
async def test_no_secret_is_in_an_error(serve: Any, secret: str) -> None:
    service = await serve(wire.fails(401, "UNAUTHENTICATED", f"refused {secret} here"))
    said = show_error(await failure(service))
    assert "hidden" not in said
    assert "[REDACTED]" in said
    assert service.server.requests[0].headers["x-goog-api-key"] == KEY


# further attempts


async def test_another_attempt_voids_the_pieces_of_the_first(serve: Any) -> None:
    service = await serve(
        WHOLE.cut(after=2), wire.fails(503, "UNAVAILABLE", "busy"), wire.says("Good day"), max_retries=2
    )
    assert (await service.ask()).content[0].text == "Good day"
    names = [event for event, _ in service.events if "stream" in event]
    assert names[: names.index("llm:stream_aborted")].count("llm:stream_block_start") == 2
    assert [each["error_type"] for each in service.heard("provider:retry")] == [
        "StreamError",
        "ProviderUnavailableError",
    ]


@pytest.mark.parametrize(
    "answer", [wire.fails(401, "UNAUTHENTICATED", "x"), wire.fails(503, "UNAVAILABLE", "busy", retry_after="3600")]
)
async def test_what_a_short_wait_does_not_mend_is_asked_once(serve: Any, answer: Answer) -> None:
    service = await serve(answer, max_retries=5)
    await failure(service)
    assert len(service.server.requests) == 1


# broken streams


@pytest.mark.parametrize("kind", ["cut", "end"])
@pytest.mark.parametrize("after", range(len(WHOLE.pieces)))
async def test_a_stream_that_ends_after_any_piece_is_no_answer(serve: Any, kind: str, after: int) -> None:
    service = await serve(getattr(WHOLE, kind)(after=after))
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.StreamError, True)
    assert len(service.heard("llm:stream_aborted")) == bool(service.heard("llm:stream_block_start"))


async def test_an_error_within_a_stream_is_told(serve: Any) -> None:
    error = sse(wire.error_of(429, "RESOURCE_EXHAUSTED", "quota exceeded", DELAY))
    service = await serve(stream_answer([*WHOLE.pieces[:2], error]))
    caught = await failure(service)
    assert (type(caught), caught.status_code, caught.retry_after) == (llm_errors.RateLimitError, 429, 34.5)


@pytest.mark.parametrize("odd", [b"data: {nonsense\n\n", b"data: \xff\n\n", b"<html>Sign in</html>\n\n"])
async def test_an_event_that_cannot_be_read_breaks_the_answer(serve: Any, odd: bytes) -> None:
    service = await serve(stream_answer([*WHOLE.pieces[:2], odd, *WHOLE.pieces[2:]]))
    assert type(await failure(service)) is llm_errors.StreamError


async def test_an_answer_byte_by_byte_is_an_answer(serve: Any) -> None:
    service = await serve(wire.says(wire.text("Grüße, ", "世界")).slowly())
    assert (await service.ask()).content[0].text == "Grüße, 世界"


# time limits


@pytest.mark.parametrize(
    ("answer", "limits", "said"),
    [
        (NEVER, {"first_token_timeout": 0.05}, "did not begin in 0.05 s"),
        (WHOLE.stall(after=0), {"first_token_timeout": 0.05}, "did not begin in 0.05 s"),
        (WHOLE.stall(after=2), {"idle_timeout": 0.05}, "fell silent for 0.05 s"),
        (WHOLE.stall(after=2), {"timeout": 0.5, "max_retries": 9}, "no whole answer in 0.5 s"),
    ],
)
async def test_an_answer_that_takes_too_long_is_given_up(serve: Any, answer: Answer, limits: Any, said: str) -> None:
    service = await serve(answer, **limits)
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.LLMTimeoutError, True)
    assert said in show_error(caught)
    assert len(service.heard("llm:stream_aborted")) == bool(service.heard("llm:stream_block_start"))
    if service.server.requests:
        await service.server.left.wait()


# a user who stops


@pytest.mark.parametrize("waits_for", ["the service", "a hook"])
async def test_cancelling_closes_the_connection_at_once_and_the_provider_goes_on(serve: Any, waits_for: str) -> None:
    service = await serve(WHOLE.stall(after=3), wire.says("again"))
    began = asyncio.Event()

    async def note(event: str, data: dict[str, Any]) -> None:
        began.set()
        if waits_for == "a hook":
            await asyncio.Event().wait()

    service.coordinator.hooks.register("llm:stream_block_delta", note)
    asking = asyncio.create_task(service.ask())
    await began.wait()
    told = len(service.events)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await service.server.left.wait()
    assert [event for event, _ in service.events[told:]] == ["llm:response"]  # it tells the paid tokens
    waits_for = "nothing"
    assert (await service.ask()).content[0].text == "again"


async def test_a_page_instead_of_an_answer_points_to_the_address(serve: Any) -> None:
    service = await serve(Answer((b"<html>Sign in</html>",), headers={"content-type": "text/html"}))
    caught = await failure(service)
    assert (type(caught), caught.retryable) == (llm_errors.StreamError, True)
    assert "a web page answers (content type text/html: is base_url right?)" in show_error(caught)
    assert "Sign in" not in show_error(caught)


async def test_an_answer_that_its_server_calls_html_is_an_answer(serve: Any) -> None:
    """As Flask calls all answers of which nothing else is said."""
    said = replace(wire.says("Good day"), headers={"content-type": "text/html; charset=utf-8"})
    service = await serve(said)
    assert (await service.ask()).content[0].text == "Good day"


async def test_a_request_that_cannot_be_written_is_no_fault_of_the_service(serve: Any) -> None:
    service = await serve()
    caught = await failure(service, tools=[{"name": "look", "parameters": {"type": {1, 2}}}])
    assert (type(caught), caught.retryable) == (llm_errors.InvalidRequestError, False)
    assert str(caught) == "the request cannot be written (TypeError: Object of type set is not JSON serializable)"
    assert service.bodies == []
