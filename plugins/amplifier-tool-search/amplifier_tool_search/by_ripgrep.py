"""Search open files with ripgrep."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from itertools import islice
from typing import IO, TYPE_CHECKING, BinaryIO

from .records import LINE_LIMIT, SHOWN_LIMIT, Hit, Line, Search, read_line, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_tool_filesystem.globs import Found

FILES = 1_000
"""Files for one call of ripgrep."""
_MODES = {"content": [], "files": ["--files-with-matches"], "count": ["--count"]}
_LINE = re.compile(rb"(/dev/fd/\d+)([:-])(\d+)\2(.*)", re.DOTALL)


class OtherPattern(Exception):
    """ripgrep does not know the pattern, or has failed."""


def match_by_ripgrep(search: Search, files: Iterable[tuple[Found, BinaryIO]]) -> Iterator[Hit]:
    """Yield the hits in open files, and close them. Raises `OtherPattern`."""
    files = iter(files)
    batch = allow_files()
    while True:
        with ExitStack() as stack:
            opened = [(found, stack.enter_context(stream)) for found, stream in islice(files, batch)]
            if not opened:
                return
            yield from run_ripgrep(search, opened)


def allow_files() -> int:
    """Let this process and its children have enough open files; return how many of them may be searched at once."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES + 100
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return FILES if soft == resource.RLIM_INFINITY else max(1, min(FILES, soft - 100))


def run_ripgrep(search: Search, opened: list[tuple[Found, BinaryIO]]) -> Iterator[Hit]:
    """Yield the hits in open files, in their order."""
    places = {f"/dev/fd/{stream.fileno()}".encode(): found for found, stream in opened}
    try:
        child = subprocess.Popen(
            [*describe_search(search), "--", search["pattern"], *(path.decode() for path in places)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            pass_fds=[stream.fileno() for _, stream in opened],
        )
    except OSError as error:  # a pattern longer than an argument may be
        raise OtherPattern(str(error)) from error
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            yield from read_hits(child.stdout, places, search["output"])
            if (said := child.stderr.read()) or child.wait() not in (0, 1):
                raise OtherPattern(said)
        finally:
            child.kill()


def describe_search(search: Search) -> list[str]:
    """Return ripgrep with options that keep it from any other program, and from files of configuration."""
    most = search["offset"] + search["max_results"] + 1
    return [
        *(search["ripgrep"], "--no-config", "--no-messages", "--no-ignore", "--hidden", "--no-mmap", "--threads=1"),
        *("--color=never", "--no-heading", "--with-filename", "--text", "--crlf", "--line-number"),
        *(f"--max-columns={4 * SHOWN_LIMIT}", "--max-columns-preview", "--no-context-separator"),
        *_MODES[search["output"]],
        *([f"--context={search['context']}", f"--max-count={most}"] if search["output"] == "content" else []),
        *(["--fixed-strings"] if search["fixed"] else []),
        *(["--ignore-case"] if search["ignore_case"] else ["--case-sensitive"]),
    ]


def read_hits(output: IO[bytes], places: dict[bytes, Found], kind: str) -> Iterator[Hit]:
    """Yield what ripgrep writes about files: `path`, `path:count`, or lines `path:1:text`, with `path-2-text` near."""
    hit: Hit | None = None
    while record := output.readline(LINE_LIMIT):
        if kind != "content":
            path, _, count = record.rstrip(b"\r\n").partition(b":")
            yield Hit(places[path], [], int(count or 1))
        elif (line := _LINE.fullmatch(record)) is not None:
            found = places[line[1]]
            if hit is None or hit.found is not found:
                if hit is not None:
                    yield hit
                hit = Hit(found, [], 0)
            hit.lines.append(Line(int(line[3]), shorten(read_line(line[4])), line[2] == b":"))
    if hit is not None:
        yield hit
