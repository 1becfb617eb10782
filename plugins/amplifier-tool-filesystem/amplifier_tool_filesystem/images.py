"""Read PNG, JPEG, GIF and WebP images for a model: as bytes, with their width and height."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from .failures import FileToolError

if TYPE_CHECKING:
    from .folder import InnerPath

LONGEST_SIDE = 8_000
"""Pixels: services refuse images with a longer side."""
_HEAD = 32
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The segments of a JPEG that tell its size."""


class Reply(NamedTuple):
    """The output of a call, and the images beside it as content blocks."""

    output: dict[str, Any]
    images: list[dict[str, Any]]


def find_media_type(head: bytes) -> str | None:
    """Return the media type of an image by its first bytes; None for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


def is_image(stream: BinaryIO) -> bool:
    """Return whether the file is an image, and go back to its start."""
    head = stream.read(_HEAD)
    stream.seek(0)
    return find_media_type(head) is not None


def read_image(stream: BinaryIO, path: InnerPath, max_bytes: int) -> tuple[Reply, int]:
    """Return an image and its bytes. Raises `FileToolError` for one that is too large or damaged."""
    data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise FileToolError(
            "FileTooLarge", f"{path} is an image of more than {max_bytes} bytes (max_image_bytes); scale it down first"
        )
    media_type = find_media_type(data) or ""
    size = measure(data, media_type)
    if size is None:
        why = "its size or its end is missing"
        raise FileToolError("BinaryFile", f"{path} begins as {media_type} and is damaged: {why}")
    if max(size) > LONGEST_SIDE:
        raise FileToolError(
            "FileTooLarge",
            f"{path} is {size[0]} x {size[1]} pixels; a side of more than {LONGEST_SIDE} is too long. Scale it down",
        )
    output = {"file_path": str(path), "media_type": media_type, "width": size[0], "height": size[1], "bytes": len(data)}
    return Reply(output, [make_block(media_type, b64encode(data).decode())]), len(data)


def make_block(media_type: str, data: str) -> dict[str, Any]:
    """Return a content block with an image in base64."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def measure(data: bytes, media_type: str) -> tuple[int, int] | None:
    """Return the width and height of an image in pixels; None for a damaged one."""
    read = {"image/png": measure_png, "image/jpeg": measure_jpeg, "image/gif": measure_gif}
    size = read.get(media_type, measure_webp)(data)
    if size is None or min(size) == 0:
        return None
    try:
        from amplifier_core.utils.images import find_image_type
    except ModuleNotFoundError:  # the published kernel does not tell whether an image has its end
        return size
    return size if find_image_type(data) is not None else None


def measure_png(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG; None for a damaged one."""
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def measure_gif(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a GIF; None for a damaged one."""
    return (int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")) if len(data) >= 10 else None


def measure_jpeg(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a JPEG; None for a damaged one."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if kind in _FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 1 if kind == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def measure_webp(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a WebP image; None for a damaged one."""
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and len(data) >= 30:
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None
