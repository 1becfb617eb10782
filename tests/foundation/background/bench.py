"""A manager on a real store, woken by triggers that a test feeds, on a clock that only the test moves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core import TriggerConfigError, TriggerEvent, TriggerType, hookimpl
from amplifier_foundation import BackgroundSessionConfig
from amplifier_foundation.background.status_log import BACKGROUND_STATE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from amplifier_core import Delivery, SessionEvent, TriggerContext
    from amplifier_core.storage import DurableStore
    from amplifier_core.testing import VirtualClock
    from amplifier_foundation import Activity, BackgroundSessionManager, EventRouter

PATIENCE = 20

HELD = """
import asyncio
from amplifier_core import ChatResponse, ProviderInfo, TextBlock

class Held:
    name = "held"
    asked: list[str] = []
    together = 0
    most = 0
    go = asyncio.Event()

    def get_info(self): return ProviderInfo(id="held", display_name="Held")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        prompt = [message.content for message in request.messages if message.role == "user"][-1]
        Held.asked.append(prompt)
        Held.together += 1
        Held.most = max(Held.most, Held.together)
        try:
            await Held.go.wait()
        finally:
            Held.together -= 1
        return ChatResponse(content=[TextBlock(text=f"answer to {prompt}")])

async def mount(coordinator, config):
    coordinator.register_capability("tests.held", Held)
    await coordinator.mount("providers", Held())
"""
"""A model that answers when it is told to `go`, and knows what it was asked and how many asked at once."""

FLAKY = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, llm_errors

class Flaky:
    name = "flaky"
    asked = 0

    def __init__(self, answers): self.answers = answers
    def get_info(self): return ProviderInfo(id="flaky", display_name="Flaky")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        prompt = request.messages[-1].content
        answer = self.answers[min(Flaky.asked, len(self.answers) - 1)]
        if "poison" in prompt:
            answer = {"kind": "AccessDeniedError" if "forbidden" in prompt else "ProviderUnavailableError"}
        else:
            Flaky.asked += 1
        if isinstance(answer, dict):
            facts = dict(answer)
            if "finish_reason" in facts:
                return ChatResponse(content=[TextBlock(text="Once upon")], finish_reason=facts["finish_reason"])
            kind = facts.pop("kind")
            if kind == "RuntimeError":
                raise RuntimeError("it said no")
            has_answered = facts.pop("has_answered", False)
            error = getattr(llm_errors, kind)("it said no", provider="flaky", **facts)
            error.has_answered = has_answered
            raise error
        return ChatResponse(content=[TextBlock(text=answer)])

async def mount(coordinator, config):
    await coordinator.mount("providers", Flaky(config["answers"]))
"""
"""A model that gives its answers, or raises them, one after the other; of a `poison`, never."""


async def events_of(store: DurableStore) -> list[SessionEvent]:
    """Return the events of the log but those about the status of background sessions."""
    return [event for event in await store.events() if event.name != BACKGROUND_STATE]


class FedTrigger:
    """A trigger that yields what a test feeds it."""

    made: list[FedTrigger]

    def bind(self, context: TriggerContext) -> None:
        self.context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        if "bad" in config:
            raise TriggerConfigError("trigger-fed", "bad", "cannot be")
        self.queue: asyncio.Queue[TriggerEvent | Exception | None] = asyncio.Queue()
        type(self).made.append(self)

    def feed(self, n: int, **fields: Any) -> TriggerEvent:
        event = TriggerEvent(TriggerType.CUSTOM, "trigger-fed", data={"n": n, **fields.pop("data", {})}, **fields)
        self.queue.put_nowait(event)
        return event

    def fail(self, problem: str) -> None:
        self.queue.put_nowait(OSError(problem))

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        while (item := await self.queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    async def stop(self) -> None:
        self.queue.put_nowait(None)


def raised_by_feed(problem: str) -> str:
    """Return how a status tells of a trigger that failed by `FedTrigger.fail`."""
    line = Path(__file__).read_text(encoding="utf-8").splitlines().index("                raise item") + 1
    return f"OSError: {problem} ({__file__}:{line})"


class Feeds:
    """The plugin that offers `FedTrigger`."""

    @hookimpl
    def amplifier_register_trigger(self, register: Any) -> None:
        register("trigger-fed", FedTrigger)


class Bench:
    """The manager, and all that happened."""

    def __init__(
        self, manager: BackgroundSessionManager, store: DurableStore, router: EventRouter, clock: VirtualClock
    ) -> None:
        self.manager, self.store, self.router, self.clock = manager, store, router, clock
        self.seen: list[Activity] = []
        manager._engine.observers.append(self.seen.append)
        manager._engine.lease = 1e6  # a clock that a test moves is ahead of the disk

    @property
    def trigger(self) -> FedTrigger:
        """The one made last by `start`; one is made before to check the configuration."""
        return FedTrigger.made[-1]

    async def start(self, **fields: Any) -> str:
        fields = {"name": "queue", "triggers": [{"module": "trigger-fed"}], **fields}
        return await self.manager.start(BackgroundSessionConfig(**fields))

    def statuses(self) -> dict[str, str]:
        """Return the status of each background session by its name."""
        return {row["name"]: row["status"] for row in self.manager.get_status().values()}

    def kinds(self) -> list[str]:
        return [activity.kind for activity in self.seen if activity.kind != "state"]

    def told(self, kind: str, name: str) -> list[Any]:
        """Return this fact of each activity of a kind."""
        return [activity.facts.get(name) for activity in self.seen if activity.kind == kind]

    async def until(self, *kinds: str, count: int = 1, step: float = 0.0) -> None:
        """Return when that many of these happened; meanwhile let `step` seconds pass again and again."""
        await self.holds(lambda: sum(kind in kinds for kind in self.kinds()) >= count, step)

    async def holds(self, condition: Callable[[], bool], step: float = 0.0) -> None:
        """Return when it holds."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await (self.clock.advance(step) if step else asyncio.sleep(0.001))

    async def deliveries(self) -> list[Delivery]:
        """Return what was accepted or refused, oldest first."""
        return list(reversed(await self.store.deliveries(limit=10_000)))

    async def states(self) -> list[str]:
        return [delivery.state for delivery in await self.deliveries()]

    async def numbers(self, state: str = "done") -> list[int]:
        """Return the `n` of those in a state, in the order in which they came."""
        return [each.event.data["n"] for each in await self.deliveries() if each.state == state]

    def handled(self) -> list[int]:
        """Return the `n` of those that were begun, in that order."""
        return [delivery.event.data["n"] for delivery in self.told("started", "delivery")]

    def held(self) -> Any:
        """Return the class of the model of `HELD`, once a session has it."""
        return self.told("session", "session")[0].coordinator.get_capability("tests.held")
