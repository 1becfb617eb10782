"""Keep sessions within their budgets in US dollars, tokens, turns and seconds.

A bundle sets the budget of each session alone (`session: {budget: …}`), of each session with those below it (`spawn:
{budget: …}`, or in dollars `max_cost_usd`), of all its sessions together (`budget:`), and of a background session. The
usage is known after the answer of a model: a request may begin within a budget and end beyond it, and the next one is
denied. What was used is read from the store, so no restart, resume or fork resets it. A request without a known price
costs nothing that is known: it does not count in dollars, and a warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.durations import seconds_of
from amplifier_core.errors import BudgetExceeded
from amplifier_core.events import LLM_RESPONSE, PROVIDER_REQUEST, PROVIDER_RESPONSE
from amplifier_core.frozen import frozen

from ..sessions.accounts import Account
from ..sessions.costs import USAGE, read_spent
from ..sessions.ledger import LEDGER, Ledger, OpenLedger, Spending, day_of
from ..sessions.uncounted import COUNTED, counted
from ..sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStore

    from ..sessions.recording import SessionRecorder
    from ..sessions.usage import UsageMeter

logger = logging.getLogger(__name__)

MAX_COST, BUDGET = "max_cost_usd", "budget"
FINISH_REASON = "budget"
"""In the data of a denial: the loop ends its turn with it."""
_AFTER_METER = -999_999


@frozen
class Limits:
    """The limits of a budget by their units; `per_day`: for the usage of one day in UTC."""

    amounts: Mapping[str, Decimal]
    per_day: bool = False

    @classmethod
    def of(cls, section: Any) -> Self | None:
        """Return the limits of a mapping such as `{usd: 5, per: day}`; None without an amount."""
        if section is None:
            return None
        amounts = {}
        for unit in ("usd", "tokens", "turns", "seconds") if isinstance(section, Mapping) else ():
            limit = section.get(unit)
            limit = seconds_of(limit) if unit == "seconds" and isinstance(limit, str) else limit
            if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0:
                amounts[unit] = Decimal(f"{limit:g}" if limit == int(limit) and limit < 1e6 else str(limit))
        return cls(amounts, section.get("per") == "day") if amounts else None

    def exceeded(self, spent: Spending, *, begins_turn: bool) -> tuple[str, Decimal, Decimal] | None:
        """Return the unit, the limit and the amount of the first limit reached; turns limit only the next turn."""
        used = {
            "usd": spent.usage.cost_usd or Decimal(0),
            "tokens": Decimal(spent.usage.input_tokens + spent.usage.output_tokens),
            "turns": Decimal(spent.turns),
            "seconds": Decimal(f"{spent.seconds:.1f}"),
        }
        for unit, limit in self.amounts.items():
            if used[unit] >= limit and (unit != "turns" or begins_turn):
                return unit, limit, used[unit]
        return None


class Budget:
    """One budget: its limits, and the sessions that share it.

    `scope` and `key` are as in `BudgetExceeded`. `account` has the stored sessions; None: the session alone. With
    `is_shared`, sessions outside of this process may be charged to the account meanwhile.
    """

    def __init__(
        self,
        limits: Limits,
        scope: str,
        key: str,
        account: Account | None = None,
        *,
        since: datetime | None = None,
        is_shared: bool = False,
    ) -> None:
        self.limits = limits
        self.scope = scope
        self._key = key
        self._account = account
        self._since = since
        self._is_shared = is_shared
        self._is_read = False
        self._open: dict[str, tuple[OpenLedger, bool]] = {}

    @classmethod
    def of_tree(cls, section: Mapping[str, Any], account: str, since: datetime | None = None) -> list[Self]:
        """Return the budgets of a bundle's section `spawn`."""
        found = {MAX_COST: Limits.of({"usd": section.get(MAX_COST)}), BUDGET: Limits.of(section.get(BUDGET))}
        keys = {MAX_COST: "spawn: {max_cost_usd: …}", BUDGET: "spawn: {budget: {…}}"}
        return [
            cls(limits, "tree", keys[name], Account(account), since=since)
            for name, limits in found.items()
            if limits is not None
        ]

    def copy(self) -> Budget:
        """Return the same budget for another tree; it reads the store by itself from here on."""
        account = self._account.copy() if self._account is not None else None
        return Budget(self.limits, self.scope, self._key, account, since=self._since, is_shared=self._is_shared)

    def begin(self, session_id: str, ledger: OpenLedger, *, is_top: bool) -> None:
        """Count an open session; `is_top` is the one at the top of its tree."""
        self._open[session_id] = ledger, is_top

    def end(self, session_id: str, ledger: Ledger) -> None:
        """Count the ledger of a session at its end."""
        _, is_top = self._open.pop(session_id, (None, False))
        if self._account is not None:
            if not is_top:
                ledger.drop_seconds()
            self._account.put(session_id, ledger)

    async def read(self, store: SessionStore | None, now: datetime) -> Ledger:
        """Return everything charged to the budget so far."""
        whole = Ledger()
        if self._account is not None:
            if store is not None and (self._is_shared or not self._is_read):
                yesterday = now - timedelta(days=2) if self.limits.per_day else None
                since = max(filter(None, (self._since, yesterday)), default=None)
                await self._account.refresh(store, now, since)
                self._is_read = True
            if self.limits.per_day:
                self._account.begin_day(day_of(now))
            whole = self._account.total_without(self._open)
        for open_ledger, is_top in list(self._open.values()):
            ledger = await open_ledger.read()
            if not is_top:
                ledger.drop_seconds()
            whole.add(ledger)
            if self.scope == "session":
                whole.add(open_ledger.inherited)
            elif self.scope == "tree" and is_top:
                whole.add(open_ledger.tree_inherited)
        return whole

    async def find_denial(
        self, session_id: str, store: SessionStore | None, now: datetime, *, begins_turn: bool = True
    ) -> BudgetExceeded | None:
        """Return the reason to begin no request, None within the budget."""
        whole = await self.read(store, now)
        spent = whole.sum(day_of(now) if self.limits.per_day else None)
        exceeded = self.limits.exceeded(spent, begins_turn=begins_turn)
        if exceeded is None:
            return None
        unit, limit, amount = exceeded
        until = next_day(now) if self.limits.per_day else None
        return BudgetExceeded(session_id, limit, amount, unit=unit, scope=self.scope, key=self._key, until=until)


def next_day(now: datetime) -> datetime:
    """Return the next midnight in UTC."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=1)


class BudgetGuard:
    """Keeps the ledger of one open session, and denies its requests once one of its budgets is spent.

    With a budget, the ledger is durable after each answer; without one, at the end of each turn, and a killed turn is
    counted by its stored answers (`sessions.uncounted`). Without a budget and without a store nobody reads it.
    """

    def __init__(
        self,
        session: AmplifierSession,
        meter: UsageMeter,
        metadata: Mapping[str, Any],
        shared: Sequence[Budget],
        *,
        store: SessionStore | None = None,
        recorder: SessionRecorder | None = None,
        clock: Clock | None = None,
        is_top: bool = False,
    ) -> None:
        self.ledger = OpenLedger(metadata, meter, clock)
        self._session_id = session.session_id
        self._meter = meter
        self._used_before = read_spent(metadata).usage or Usage()
        self._store = store
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._denial: BudgetExceeded | None = None
        self._saved: list[Any] = []
        self._unknown: set[str] = set()
        alone = Limits.of(session.config["session"].get(BUDGET))
        own = [Budget(alone, "session", "session: {budget: {…}}")] if alone is not None else []
        self._budgets = [*own, *shared]
        for budget in self._budgets:
            budget.begin(self._session_id, self.ledger, is_top=is_top or budget in own)
        if self._budgets:
            register = session.coordinator.hooks.register
            register(PROVIDER_REQUEST, self._check_request, _AFTER_METER, "budget")
            register(LLM_RESPONSE, self._save, _AFTER_METER, "budget")
            register(PROVIDER_RESPONSE, self._save, _AFTER_METER, "budget")

    async def _check_request(self, event: str, data: dict[str, Any]) -> Any:
        for budget in self._budgets:
            denial = await budget.find_denial(
                self._session_id, self._store, self._clock.now(), begins_turn=self.ledger.begins_turn
            )
            if denial is not None:
                from amplifier_core.models import HookResult

                self._denial, self.ledger.is_denied = denial, True
                return HookResult(action="deny", reason=str(denial), data={**data, "finish_reason": FINISH_REASON})
        self.ledger.count_turn()
        return None

    async def _save(self, event: str, data: dict[str, Any]) -> None:
        """Store the ledger after an answer, when it has changed: the next kill does not reset it."""
        if self._recorder is None:
            return
        ledger = await self.ledger.read()
        entries = list(ledger.entries())
        if entries != self._saved:
            self._saved = entries
            try:
                usage = self._used_before + await self._meter.total()
                changes = {LEDGER: ledger.to_dict(), USAGE: usage.to_dict(), COUNTED: None}
                await self._recorder.metadata.write(**changes)
            except Exception as error:
                self._recorder.fail(error)

    async def end_turn(self) -> dict[str, Any]:
        """End a turn; return the members for the metadata of the record with the ledger, {} if nobody reads it."""
        if self._store is None and not self._budgets:
            return {}
        self.ledger.end_turn()
        ledger = await self.ledger.read()
        units = {unit for budget in self._budgets for unit in budget.limits.amounts}
        if units & {"usd", "tokens"}:
            self._warn_of_unknown(ledger, units)
        stored = self._recorder.stored if self._recorder is not None else None
        return {LEDGER: ledger.to_dict(), COUNTED: counted(stored, ledger)}

    def _warn_of_unknown(self, ledger: Ledger, units: set[str]) -> None:
        used: dict[str, Usage] = {}
        for each in ledger.entries():
            used[each.model] = used.get(each.model, Usage()) + each.usage
        fresh = {model: usage for model, usage in used.items() if model not in self._unknown}
        silent = [
            model
            for model, usage in fresh.items()
            if (model in self._meter.silent or (usage.requests and not usage.input_tokens))
            and (usage.lacks_cost or "tokens" in units)
        ]
        unpriced = [model for model, usage in fresh.items() if usage.lacks_cost and "usd" in units]
        self._unknown |= {*silent, *unpriced}
        if silent:
            logger.warning(
                "session %s has a budget in %s, and %s reports no tokens of a request: such requests do not count. "
                "Limit 'turns' or 'seconds', too",
                self._session_id,
                " and ".join(sorted(units & {"usd", "tokens"})),
                ", ".join(sorted(silent)),
            )
        if unpriced := sorted({*unpriced} - {*silent}):
            logger.warning(
                "session %s has a budget in US dollars, and the price of %s is unknown: its requests do not count in "
                "dollars. Limit 'tokens', too",
                self._session_id,
                ", ".join(unpriced),
            )

    def raise_denial(self) -> None:
        """Raise `BudgetExceeded` when a request was denied since the last call."""
        denial, self._denial = self._denial, None
        if denial is not None:
            raise denial

    async def end(self) -> None:
        """Settle the ledger of the session at its end."""
        if not self._budgets:
            return
        ledger = await self.ledger.read()
        for budget in self._budgets:
            budget.end(self._session_id, ledger.copy())
