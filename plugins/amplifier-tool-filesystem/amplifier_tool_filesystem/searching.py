"""Search lines with a regular expression, in a process of its own.

Python's `re` has no time limit, and no other thread runs while it matches: in this process, one bad pattern would stop
every session. Another process can be killed.
"""

from __future__ import annotations

import json
import re
import sys
from codecs import BOM_UTF8
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

from .closed import Closed
from .failures import FileToolError, InvalidInput
from .folder import Folder, InnerPath, show
from .globs import Found, Glob, walk
from .reading import is_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

LINE_LIMIT = 64 * 1024
"""Bytes of a line to search."""
SHOWN_LIMIT = 500
"""Characters of a matching line to return."""

_CHILD = "import sys; sys.path[:0] = sys.argv[1:]; from amplifier_tool_filesystem.searching import main; main()"


class Search(TypedDict):
    """A search, as JSON for the child process."""

    root: str
    path: str
    pattern: str
    files: str
    ignore_case: bool
    max_results: int
    closed: list[str]


async def search_apart(search: Search, seconds: float) -> dict[str, Any]:
    """Run `search_lines` in a child process; see `run_apart`."""
    import amplifier_core

    return await run_apart(_CHILD, (__file__, amplifier_core.__file__), search, seconds)


async def run_apart(program: str, packages: Iterable[str], search: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Answer a search in a child process; kill it and its children after `seconds`, or on cancellation.

    The child runs `program`, Python code, with the folders around `packages` as its arguments. It reads the search from
    stdin, as JSON, and writes `{"output": …}` or `{"failure": [type, message]}` to stdout.
    """
    import asyncio
    import os
    import signal
    from contextlib import suppress
    from pathlib import Path

    folders = dict.fromkeys(str(Path(each).parent.parent) for each in packages)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", program, *folders),
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
        raise FileToolError(
            "TimeoutError", f"gave up after {seconds:g} s; narrow `path` or `files`, or use a simpler pattern"
        ) from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # it leads a group of its own
            await child.communicate()
    try:
        found = json.loads(answer)
    except ValueError:
        code = child.returncode
        raise FileToolError(
            "ChildProcessError", f"the search ended with code {code} and no answer; try it again"
        ) from None
    if "failure" in found:
        raise FileToolError(*found["failure"])
    output: dict[str, Any] = found["output"]
    return output


def main(run: Callable[[Any], dict[str, Any]] | None = None) -> None:
    """Run in the child: read a search from stdin, and write the result or the failure to stdout."""
    search: Search = json.load(sys.stdin)
    answer: dict[str, Any]
    try:
        answer = {"output": (run or search_lines)(search)}
    except FileToolError as failure:
        answer = {"failure": [failure.type, str(failure)]}
    except OSError as error:
        answer = {"failure": [type(error).__name__, f"{search['path']}: {error.strerror}"]}
    json.dump(answer, sys.stdout)


def search_lines(search: Search) -> dict[str, Any]:
    """Return the matching lines, in the order of paths; `truncated` if there are more.

    Secrets and `closed` paths are left out; `skipped` counts them.
    """
    folder = Folder(search["root"])
    base, limit = folder.resolve(search["path"]), search["max_results"]
    try:
        pattern = re.compile(search["pattern"], re.IGNORECASE if search["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"pattern is not a regular expression: {error}") from error
    closed = Closed(search["closed"])
    files = _find_files(folder, base, search["files"], closed)
    lines = (line for found in files for line in _find_matches(folder, found, pattern))
    matches = list(islice(lines, limit + 1))
    shown, truncated = matches[:limit], len(matches) > limit
    return {"matches": shown, "count": len(shown), "truncated": truncated, **closed.remark()}


def _find_files(folder: Folder, base: InnerPath, files: str, closed: Closed) -> Iterator[Found]:
    glob = Glob(files)
    if not folder.is_folder(base):
        folder.open_file(base).close()  # the caller names it, so an unreadable file is an error
        if not closed.leaves_out(named := Found(base.parts, base), is_named=True):
            yield named
        return
    for found in walk(folder, base.parts):
        if glob.fits(found.parts[len(base.parts) :]) and not closed.leaves_out(found):
            yield found


def _find_matches(folder: Folder, found: Found, pattern: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    try:
        stream = folder.open_file(found.path or InnerPath(found.parts))
    except (FileToolError, OSError):
        return  # gone, replaced or not readable
    with stream:
        if is_binary(stream):
            return
        number = 0
        while piece := stream.readline(LINE_LIMIT):
            number += 1
            text = piece.removeprefix(BOM_UTF8 if number == 1 else b"").rstrip(b"\r\n").decode("utf-8", "replace")
            while piece and not piece.endswith(b"\n"):  # the rest of a longer line
                piece = stream.readline(LINE_LIMIT)
            if pattern.search(text):
                shown = text if len(text) <= SHOWN_LIMIT else text[: SHOWN_LIMIT - 1] + "…"
                yield {"file_path": show(found.parts), "line": number, "text": shown}
