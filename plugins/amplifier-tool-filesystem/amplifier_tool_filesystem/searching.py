"""Searching lines with a regular expression, in a process of its own.

Python's `re` has no time limit and lets no other thread run while it matches: in this process, one bad pattern would
stop every session. A process can be given up.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

from .failures import Failure, InvalidInput
from .folder import Folder, Place, show
from .globs import Found, Glob, walk
from .reading import is_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_LIMIT = 64 * 1024
"""Bytes of a line that are searched."""
SHOWN_LIMIT = 500
"""Characters of a matching line that are returned."""

_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from amplifier_tool_filesystem.searching import main; main()"


class Search(TypedDict):
    """What to search for, and where."""

    root: str
    path: str
    pattern: str
    files: str
    ignore_case: bool
    max_results: int


async def search_apart(search: Search, seconds: float) -> dict[str, Any]:
    """Run `search_lines` in a child process; after `seconds`, or when cancelled, the child is killed."""
    import asyncio
    from pathlib import Path

    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _CHILD, str(Path(__file__).parent.parent)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await child.communicate(json.dumps(search).encode())
    except TimeoutError:
        raise Failure(
            "TimeoutError", f"gave up after {seconds:g} s; narrow `path` or `files`, or use a simpler pattern"
        ) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.communicate()
    return _understand(answer, child.returncode)


def main() -> None:
    """Be the child: read a search from stdin, write what was found, or the failure, to stdout."""
    search: Search = json.load(sys.stdin)
    answer: dict[str, Any]
    try:
        answer = {"output": search_lines(search)}
    except Failure as failure:
        answer = {"failure": [failure.type, str(failure)]}
    except OSError as error:
        answer = {"failure": [type(error).__name__, f"{search['path']}: {error.strerror}"]}
    json.dump(answer, sys.stdout)


def search_lines(search: Search) -> dict[str, Any]:
    """Return the lines that match, in the order of paths; `truncated` says that there are more."""
    folder = Folder(search["root"])
    base, pattern, limit = folder.locate(search["path"]), _compile(search), search["max_results"]
    lines = (line for found in _files(folder, base, search["files"]) for line in _matches(folder, found, pattern))
    matches = list(islice(lines, limit + 1))
    return {"matches": matches[:limit], "count": min(len(matches), limit), "truncated": len(matches) > limit}


def _understand(answer: bytes, code: int | None) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        raise Failure("ChildProcessError", f"the search ended with code {code} and no answer; try it again") from None
    if "failure" in found:
        raise Failure(*found["failure"])
    output: dict[str, Any] = found["output"]
    return output


def _compile(search: Search) -> re.Pattern[str]:
    try:
        return re.compile(search["pattern"], re.IGNORECASE if search["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"pattern is not a regular expression: {error}") from error


def _files(folder: Folder, base: Place, files: str) -> Iterator[Found]:
    glob = Glob(files)
    if not folder.is_folder(base):
        folder.open_file(base).close()  # named by the caller, so one that cannot be read is said, not passed over
        yield Found(base.parts, base)
        return
    for found in walk(folder, base.parts):
        if glob.fits(found.parts[len(base.parts) :]):
            yield found


def _matches(folder: Folder, found: Found, pattern: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    try:
        stream = folder.open_file(found.place or Place(found.parts))
    except (Failure, OSError):
        return  # gone, replaced, or not ours to read
    with stream:
        if is_binary(stream):
            return
        for number, text in enumerate(_lines(stream), 1):
            if pattern.search(text):
                shown = text if len(text) <= SHOWN_LIMIT else text[: SHOWN_LIMIT - 1] + "…"
                yield {"file_path": show(found.parts), "line": number, "text": shown}


def _lines(stream: Any) -> Iterator[str]:
    while piece := stream.readline(LINE_LIMIT):
        yield piece.rstrip(b"\r\n").decode("utf-8", "replace")
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(LINE_LIMIT)
