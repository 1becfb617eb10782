"""What sessions take: the tokens of their requests to models, and what those cost."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from amplifier_core.events import LLM_RESPONSE, PROVIDER_REQUEST, PROVIDER_RESPONSE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

SESSION_COST = "session.cost"
"""The channel on which providers contribute what they cost so far, as `{"cost_usd": …}`."""
CHILDREN = "children"
"""The key of the contribution to it that tells what a session's children cost: how many they are."""

_CHILDREN = "session.child_usage"
_SINGLE_CHILDREN = 256  # of an earlier child that goes on, the last word would be counted twice
_BEFORE_ALL = -1_000_000  # a handler that denies keeps the later ones from hearing
_TOO_MUCH = Decimal("1e12")  # dollars; beyond it a sum would lose its cents, and a far greater one cannot be made
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True)
class Usage:
    """What some requests took: tokens, and US dollars.

    `cost_usd` is None when nobody said what they cost. `cost_is_partial` tells that some of them did not: the cost is
    then the least that it can be. Usages are added with `+`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: Decimal | None = None
    requests: int = 0
    cost_is_partial: bool = False

    def __add__(self, other: Usage) -> Usage:
        if other is _NOTHING or self is _NOTHING:
            return self if other is _NOTHING else other
        known = [each.cost_usd for each in (self, other) if each.cost_usd is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=sum(known, Decimal(0)) if known else None,
            requests=self.requests + other.requests,
            cost_is_partial=bool(known) and (self._lacks_cost or other._lacks_cost),
        )

    @property
    def _lacks_cost(self) -> bool:
        return self.cost_is_partial or (self.cost_usd is None and self != _NOTHING)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it; the cost is a string, digit by digit."""
        told = {name: getattr(self, name) for name in _FIELDS}
        return {**told, "cost_usd": None if self.cost_usd is None else str(self.cost_usd)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Return what `to_dict` wrote, or what a provider says of one request; values that cannot be are left out."""
        return _read(data)[0]


_NOTHING = Usage()
_FIELDS = tuple(field.name for field in fields(Usage))


class UsageMeter:
    """Sums what the requests of one session take, as the session's events tell it.

    A request is told by its provider (`llm:response`), by the orchestrator (`provider:response`), or by both, and
    counted once, as told by the one who says more. Failed requests do not count, unless they tell a usage. Values that
    cannot be (negative, not a number) are left out, with one warning for each provider.
    """

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._settled = _NOTHING
        self._latest: Usage | None = None  # as the provider told it; the orchestrator may say more
        self._attached = False
        self._warned: set[str] = set()

    def attach(self) -> None:
        """Begin to listen; idempotent."""
        if self._attached:
            return
        self._attached = True
        register = self._coordinator.hooks.register
        register(PROVIDER_REQUEST, self._begin, _BEFORE_ALL, "usage-meter")
        register(LLM_RESPONSE, self._hear_provider, _BEFORE_ALL, "usage-meter")
        register(PROVIDER_RESPONSE, self._hear_orchestrator, _BEFORE_ALL, "usage-meter")

    @property
    def usage(self) -> Usage:
        """What the session itself took so far, without its children."""
        return self._settled + (self._latest or _NOTHING)

    async def total(self) -> Usage:
        """Return what the session and its bridged children took so far.

        Where events do not tell all costs, what providers contribute to `session.cost` stands, if it is more.
        """
        own = self.usage
        if own.cost_usd is None or own.cost_is_partial:
            contributed = await self._contributed()
            if contributed is not None:
                own = replace(own, cost_usd=max(contributed, own.cost_usd or Decimal(0)))
        return own + children_usage(self._coordinator)

    async def _contributed(self) -> Decimal | None:
        said = await self._coordinator.collect_contributions(SESSION_COST)
        return sum_cost_usd(each for each in said if not (isinstance(each, Mapping) and CHILDREN in each))

    def _begin(self, event: str, data: dict[str, Any]) -> None:
        self._settle()

    def _hear_provider(self, event: str, data: dict[str, Any]) -> None:
        if data.get("usage") or not (data.get("status") == "error" or data.get("error")):
            self._settle()
            self._latest = self._heard(data)

    def _hear_orchestrator(self, event: str, data: dict[str, Any]) -> None:
        if self._latest is None or not all(_says(self._latest)):
            told = self._heard(data)
            self._latest = told if self._latest is None else max(self._latest, told, key=_says)
        self._settle()

    def _settle(self) -> None:
        self._settled, self._latest = self.usage, None

    def _heard(self, data: Mapping[str, Any]) -> Usage:
        usage, wrong = _read(data.get("usage"))
        provider = str(data.get("provider") or "?")
        if wrong and provider not in self._warned:
            self._warned.add(provider)
            logger.warning("provider '%s' tells a usage that cannot be; left out: %s", provider, ", ".join(wrong))
        return usage


def bridge_child_cost(
    parent: ModuleCoordinator, spent: Usage | Decimal, session_id: str, *, adds: bool = False
) -> None:
    """Have the parent's `session.cost` tell what the child `session_id` cost, also when the child has long ended.

    Said again of one child, the last word stands; with `adds` it is more of the same, as of a child that went on with a
    meter that began anew. `spent` includes the child's own children: `UsageMeter.total`.
    """
    children: _Children | None = parent.get_capability(_CHILDREN)
    if children is None:
        children = _Children()
        parent.register_capability(_CHILDREN, children)
        parent.register_contributor(SESSION_COST, "children", children.contribution)
    usage = spent if isinstance(spent, Usage) else Usage(cost_usd=sum_cost_usd([spent]))
    children.spent(session_id, usage, adds=adds)


class _Children:
    """What the children of one session took: each of the last ones, and those before in one sum."""

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[str, Usage] = {}
        self._before = _NOTHING

    def spent(self, session_id: str, usage: Usage, *, adds: bool) -> None:
        """Note what a child took, in place of what was noted of it or on top of that."""
        known = self._last.pop(session_id, None)
        self.count += known is None
        self._last[session_id] = known + usage if adds and known is not None else usage
        if len(self._last) > _SINGLE_CHILDREN:
            self._before += self._last.pop(next(iter(self._last)))

    @property
    def total(self) -> Usage:
        """What all of them took."""
        return sum(self._last.values(), self._before)

    def contribution(self) -> dict[str, Any]:
        """Return what they cost, as `session.cost` tells it."""
        return {CHILDREN: self.count, **self.total.to_dict()}


def children_usage(coordinator: ModuleCoordinator) -> Usage:
    """Return what the children took whose cost was bridged to this session."""
    children: _Children | None = coordinator.get_capability(_CHILDREN)
    return children.total if children is not None else _NOTHING


def sum_cost_usd(contributions: Iterable[Any]) -> Decimal | None:
    """Return the sum of what was contributed to `session.cost`, in US dollars; None when none says a cost.

    A contribution is a mapping with `cost_usd`, an object that has it, or the amount itself. One that cannot be
    (negative, not a number) is left out, with one warning for all.
    """
    amounts: list[Decimal] = []
    wrong: list[str] = []
    for each in contributions:
        value = each.get("cost_usd") if isinstance(each, Mapping) else getattr(each, "cost_usd", each)
        amount = _dollars(value, wrong)
        if amount is not None:
            amounts.append(amount)
    if wrong:
        logger.warning("contributions to %s that cannot be were left out: %s", SESSION_COST, ", ".join(wrong))
    return sum(amounts, Decimal(0)) if amounts else None


def usage_of_messages(messages: Iterable[Mapping[str, Any]]) -> Usage | None:
    """Return what the answers of a stored history took, as their `metadata.usage` tells it; None when none does.

    Not every orchestrator writes it there: of such a history nothing is known.
    """
    told = [usage for message in messages if (usage := _stored_usage(message)) is not None]
    return sum(told, _NOTHING) if told else None


def _stored_usage(message: Mapping[str, Any]) -> Usage | None:
    metadata = message.get("metadata")
    said = metadata.get("usage") if isinstance(metadata, Mapping) else None
    return Usage.from_dict(said) if isinstance(said, Mapping) and said else None


def _says(usage: Usage) -> tuple[bool, bool]:
    return usage.cost_usd is not None, usage.input_tokens + usage.output_tokens > 0


def _read(said: Any) -> tuple[Usage, list[str]]:
    """Return the usage that one request tells, and which of its values cannot be."""
    dump = getattr(said, "model_dump", None)
    data = dump() if callable(dump) else said
    wrong: list[str] = []
    if not isinstance(data, Mapping):
        return Usage(requests=1), [] if data is None else [f"usage={_shown(data)}"]
    tokens = {name: _count(name, _spelt(data, name), wrong) for name in _TOKENS}
    cost, requests = _dollars(data.get("cost_usd"), wrong), _count("requests", data.get("requests", 1), wrong)
    partial = data.get("cost_is_partial") is True and cost is not None
    return Usage(**tokens, cost_usd=cost, requests=requests, cost_is_partial=partial), wrong


def _spelt(data: Mapping[str, Any], name: str) -> Any:
    """Return a number of tokens, which some write without `_tokens`."""
    return data.get(name, data.get(name.removesuffix("_tokens")))


def _count(name: str, value: Any, wrong: list[str]) -> int:
    if value is None or (value.__class__ is int and value >= 0):
        return value or 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        wrong.append(f"{name}={_shown(value)}")
        return 0
    return int(value)


def _dollars(value: Any, wrong: list[str]) -> Decimal | None:
    if value is None:
        return None
    try:
        amount = Decimal(str(value)) if isinstance(value, int | float | str | Decimal) else Decimal("NaN")
    except (ArithmeticError, ValueError):
        amount = Decimal("NaN")
    if isinstance(value, bool) or not amount.is_finite() or not 0 <= amount <= _TOO_MUCH:
        wrong.append(f"cost_usd={_shown(value)}")
        return None
    return amount


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
