"""Recognise whole images: a model refuses a damaged one, and each later request with it in the history."""

from __future__ import annotations


def find_image_type(data: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP image that goes on to its end; None for anything else.

    The pixels are not read.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png" if _ends_png(data) else None
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg" if _ends_jpeg(data) else None
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif" if _ends_gif(data) else None
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return "image/webp" if is_webp and len(data) >= 8 + int.from_bytes(data[4:8], "little") else None


def _ends_png(data: bytes) -> bool:
    """Go from chunk to chunk to the last one."""
    at = 8
    while (kind := data[at + 4 : at + 8]) != b"IEND":
        if len(kind) < 4:
            return False
        at += 12 + int.from_bytes(data[at : at + 4])
    return len(data) >= at + 12


def _ends_jpeg(data: bytes) -> bool:
    """Go from segment to segment to the pixels, past a preview with an end of its own."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if kind == 0xDA:
            return data.find(b"\xff\xd9", at) > 0
        at += 1 if kind == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4])
    return False


def _ends_gif(data: bytes) -> bool:
    """Go from block to block to the last one."""
    at = 13 + (_count_colours(data[10]) if len(data) > 10 else 0)
    while (kind := data[at : at + 1]) in (b"!", b","):
        flags = data[at + 9 : at + 10]
        at += 2 if kind == b"!" else 11 + (_count_colours(flags[0]) if flags else 0)
        while (size := data[at : at + 1]) not in (b"", b"\0"):
            at += 1 + size[0]
        at += 1
    return kind == b";"


def _count_colours(flags: int) -> int:
    """Return the bytes of a table of colours."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
