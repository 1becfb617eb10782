"""What a column holds: text, times in microseconds, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import PurePath
from typing import Any
from zlib import crc32

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
    return crc32(b"\0".join([each if isinstance(each, bytes) else str(each).encode() for each in columns]))


def dumps(value: object, where: str = "value") -> Column:
    """Return `value` as compact JSON; `Decimal`, `datetime` and paths become text, tuples lists, keys text.

    Raises `TypeError`, naming the place below `where`, for what is not JSON; NaN and infinity are not.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_as_json)
    except (TypeError, ValueError) as error:
        place, reason = next(_culprits(value, where), (where, str(error)))
        raise TypeError(f"{place}: {reason}") from None
    except RecursionError:
        raise TypeError(f"{where}: nested too deeply") from None
    return plain(text, where)


def loads(column: Any) -> Any:
    """Return what was given to `dumps`. Raises `ValueError` when it is damaged."""
    return {} if column == "{}" else json.loads(unplain(column))


def _as_json(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (Decimal, PurePath)):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _culprits(value: object, where: str, above: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield (place, reason) of each part that is not JSON, in the order in which the encoder meets them."""
    if id(value) in above:
        yield where, "contains itself"
    elif isinstance(value, Mapping):
        yield from _culprits_in_mapping(value, where, (*above, id(value)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _culprits(item, f"{where}[{index}]", (*above, id(value)))
    elif isinstance(value, float) and not isfinite(value):
        yield where, f"{value} is not JSON"
    elif not isinstance(value, (str, int, float, datetime, Decimal, PurePath, type(None))):
        yield where, f"{type(value).__name__} is not JSON"


def _culprits_in_mapping(value: Mapping[Any, Any], where: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if not isinstance(key, (str, int, float, type(None))):
            yield where, f"a key that is a {type(key).__name__} is not JSON"
        yield from _culprits(item, f"{where}.{key}", above)
