"""Reading text from a file, in pieces of a bounded size."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, BinaryIO

from .failures import Failure, InvalidInput

if TYPE_CHECKING:
    from .folder import Folder

HEAD = 8192
"""Bytes at the beginning of a file that tell whether it is binary: a NUL among them says so, as in git."""
_CHUNK = 64 * 1024


def read_text(folder: Folder, given: str, offset: int, limit: int | None, max_bytes: int) -> tuple[dict[str, Any], int]:
    """Return `limit` lines from line `offset` on (counted from 1) and how many bytes they are.

    At most `max_bytes` are returned, cut after a line where there is one to cut after; `truncated` says that the file
    goes on. Bytes that are no UTF-8 are replaced, and `invalid_utf8` says so.
    """
    place = folder.locate(given)
    with folder.open_file(place) as stream:
        if is_binary(stream):
            raise Failure("BinaryFile", f"{place} is a binary file; only text can be read")
        _skip_lines(stream, offset - 1)
        data, truncated = _cut(stream.read(max_bytes + 1), limit, max_bytes)
    if offset > 1 and not data:
        raise InvalidInput(f"offset {offset} is past the end of {place}")
    text, invalid = _decode(data, whole=not truncated)
    output = {"file_path": str(place), "content": text, "lines": _count_lines(text), "truncated": truncated}
    return output | ({"invalid_utf8": True} if invalid else {}), len(data)


def is_binary(stream: BinaryIO) -> bool:
    """Say whether the file is binary, and go back to its beginning."""
    head = stream.read(HEAD)
    stream.seek(0)
    return b"\0" in head


def _skip_lines(stream: BinaryIO, count: int) -> None:
    """Stand after `count` lines, or at the end; lines of any length cost no memory."""
    position = 0
    while count and (chunk := stream.read(_CHUNK)):
        start = 0
        while count and (end := chunk.find(b"\n", start)) >= 0:
            start, count = end + 1, count - 1
        position += len(chunk) if count else start
    stream.seek(position)


def _cut(data: bytes, limit: int | None, max_bytes: int) -> tuple[bytes, bool]:
    truncated = len(data) > max_bytes
    if truncated:
        data = data[: data.rfind(b"\n", 0, max_bytes) + 1 or max_bytes]
    lines = data.split(b"\n", limit) if limit is not None else []
    if limit is not None and len(lines) > limit and lines[-1]:
        return data[: len(data) - len(lines[-1])], True
    return data, truncated


def _decode(data: bytes, *, whole: bool) -> tuple[str, bool]:
    """Return the text and whether bytes were replaced; a character that a cut tore apart is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=whole), False
    except UnicodeDecodeError:
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=whole), True


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and text != "")
