"""Images as a model gets them: small real files of each format, and what is refused."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_tool_filesystem import mount

if TYPE_CHECKING:
    from pathlib import Path


def png(width: int, height: int) -> bytes:
    """Return a whole black image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"".join(b"\0" * (1 + width) for _ in range(height)))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


# Images of 3 x 2 pixels: their parts are as the formats define them, the pixels are not.
GIF = (
    b"GIF89a\x03\x00\x02\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff"
    b",\x00\x00\x00\x00\x03\x00\x02\x00\x00\x02\x02\x44\x01\x00;"
)
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xfe\x00\x04hi"
    b"\xff\xc0\x00\x0b\x08\x00\x02\x00\x03\x01\x01\x11\x00"
    b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x7f\xff\xd9"
)
LOSSLESS = b"RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x02\x40\x00\x00\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
LOSSY = b"RIFF\x24\x00\x00\x00WEBPVP8 \x18\x00\x00\x000\x01\x00\x9d\x01\x2a\x03\x00\x02\x00\x02\x00\x34\x25".ljust(
    44, b"\0"
)
EXTENDED = b"RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00"


async def read(work: Path, name: str, **config: Any) -> Any:
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    await mount(coordinator, config)
    return await coordinator.get("tools", "read_file").execute({"file_path": name})


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(3, 2), "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (LOSSLESS, "image/webp"),
        (LOSSY, "image/webp"),
        (EXTENDED, "image/webp"),
    ],
)
async def test_an_image_is_read_with_its_size_in_the_text(work: Path, data: bytes, media_type: str) -> None:
    (work / "picture").write_bytes(data)  # the name says nothing
    result = await read(work, "picture")
    facts = {"file_path": "picture", "media_type": media_type, "width": 3, "height": 2, "bytes": len(data)}
    assert (result.success, result.output) == (True, facts)
    [block] = result.content
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    assert block.model_dump(exclude_none=True) == {"type": "image", "source": source}


async def test_an_image_comes_out_of_a_sandbox_too(work: Path, call: Any) -> None:
    (work / "a.png").write_bytes(png(3, 2))
    result = await call("read_file", file_path="a.png")
    assert result.output["width"] == 3 and result.content[0].source["media_type"] == "image/png"


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (png(8001, 1), "FileTooLarge", "a is 8001 x 1 pixels; a side of more than 8000 is too long. Scale it down"),
        (png(3, 2)[:14], "BinaryFile", "a begins as image/png and is damaged: its size or its end is missing"),
        (JPEG[:10], "BinaryFile", "a begins as image/jpeg and is damaged: its size or its end is missing"),
        (png(0, 2), "BinaryFile", "a begins as image/png and is damaged: its size or its end is missing"),
        (
            b"\xff\xd8\xff" + b"\xff" * 50,
            "BinaryFile",
            "a begins as image/jpeg and is damaged: its size or its end is missing",
        ),
        (
            b"RIFF\0\0\0\0WEBPABCD",
            "BinaryFile",
            "a begins as image/webp and is damaged: its size or its end is missing",
        ),
    ],
)
async def test_an_image_that_no_model_takes_is_refused(work: Path, data: bytes, kind: str, message: str) -> None:
    (work / "a").write_bytes(data)
    error = (await read(work, "a")).error
    assert (error["type"], error["message"]) == (kind, message)


@pytest.mark.parametrize("data", [png(3, 2), JPEG, GIF, LOSSLESS, LOSSY])
async def test_an_image_without_its_end_is_refused(work: Path, data: bytes) -> None:
    (work / "a").write_bytes(data[:-1])
    error = (await read(work, "a")).error
    assert (error["type"], error["message"].partition("damaged: ")[2]) == (
        "BinaryFile",
        "its size or its end is missing",
    )


async def test_the_end_of_a_preview_is_not_the_end_of_its_image(work: Path) -> None:
    preview = b"\xff\xd8\xff\xe1" + (2 + len(JPEG)).to_bytes(2) + JPEG
    (work / "whole").write_bytes(preview + JPEG[2:])
    (work / "half").write_bytes(preview + JPEG[2:-1])
    assert [(await read(work, name)).success for name in ("whole", "half")] == [True, False]


async def test_an_image_has_a_limit_of_its_own(work: Path) -> None:
    (work / "a.gif").write_bytes(GIF)
    assert (await read(work, "a.gif", max_bytes=1)).success
    error = (await read(work, "a.gif", max_image_bytes=len(GIF) - 1)).error
    assert "is an image of more than" in error["message"] and "(max_image_bytes)" in error["message"]
