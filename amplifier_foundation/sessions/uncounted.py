"""Count the answers of a turn whose process was killed: each stored answer tells what it has used.

The ledger and the usage of a session are in its record from the end of a turn on; with a budget, from each answer on.
The answers themselves are durable before: a killed turn leaves some that the record does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionNotFound, StoreError

from .costs import USAGE, read_spent
from .ledger import LEDGER, Ledger, day_of
from .runs import is_run
from .usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.storage import SessionRecord, SessionStore

COUNTED = "counted"
"""The member of a record's metadata: the number of its messages that its ledger and its usage count, and the number of
requests in that ledger.

Without it they count all messages, unless the first turn has not ended: then none but those of the source of a fork.
A ledger with another number of requests has gone on without this member, and counts all messages.
"""


def counted(messages: int | None, ledger: Ledger | None = None) -> list[int] | None:
    """Return the member beside a ledger that counts so many stored messages; None if their number is unknown."""
    return None if messages is None else [messages, ledger.sum().usage.requests if ledger is not None else 0]


async def count_answers(store: SessionStore, record: SessionRecord) -> SessionRecord:
    """Return a record with the usage of the answers that it does not count yet. Raises the errors of the store."""
    start = _counted_length(record)
    if start >= record.message_count:
        return record
    ledger, usage = Ledger.of(record.metadata), Usage()
    for message in await store.read(record.session_id, start, record.message_count):
        about = message.get("metadata")
        spent = read_spent(about).usage if isinstance(about, Mapping) else None
        if spent is not None and isinstance(about, Mapping):
            usage += spent
            day = str(about.get("timestamp") or day_of(record.updated))[: len("2026-11-22")]
            ledger.add_usage(day, str(about.get("model") or "unknown"), spent)
    if not usage.requests:
        return record
    usage += read_spent(record.metadata).usage or Usage()
    changes = {USAGE: usage.to_dict(), LEDGER: ledger.to_dict(), COUNTED: counted(record.message_count, ledger)}
    return replace(record, metadata={**record.metadata, **changes})


async def resumed_record(store: SessionStore, record: SessionRecord) -> SessionRecord:
    """Return the record of a session that goes on: all its messages are counted from now on."""
    record = await count_answers(store, record)
    known = counted(record.message_count, Ledger.of(record.metadata))
    return replace(record, metadata={**record.metadata, COUNTED: known})


async def count_all(store: SessionStore, records: Iterable[SessionRecord]) -> list[SessionRecord]:
    """Return records as `count_answers` does; one that cannot be read, or is deleted meanwhile, stays as it is."""
    counted = []
    for record in records:
        counted.append(record)
        with suppress(StoreError, SessionNotFound):
            counted[-1] = await count_answers(store, record)
    return counted


def _counted_length(record: SessionRecord) -> int:
    at, metadata = record.metadata.get(COUNTED), record.metadata
    if isinstance(at, list):
        if isinstance(at[0], int) and at[0] >= record.message_count:
            return record.message_count  # without a look at the ledger: nearly every session
        return at[0] if at == counted(at[0], Ledger.of(metadata)) else record.message_count
    is_first = record.status == "running" and LEDGER not in metadata and USAGE not in metadata
    return record.fork_at or 0 if is_first and not is_run(record) else record.message_count
