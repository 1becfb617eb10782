"""Convert values to columns: text, times in microseconds, JSON.

PostgreSQL's text has neither NUL nor lone surrogates. They are escaped as U+001A and four hexadecimal digits.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zlib import crc32

from amplifier_core.json_values import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_ESCAPED = re.compile("[\0\x1a\ud800-\udfff]")
_ESCAPE = re.compile("\x1a([0-9a-f]{4})")

Column = str | int | None


def micros(moment: datetime) -> int:
    """Return microseconds since 1970, UTC; a naive time is the machine's local one."""
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Return the time, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def plain(value: object, where: str = "value") -> Column:
    """Return text, a whole number or None as a column. Raises `TypeError` for anything else."""
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{where}: {type(value).__name__} is not text")
    return escape(value)


def escape(text: str) -> str:
    """Return text as PostgreSQL can keep it."""
    if text.isascii() and "\0" not in text and "\x1a" not in text:
        return text
    return _ESCAPED.sub(lambda found: f"\x1a{ord(found[0]):04x}", text)


def unplain(column: Any) -> Any:
    """Return the value given to `plain`."""
    if isinstance(column, str) and "\x1a" in column:
        return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), column)
    return column


def checksum(*columns: Column) -> int:
    """Return a checksum of columns as stored."""
    return crc32("\0".join(map(str, columns)).encode())


def dumps(value: object, where: str = "value") -> str:
    """Return `value` as compact JSON. Raises `TypeError`, naming the place below `where`, for a value without a JSON
    form.
    """
    return escape(to_json(value, where))


def loads(column: Any) -> Any:
    """Return the value given to `dumps`. Raises `ValueError` for damaged JSON."""
    return {} if column == "{}" else json.loads(unplain(column))


def arguments(values: Mapping[str, Any]) -> str:
    """Return the arguments of a function of the database, as JSON; their texts are columns already."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
