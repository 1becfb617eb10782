"""Accounts read what has changed, whatever clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from amplifier_core import SessionRecord
from amplifier_core.testing import MemoryStore
from amplifier_foundation.sessions.accounts import ACCOUNTS, Account
from amplifier_foundation.sessions.ledger import LEDGER, Ledger
from amplifier_foundation.sessions.usage import Usage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Listed(MemoryStore):
    """A store whose sessions have the times that a test gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, SessionRecord] = {}

    def write(self, session_id: str, updated: datetime, turns: int = 1) -> None:
        metadata = {ACCOUNTS: ["queue:q"], LEDGER: {"2026-01-01": {"turns": turns}}}
        self.records[session_id] = SessionRecord(session_id, updated=updated, metadata=metadata)

    async def sessions(self, *, limit: int | None = None, **wanted: Any) -> list[SessionRecord]:
        newest_first = sorted(self.records.values(), key=lambda record: record.updated, reverse=True)
        return newest_first[:limit]


def turns(account: Account) -> int:
    return account.total.sum().turns


async def test_a_session_whose_time_is_to_come_hides_no_other_one() -> None:
    store, account = Listed(), Account("queue:q")
    store.write("ahead", NOON + 60 * MINUTE)
    await account.refresh(store, NOON)
    for number in range(1, 4):
        now = NOON + number * MINUTE
        store.write(f"s{number}", now)
        await account.refresh(store, now)
        assert turns(account) == 1 + number


async def test_after_a_clock_was_set_back_all_is_read_again() -> None:
    store, account = Listed(), Account("queue:q")
    store.write("first", NOON + 60 * MINUTE)
    await account.refresh(store, NOON + 60 * MINUTE)
    store.write("second", NOON + MINUTE)
    store.write("third", NOON + 2 * MINUTE)
    await account.refresh(store, NOON + 3 * MINUTE)
    assert turns(account) == 3


async def test_what_has_not_changed_is_not_read_again() -> None:
    store, account = Listed(), Account("queue:q")
    for number in range(40):
        store.write(f"s{number}", NOON + number * MINUTE)
    await account.refresh(store, NOON + 60 * MINUTE)
    store.write("s0", NOON, turns=9)  # its time is what it was
    store.write("new", NOON + 61 * MINUTE)
    await account.refresh(store, NOON + 61 * MINUTE)
    assert turns(account) == 41


def spent(day: str, turns: int, cost: str | None = None) -> Ledger:
    ledger = Ledger()
    ledger.add_time(day, turns=turns, seconds=0.5)
    ledger.add_usage(day, "model", Usage(input_tokens=10, cost_usd=None if cost is None else Decimal(cost), requests=1))
    return ledger


def test_the_total_has_each_session_once() -> None:
    account = Account("queue:q")
    account.put("a", spent("2026-01-01", 1, "0.10"))
    account.put("b", spent("2026-01-01", 2))
    account.put("a", spent("2026-01-01", 3, "0.30"))
    whole = account.total.sum()
    assert (whole.turns, whole.seconds, whole.usage.input_tokens, whole.usage.cost_usd) == (5, 1.0, 20, Decimal("0.30"))
    other = account.copy()
    other.put("c", spent("2026-01-01", 7))
    assert (account.total.sum().turns, other.total.sum().turns) == (5, 12)
    assert account.total_without(["a", "unknown"]).sum().turns == 2
    assert account.total.sum().turns == 5


def test_a_new_day_forgets_what_ended_before() -> None:
    account = Account("queue:q")
    for number in range(100):
        account.put(f"old-{number}", spent("2026-01-01", 1))
    both = spent("2026-01-01", 1)
    both.add(spent("2026-01-02", 2))
    account.put("both", both)
    account.begin_day("2026-01-02")
    assert (account.total.sum().turns, len(account._ledgers)) == (3, 1)
    account.put("late", spent("2026-01-01", 1))
    account.begin_day("2026-01-02")
    assert account.total.sum("2026-01-02").turns == 2
