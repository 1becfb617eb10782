"""Convert values to columns: text, times in microseconds, JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zlib import crc32

from amplifier_core.json_values import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = 2**33 * 1_000_000
"""Microseconds; a float of seconds below this, in the year 2242, is less than half a microsecond off."""

_decode = json.JSONDecoder().decode  # without the look of `json.loads` at its options

Column = str | bytes | int | None


def micros(moment: datetime) -> int:
    """Return microseconds since 1970, UTC; a naive time is the machine's local one."""
    return ((moment if moment.tzinfo is UTC else moment.astimezone(UTC)) - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Return the time, in UTC."""
    if 0 <= micros < _EXACT:  # a quarter of the cost: lists read some of each row
        return datetime.fromtimestamp(micros / 1_000_000, UTC)
    return _EPOCH + timedelta(microseconds=micros)


def plain(value: object, where: str = "value") -> Column:
    """Return text, a whole number or None as a column. Raises `TypeError` for anything else.

    Text with lone surrogates (from a file name outside UTF-8) has no UTF-8 form: it becomes bytes.
    """
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{where}: {type(value).__name__} is not text")
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def unplain(column: Any) -> Any:
    """Return the value given to `plain`."""
    return column.decode("utf-8", "surrogatepass") if isinstance(column, bytes) else column


def checksum(*columns: Column) -> int:
    """Return a checksum of columns as stored: SQLite itself does not notice a flipped bit."""
    return crc32(join_columns(columns))


def join_columns(columns: Sequence[Column]) -> bytes:
    """Return the bytes under the checksum of columns."""
    if bytes in map(type, columns):
        return b"\0".join([each if isinstance(each, bytes) else str(each).encode() for each in columns])
    return "\0".join(map(str, columns)).encode()


def message_checksum(history: int, position: int, body: Column) -> int:
    """Return `checksum` of these three columns, at half of its cost."""
    place = crc32(b"%d\0%d\0" % (history, position))
    return crc32(body if isinstance(body, bytes) else str(body).encode(), place)


def dumps(value: object, where: str = "value") -> Column:
    """Return `value` as compact JSON. Raises `TypeError`, naming the place below `where`, for a value without a JSON
    form.
    """
    return "{}" if value == {} else plain(to_json(value, where), where)


def loads(column: Any) -> Any:
    """Return the value given to `dumps`. Raises `ValueError` for damaged JSON."""
    return {} if column == "{}" else _decode(unplain(column))


def field_of(column: Any, name: str) -> Column:
    """Return a text member of a JSON column, None for a missing member or damaged JSON."""
    try:
        value = loads(column).get(name)
    except (ValueError, AttributeError):
        return None
    return plain(value) if isinstance(value, str) else None


def without_field(column: Any, name: str) -> Column:
    """Return a JSON column without a member; damaged JSON stays unchanged."""
    try:
        return dumps({key: value for key, value in loads(column).items() if key != name})
    except (ValueError, AttributeError):
        return column  # type: ignore[no-any-return]  # whatever SQLite holds there
