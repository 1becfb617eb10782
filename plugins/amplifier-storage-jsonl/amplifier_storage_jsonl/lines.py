"""Write a line: a JSON object followed by a checksum, invisible to readers of JSON.

The checksum is the CRC-32 of the object's bytes, written as 32 blanks: a space for 0, a tab for 1. JSON allows blanks
after a value, so every tool can read the object. A tool rewriting the line drops the blanks; the line then counts as
unchecked. A member of the object would survive such a rewrite, and be wrong after any change.

In lines appended together, each but the last has its blanks inverted: a tab for 0, a space for 1. So a file cut between
two of them by a crash is told from a complete one.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from amplifier_core.json_values import to_json

BLANKS = 32
_AS_BLANKS = bytes.maketrans(b"01", b" \t")
_AS_DIGITS = bytes.maketrans(b" \t", b"01")
_TURNED = 0xFFFFFFFF
# ends of a line to `str.splitlines`, but plain characters to JSON
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})
_decoded = json.JSONDecoder().raw_decode  # `json.loads` without its support for bytes, other classes and blanks


def dumps(value: object, where: str, indent: int | None = None) -> bytes:
    """Return `value` as JSON. Raises `TypeError`, naming the place below `where`, for a value without a JSON form."""
    text = to_json(value, where, indent)
    if text.isascii():
        return text.encode()
    try:
        return text.translate(_LINE_ENDS).encode() if any(end in text for end in "\x85\u2028\u2029") else text.encode()
    except UnicodeEncodeError:  # lone surrogates, from a file name outside UTF-8, become \ud800
        return "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text).encode()


def loads(line: bytes) -> dict[str, Any]:
    """Return the object of a line. Raises `ValueError` unless it is complete and unchanged."""
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
    """Return whether `loads` would succeed, without parsing a line with a checksum."""
    body, blanks = split(line)
    if blanks:
        return _belongs(blanks, body)
    try:
        loads(line)
    except ValueError:
        return False
    return True


def seal(body: bytes) -> bytes:
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
    """Return the blanks for `body`, inverted if another line of the same append follows."""
    return format(crc32(body) ^ (_TURNED if followed else 0), "032b").encode().translate(_AS_BLANKS)


def _belongs(blanks: bytes, body: bytes) -> bool:
    return int(blanks.translate(_AS_DIGITS), 2) ^ crc32(body) in (0, _TURNED)
