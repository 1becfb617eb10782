"""The tools as a session mounts them."""

from __future__ import annotations

import asyncio
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

    from amplifier_core import HookRegistry

    from .config import Settings

    Action = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

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
