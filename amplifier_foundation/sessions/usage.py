"""Count the usage of sessions: tokens and costs of their requests to models."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import SystemClock
from amplifier_core.events import LLM_RESPONSE, PROVIDER_REQUEST, PROVIDER_RESPONSE
from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.clock import Clock
    from amplifier_core.coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

SESSION_COST = "session.cost"
"""The channel of the providers' costs so far, as `{"cost_usd": …}`."""
CHILDREN = "children"
"""The member of the contribution for a session's children: their number."""

_CHILDREN = "session.child_usage"
_SINGLE_CHILDREN = 256  # at least; an earlier child is in the sum: a second call for it would count twice
_BEFORE_ALL = -1_000_000  # a handler that denies keeps the later ones from hearing
_TOO_MUCH = Decimal("1e12")  # dollars; beyond it a sum would lose its cents, and a far greater one cannot be made
_bridging = Lock()  # children of one parent may end in several threads
_TOKENS = tuple((f"{kind}_tokens", kind) for kind in ("input", "output", "cache_read", "cache_write"))
"""The names of the tokens, and the short ones of some providers."""


@frozen
class Usage:
    """Tokens and US dollars of some requests.

    `cost_usd` is None for an unknown cost. With `cost_is_partial`, the costs of some requests are unknown: the sum is a
    lower bound. Usages are added with `+`.
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
        cost = self.cost_usd if other.cost_usd is None else other.cost_usd + (self.cost_usd or 0)
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=cost,
            requests=self.requests + other.requests,
            cost_is_partial=cost is not None and (self.lacks_cost or other.lacks_cost),
        )

    def since(self, earlier: Usage) -> Usage:
        """Return the usage after `earlier`, a sum of the same requests and fewer."""
        return Usage(
            input_tokens=self.input_tokens - earlier.input_tokens,
            output_tokens=self.output_tokens - earlier.output_tokens,
            cache_read_tokens=self.cache_read_tokens - earlier.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens - earlier.cache_write_tokens,
            cost_usd=None if self.cost_usd is None else self.cost_usd - (earlier.cost_usd or Decimal(0)),
            requests=self.requests - earlier.requests,
            cost_is_partial=self.cost_is_partial,
        )

    @property
    def lacks_cost(self) -> bool:
        """Whether the cost of some of its requests is unknown."""
        return self.cost_is_partial or (self.cost_usd is None and self != _NOTHING)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it; the cost is a string, digit by digit."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "cost_usd": None if self.cost_usd is None else str(self.cost_usd),
            "requests": self.requests,
            "cost_is_partial": self.cost_is_partial,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Read the output of `to_dict`, or a provider's usage of one request; impossible values are left out."""
        return _read(data)[0]


_NOTHING = Usage()


def sum_usages(usages: Sequence[Usage]) -> Usage:
    """Return the sum of usages, as `+` gives it, in a fraction of its time."""
    costs = [each.cost_usd for each in usages if each.cost_usd is not None]
    return Usage(
        input_tokens=sum([each.input_tokens for each in usages]),
        output_tokens=sum([each.output_tokens for each in usages]),
        cache_read_tokens=sum([each.cache_read_tokens for each in usages]),
        cache_write_tokens=sum([each.cache_write_tokens for each in usages]),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
        requests=sum([each.requests for each in usages]),
        cost_is_partial=bool(costs) and any(each.lacks_cost for each in usages),
    )


class UsageMeter:
    """Sums the usage of one session's requests from the session's events.

    A request is reported by its provider (`llm:response`), by the orchestrator (`provider:response`), or by both, and
    counted once, by the fuller report. A failed request counts only with a usage. Impossible values (negative, not a
    number) are left out, with one warning for each provider.
    """

    def __init__(self, coordinator: ModuleCoordinator, clock: Clock | None = None) -> None:
        self._coordinator = coordinator
        self._clock = clock or SystemClock()
        self._settled = _NOTHING
        self._by_model: dict[tuple[str, str], Usage] = {}
        self._latest: Usage | None = None  # as the provider reported it; the orchestrator may report more
        self._model = ""  # of the latest request
        self._attached = False
        self._warned: set[str] = set()
        self.silent: set[str] = set()
        """The models with a request of which no tokens were reported."""

    def attach(self) -> None:
        """Begin to listen; idempotent."""
        if self._attached:
            return
        self._attached = True
        observers = {
            PROVIDER_REQUEST: self._begin,
            LLM_RESPONSE: self._hear_provider,
            PROVIDER_RESPONSE: self._hear_orchestrator,
        }
        self._coordinator.hooks.observe(observers, _BEFORE_ALL, "usage-meter")

    @property
    def usage(self) -> Usage:
        """The usage of the session itself so far, without its children."""
        return self._settled if self._latest is None else self._settled + self._latest

    async def total(self) -> Usage:
        """Return the usage of the session and its bridged children so far."""
        return await self.own() + children_usage(self._coordinator)

    async def own(self) -> Usage:
        """Return the usage of the session itself so far.

        When the events leave costs open, the providers' contributions to `session.cost` count, if their sum is higher.
        """
        usage = self.usage
        if usage.cost_usd is not None and not usage.cost_is_partial:
            return usage
        told = await self._coordinator.collect_contributions(SESSION_COST)
        cost = sum_cost_usd(each for each in told if not (isinstance(each, Mapping) and CHILDREN in each))
        return usage if cost is None else replace(usage, cost_usd=max(cost, usage.cost_usd or Decimal(0)))

    async def own_by_model(self) -> dict[tuple[str, str], Usage]:
        """Return the same as `own` by day (`YYYY-MM-DD`, UTC) and model (`provider/model`).

        A cost beyond the events belongs to the last model without a known cost.
        """
        by_model = dict(self._by_model)
        if self._latest is not None:
            key = self._key
            by_model[key] = by_model.get(key, _NOTHING) + self._latest
        whole, known = await self.own(), sum((each.cost_usd or Decimal(0) for each in by_model.values()), Decimal(0))
        open_ones = [key for key, each in by_model.items() if each.lacks_cost]
        if whole.cost_usd is not None and whole.cost_usd > known and open_ones:
            own = (by_model[open_ones[-1]].cost_usd or Decimal(0)) + whole.cost_usd - known
            last = by_model[open_ones[-1]]
            by_model[open_ones[-1]] = replace(last, cost_usd=own, cost_is_partial=whole.cost_is_partial)
        return by_model

    @property
    def _key(self) -> tuple[str, str]:
        return self._clock.now().date().isoformat(), self._model or "unknown"

    def _begin(self, event: str, data: dict[str, Any]) -> None:
        self._settle()

    def _hear_provider(self, event: str, data: dict[str, Any]) -> None:
        if data.get("usage") or not (data.get("status") == "error" or data.get("error")):
            self._settle()
            self._latest = self._read_event(data)
            self._model = model_of(data)

    def _hear_orchestrator(self, event: str, data: dict[str, Any]) -> None:
        if self._latest is None:
            self._model = model_of(data)
        if self._latest is None or not all(_fullness(self._latest)):
            told = self._read_event(data)
            self._latest = told if self._latest is None else max(self._latest, told, key=_fullness)
        self._settle()

    def _settle(self) -> None:
        latest, self._latest = self._latest, None
        if latest is not None:
            key = self._key
            self._by_model[key] = self._by_model.get(key, _NOTHING) + latest
            if not (latest.input_tokens or latest.output_tokens):
                self.silent.add(key[1])
            self._settled += latest

    def _read_event(self, data: Mapping[str, Any]) -> Usage:
        usage, wrong = _read(data.get("usage"))
        provider = str(data.get("provider") or "?")
        if wrong and provider not in self._warned:
            self._warned.add(provider)
            logger.warning("provider '%s' reports an impossible usage; left out: %s", provider, ", ".join(wrong))
        return usage


def bridge_child_cost(
    parent: ModuleCoordinator, spent: Usage | Decimal, session_id: str, *, adds: bool = False
) -> None:
    """Contribute the cost of the child `session_id` to the parent's `session.cost`, for as long as the parent lives.

    A second call for one child replaces the first; with `adds` it is added, as after a resumed child's new meter.
    `spent` includes the child's own children: `UsageMeter.total`.
    """
    usage = spent if isinstance(spent, Usage) else Usage(cost_usd=sum_cost_usd([spent]))
    with _bridging:
        children: _Children | None = parent.get_capability(_CHILDREN)
        if children is None:
            children = _Children()
            parent.register_capability(_CHILDREN, children)
            parent.register_contributor(SESSION_COST, "children", children.contribution)
        children.add(session_id, usage, adds=adds)


class _Children:
    """The usage of one session's children: of each of the last ones, and of those before in one sum."""

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[str, Usage] = {}
        self._before = _NOTHING

    def add(self, session_id: str, usage: Usage, *, adds: bool) -> None:
        """Set the usage of a child, or add to it."""
        known = self._last.pop(session_id, None)
        self.count += known is None
        self._last[session_id] = known + usage if adds and known is not None else usage
        if len(self._last) >= 2 * _SINGLE_CHILDREN:  # many at once: one by one, a sum would take longer than the rest
            earlier = list(islice(self._last, _SINGLE_CHILDREN))
            self._before = sum_usages([self._before, *map(self._last.pop, earlier)])

    @property
    def total(self) -> Usage:
        """The usage of all children."""
        with _bridging:
            return sum_usages([self._before, *self._last.values()])

    def contribution(self) -> dict[str, Any]:
        """Return their cost as a contribution to `session.cost`."""
        return {CHILDREN: self.count, **self.total.to_dict()}


def children_usage(coordinator: ModuleCoordinator) -> Usage:
    """Return the usage of the children bridged to this session."""
    children: _Children | None = coordinator.get_capability(_CHILDREN)
    return children.total if children is not None else _NOTHING


def sum_cost_usd(contributions: Iterable[Any]) -> Decimal | None:
    """Return the sum of contributions to `session.cost` in US dollars; None without any cost.

    A contribution is a mapping or an object with `cost_usd`, or the amount itself. An impossible amount (negative, not
    a number) is left out, with one warning for all.
    """
    amounts: list[Decimal] = []
    wrong: list[str] = []
    for each in contributions:
        value = each.get("cost_usd") if isinstance(each, Mapping) else getattr(each, "cost_usd", each)
        amount = _dollars(value, wrong)
        if amount is not None:
            amounts.append(amount)
    if wrong:
        logger.warning("impossible contributions to %s were left out: %s", SESSION_COST, ", ".join(wrong))
    return sum(amounts, Decimal(0)) if amounts else None


def read_usage(reports: Iterable[Any], whole: Any) -> Usage:
    """Return the usage of one call: by the `reports` of its provider, or by the orchestrator if that is fuller."""
    known = [_read(each)[0] for each in reports]
    told = [_read(whole)[0]] if whole else []
    return max([sum_usages(known), *told], key=_fullness)


def model_of(data: Mapping[str, Any]) -> str:
    """Return the model in the data of an event as `provider/model`; '' if it names neither."""
    provider, model = data.get("provider"), data.get("model")
    return f"{provider}/{model}" if provider and model else str(provider or model or "")


def _fullness(usage: Usage) -> tuple[bool, bool]:
    return usage.cost_usd is not None, usage.input_tokens + usage.output_tokens > 0


def _read(said: Any) -> tuple[Usage, list[str]]:
    """Return the usage of one request, and its impossible values in words."""
    dump = getattr(said, "model_dump", None)
    data = dump() if callable(dump) else said
    wrong: list[str] = []
    if type(data) is not dict and not isinstance(data, Mapping):  # a dict is told from others in a tenth of the time
        return Usage(requests=1), [] if data is None else [f"usage={_shorten(data)}"]
    tokens = []
    for name, short in _TOKENS:
        value = data.get(name, data.get(short))
        is_plain = value is None or (type(value) is int and value >= 0)
        tokens.append((value or 0) if is_plain else _count(name, value, wrong))
    cost, requests = _dollars(data.get("cost_usd"), wrong), _count("requests", data.get("requests", 1), wrong)
    partial = data.get("cost_is_partial") is True and cost is not None
    return Usage(tokens[0], tokens[1], tokens[2], tokens[3], cost, requests, partial), wrong


def _count(name: str, value: Any, wrong: list[str]) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        wrong.append(f"{name}={_shorten(value)}")
        return 0
    return int(value)


def _dollars(value: Any, wrong: list[str]) -> Decimal | None:
    if value is None:
        return None
    try:
        amount = Decimal(str(value)) if isinstance(value, (int, float, str, Decimal)) else Decimal("NaN")
    except (ArithmeticError, ValueError):
        amount = Decimal("NaN")
    if isinstance(value, bool) or not amount.is_finite() or not 0 <= amount <= _TOO_MUCH:
        wrong.append(f"cost_usd={_shorten(value)}")
        return None
    return amount


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
