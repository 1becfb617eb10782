"""Search files, in a process of its own: by ripgrep, or by Python where there is none or it does not know the pattern.

Both ways search the same files. They are found and opened here, from the working folder downwards and never through a
link to elsewhere, and ripgrep gets them as open files: it walks no folder and follows no link.
"""

from __future__ import annotations

import re
import subprocess
from collections import deque
from contextlib import ExitStack
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypedDict

from amplifier_tool_filesystem import searching as of_files
from amplifier_tool_filesystem.closed import Closed
from amplifier_tool_filesystem.failures import FileToolError, InvalidInput
from amplifier_tool_filesystem.folder import Folder, InnerPath, show
from amplifier_tool_filesystem.globs import Found, Glob, walk
from amplifier_tool_filesystem.reading import is_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LINE_LIMIT = 64 * 1024
"""Bytes of a line that Python searches."""
SHOWN_LIMIT = 500
"""Characters of a line to return."""
OUTPUT_LIMIT = 100_000
"""Characters of all lines to return."""
FILES = 1_000
"""Files for one call of ripgrep."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MODES = {"content": [], "files": ["--files-with-matches"], "count": ["--count"]}
_LINE = re.compile(rb"(/dev/fd/\d+)([:-])(\d+)\2(.*)", re.DOTALL)


class Search(TypedDict):
    """A search, as JSON for the process: the input of the tool, and what the session adds."""

    pattern: str
    path: str
    fixed: bool
    ignore_case: bool
    files: str
    type: str
    output: str
    context: int
    ignored: bool
    max_results: int
    offset: int
    root: str
    closed: list[str]
    ripgrep: str
    seconds: float


class Line(NamedTuple):
    """A line of a file that fits, or is near one that does."""

    number: int
    text: str
    fits: bool


class Hit(NamedTuple):
    """A file with lines that fit: the lines for the output `content`, else their number."""

    found: Found
    lines: list[Line]
    total: int


class _OtherPattern(Exception):
    """ripgrep does not know the pattern, or has failed."""


def main() -> None:
    """Run in the process: it ends by itself after the time, when nobody is left to end it."""
    import signal

    def run(search: Search) -> dict[str, Any]:
        signal.setitimer(signal.ITIMER_REAL, search["seconds"] + 5)
        return search_files(search)

    of_files.main(run)


def search_files(search: Search) -> dict[str, Any]:
    """Return the results in the order of paths. Raises `FileToolError`."""
    if search["ripgrep"]:
        try:
            return _search(search, _match_by_ripgrep)
        except _OtherPattern:
            pass
    return _search(search, _match_by_python)


def _search(
    search: Search, match: Callable[[Search, Iterable[tuple[Found, BinaryIO]]], Iterator[Hit]]
) -> dict[str, Any]:
    closed = Closed(search["closed"])
    hits = match(search, _open_files(search, closed))
    results = _list_matches(hits, search["context"]) if search["output"] == "content" else _list_files(hits, search)
    shown: list[Any] = []
    size = 0
    for result in islice(results, search["offset"], None):
        size += len(str(result))
        if len(shown) == search["max_results"] or (shown and size > OUTPUT_LIMIT):
            more = {"next_offset": search["offset"] + len(shown)}
            break
        shown.append(result)
    else:
        more = {}
    name = {"content": "matches", "files": "files", "count": "counts"}[search["output"]]
    return {name: shown, "count": len(shown), "truncated": bool(more), **more, **closed.remark()}


def _list_files(hits: Iterator[Hit], search: Search) -> Iterator[Any]:
    for hit in hits:
        path = show(hit.found.parts)
        yield {"file_path": path, "count": hit.total} if search["output"] == "count" else path


def _list_matches(hits: Iterator[Hit], context: int) -> Iterator[dict[str, Any]]:
    for hit in hits:
        texts = {line.number: line.text for line in hit.lines}
        for number, text, fits in hit.lines:
            if fits:
                match: dict[str, Any] = {"file_path": show(hit.found.parts), "line": number, "text": text}
                if context:
                    match["before"] = [texts[at] for at in range(number - context, number) if at in texts]
                    match["after"] = [texts[at] for at in range(number + 1, number + context + 1) if at in texts]
                yield match


def _open_files(search: Search, closed: Closed) -> Iterator[tuple[Found, BinaryIO]]:
    """Yield the text files of a search, open; whoever gets one closes it."""
    folder = Folder(search["root"])
    base = folder.resolve(search["path"])
    if not folder.is_folder(base):
        named = Found(base.parts, base)
        stream = folder.open_file(base)  # the caller names it, so an unreadable file is an error
        if closed.leaves_out(named, is_named=True) or not _is_text(stream):
            stream.close()
        else:
            yield named, stream
        return
    for found in _find_files(search, folder, base, closed):
        try:
            stream = folder.open_file(found.path or InnerPath(found.parts))
        except (FileToolError, OSError):
            continue  # gone, replaced or not readable
        if _is_text(stream):
            yield found, stream
        else:
            stream.close()


def _find_files(search: Search, folder: Folder, base: InnerPath, closed: Closed) -> Iterator[Found]:
    from amplifier_trigger_file_watcher.gitignore import Gitignore

    glob, kind, rules = Glob(search["files"]), Glob(search["type"]), Gitignore(str(folder.root))
    above = ["/".join(base.parts[:count]) + "/" for count in range(1, len(base.parts) + 1)]
    heeds = not search["ignored"] and not any(rules.decide(each) for each in above)  # a named folder is no ignored one

    def skips(found: Found) -> bool:
        return heeds and bool(rules.decide("/".join(found.parts) + ("/" if found.path is None else "")))

    for found in walk(folder, base.parts, skips):
        below = found.parts[len(base.parts) :]
        if glob.fits(below) and kind.fits(below) and not closed.leaves_out(found):
            yield found


def _is_text(stream: BinaryIO) -> bool:
    """Return whether a file is text as the search reads it, and go back to its start; UTF-16 is none."""
    try:
        head = stream.read(2)
        stream.seek(0)
        return head not in _UTF16 and not is_binary(stream)
    except OSError:
        return False


# by Python


def _match_by_python(search: Search, files: Iterable[tuple[Found, BinaryIO]]) -> Iterator[Hit]:
    text = re.escape(search["pattern"]) if search["fixed"] else search["pattern"]
    try:
        pattern = re.compile(text, re.IGNORECASE if search["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"pattern is not a regular expression: {error}") from error
    most = search["offset"] + search["max_results"] + 1
    for found, stream in files:
        with stream:
            lines = _read_lines(stream)
            if search["output"] == "content":
                near = list(_find_near(lines, pattern, search["context"], most))
                if near:
                    yield Hit(found, near, 0)
                continue
            fitting = (line for line in lines if pattern.search(line))
            count = sum(1 for _ in (islice(fitting, 1) if search["output"] == "files" else fitting))
            if count:
                yield Hit(found, [], count)


def _read_lines(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file without their ends; of a longer one, the first `LINE_LIMIT` bytes."""
    if stream.read(3) != b"\xef\xbb\xbf":
        stream.seek(0)
    while piece := stream.readline(LINE_LIMIT):
        yield _decode(piece)
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(LINE_LIMIT)


def _find_near(lines: Iterator[str], pattern: re.Pattern[str], context: int, most: int) -> Iterator[Line]:
    """Yield the lines that fit, at most `most`, and those within `context` of them."""
    before: deque[Line] = deque(maxlen=context)
    wanted = 0
    for number, text in enumerate(lines, 1):
        if most and pattern.search(text):
            most, wanted = most - 1, context
            yield from before
            before.clear()
            yield Line(number, _shorten(text), True)
        elif wanted:
            wanted -= 1
            yield Line(number, _shorten(text), False)
        elif not most:
            return
        else:
            before.append(Line(number, _shorten(text), False))


def _decode(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "replace")


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_LIMIT else text[: SHOWN_LIMIT - 1] + "…"


# by ripgrep


def _match_by_ripgrep(search: Search, files: Iterable[tuple[Found, BinaryIO]]) -> Iterator[Hit]:
    files = iter(files)
    batch = _allow_files()
    while True:
        with ExitStack() as stack:
            opened = [(found, stack.enter_context(stream)) for found, stream in islice(files, batch)]
            if not opened:
                return
            yield from _run_ripgrep(search, opened)


def _allow_files() -> int:
    """Let this process and its children have enough open files; return how many of them may be searched at once."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES + 100
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return FILES if soft == resource.RLIM_INFINITY else max(1, min(FILES, soft - 100))


def _run_ripgrep(search: Search, opened: list[tuple[Found, BinaryIO]]) -> Iterator[Hit]:
    """Yield the hits in open files, in their order."""
    places = {f"/dev/fd/{stream.fileno()}".encode(): found for found, stream in opened}
    child = subprocess.Popen(
        [*_describe_search(search), "--", search["pattern"], *(path.decode() for path in places)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        pass_fds=[stream.fileno() for _, stream in opened],
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            yield from _read_hits(child.stdout, places, search["output"])
            if (said := child.stderr.read()) or child.wait() not in (0, 1):
                raise _OtherPattern(said)
        finally:
            child.kill()


def _describe_search(search: Search) -> list[str]:
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


def _read_hits(output: IO[bytes], places: dict[bytes, Found], kind: str) -> Iterator[Hit]:
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
            hit.lines.append(Line(int(line[3]), _shorten(_decode(line[4])), line[2] == b":"))
    if hit is not None:
        yield hit
