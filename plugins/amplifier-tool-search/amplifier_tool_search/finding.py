"""Find the files of a search, and open them from the working folder downwards, never through a link to elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from amplifier_tool_filesystem.failures import FileToolError
from amplifier_tool_filesystem.folder import Folder, InnerPath
from amplifier_tool_filesystem.globs import Found, Glob, walk
from amplifier_tool_filesystem.reading import is_binary
from amplifier_trigger_file_watcher.gitignore import Gitignore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_tool_filesystem.closed import Closed

    from .records import Search

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def open_files(search: Search, closed: Closed) -> Iterator[tuple[Found, BinaryIO]]:
    """Yield the text files of a search, open; whoever gets one closes it."""
    folder = Folder(search["root"])
    base = folder.resolve(search["path"])
    if not folder.is_folder(base):
        named = Found(base.parts, base)
        stream = folder.open_file(base)  # the caller names it, so an unreadable file is an error
        if closed.leaves_out(named, is_named=True) or not is_text(stream):
            stream.close()
        else:
            yield named, stream
        return
    for found in find_files(search, folder, base, closed):
        try:
            stream = folder.open_file(found.path or InnerPath(found.parts))
        except (FileToolError, OSError):
            continue  # gone, replaced or not readable
        if is_text(stream):
            yield found, stream
        else:
            stream.close()


def find_files(search: Search, folder: Folder, base: InnerPath, closed: Closed) -> Iterator[Found]:
    """Yield the files of a search in the order of their paths, without those that .gitignore files name."""
    rules = Gitignore(str(folder.root))
    globs = [Glob(pattern) for pattern in (search["files"], search["type"]) if pattern != "**"]
    above = ["/".join(base.parts[:count]) + "/" for count in range(1, len(base.parts) + 1)]
    heeds = not search["ignored"] and not any(rules.decide(each) for each in above)  # a named folder is no ignored one

    def skips(found: Found) -> bool:
        return heeds and bool(rules.decide("/".join(found.parts) + ("/" if found.path is None else "")))

    for found in walk(folder, base.parts, skips):
        below = found.parts[len(base.parts) :]
        if all(glob.fits(below) for glob in globs) and not closed.leaves_out(found):
            yield found


def is_text(stream: BinaryIO) -> bool:
    """Return whether a file is text as the search reads it, and go back to its start; UTF-16 is none."""
    try:
        head = stream.read(2)
        stream.seek(0)
        return head not in _UTF16 and not is_binary(stream)
    except OSError:
        return False
