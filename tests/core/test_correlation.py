"""One id for a request to a model and what becomes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_core.correlation import CORRELATED
from amplifier_core.hooks import HookRegistry


class Heard:
    """A registry, and the ids of what was heard on it."""

    def __init__(self, *besides: str) -> None:
        self.hooks = HookRegistry()
        self.ids: list[tuple[str, Any]] = []
        for event in (*CORRELATED, *besides):
            self.hooks.register(event, self.hear)

    def hear(self, event: str, data: dict[str, Any]) -> None:
        self.ids.append((event, data.get("request_id")))

    async def emit(self, *events: str, **data: Any) -> None:
        for event in events:
            await self.hooks.emit(event, data)


async def test_a_request_and_what_becomes_of_it_have_one_id_and_the_next_request_has_another() -> None:
    heard = Heard("tool:pre")
    turn = ["llm:request", "provider:retry", "provider:throttle", "provider:error", "llm:response"]
    await heard.emit(*turn, "tool:pre", *turn)
    first, second = dict(heard.ids[:5]), dict(heard.ids[6:])
    assert [event for event, _ in heard.ids] == [*turn, "tool:pre", *turn]
    assert len({*first.values()}) == len({*second.values()}) == 1
    assert first["llm:request"] != second["llm:request"]
    assert heard.ids[5] == ("tool:pre", None)


async def test_what_belongs_to_no_request_has_no_id() -> None:
    heard = Heard()
    await heard.emit("provider:error", "llm:request", "llm:response", "provider:error", "llm:response")
    assert [(event, bool(known)) for event, known in heard.ids] == [
        ("provider:error", False),
        ("llm:request", True),
        ("llm:response", True),
        ("provider:error", False),
        ("llm:response", False),
    ]


@pytest.mark.parametrize("event", ["llm:request", "llm:response"])
async def test_an_id_that_a_provider_gives_is_kept(event: str) -> None:
    heard = Heard()
    await heard.emit("llm:request")
    await heard.emit(event, request_id="own")
    assert heard.ids[-1] == (event, "own")


async def test_requests_side_by_side_are_kept_apart() -> None:
    heard, turns = Heard(), asyncio.Barrier(2)

    async def ask(name: str) -> None:
        await heard.emit("llm:request", request_id=name)
        await turns.wait()
        await heard.emit("provider:retry", "llm:response")

    await asyncio.gather(ask("a"), ask("b"))
    assert sorted(heard.ids[2:]) == [
        ("llm:response", "a"),
        ("llm:response", "b"),
        ("provider:retry", "a"),
        ("provider:retry", "b"),
    ]


async def test_the_data_of_who_emits_is_left_alone() -> None:
    heard, data = Heard(), dict[str, Any]()
    await heard.hooks.emit("llm:request", data)
    assert data == {}
