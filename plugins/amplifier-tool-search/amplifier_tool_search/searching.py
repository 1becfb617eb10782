"""Search files, in a process of its own: by ripgrep, or by Python where there is none or it does not know the pattern.

Both ways search the same files. They are found and opened here, from the working folder downwards and never through a
link to elsewhere, and ripgrep gets them as open files: it walks no folder and follows no link.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from amplifier_tool_filesystem import searching as of_files
from amplifier_tool_filesystem.closed import Closed
from amplifier_tool_filesystem.folder import show

from .by_python import match_by_python
from .by_ripgrep import OtherPattern, match_by_ripgrep
from .finding import open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amplifier_tool_filesystem.globs import Found

    from .records import Hit, Search

OUTPUT_LIMIT = 100_000
"""Characters of all lines to return."""


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
            return _search(search, match_by_ripgrep)
        except OtherPattern:
            pass
    return _search(search, match_by_python)


def _search(
    search: Search, match: Callable[[Search, Iterable[tuple[Found, BinaryIO]]], Iterator[Hit]]
) -> dict[str, Any]:
    closed = Closed(search["closed"])
    hits = match(search, open_files(search, closed))
    results = list_matches(hits, search["context"]) if search["output"] == "content" else list_files(hits, search)
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


def list_files(hits: Iterator[Hit], search: Search) -> Iterator[Any]:
    """Yield the results for the outputs `files` and `count`."""
    for hit in hits:
        path = show(hit.found.parts)
        yield {"file_path": path, "count": hit.total} if search["output"] == "count" else path


def list_matches(hits: Iterator[Hit], context: int) -> Iterator[dict[str, Any]]:
    """Yield the results for the output `content`."""
    for hit in hits:
        texts = {line.number: line.text for line in hit.lines}
        for number, text, fits in hit.lines:
            if fits:
                match: dict[str, Any] = {"file_path": show(hit.found.parts), "line": number, "text": text}
                if context:
                    match["before"] = [texts[at] for at in range(number - context, number) if at in texts]
                    match["after"] = [texts[at] for at in range(number + 1, number + context + 1) if at in texts]
                yield match
