"""Read mentioned files safely, and keep each content once."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

# O_NONBLOCK: opening a FIFO must not wait for a writer, even if it replaced the file a moment ago
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@frozen
class ContextFile:
    """One text with its paths and mentions. `content_hash` is its SHA-256 in hex."""

    content: str
    content_hash: str
    paths: tuple[Path, ...]
    mentions: tuple[str, ...] = ()


class ContentDeduplicator:
    """Keeps each text once, with all its paths."""

    def __init__(self) -> None:
        self._contents: dict[str, str] = {}
        self._paths: dict[str, dict[Path, None]] = {}
        self._mentions: dict[Path, dict[str, None]] = {}

    def add_file(self, path: Path, content: str) -> bool:
        """Add the text of a file and return whether it is new."""
        digest = sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        new = digest not in self._contents
        self._contents.setdefault(digest, content)
        self._paths.setdefault(digest, {})[path] = None
        return new

    def add_mention(self, path: Path, mention: str) -> None:
        """Add a mention of the file at `path`."""
        self._mentions.setdefault(path, {})[mention] = None

    def get_unique_files(self) -> list[ContextFile]:
        """Return every text once, in the order of addition."""
        return [
            ContextFile(content, digest, tuple(self._paths[digest]), self._mentions_of(digest))
            for digest, content in self._contents.items()
        ]

    def _mentions_of(self, digest: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mention for path in self._paths[digest] for mention in self._mentions.get(path, ())))


def read_text(path: Path, limit: int) -> str:
    """Return the text of a regular file of at most `limit` bytes; other kinds of file, and final symlinks, stay closed.

    Raises `OSError`, and `ValueError` with the fault of the file.
    """
    return decode_text(read_bytes(path, limit))


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the bytes of a file under the conditions of `read_text`. Raises `OSError` and `ValueError`."""
    _require_small_file(path.stat(), limit)  # opening a device could already have an effect
    with os.fdopen(os.open(path, _READ), "rb") as file:
        _require_small_file(os.fstat(file.fileno()), limit)
        raw = file.read(limit + 1)
    if len(raw) > limit:  # files of /proc have no size
        raise ValueError(_too_large(limit))
    return raw


def decode_text(raw: bytes) -> str:
    """Return the text of the bytes of a file. Raises `ValueError` with their fault."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        raise ValueError("contains the character U+0000: not a text file")
    return text


def _require_small_file(status: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ValueError("is a folder; mention a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is not a regular file")
    if status.st_size > limit:
        raise ValueError(_too_large(limit))


def _too_large(limit: int) -> str:
    return f"is larger than {limit // 1024} KiB; mention a smaller file with the part that matters"
