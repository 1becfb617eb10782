"""What a session has used, as far as its events say."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from amplifier_core import events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.session import AmplifierSession

COST_CHANNEL = "session.cost"
"""Where providers, and sessions that ended, contribute what they cost."""
CHILD_COMPLETED = "delegate:agent_completed"


@dataclass(slots=True)
class Used:
    """Tokens and requests of one session; `cost` in US dollars, None where nobody says."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None

    def add(self, usage: Mapping[str, Any]) -> None:
        """Add what one request used."""
        self.requests += 1
        self.input_tokens += _whole(usage.get("input_tokens"))
        self.output_tokens += _whole(usage.get("output_tokens"))
        cost = as_dollars(usage.get("cost_usd"))
        if cost is not None:
            self.cost = (self.cost or Decimal(0)) + cost

    def facts(self) -> dict[str, Any]:
        """Return it as JSON says it; the cost is text, digit by digit."""
        tokens = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return {"requests": self.requests, **tokens, "cost_usd": None if self.cost is None else f"{self.cost:f}"}


class Tally:
    """Counts what a session uses, and what sessions below it say that they used.

    A provider says it in `llm:response`; of one that does not, the loop's `provider:response` counts.
    """

    def __init__(self) -> None:
        self.own = Used()
        self.below = Used()
        self._is_counted = False

    def attach(self, session: AmplifierSession) -> None:
        """Begin to count."""
        for event in (events.PROVIDER_REQUEST, events.LLM_RESPONSE, events.PROVIDER_RESPONSE, CHILD_COMPLETED):
            session.coordinator.hooks.register(event, self._on_event, priority=1_000, name="run-tally")

    async def _on_event(self, event: str, data: dict[str, Any]) -> None:
        usage = data.get("usage")
        if event == events.PROVIDER_REQUEST:
            self._is_counted = False
        elif isinstance(usage, dict):
            if event == CHILD_COMPLETED:
                self.below.add(usage)
            elif event == events.LLM_RESPONSE or not self._is_counted:
                self._is_counted = True
                self.own.add(usage)

    async def cost(self, session: AmplifierSession) -> Decimal | None:
        """Return what the session and those below it cost in US dollars; None where nobody says."""
        said = [as_dollars(each) for each in await session.coordinator.collect_contributions(COST_CHANNEL)]
        known = [each for each in said if each is not None]
        return sum(known, Decimal(0)) if known else _sum(self.own.cost, self.below.cost)


def _sum(*costs: Decimal | None) -> Decimal | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if known else None


def as_dollars(value: Any) -> Decimal | None:
    """Return a cost, however a module says it; None for what is none."""
    if isinstance(value, dict):
        value = value.get("cost_usd", value.get("total_cost_usd"))
    if value is None or isinstance(value, bool):
        return None
    try:
        cost = Decimal(str(value))
    except InvalidOperation:
        return None
    return cost if cost.is_finite() else None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
