"""Read sizes such as `500 MB` as bytes."""

from __future__ import annotations

import re

SIZE_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,3})? ?([kKMGT]i?)?B?$"
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size_of(value: object) -> int:
    """Return the bytes of a whole number, or of text such as `500 MB`, `1.5GB` (powers of 1000) or `2 GiB` (of 1024).

    Raises `ValueError`.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = (
        re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(?:([kKMGT])(i?))?B?", value) if isinstance(value, str) else None
    )
    if found is None:
        raise ValueError("must be a number of bytes, or a size such as 500 MB or 2 GiB")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _UNITS[(unit or "").upper()])
