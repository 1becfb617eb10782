"""A `poll` of another kind is refused with the remedy, and leaves no warning behind; so are odd seconds."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core import PollingTrigger
from amplifier_core.errors import TriggerConfigError


class Awaited(PollingTrigger):
    name = "trigger-awaited"

    async def poll(self) -> Any:
        return [self.event("1", {})]


class Plain(PollingTrigger):
    name = "trigger-plain"

    def poll(self) -> Any:
        yield self.event("1", {})


class Listed(PollingTrigger):
    name = "trigger-listed"

    def poll(self) -> Any:
        return [self.event("1", {})]


@pytest.mark.parametrize(("made", "returned"), [(Awaited, "coroutine"), (Plain, "generator"), (Listed, "list")])
async def test_a_poll_that_is_no_async_generator_is_refused_with_the_remedy(
    made: type[PollingTrigger], returned: str
) -> None:
    remedy = rf"{made.__name__} needs: async def poll\(self\), with a yield .*\. Its poll returns a {returned}"
    with pytest.raises(TypeError, match=remedy):
        await anext(made().watch())


@pytest.mark.parametrize(
    ("seconds", "problem"),
    [
        *((0, "more than 0"), (float("nan"), "more than 0")),
        *((10**30, "at most 3155760000"), (1e30, "at most 3155760000"), (float("inf"), "at most 3155760000")),
    ],
)
async def test_seconds_that_no_clock_has_are_refused(seconds: float, problem: str) -> None:
    with pytest.raises(TriggerConfigError, match=f"seconds: must be {problem}"):
        Listed().configure({"seconds": seconds})
