"""What a column holds: text, times in microseconds, and JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from amplifier_core.storable import to_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Column = str | bytes | int | None


def micros(moment: datetime) -> int:
    """Return microseconds since 1970, UTC; a naive time is the machine's local one."""
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Return the time, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def plain(value: object, where: str = "value") -> Column:
    """Return text, a whole number or None as a column holds it. Raises `TypeError` for anything else.

    Text with lone surrogates (a file name that is not UTF-8 has them) cannot be UTF-8: it becomes bytes.
    """
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{where}: {type(value).__name__} is not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def unplain(column: Any) -> Any:
    """Return what was given to `plain`."""
    return column.decode("utf-8", "surrogatepass") if isinstance(column, bytes) else column


def checksum(*columns: Column) -> int:
    """Return a checksum of columns as they lie in their rows: SQLite has none that would tell a flipped bit."""
    if bytes in map(type, columns):
        return crc32(b"\0".join([each if isinstance(each, bytes) else str(each).encode() for each in columns]))
    return crc32("\0".join(map(str, columns)).encode())


def dumps(value: object, where: str = "value") -> Column:
    """Return `value` as compact JSON. Raises `TypeError`, naming the place below `where`, for what is not JSON."""
    return plain(to_json(value, where), where)


def loads(column: Any) -> Any:
    """Return what was given to `dumps`. Raises `ValueError` when it is damaged."""
    return {} if column == "{}" else json.loads(unplain(column))


def field_of(column: Any, name: str) -> Column:
    """Return text within JSON that `dumps` returned, None where there is none or the JSON is damaged."""
    try:
        value = loads(column).get(name)
    except (ValueError, AttributeError):
        return None
    return plain(value) if isinstance(value, str) else None
