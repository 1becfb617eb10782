"""Copy everything of a store into another one, page by page, and compare both by digests.

A storage package offers the transfer as the attribute `transfer` of its factory: a function from the factory's
configuration to a `StoreTransfer`. It opens nothing before its first call.

A row is a list of values in the order of the fields asked for. A value is a text (also with lone surrogates and
NULs), a whole number or None; a time is in microseconds since 1970, UTC, and JSON is its text, as it was written. The
kinds and their fields:

    histories        id, source, shared           the history `id` begins with the first `shared` messages of `source`
    messages         history, position, body, fault      the messages of the history itself, so shared ones once;
                     `fault` is 1 for a damaged message, which stays one, else 0
    sessions         those of `SessionRecord`, history, id      sessions are numbered in the order of their making
    cuts             session_id, history, start, stop, cut      messages that `repair` has set aside at the time `cut`
    events           those of `SessionEvent`
    log              last                         the last sequence given out, also of a purged event: one row
    deliveries       those of `Delivery`, dedupe_key, owner, waits, settle_key, settling_since, id
    trigger_states   project, trigger, key, value
    documents        those of `Document`
    searched         project, collection, key, members    what a search looks in, in the order of the changes

A claim ends with the copy: a claimed delivery is exported as pending, with its epoch. `waits` is 1 for a delivery
behind an unfinished one of its key, else 0. A settle key longer than `LONGEST_SETTLE_KEY` is left out.

A store may have more fields, and more kinds after these: only those that both stores keep are copied, and the others
are listed.

Invariant: a copy begins in an empty store. Its state is stored there in the transaction of each page, and removed once
the digests are equal. So a copy goes on after a kill at any moment, and of two copies at once one is refused.
"""

from __future__ import annotations

import json
from dataclasses import field
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from .contracts import Contract
from .errors import StoreConflict
from .frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

Value: TypeAlias = str | int | None
Row: TypeAlias = "Sequence[Value]"
Cursor: TypeAlias = "Sequence[Any] | None"

PAGE_ROWS = 1000
PAGE_BYTES = 4_000_000
"""A page ends with the row that reaches one of these; the second counts characters of texts."""

LONGEST_SETTLE_KEY = 200
"""Characters; the series of a longer one ends with the copy, as a store may keep it shortened."""

_MODULUS = 1 << 256
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Page(NamedTuple):
    """Some rows of a kind; the next page begins after the cursor `after`, which is JSON (None: this is the last)."""

    rows: Sequence[Row]
    after: Cursor


@runtime_checkable
class StoreTransfer(Protocol, metaclass=Contract):
    """Export and import the rows of a store. Every method raises `StoreUnavailable` and `StoreDamaged`."""

    place: str
    """The name of the store in messages, without secrets."""

    def fields(self) -> Mapping[str, Sequence[str]]:
        """Return the fields of each kind; a kind comes after those it refers to."""
        ...

    def users(self) -> Sequence[str]:
        """Return the names of the processes at work in the store, as far as the store itself knows them."""
        ...

    def export_rows(self, kind: str, fields: Sequence[str], after: Cursor = None) -> Page:
        """Return rows after a cursor, in an order that never changes. Changes nothing in the store."""
        ...

    def copy_state(self) -> str | None:
        """Return the state of the copy begun here, None without one."""
        ...

    def is_empty(self) -> bool:
        """Return whether the store has no rows; one that is not there has none."""
        ...

    def import_rows(
        self, kind: str, fields: Sequence[str], rows: Sequence[Row], *, before: str | None, after: str | None
    ) -> None:
        """Add rows and replace the state `before` by `after`, in one transaction; makes a missing store.

        Raises `StoreConflict`, and changes nothing, if the stored state is another one, if there is none and the store
        is not empty, or if a row is there already.
        """
        ...

    def close(self) -> None:
        """Close the store; idempotent."""
        ...


@frozen
class Total:
    """Count the rows of a kind. The digest is the sum of the SHA-256 of its rows."""

    rows: int
    digest: str
    """64 hexadecimal digits; the order of the rows does not count."""


@frozen
class Copied:
    """Describe a finished copy: its totals by kind, and as `KIND.FIELD` the fields that the new store cannot keep."""

    totals: Mapping[str, Total] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    was_there: bool = False
    """Whether the copy was complete before."""


class Progress(NamedTuple):
    """Say how far a copy is: `step` is `read`, `copy` or `compare`; `total` is None while it is unknown."""

    step: str
    kind: str
    rows: int
    total: int | None


Notify: TypeAlias = "Callable[[Progress], None]"


def transfer_of(factory: object, config: Mapping[str, Any]) -> StoreTransfer | None:
    """Return the transfer a storage's factory offers for `config`; None without one."""
    transfer = getattr(factory, "transfer", None)
    return transfer(config) if callable(transfer) else None


def cut_page(rows: Iterable[tuple[Cursor, Row]]) -> Page:
    """Return the first page of rows, each with the cursor after it."""
    taken: list[Row] = []
    size = 0
    for cursor, row in rows:
        taken.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if len(taken) >= PAGE_ROWS or size >= PAGE_BYTES:
            return Page(taken, cursor)
    return Page(taken, None)


def read_pages(source: StoreTransfer, kind: str, fields: Sequence[str], after: Cursor = None) -> Iterator[Page]:
    """Yield the pages of a kind."""
    page = source.export_rows(kind, fields, after)
    while page.after is not None:
        yield page
        page = source.export_rows(kind, fields, page.after)
    yield page


def copy_store(source: StoreTransfer, target: StoreTransfer, notify: Notify = lambda progress: None) -> Copied:
    """Copy everything from `source` into the empty store `target`, or finish such a copy; memory stays flat.

    Nobody may write either store meanwhile. Raises `StoreConflict` when somebody has, when `target` holds anything
    else, and when `source` has changed since the copy began.
    """
    fields, left_out = _match_fields(source.fields(), target.fields())
    if source.copy_state() is not None:
        raise StoreConflict(source.place, "holds an unfinished copy itself. Finish that one first")
    totals = _count(source, fields, "read", notify)
    state = target.copy_state()
    if state is None and not target.is_empty():
        if _count(target, fields, "compare", notify, totals) == totals:
            return Copied(totals, left_out, was_there=True)
        raise StoreConflict(
            target.place, "is not empty, and holds no copy of this store. Move it away, or copy into an empty store"
        )
    state = state or _begin(target, fields, totals)
    if json.loads(state)["source"] != _as_json(totals):
        raise StoreConflict(
            target.place,
            "holds an unfinished copy of another store, or this one has changed since. Move it away, or copy into an "
            "empty store",
        )
    state = _copy_rows(source, target, fields, state, notify)
    if _count(target, fields, "compare", notify, totals) != totals:
        raise StoreConflict(
            target.place,
            f"differs from {source.place}: somebody wrote one of them during the copy. Stop everything that uses them, "
            f"and copy into an empty store",
        )
    target.import_rows(next(iter(fields)), (), (), before=state, after=None)
    return Copied(totals, left_out)


def _match_fields(
    source: Mapping[str, Sequence[str]], target: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """Return the fields of each kind that both stores keep, and those that only the source keeps."""
    fields, left_out = {}, []
    for kind, names in source.items():
        kept = target.get(kind, ())
        left_out += [f"{kind}.{name}" for name in names if name not in kept]
        if kept:
            fields[kind] = [name for name in names if name in kept]
    return fields, tuple(left_out)


def _count(
    store: StoreTransfer,
    fields: Mapping[str, Sequence[str]],
    step: str,
    notify: Notify,
    expected: Mapping[str, Total] | None = None,
) -> dict[str, Total]:
    totals = {}
    for kind, names in fields.items():
        rows = digest = 0
        for page in read_pages(store, kind, names):
            rows += len(page.rows)
            for row in page.rows:
                digest += int.from_bytes(sha256(_encode(row).encode()).digest(), "big")
            notify(Progress(step, kind, rows, expected[kind].rows if expected else None))
        totals[kind] = Total(rows, f"{digest % _MODULUS:064x}")
    return totals


def _as_json(totals: Mapping[str, Total]) -> dict[str, Any]:
    return {kind: [total.rows, total.digest] for kind, total in totals.items()}


def _begin(target: StoreTransfer, fields: Mapping[str, Sequence[str]], totals: Mapping[str, Total]) -> str:
    """Begin a copy in an empty store; return its state."""
    first = next(iter(fields))
    state = _encode({"source": _as_json(totals), "kind": first, "after": None, "rows": 0})
    target.import_rows(first, (), (), before=None, after=state)
    return state


def _copy_rows(
    source: StoreTransfer, target: StoreTransfer, fields: Mapping[str, Sequence[str]], state: str, notify: Notify
) -> str:
    """Copy the pages after the place that the state names; return the last state."""
    place = json.loads(state)
    kinds = [*fields, None]
    for at in range(kinds.index(place["kind"]), len(fields)):
        kind = str(kinds[at])
        for page in read_pages(source, kind, fields[kind], place["after"]):
            place = {**place, "kind": kind, "after": page.after, "rows": place["rows"] + len(page.rows)}
            notify(Progress("copy", kind, place["rows"], place["source"][kind][0]))
            if page.after is None:
                place = {**place, "kind": kinds[at + 1], "rows": 0}
            following = _encode(place)
            target.import_rows(kind, fields[kind], page.rows, before=state, after=following)
            state = following
    return state
