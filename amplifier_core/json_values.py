"""Write Python's plain values as JSON text, and name the place of any other value; read an object when it is used."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from math import isfinite
from pathlib import PurePath
from typing import Any


def to_json(value: object, where: str = "value", indent: int | None = None) -> str:
    """Return `value` as JSON, compact without `indent`; `Decimal`, `datetime` and paths become text, tuples lists.

    Raises `TypeError` for any other value, also for NaN and infinity, naming its place below `where`.
    """
    encoder = _COMPACT if indent is None else _encoder(indent)
    try:
        return encoder.encode(value)
    except (TypeError, ValueError) as error:
        place, reason = next(_culprits(value, where), (where, str(error)))
        raise TypeError(f"{place}: {reason}") from None
    except RecursionError:
        raise TypeError(f"{where}: nested too deeply") from None


class LateJson(Mapping[str, Any]):
    """An object that `read` makes of its text at the first use: a list of ten thousand records needs few of theirs."""

    __slots__ = ("_read", "_text", "_value")

    def __init__(self, read: Callable[[Any], dict[str, Any]], text: Any) -> None:
        self._read = read
        self._text = text
        self._value: dict[str, Any] | None = None

    def _get(self) -> dict[str, Any]:
        if self._value is None:
            self._value, self._text = self._read(self._text), None
        return self._value

    def __getitem__(self, key: str) -> Any:
        return self._get()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())

    def __repr__(self) -> str:
        return repr(self._get())

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return deepcopy(self._get(), memo)


def _as_json(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath) or _is_decimal(value):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _is_decimal(value: object) -> bool:
    decimal = sys.modules.get("decimal")  # not imported here: without it there is no such value
    return decimal is not None and isinstance(value, decimal.Decimal)


def _encoder(indent: int | None) -> json.JSONEncoder:
    separators = (",", ":") if indent is None else (",", ": ")
    return json.JSONEncoder(ensure_ascii=False, separators=separators, indent=indent, allow_nan=False, default=_as_json)


_COMPACT = _encoder(None)  # made once: that takes as long as a short message


def _culprits(value: object, where: str, above: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield (place, reason) of each part without a JSON form, in the order of the encoder."""
    if id(value) in above:
        yield where, "contains itself"
    elif isinstance(value, Mapping):
        yield from _culprits_in_mapping(value, where, (*above, id(value)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _culprits(item, f"{where}[{index}]", (*above, id(value)))
    elif isinstance(value, float) and not isfinite(value):
        yield where, f"{value} is not JSON"
    elif not isinstance(value, (str, int, float, datetime, PurePath, type(None))) and not _is_decimal(value):
        yield where, f"{type(value).__name__} is not JSON"


def _culprits_in_mapping(value: Mapping[Any, Any], where: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if not isinstance(key, (str, int, float, type(None))):
            yield where, f"a key that is a {type(key).__name__} is not JSON"
        yield from _culprits(item, f"{where}.{key}", above)
