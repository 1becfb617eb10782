"""Read the rows of a damaged SQLite file page by page, without its tree of pages and without SQLite.

Format: https://sqlite.org/fileformat2.html. Only leaf pages of tables and pages of indexes hold rows; a long row
continues on overflow pages. In an undamaged file this finds every live row: freed pages are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

    from .values import Column

PAGE_SIZE = 4096  # of files whose header is damaged: every store has this one
HEADER = 100
LOCKED_BYTE = 1 << 30  # its page is never used

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR, _TABLE_INTERIOR = 13, 10, 2, 5
_INT_BYTES = (0, 1, 2, 3, 4, 6, 8)


class Row(NamedTuple):
    """Hold one row; `rowid` is None in an index."""

    page: int
    rowid: int | None
    values: tuple[Column | float, ...]


@dataclass(frozen=True)
class Pages:
    """Read the pages of a file, given its content; `bad` collects the numbers of pages with unreadable rows."""

    data: bytes | mmap
    bad: set[int] = field(default_factory=set)

    @cached_property
    def size(self) -> int:
        """Return the bytes of a page."""
        size = int.from_bytes(self.data[16:18], "big")
        size = 65536 if size == 1 else size
        return size if 512 <= size <= 65536 and not size & (size - 1) else PAGE_SIZE

    @cached_property
    def usable(self) -> int:
        """Return the bytes of a page for content."""
        reserved = self.data[20] if len(self.data) > 20 else 0
        return self.size - reserved if self.size - reserved >= 480 else self.size

    @cached_property
    def _maps(self) -> range:
        """Return the pages that say where the others belong, in a file with auto_vacuum."""
        return range(2, len(self.data) // self.size + 1, self.usable // 5 + 1)

    def rows(self) -> Iterator[Row]:
        """Yield every readable row, of tables and of indexes."""
        free = self._free_pages()
        for page in range(1, -(-len(self.data) // self.size) + 1):
            if page not in free:
                yield from self._rows_of(page)

    @property
    def missing(self) -> int:
        """Return the number of pages that the file has lost at its end, as far as its header is readable."""
        if self.data[24:28] != self.data[92:96]:  # the header does not know the number
            return 0
        return max(0, int.from_bytes(self.data[28:32], "big") - -(-len(self.data) // self.size))

    def _page(self, page: int) -> bytes:
        return self.data[(page - 1) * self.size : page * self.size]

    def _rows_of(self, page: int) -> Iterator[Row]:
        content, start = self._page(page), HEADER if page == 1 else 0
        kind = content[start] if len(content) > start else 0
        if kind in (0, _TABLE_INTERIOR):  # an overflow page, or only keys
            if not content.strip(b"\0") and page not in (
                1,
                LOCKED_BYTE // self.size + 1,
            ):  # the first has no rows of ours
                self.bad.add(page)
            return
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
            if page not in self._maps:  # with a damaged header nobody knows whether the file has maps
                self.bad.add(page)
            return
        pointers = start + (12 if kind == _INDEX_INTERIOR else 8)
        for number in range(int.from_bytes(content[start + 3 : start + 5], "big")):
            at = pointers + 2 * number
            cell = int.from_bytes(content[at : at + 2], "big")
            try:
                yield self._row(page, content, cell + (4 if kind == _INDEX_INTERIOR else 0), kind == _TABLE_LEAF)
            except (ValueError, IndexError):
                self.bad.add(page)

    def _row(self, page: int, content: bytes, at: int, of_table: bool) -> Row:
        length, at = _varint(content, at)
        rowid: int | None = None
        if of_table:
            rowid, at = _varint(content, at)
            rowid -= (rowid >> 63) << 64
        largest = self.usable - 35 if of_table else (self.usable - 12) * 64 // 255 - 23
        least = (self.usable - 12) * 32 // 255 - 23
        kept = least + (length - least) % (self.usable - 4)
        local = length if length <= largest else kept if kept <= largest else least
        payload = content[at : at + local]
        if length > local:
            first = int.from_bytes(content[at + local : at + local + 4], "big")
            payload += self._overflow(first, length - local)
        if len(payload) != length:
            raise ValueError
        return Row(page, rowid, tuple(_values(payload)))

    def _overflow(self, page: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            content = self._page(page) if page > 0 else b""
            if len(content) < self.usable or len(parts) * self.usable > len(self.data):
                raise ValueError
            parts.append(content[4 : min(self.usable, 4 + length)])
            length -= len(parts[-1])
            page = int.from_bytes(content[:4], "big")
        return b"".join(parts)

    def _free_pages(self) -> set[int]:
        """Return the freed pages, as far as their list is readable, and the pages of SQLite's own maps."""
        free: set[int] = set()
        if int.from_bytes(self.data[52:56], "big"):  # auto_vacuum
            free.update(self._maps)
        trunk = int.from_bytes(self.data[32:36], "big")
        while trunk and trunk not in free:
            free.add(trunk)
            content = self._page(trunk)
            count = min(int.from_bytes(content[4:8], "big"), self.usable // 4 - 2)
            free.update(int.from_bytes(content[8 + 4 * n : 12 + 4 * n], "big") for n in range(count))
            trunk = int.from_bytes(content[:4], "big")
        return free


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (number, next offset)."""
    value = 0
    for count in range(9):
        byte = data[at + count]
        if count == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, at + count + 1


def _values(payload: bytes) -> Iterator[Column | float]:
    from struct import unpack

    header, at = _varint(payload, 0)
    place = header
    while at < header:
        kind, at = _varint(payload, at)
        if kind >= 12:
            size = (kind - 12) // 2
        elif kind == 7:
            size = 8
        else:
            size = _INT_BYTES[kind] if kind < 7 else 0
        part = payload[place : place + size]
        if len(part) != size or kind in (10, 11):
            raise ValueError
        place += size
        if kind >= 12:
            yield part.decode() if kind % 2 else part  # text, or the bytes of text with lone surrogates
        elif kind == 7:
            yield float(unpack(">d", part)[0])
        else:
            yield None if kind == 0 else kind - 8 if kind in (8, 9) else int.from_bytes(part, "big", signed=True)
    if place != len(payload):
        raise ValueError
