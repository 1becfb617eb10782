"""Do what the tools do, on checked input; threads read and write files, a process searches them."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from weakref import WeakValueDictionary

from amplifier_core.events import ARTIFACT_READ, ARTIFACT_WRITE

from .closed import Closed
from .failures import FileToolError, InvalidInput, NotPermitted
from .folder import BYTES, Folder, InnerPath
from .globs import Found, find_files
from .images import Reply, is_image, read_image
from .locking import lock_file, run_to_end
from .reading import is_binary, read_lines
from .searching import Search, search_apart
from .seen import SeenFiles, State, digest
from .writing import (
    EDIT_LIMIT,
    Overtaken,
    encode,
    find_status,
    prepare_write,
    read_state,
    read_text,
    replace_text,
    write_file,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core import HookRegistry, ModuleCoordinator

    from .config import FilesystemConfig

WRITING = ("write_file", "edit_file", "edit_notebook")
"""The tools that change a file."""
CLIENT = "client.files"
"""The capability with the files of an editor: `read_text(path)`, `write_text(path, text)`, and whether it `writes`."""
UNDO = "session.undo"
"""The capability that keeps what a file holds before a change: `keep(path, after, before)`."""
SEARCHES = 4
"""Searches of a session at one time: each is a process."""
MOST_PLANS = 20
"""Attempts at a change while somebody else, without the lock, writes the file again and again."""
LARGEST_PREVIEW = 4 * EDIT_LIMIT
"""Bytes of a file whose replacement can be previewed."""


class Change(NamedTuple):
    """A change of one file: its new content, what there is to say about it, and the state of the file before.

    `text` is the text before, of a tool that reads it, or of an editor.
    """

    after: bytes
    facts: dict[str, Any]
    state: State | None
    text: str | None


def kind_of(tool: str) -> str:
    """Return what a tool does to the file that it gets, for the permissions."""
    return "write inside" if tool in WRITING else "read inside"


class FileActions:
    """The actions of the tools of one session."""

    def __init__(self, config: FilesystemConfig, coordinator: ModuleCoordinator) -> None:
        self._config = config
        self._coordinator = coordinator
        self._hooks: HookRegistry | None = getattr(coordinator, "hooks", None)
        self._folder = Folder(config.working_dir)
        self._seen = SeenFiles(coordinator, strict=config.read_before_write)
        self._order = asyncio.Lock()
        self._searches = asyncio.Semaphore(SEARCHES)
        self._locks: WeakValueDictionary[InnerPath, asyncio.Lock] = WeakValueDictionary()

    async def read(self, given: dict[str, Any]) -> Reply:
        """Return the lines of a text, the cells of a notebook, or an image."""
        client = self._ask_for(CLIENT)
        there = await self._read_there(client, given["file_path"]) if client is not None else None
        if there is None:
            path, reply, size, state = await asyncio.to_thread(self._read, given)
        else:
            path, data = there
            reply, size = self._read_stream(BytesIO(data), path, given)
            state = State(digest(data))
        self._seen.note(path, state)
        await self._emit(ARTIFACT_READ, str(path), size)
        return reply

    async def change(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        """Change a file by one of the `WRITING` tools."""
        async with self._lock(tool, given["file_path"]) as path:
            change, created = await self._make(tool, given, path)
        await self._emit(ARTIFACT_WRITE, str(path), len(change.after))
        created_too = {"created": created} if tool == "write_file" else {}
        return {"file_path": str(path), "bytes": len(change.after), **change.facts, **created_too}

    async def _make(self, tool: str, given: dict[str, Any], path: InnerPath) -> tuple[Change, bool]:
        """Plan and write a change, and again if somebody else writes meanwhile; return it, and whether the file is new.

        Raises `FileToolError` for a file that this session must read first.
        """
        for _ in range(MOST_PLANS):
            change = await self._plan(tool, given, path)
            if change.state is not None:
                self._seen.check(path, change.state, replaces_all=tool == "write_file")
            await self._keep(path, change)
            with suppress(Overtaken):
                created, state = await self._write(path, change)
                # What somebody else wrote before an edit stays unseen.
                if change.state is None or not self._seen.is_unseen(path, change.state):
                    self._seen.note(path, state)
                return change, created
        raise FileToolError("ChangedSinceRead", f"{path} is changed all the time by somebody else; try it again later")

    async def preview(self, tool: str, given: dict[str, Any]) -> str:
        """Return a diff of a change without making it. Raises `NotPermitted` for a file that the session may not read.

        What is shown may be stored with the question.
        """
        from .diffs import show_change

        path = await asyncio.to_thread(self._resolve, tool, given["file_path"])
        gate = getattr(self._coordinator, "permissions", None)
        reads = {"file_path": "read inside"}
        if gate is not None and gate.decide("read_file", {"file_path": "/".join(path.parts)}, reads).effect != "allow":
            raise NotPermitted(str(path))
        change = await self._plan(tool, given, path)
        before = None if change.text is None else encode(change.text)
        if before is None and change.state is not None:
            before = await asyncio.to_thread(self._read_bytes, path)
        return await asyncio.to_thread(show_change, str(path), before, change.after)

    async def glob(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the files that fit a pattern."""
        path, closed = given["path"], self._find_closed("glob", given["path"])
        return await asyncio.to_thread(find_files, self._folder, path, given["pattern"], given["max_results"], closed)

    async def grep(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the lines that fit a pattern."""
        search = Search(
            root=str(self._folder.root),
            path=given["path"],
            pattern=given["pattern"],
            files=given["files"],
            ignore_case=given["ignore_case"],
            max_results=given["max_results"],
            closed=self._find_closed("grep", given["path"]),
        )
        async with self._searches:
            return await search_apart(search, self._config.grep_timeout)

    def _ask_for(self, capability: str) -> Any:
        get = getattr(self._coordinator, "get_capability", None)
        return get(capability) if get is not None else None

    @property
    def _writer(self) -> Any:
        """The editor that writes files for the session; None without one."""
        client = self._ask_for(CLIENT)
        return client if client is not None and client.writes else None

    async def _read_there(self, client: Any, given: str) -> tuple[InnerPath, bytes] | None:
        """Return the text that an editor shows, also of a new file; None for what is no text on disk."""
        path = await asyncio.to_thread(self._resolve, "read_file", given)
        with suppress(FileNotFoundError), await asyncio.to_thread(self._folder.open_file, path) as stream:
            if is_binary(stream) or is_image(stream):
                return None
        return path, encode(str(await client.read_text(self._show_whole(path))))

    def _read(self, given: dict[str, Any]) -> tuple[InnerPath, Reply, int, State]:
        path = self._resolve("read_file", given["file_path"])
        with self._folder.open_file(path) as stream:
            state = read_state(stream)  # first: what changes meanwhile is shown, or is not as the session saw it
            return path, *self._read_stream(stream, path, given), state

    def _read_stream(self, stream: BinaryIO, path: InnerPath, given: dict[str, Any]) -> tuple[Reply, int]:
        """Return what a file shows, and the bytes that were read."""
        limits = self._config
        if is_image(stream):
            return read_image(stream, path, limits.max_image_bytes)
        if path.name.endswith(".ipynb"):
            from .notebooks import parse_notebook, show_notebook

            data = stream.read(EDIT_LIMIT + 1)
            notebook = parse_notebook(data.decode("utf-8", "replace")) if len(data) <= EDIT_LIMIT else None
            if notebook is not None:
                most = limits.max_bytes, limits.max_image_bytes
                return show_notebook(notebook, path, given["offset"], given.get("limit"), *most), len(data)
            stream.seek(0)
        output, size = read_lines(stream, path, given["offset"], given.get("limit"), limits.max_bytes)
        return Reply(output, []), size

    async def _plan(self, tool: str, given: dict[str, Any], path: InnerPath) -> Change:
        """Return what a call would change; nothing is changed yet."""
        if tool == "write_file":
            state, text = await asyncio.to_thread(self._find_state, path), None
            if self._writer is not None and state is not None:
                text, state = await self._read_before(path)
            return Change(encode(given["content"]), {}, state, text)
        if tool == "edit_file" and given["old_string"] == given["new_string"]:
            raise InvalidInput("old_string and new_string are the same; there is nothing to change")
        before, state = await self._read_before(path)
        if tool == "edit_file":
            new, count = replace_text(before, path, given["old_string"], given["new_string"], given["replace_all"])
            return Change(encode(new), {"replacements": count}, state, before)
        from .notebooks import edit_notebook

        new, facts = await asyncio.to_thread(edit_notebook, before, path, given)
        return Change(encode(new), facts, state, before)

    async def _read_before(self, path: InnerPath) -> tuple[str, State]:
        """Return the text of a file before an edit, as the editor shows it or as it is on disk."""
        if self._writer is None:
            text, status = await asyncio.to_thread(read_text, self._folder, path)
            return text, State.of(status, digest(text.encode()))
        text = str(await self._writer.read_text(self._show_whole(path)))
        on_disk = await asyncio.to_thread(find_status, self._folder, path)
        return text, State(digest(encode(text)), changed=None if on_disk is None else on_disk.st_ctime_ns)

    def _find_state(self, path: InnerPath) -> State | None:
        """Return the state of a file on disk, with its content if another program has touched it; None without one."""
        status = find_status(self._folder, path)
        state = None if status is None else State.of(status)
        if state is not None and self._seen.is_unseen(path, state):
            with suppress(OSError), self._folder.open_file(path) as stream:
                return read_state(stream)
        return state

    async def _keep(self, path: InnerPath, change: Change) -> None:
        """Have what the file holds now kept for an undo, where the session has one."""
        undo = self._ask_for(UNDO)
        if undo is not None:
            before = encode(change.text) if self._writer is not None and change.text is not None else None
            await undo.keep(self._show_whole(path), digest(change.after), before)

    async def _write(self, path: InnerPath, change: Change) -> tuple[bool, State]:
        """Write a file; return whether it is new, and its state. Raises `Overtaken` if it changed since the plan."""
        if self._writer is None:
            return await run_to_end(write_file, self._folder, path, change.after, change.state)
        created = await asyncio.to_thread(prepare_write, self._folder, path)
        whole = self._show_whole(path)
        if change.text is not None and str(await self._writer.read_text(whole)) != change.text:
            raise Overtaken
        await self._writer.write_text(whole, change.after.decode())
        shown = change.after
        with suppress(OSError, FileToolError):  # it is written, whatever comes of the look
            shown = encode(str(await self._writer.read_text(whole)))  # an editor may format what it saves
        return created, State(digest(shown))

    def _read_bytes(self, path: InnerPath) -> bytes:
        with self._folder.open_file(path) as stream:
            data = stream.read(LARGEST_PREVIEW + 1)
        if len(data) > LARGEST_PREVIEW:
            raise FileToolError("FileTooLarge", f"{path} is larger than {LARGEST_PREVIEW} bytes")
        return data

    def _show_whole(self, path: InnerPath) -> str:
        return str(self._folder.root.joinpath(*path.parts))

    def _find_closed(self, tool: str, path: str) -> list[str]:
        """Return what the session's permissions keep from a search below a path."""
        gate = getattr(self._coordinator, "permissions", None)
        return [] if gate is None else gate.find_closed(tool, path)

    def _resolve(self, tool: str, given: str) -> InnerPath:
        """Return the path without links. Raises `NotPermitted`: a link may have changed since the call was decided."""
        if tool in WRITING and given.endswith("/"):
            raise InvalidInput(f"{given!r} names a folder; name a file, without '/' at its end")
        path, gate = self._folder.resolve(given), getattr(self._coordinator, "permissions", None)
        if gate is not None:
            from amplifier_core.permissions.hidden import show_hidden  # the kernel with gates has it

            # A file with hidden characters in its name may be read by its shown name; no rule lets one be written.
            name, shown = "/".join(path.parts), str(path)
            if tool not in WRITING:
                name, shown = show_hidden(name, BYTES), show_hidden(shown)
                if name != "/".join(path.parts):  # rules may fit the real name alone
                    closed = Closed(self._find_closed(tool, name))
                    if closed.leaves_out(Found(path.parts, path)):
                        told = f"the permissions close {shown} by its real name, about which nobody can be asked"
                        remedy = "a person may rename it, or write the rule for the name as it is shown"
                        raise FileToolError("NotPermitted", f"{told}; {remedy}")
            about = {"file_path": name}, {"file_path": kind_of(tool)}
            if tool == "edit_notebook" and gate.decide("edit_file", *about).effect == "deny":
                raise FileToolError("NotPermitted", f"a rule keeps edit_file from {path}, and so edit_notebook")
            effect = gate.decide(tool, *about).effect
            spellings = {os.path.normpath(f"{top}/{shown}") for top in (self._config.working_dir, self._folder.root)}
            is_itself = os.path.normpath(Path(self._config.working_dir, given)) in spellings
            if effect == "deny" or (effect == "ask" and not is_itself):
                raise NotPermitted(str(path))
        return path

    @asynccontextmanager
    async def _lock(self, tool: str, given: str) -> AsyncIterator[InnerPath]:
        """Give the path, and keep other writes away from it; writes to one file keep the order of their calls."""
        async with self._order:
            path = await asyncio.to_thread(self._resolve, tool, given)
        async with self._locks.setdefault(path, asyncio.Lock()), lock_file(self._folder, path):
            yield path

    async def _emit(self, event: str, path: str, size: int) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, {"path": path, "bytes": size})
