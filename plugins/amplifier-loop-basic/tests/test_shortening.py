"""A request that the model refuses as too long is asked again with less of the history."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core.llm_errors import ContextLengthError, RateLimitError
from amplifier_core.testing import MockContextManager

LONG = ContextLengthError("prompt is too long")


class Halving(MockContextManager):
    """A context that gives half of its messages after each refusal."""

    def __init__(self, least: int = 1) -> None:
        super().__init__()
        self.share = 1
        self.least = least

    def compact_harder(self) -> None:
        self.share *= 2

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> Any:
        messages = await super().get_messages_for_request(token_budget, provider)
        return messages[-max(self.least, len(messages) // self.share) :]


@pytest.fixture
def halving(room: Any) -> Any:
    """A session with eight messages, whose hook adds one to the next request."""
    room.context = Halving()
    room.context.messages = [{"role": "user", "content": f"{number}"} for number in range(7)]
    room.on("prompt:submit", action="inject_context", context_injection="now only", ephemeral=True)
    return room


def sent(room: Any) -> list[list[Any]]:
    return [[each.content for each in request.messages] for request in room.model.requests]


async def test_a_refused_request_is_asked_again_with_less(halving: Any) -> None:
    assert await halving.run("go", LONG, LONG, "done") == "done"
    texts = [*map(str, range(7)), "go", "now only"]
    assert sent(halving) == [texts, texts[4:], texts[6:]]
    assert halving.names("provider:error") == []
    assert len(halving.names("provider:request", "provider:response")) == 2


async def test_a_context_that_has_no_less_to_give_ends_the_turn(halving: Any) -> None:
    halving.context.least = 3
    with pytest.raises(ContextLengthError):
        await halving.run("go", LONG, LONG, LONG, LONG)
    assert [len(each) for each in sent(halving)] == [9, 5, 4]
    assert len(halving.names("provider:error")) == 1


async def test_requests_that_are_refused_all_the_same_end(halving: Any) -> None:
    halving.context.messages *= 10
    with pytest.raises(ContextLengthError):
        await halving.run("go", *[LONG] * 9)
    assert len(sent(halving)) == 4


async def test_another_error_of_a_shorter_request_is_that_of_the_turn(halving: Any) -> None:
    with pytest.raises(RateLimitError):
        await halving.run("go", LONG, RateLimitError("slow down"))
    assert len(sent(halving)) == 2


async def test_a_context_without_a_way_to_give_less_ends_the_turn(room: Any) -> None:
    with pytest.raises(ContextLengthError):
        await room.run("go", LONG)
    assert len(sent(room)) == 1
