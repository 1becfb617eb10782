"""Check the stream of a provider against `amplifier_core.streaming`; its author runs the check.

    async def test_the_stream():
        coordinator = TestCoordinator()
        await check_stream(MyProvider(coordinator, base_url=fake_server), coordinator)

The provider gets three short questions. The answers must have text. A broken rule raises `AssertionError` with a
sentence about it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..message_models import ChatRequest, Message
from ..streaming import STREAM_ABORTED, STREAM_BLOCK_DELTA, STREAM_BLOCK_END, STREAM_BLOCK_START, STREAM_EVENTS
from .store_checks.rules import require

if TYPE_CHECKING:
    from ..coordinator import ModuleCoordinator
    from ..interfaces import Provider

BLOCK_TYPES = ("text", "thinking", "tool_use")
PATIENCE = 30.0
"""Seconds for an answer, or for the end of a cancelled one."""


async def check_stream(
    provider: Provider, coordinator: ModuleCoordinator, *, request: ChatRequest | None = None
) -> None:
    """Check the events of an answer, of a request without a stream, and of a cancelled request.

    `coordinator` is the provider's own. `request` replaces the greeting. Raises `AssertionError`, and the provider's
    own `LLMError`.
    """
    request = request or ChatRequest(messages=[Message(role="user", content="Hello")])
    heard: list[tuple[str, dict[str, Any]]] = []
    first = asyncio.Event()

    async def note(event: str, data: dict[str, Any]) -> None:
        heard.append((event, data))
        if event == STREAM_BLOCK_DELTA:
            first.set()

    undo = [coordinator.hooks.register(event, note) for event in STREAM_EVENTS]
    try:
        async with asyncio.timeout(PATIENCE):
            response = await provider.complete(request)
        check_events(heard, "".join(block.text for block in response.content if block.type == "text"))
        heard.clear()
        quiet = request.model_copy(update={"metadata": {**(request.metadata or {}), "stream": False}})
        async with asyncio.timeout(PATIENCE):
            await provider.complete(quiet)
        require(not heard, 'a request with metadata {"stream": False} must have no stream events')
        first.clear()
        await check_cancelled(provider, request, first)
        told = len(heard)
        await asyncio.sleep(0)
        require(len(heard) == told, "a cancelled request must emit nothing more")
        require(STREAM_ABORTED not in dict(heard), "a cancelled request must not emit llm:stream_aborted")
    finally:
        for each in undo:
            each()


def check_events(heard: list[tuple[str, dict[str, Any]]], text: str) -> None:
    """Check the events of one answer with this text; attempts that were aborted are left out."""
    attempts = [number for number, (event, _) in enumerate(heard, 1) if event == STREAM_ABORTED]
    last = heard[attempts[-1] :] if attempts else heard
    require(any(event == STREAM_BLOCK_DELTA for event, _ in last), "a provider that streams must emit deltas")
    requests = {data.get("request_id") for _, data in last}
    require(
        len(requests) == 1 and all(isinstance(each, str) and each for each in requests),
        f"all events of an attempt must have one request_id, a text, not {requests}",
    )
    said, index, kind, sequence = "", -1, "", 0
    is_open = False
    for event, data in last:
        if event == STREAM_BLOCK_START:
            require(not is_open, "a block must end before the next one starts")
            is_open, index, kind, sequence = True, index + 1, str(data.get("block_type")), 0
            require(kind in BLOCK_TYPES, f"block_type must be one of {', '.join(BLOCK_TYPES)}, not {kind}")
            require(kind != "tool_use" or bool(data.get("name")), "the start of a tool call must have its name")
        require(is_open, f"{event} must come after the start of its block and before its end")
        place = (data.get("block_index"), data.get("block_type"))
        require(place == (index, kind), f"{event} must have block_index {index} and block_type {kind}, not {place}")
        if event == STREAM_BLOCK_DELTA:
            _check_delta(data, kind, sequence)
            sequence += 1
            said += data["text"] if kind == "text" else ""
        is_open = event != STREAM_BLOCK_END
    require(not is_open, "the last block must end, too")
    require(said == text, f"the deltas of the text must be the text of the response, {text!r}, not {said!r}")


async def check_cancelled(provider: Provider, request: ChatRequest, first: asyncio.Event) -> None:
    """Check that a request cancelled at its first delta ends, and as cancelled."""
    errors: list[Exception] = []

    async def ask() -> None:
        try:
            await provider.complete(request)  # an answer that was whole at that moment may end as it is
        except Exception as error:
            errors.append(error)

    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            asking = group.create_task(ask())
            await first.wait()
            asking.cancel()
    except TimeoutError:
        raise AssertionError("a cancelled request must end at once") from None
    told = [f"{type(error).__name__}: {error}" for error in errors]
    require(not told, f"a cancelled request must raise CancelledError, not {', '.join(told)}")


def _check_delta(data: dict[str, Any], kind: str, sequence: int) -> None:
    text = data.get("text")
    require(isinstance(text, str) and bool(text), f"the text of a delta must not be empty: {text!r}")
    require(kind != "tool_use", "a tool call must have no deltas: its input is whole in the response")
    require(data.get("sequence") == sequence, f"sequence must count the deltas of a block: {sequence}, not {data}")
