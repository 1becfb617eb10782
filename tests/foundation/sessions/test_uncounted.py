"""The answers of a killed turn count once, whatever versions of the program have had the session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.costs import spent_of
from amplifier_foundation.sessions.ledger import LEDGER, Ledger
from amplifier_foundation.sessions.uncounted import COUNTED, count_answers, counted
from amplifier_foundation.sessions.usage import Usage
from amplifier_storage_sqlite import open_sqlite

ONE = Usage(requests=1, input_tokens=10)


@pytest.mark.parametrize(
    ("known", "requests"),
    [
        ([2, 1], 2),  # killed in its second turn
        ([2, 0], 1),  # an older version has ended the second turn: its ledger has gone on
        (2, 1),
        (None, 1),
    ],
)
async def test_a_ledger_that_has_gone_on_counts_everything(known: object, requests: int, tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.add_usage("2026-01-01", "m", ONE)
    store = open_sqlite({"folder": tmp_path})
    metadata = {LEDGER: ledger.to_dict(), "usage": ONE.to_dict(), COUNTED: known}
    await store.create(SessionRecord("s", status="running", metadata=metadata))
    answer = {"role": "assistant", "content": "hi", "metadata": {"usage": ONE.to_dict(), "model": "m"}}
    await store.append("s", [{"role": "user", "content": "hi"}, answer] * 2, at=0)
    record = await count_answers(store, await store.get("s"))
    spent = spent_of(record).usage
    assert spent is not None
    assert (spent.requests, Ledger.of(record.metadata).sum().usage.requests) == (requests, requests)
    assert await count_answers(store, replace(record)) == record
    await store.close()


def test_what_is_stored_at_the_end_alone_has_no_member() -> None:
    assert counted(None) is None
    assert counted(3) == [3, 0]
