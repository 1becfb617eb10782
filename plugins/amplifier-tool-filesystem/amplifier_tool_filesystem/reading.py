"""Read text from a file, in pieces of a bounded size."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, BinaryIO

from .failures import FileToolError, InvalidInput

if TYPE_CHECKING:
    from .folder import InnerPath

HEAD = 8192
"""Bytes at the start of a file; a NUL among them means that it is binary, as in git."""
_CHUNK = 64 * 1024
_ESCAPED = '\n\r\t"\\'
_LONGEST = 4
"""Bytes of the longest character in UTF-8."""


def read_lines(
    stream: BinaryIO, path: InnerPath, offset: int, limit: int | None, max_bytes: int
) -> tuple[dict[str, Any], int]:
    """Return lines of an open file as the output of the tool, and their bytes.

    Of more than `max_bytes` as JSON, the whole lines are returned, or else the first bytes; `truncated` if the file
    goes on. A character counts as one byte, as the loops count it. Bytes besides UTF-8 are replaced; `invalid_utf8`
    then.
    """
    invalid = False
    if is_binary(stream):
        raise FileToolError("BinaryFile", f"{path} is a binary file; only text and images can be read")
    _skip_lines(stream, offset - 1)
    data, truncated = _cut_lines(stream.read(_LONGEST * max_bytes + 1), limit, max_bytes)
    if offset > 1 and not data:
        raise InvalidInput(f"offset {offset} is past the end of {path}")
    # an incremental decoder drops a character that the cut tore apart
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=not truncated)
    except UnicodeDecodeError:
        text, invalid = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not truncated), True
    lines = text.count("\n") + (not text.endswith("\n") and text != "")
    output = {"file_path": str(path), "content": text, "lines": lines, "truncated": truncated}
    return output | ({"invalid_utf8": True} if invalid else {}), len(data)


def is_binary(stream: BinaryIO) -> bool:
    """Return whether the file is binary, and go back to its start."""
    head = stream.read(HEAD)
    stream.seek(0)
    return b"\0" in head


def json_size(data: bytes) -> int:
    """Return the characters of a text within JSON: a line end, a tab, a quote or a backslash takes two."""
    return _measure(data.decode("utf-8", "surrogateescape"))


def cut_json(data: bytes, most: int) -> bytes:
    """Return the first bytes of a text that take at most `most` characters within JSON, and one at least."""
    text = data.decode("utf-8", "surrogateescape")
    end, step = 0, 1 << min(len(text), most).bit_length()
    while step := step // 2:  # a part is measured once, not with all before it
        size = _measure(text[end : end + step])
        if size <= most:
            end, most = end + step, most - size
    return text[: max(1, end)].encode("utf-8", "surrogateescape")


def _measure(text: str) -> int:
    # other control characters are no more than one: the kernel leaves them out of a result
    return len(text) + sum(map(text.count, _ESCAPED))


def _skip_lines(stream: BinaryIO, count: int) -> None:
    """Move behind `count` lines, or to the end; lines of any length cost no memory."""
    position = 0
    while count and (chunk := stream.read(_CHUNK)):
        start = 0
        while count and (end := chunk.find(b"\n", start)) >= 0:
            start, count = end + 1, count - 1
        position += len(chunk) if count else start
    stream.seek(position)


def _cut_lines(data: bytes, limit: int | None, max_bytes: int) -> tuple[bytes, bool]:
    """Return the first lines of `data` within both limits, and whether more follows."""
    whole, data = data, cut_json(data, max_bytes)
    truncated = len(data) < len(whole)
    if truncated:
        data = data[: data.rfind(b"\n") + 1 or len(data)]
    limit = None if limit is None else min(limit, len(data) + 1)
    lines = data.split(b"\n", limit) if limit is not None else []
    if limit is not None and len(lines) > limit and lines[-1]:
        return data[: len(data) - len(lines[-1])], True
    return data, truncated
