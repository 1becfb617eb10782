"""The tools as a session mounts them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from amplifier_core.events import ARTIFACT_READ, ARTIFACT_WRITE
from amplifier_core.models import ToolResult

from .failures import Failure, InvalidInput
from .folder import Folder, Place
from .globs import find_files
from .reading import read_text
from .schemas import DESCRIPTIONS, SCHEMAS, check
from .searching import Search, search_apart
from .writing import edit_file, encode, write_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import ParamSpec

    from amplifier_core import HookRegistry

    from .config import Settings

    Action = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    Arguments = ParamSpec("Arguments")

Result = TypeVar("Result")


class FileTool:
    """One tool. A call that cannot be done is a result that says why, never an exception."""

    def __init__(self, name: str, action: Action) -> None:
        self.name = name
        self.description = DESCRIPTIONS[name]
        self.input_schema = SCHEMAS[name]
        self._action = action

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Do the call; on failure `error` has a `message` and a `type`."""
        try:
            return ToolResult(output=await self._action(check(self.input_schema, input)))
        except Failure as failure:
            return _failed(failure.type, str(failure))
        except OSError as error:
            path = input.get("file_path") or input.get("path", ".")
            return _failed(type(error).__name__, f"{path}: {error.strerror or error}")


def make_tools(settings: Settings, hooks: HookRegistry | None) -> list[FileTool]:
    """Return the tools that the settings allow."""
    files = _Files(settings, hooks)
    actions: dict[str, Action] = {"read_file": files.read, "glob": files.glob, "grep": files.grep}
    if settings.allow_write:
        actions |= {"write_file": files.write, "edit_file": files.edit}
    return [FileTool(name, action) for name, action in actions.items()]


class _Files:
    """What the tools do, with the input checked. Files are touched in threads, searched in a process."""

    def __init__(self, settings: Settings, hooks: HookRegistry | None) -> None:
        self._settings = settings
        self._hooks = hooks
        self._folder = Folder(settings.working_dir)
        self._arrival = asyncio.Lock()
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def read(self, given: dict[str, Any]) -> dict[str, Any]:
        limit, max_bytes = given.get("limit"), self._settings.max_bytes
        output, size = await asyncio.to_thread(
            read_text, self._folder, given["file_path"], given["offset"], limit, max_bytes
        )
        await self._emit(ARTIFACT_READ, output["file_path"], size)
        return output

    async def write(self, given: dict[str, Any]) -> dict[str, Any]:
        data = encode(given["content"])
        async with self._alone(given["file_path"]) as place:
            created = await to_the_end(write_file, self._folder, place, data)
        await self._emit(ARTIFACT_WRITE, str(place), len(data))
        return {"file_path": str(place), "bytes": len(data), "created": created}

    async def edit(self, given: dict[str, Any]) -> dict[str, Any]:
        old, new = given["old_string"], given["new_string"]
        if old == new:
            raise InvalidInput("old_string and new_string are the same; there is nothing to change")
        async with self._alone(given["file_path"]) as place:
            size, count = await to_the_end(edit_file, self._folder, place, old, new, given["replace_all"])
        await self._emit(ARTIFACT_WRITE, str(place), size)
        return {"file_path": str(place), "bytes": size, "replacements": count}

    async def glob(self, given: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(find_files, self._folder, given["path"], given["pattern"], given["max_results"])

    async def grep(self, given: dict[str, Any]) -> dict[str, Any]:
        return await search_apart(
            Search(
                root=str(self._folder.root),
                path=given["path"],
                pattern=given["pattern"],
                files=given["files"],
                ignore_case=given["ignore_case"],
                max_results=given["max_results"],
            ),
            self._settings.grep_timeout,
        )

    @asynccontextmanager
    async def _alone(self, given: str) -> AsyncIterator[Place]:
        """Give the place, and no other write to it until the end; writes to one file happen in the order they came."""
        async with self._arrival:
            place = await asyncio.to_thread(self._folder.locate, given)
        async with self._locks.setdefault(place, asyncio.Lock()):
            yield place

    async def _emit(self, event: str, path: str, size: int) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, {"path": path, "bytes": size})


async def to_the_end(
    function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run `function` in a thread; a cancellation waits for it, as nobody else may write before it has ended."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # a failure nobody waits for any more is not to be reported as forgotten
        raise


def _failed(type: str, message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message, "type": type})
