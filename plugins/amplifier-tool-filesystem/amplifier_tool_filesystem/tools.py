"""Make the tools for a session."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from amplifier_core.events import ARTIFACT_READ, ARTIFACT_WRITE
from amplifier_core.models import ToolResult

from .failures import FileToolError, InvalidInput, NotPermitted
from .folder import Folder, InnerPath
from .globs import find_files
from .reading import is_binary, read_lines, read_text
from .schemas import DESCRIPTIONS, SCHEMAS, check
from .searching import Search, search_apart
from .writing import edit_file, encode, prepare_write, replace_text, write_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import ParamSpec

    from amplifier_core import HookRegistry, ModuleCoordinator

    from .config import FilesystemConfig

    Action = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    Arguments = ParamSpec("Arguments")

Result = TypeVar("Result")

CLIENT = "client.files"
"""The capability with the files of an editor: `read_text(path)`, `write_text(path, text)`, and whether it `writes`."""
SEARCHES = 4
"""Searches of a session at one time: each is a process."""


class FileTool:
    """One tool; a failed call is a result with an error, never an exception."""

    def __init__(self, name: str, action: Action) -> None:
        self.name = name
        self.description = DESCRIPTIONS[name]
        self.input_schema = SCHEMAS[name]
        kind = kind_of(name)
        self.accesses = {"file_path": kind, "path": kind, "files": "read inside"}
        """The permissions of a session are about the path; outside of the folder there is nothing to ask about."""
        self._action = action

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Run the call; the `error` of a failed one has a `message` and a `type`."""
        try:
            return ToolResult(output=await self._action(check(self.input_schema, input)))
        except FileToolError as failure:
            return _make_failure(failure.type, str(failure))
        except OSError as error:
            path = input.get("file_path") or input.get("path", ".")
            return _make_failure(type(error).__name__, f"{path}: {error.strerror or error}")


def kind_of(tool: str) -> str:
    """Return what a tool does to the file that it gets, for the permissions."""
    return "write inside" if tool in ("write_file", "edit_file") else "read inside"


def make_tools(config: FilesystemConfig, coordinator: ModuleCoordinator) -> list[FileTool]:
    """Return the tools, without those that write if the configuration forbids writing."""
    files = _Files(config, coordinator)
    actions: dict[str, Action] = {"read_file": files.read, "glob": files.glob, "grep": files.grep}
    if config.allow_write:
        actions |= {"write_file": files.write, "edit_file": files.edit}
    return [FileTool(name, action) for name, action in actions.items()]


class _Files:
    """The actions of the tools, on checked input; threads read and write files, a process searches them."""

    def __init__(self, config: FilesystemConfig, coordinator: ModuleCoordinator) -> None:
        self._config = config
        self._coordinator = coordinator
        self._hooks: HookRegistry | None = getattr(coordinator, "hooks", None)
        self._folder = Folder(config.working_dir)
        self._order = asyncio.Lock()
        self._searches = asyncio.Semaphore(SEARCHES)
        self._locks: WeakValueDictionary[InnerPath, asyncio.Lock] = WeakValueDictionary()

    async def read(self, given: dict[str, Any]) -> dict[str, Any]:
        output, size = await (self._read_there(given) if self._client else asyncio.to_thread(self._read, given))
        await self._emit(ARTIFACT_READ, output["file_path"], size)
        return output

    async def write(self, given: dict[str, Any]) -> dict[str, Any]:
        data = encode(given["content"])
        async with self._lock("write_file", given["file_path"]) as path:
            created = await self._write(path, given["content"], data)
        await self._emit(ARTIFACT_WRITE, str(path), len(data))
        return {"file_path": str(path), "bytes": len(data), "created": created}

    async def edit(self, given: dict[str, Any]) -> dict[str, Any]:
        old, new = given["old_string"], given["new_string"]
        if old == new:
            raise InvalidInput("old_string and new_string are the same; there is nothing to change")
        async with self._lock("edit_file", given["file_path"]) as path:
            size, count = await self._edit(path, old, new, given["replace_all"])
        await self._emit(ARTIFACT_WRITE, str(path), size)
        return {"file_path": str(path), "bytes": size, "replacements": count}

    @property
    def _client(self) -> Any:
        """The files of an editor, as the person sees them; None without one."""
        get = getattr(self._coordinator, "get_capability", None)
        return get(CLIENT) if get is not None else None

    async def _read_there(self, given: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Read what the editor shows, also a new file; what is no text on disk is refused as ever."""
        path = await asyncio.to_thread(self._resolve, "read_file", given["file_path"])
        with suppress(FileNotFoundError), await asyncio.to_thread(self._folder.open_file, path) as stream:
            if is_binary(stream):
                return await asyncio.to_thread(self._read, given)
        data = encode(await self._client.read_text(self._show_whole(path)))
        return read_lines(BytesIO(data), path, given["offset"], given.get("limit"), self._config.max_bytes)

    async def _write(self, path: InnerPath, text: str, data: bytes) -> bool:
        if self._client is None or not self._client.writes:
            return await run_to_end(write_file, self._folder, path, data)
        created = await asyncio.to_thread(prepare_write, self._folder, path)
        await self._client.write_text(self._show_whole(path), text)
        return created

    async def _edit(self, path: InnerPath, old: str, new: str, replace_all: bool) -> tuple[int, int]:
        client = self._client
        if client is None or not client.writes:
            return await run_to_end(edit_file, self._folder, path, old, new, replace_all)
        await asyncio.to_thread(prepare_write, self._folder, path)
        text = await client.read_text(self._show_whole(path))
        text, count = replace_text(text, path, old, new, replace_all)
        size = len(encode(text))
        await client.write_text(self._show_whole(path), text)
        return size, count

    def _show_whole(self, path: InnerPath) -> str:
        return str(self._folder.root.joinpath(*path.parts))

    async def glob(self, given: dict[str, Any]) -> dict[str, Any]:
        path, closed = given["path"], self._find_closed("glob", given["path"])
        return await asyncio.to_thread(find_files, self._folder, path, given["pattern"], given["max_results"], closed)

    async def grep(self, given: dict[str, Any]) -> dict[str, Any]:
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

    def _find_closed(self, tool: str, path: str) -> list[str]:
        """Return what the session's permissions keep from a search below a path."""
        gate = getattr(self._coordinator, "permissions", None)
        return [] if gate is None else gate.find_closed(tool, path)

    def _read(self, given: dict[str, Any]) -> tuple[dict[str, Any], int]:
        path = self._resolve("read_file", given["file_path"])
        return read_text(self._folder, path, given["offset"], given.get("limit"), self._config.max_bytes)

    def _resolve(self, tool: str, given: str) -> InnerPath:
        """Return the path without links. Raises `NotPermitted`: a link may have changed since the call was decided."""
        path, gate = self._folder.resolve(given), getattr(self._coordinator, "permissions", None)
        if gate is not None:
            effect = gate.decide(tool, {"file_path": "/".join(path.parts)}, {"file_path": kind_of(tool)}).effect
            spellings = {os.path.normpath(f"{top}/{path}") for top in (self._config.working_dir, self._folder.root)}
            is_itself = os.path.normpath(Path(self._config.working_dir, given)) in spellings
            if effect == "deny" or (effect == "ask" and not is_itself):
                raise NotPermitted(str(path))
        return path

    @asynccontextmanager
    async def _lock(self, tool: str, given: str) -> AsyncIterator[InnerPath]:
        """Give the path, and keep other writes away from it; writes to one file keep the order of their calls."""
        async with self._order:
            path = await asyncio.to_thread(self._resolve, tool, given)
        async with self._locks.setdefault(path, asyncio.Lock()):
            yield path

    async def _emit(self, event: str, path: str, size: int) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, {"path": path, "bytes": size})


async def run_to_end(
    function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run `function` in a thread; a cancellation waits for its end, as nobody else may write before."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # nobody waits for the failure any more; asyncio would report it as forgotten
        raise


def _make_failure(type: str, message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message, "type": type})
