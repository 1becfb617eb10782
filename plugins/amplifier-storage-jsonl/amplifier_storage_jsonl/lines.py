"""What a line holds: a JSON object, and after it a checksum that no reader of JSON sees.

The checksum is the CRC-32 of the object's bytes, written as 32 blanks: a space for 0, a tab for 1. JSON allows blanks
after a value, so every tool reads the object as it is; one that writes it anew drops them, and then it counts as not
checked. A member of the object would be handed on by such tools, and be wrong as soon as they change anything.

Of the lines that were appended together, each but the last has its blanks turned over: a tab for 0, a space for 1. So
a file that a crash cut between two of them is known from one that ends where it was meant to.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from amplifier_core.storable import to_json

BLANKS = 32
_AS_BLANKS = bytes.maketrans(b"01", b" \t")
_AS_DIGITS = bytes.maketrans(b" \t", b"01")
_TURNED = 0xFFFFFFFF
# what `str.splitlines` takes for the end of a line, and JSON leaves as it is
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})
_decoded = json.JSONDecoder().raw_decode  # `json.loads` without what it does for bytes, other classes and blanks


def dumps(value: object, where: str, indent: int | None = None) -> bytes:
    """Return `value` as JSON. Raises `TypeError`, naming the place below `where`, for what is not JSON."""
    text = to_json(value, where, indent)
    return text.encode() if text.isascii() else _encoded(text)


def loads(line: bytes) -> dict[str, Any]:
    """Return the object of a line, whole and as it was written. Raises `ValueError` when it is not that."""
    body, blanks = split(line)
    if blanks and not _belongs(blanks, body):
        raise ValueError("its checksum is another")
    try:
        value = _decoded(body.decode())[0] if blanks else json.loads(body.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def is_good(line: bytes) -> bool:
    """Return whether `loads` would succeed; a line with a checksum is not parsed for that."""
    body, blanks = split(line)
    if blanks:
        return _belongs(blanks, body)
    try:
        loads(line)
    except ValueError:
        return False
    return True


def sealed(body: bytes) -> bytes:
    """Return a JSON object with its checksum."""
    return body + checksum(body)


def is_sealed(line: bytes) -> bool:
    """Return whether there is a checksum, right or wrong."""
    return bool(split(line)[1])


def is_followed(line: bytes) -> bool:
    """Return whether a line is good, and was appended together with one after it."""
    body, blanks = split(line)
    return bool(blanks) and blanks == checksum(body, followed=True)


def split(line: bytes) -> tuple[bytes, bytes]:
    """Return (object, checksum); no checksum for a line of another tool."""
    body, blanks = line[:-BLANKS], line[-BLANKS:]
    if body.endswith(b"}") and not blanks.strip(b" \t"):
        return body, blanks
    return line, b""


def checksum(body: bytes, *, followed: bool = False) -> bytes:
    """Return the blanks that belong after `body`, `followed` by another line of the same append or not."""
    return format(crc32(body) ^ (_TURNED if followed else 0), "032b").encode().translate(_AS_BLANKS)


def _belongs(blanks: bytes, body: bytes) -> bool:
    return int(blanks.translate(_AS_DIGITS), 2) ^ crc32(body) in (0, _TURNED)


def _encoded(text: str) -> bytes:
    try:
        return text.translate(_LINE_ENDS).encode() if _has_line_ends(text) else text.encode()
    except UnicodeEncodeError:  # lone surrogates, which are in a file name that is not UTF-8, become \ud800
        return "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text).encode()


def _has_line_ends(text: str) -> bool:
    return any(end in text for end in "\x85\u2028\u2029")
