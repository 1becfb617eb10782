"""Make all texts of a request or of an answer such as UTF-8 can hold."""

from __future__ import annotations

from typing import TypeVar, cast

from pydantic import BaseModel

T = TypeVar("T")


def well_formed(value: T) -> T:
    """Return a request, an answer or a part of one; a copy with U+FFFD for each half of a surrogate pair, if any.

    The name of a file, a piped text or an answer of a model may have them. A pair in two halves becomes its character.
    """
    return cast("T", _mend(value))


def _mend(value: object) -> object:
    """Return the same object where nothing is to do: a long history is walked for each request."""
    if isinstance(value, str):
        return value if value.isascii() else _mend_text(value)
    if isinstance(value, BaseModel):
        members = {**vars(value), **(value.model_extra or {})}
        changes = {name: mended for name, each in members.items() if (mended := _mend(each)) is not each}
        return value.model_copy(update=changes) if changes else value
    if isinstance(value, dict):
        pairs = [(_mend(key), _mend(each)) for key, each in value.items()]
        is_same = all(key is old and each is value[old] for (key, each), old in zip(pairs, value, strict=True))
        return value if is_same else dict(pairs)
    if isinstance(value, list):
        items = [_mend(each) for each in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _mend_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
