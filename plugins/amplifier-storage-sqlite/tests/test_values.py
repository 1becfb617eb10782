"""Store every kind of message, and refuse values without a stored form."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import SessionNotFound
from amplifier_core.events import SessionEvent
from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite.values import checksum, dumps, loads, message_checksum, micros, moment

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore
    from amplifier_storage_sqlite.values import Column

LONE = "\ud800 and \udcff, as of a file name that is not UTF-8; even \ud83d\ude00 stay two"


def _deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def _looped() -> dict[str, Any]:
    looped: dict[str, Any] = {"list": [1]}
    looped["list"].append(looped)
    return looped


async def test_lone_surrogates_are_returned_as_they_were(store: SqliteStore) -> None:
    await store.create(SessionRecord("s", name=LONE, project=LONE, config={LONE: LONE}))
    await store.append("s", [{"content": LONE}, {LONE: [LONE]}], at=0)
    event = TriggerEvent(TriggerType.FILE_CHANGE, LONE, file_path=LONE, dedupe_key=LONE, data={LONE: 1})
    assert await store.read("s") == [{"content": LONE}, {LONE: [LONE]}]
    [record] = await store.sessions(project=LONE)
    assert (record.name, record.config) == (LONE, {LONE: LONE})
    enqueued = await store.enqueue(LONE, LONE, LONE, event)
    assert enqueued is not None
    assert await store.enqueue(LONE, LONE, LONE, event) is None
    assert [delivery.event for delivery in await store.deliveries(project=LONE, queue=LONE)] == [event]
    logged = await store.emit(SessionEvent(LONE, {"text": LONE}))
    assert await store.events() == [logged]
    with pytest.raises(SessionNotFound):
        await store.get("t")


def test_what_has_a_plain_form_as_text_is_stored_as_that() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    value = {"price": Decimal("1.50"), "when": when, "file": Path("a/b"), "frozen": MappingProxyType({"k": (1, 2)})}
    expected = {"price": "1.50", "when": when.isoformat(), "file": str(Path("a/b")), "frozen": {"k": [1, 2]}}
    assert loads(dumps(value)) == expected


def test_json_is_compact_and_readable() -> None:
    assert dumps({"text": "Größe", "list": [1, 2]}) == '{"text":"Größe","list":[1,2]}'


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([{"x": 1}, {"x": {1, 2}}], r"messages\[1\]\.content\[1\]\.x: set is not JSON"),
        (b"bytes", r"messages\[1\]\.content: bytes is not JSON"),
        (float("nan"), r"messages\[1\]\.content: nan is not JSON"),
        ([1.5, float("-inf")], r"messages\[1\]\.content\[1\]: -inf is not JSON"),
        ({(1, 2): 3}, r"messages\[1\]\.content: a key that is a tuple is not JSON"),
        (MappingProxyType({"k": object()}), r"messages\[1\]\.content\.k: object is not JSON"),
        (_looped(), r"messages\[1\]\.content\.list\[1\]: contains itself"),
        (_deep(100_000), r"messages\[1\]: nested too deeply"),
    ],
    ids=["set", "bytes", "nan", "infinity", "key", "mapping", "loop", "depth"],
)
async def test_what_is_not_json_is_refused_with_its_place(content: object, problem: str, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    with pytest.raises(TypeError, match=problem):
        await store.append("s", [{"content": "good"}, {"content": content}], at=0)
    assert await store.read("s") == []


async def test_a_field_of_another_type_is_refused_with_its_name(store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    with pytest.raises(TypeError, match=r"project: \w+Path is not text"):
        await store.update("s", project=Path("a"))
    with pytest.raises(TypeError, match=r"config\.key: object is not JSON"):
        await store.create(SessionRecord("t", config={"key": object()}))


@pytest.mark.parametrize("field", ["fork_of", "fork_at", "message_count", "updated", "id; --"])
async def test_what_the_store_itself_keeps_cannot_be_changed(field: str, store: SqliteStore) -> None:
    before = await store.create(SessionRecord("s"))
    with pytest.raises(TypeError, match=f"no field '{field}' that can be changed"):
        await store.update("s", **{field: 1})
    assert await store.get("s") == before


def test_times_are_kept_to_the_microsecond_in_any_zone() -> None:
    for when in (
        datetime(2026, 7, 8, 9, 10, 11, 123457, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ):
        assert moment(micros(when)) == when
    for number in (
        0,
        1,
        2**33 * 10**6 - 1,
        2**33 * 10**6,
        *(Random(7).randrange(2**33 * 10**6) for _ in range(10_000)),
    ):
        assert micros(moment(number)) == number
    naive = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - what a plugin may well hand over
    assert moment(micros(naive)) == naive.astimezone()


@pytest.mark.parametrize("body", ["", "ü", b"\xff\0", LONE.encode("utf-8", "surrogatepass"), 7, None])
def test_the_checksum_of_a_message_is_that_of_its_columns(body: Column) -> None:
    assert message_checksum(3, 12, body) == checksum(3, 12, body)


@pytest.mark.parametrize("kind", TriggerType)
async def test_a_trigger_event_is_rebuilt_equal_but_for_its_state(kind: TriggerType, store: SqliteStore) -> None:
    zone = timezone(timedelta(hours=5, minutes=45))
    event = TriggerEvent(kind, "s", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=zone), {"a": [None]}, state={"at": 1})
    await store.enqueue("/p", "queue", "trigger", event)
    [delivery] = await store.deliveries()
    assert delivery.event == replace(event, state=None)
    assert await store.trigger_state("/p", "trigger") == {"at": 1}
    assert delivery.event.timestamp.isoformat() == event.timestamp.isoformat()


async def test_a_configuration_is_decoded_at_its_first_use_and_is_then_the_callers_own(store: SqliteStore) -> None:
    config = {"session": {"deep": [1, None]}, "text": "ü"}
    await store.create(SessionRecord("s", config=config))
    first, second = await store.get("s"), await store.get("s")
    assert first.config == config
    assert (dict(first.config), len(first.config), repr(first.config)) == (config, 2, repr(config))
    first.config["session"]["deep"].append(2)
    assert second.config == config
    assert asdict(second)["config"] == config
    await store.create(SessionRecord("again", config=second.config))
    assert (await store.get("again")).config == config
