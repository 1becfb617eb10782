"""Search open files with Python's regular expressions."""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from amplifier_tool_filesystem.failures import InvalidInput

from .records import LINE_LIMIT, Hit, Line, Search, read_line, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_tool_filesystem.globs import Found


def match_by_python(search: Search, files: Iterable[tuple[Found, BinaryIO]]) -> Iterator[Hit]:
    """Yield the hits in open files, and close them. Raises `InvalidInput` for a pattern that is none."""
    text = re.escape(search["pattern"]) if search["fixed"] else search["pattern"]
    try:
        pattern = re.compile(text, re.IGNORECASE if search["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"pattern is not a regular expression: {error}") from error
    most = search["offset"] + search["max_results"] + 1
    for found, stream in files:
        with stream:
            lines = read_lines(stream)
            if search["output"] == "content":
                near = list(find_near(lines, pattern, search["context"], most))
                if near:
                    yield Hit(found, near, 0)
                continue
            fitting = (line for line in lines if pattern.search(line))
            count = sum(1 for _ in (islice(fitting, 1) if search["output"] == "files" else fitting))
            if count:
                yield Hit(found, [], count)


def read_lines(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file without their ends; of a longer one, the first `LINE_LIMIT` bytes."""
    if stream.read(3) != b"\xef\xbb\xbf":
        stream.seek(0)
    while piece := stream.readline(LINE_LIMIT):
        yield read_line(piece)
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(LINE_LIMIT)


def find_near(lines: Iterator[str], pattern: re.Pattern[str], context: int, most: int) -> Iterator[Line]:
    """Yield the lines that fit, at most `most`, and those within `context` of them."""
    before: deque[Line] = deque(maxlen=context)
    wanted = 0
    for number, text in enumerate(lines, 1):
        if most and pattern.search(text):
            most, wanted = most - 1, context
            yield from before
            before.clear()
            yield Line(number, shorten(text), True)
        elif wanted:
            wanted -= 1
            yield Line(number, shorten(text), False)
        elif not most:
            return
        else:
            before.append(Line(number, shorten(text), False))
