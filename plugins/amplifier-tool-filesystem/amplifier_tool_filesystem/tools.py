"""Make the tools for a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.models import ToolResult

from .actions import WRITING, FileActions, kind_of
from .failures import FileToolError
from .images import Reply
from .schemas import DESCRIPTIONS, SCHEMAS, check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import ModuleCoordinator

    from .config import FilesystemConfig

    Action = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | Reply]]


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
            output = await self._action(check(self.input_schema, input))
        except FileToolError as failure:
            return _make_failure(failure.type, str(failure))
        except OSError as error:
            path = input.get("file_path") or input.get("path", ".")
            return _make_failure(type(error).__name__, f"{path}: {error.strerror or error}")
        if isinstance(output, Reply):
            return ToolResult(output=output.output, content=output.images or None)  # type: ignore[arg-type]
        return ToolResult(output=output)


class WritingTool(FileTool):
    """A tool that changes a file; a person who is asked for a call sees the change."""

    def __init__(self, name: str, files: FileActions) -> None:
        async def change(given: dict[str, Any]) -> dict[str, Any]:
            return await files.change(name, given)

        super().__init__(name, change)
        self._files = files

    async def preview(self, input: dict[str, Any]) -> str:
        """Return a unified diff of the change, and the digest of what it replaces. Raises as a call would fail."""
        return await self._files.preview(self.name, check(self.input_schema, input))


def make_tools(config: FilesystemConfig, coordinator: ModuleCoordinator) -> list[FileTool]:
    """Return the tools, without those that write if the configuration forbids writing."""
    files = FileActions(config, coordinator)
    tools = [FileTool("read_file", files.read), FileTool("glob", files.glob), FileTool("grep", files.grep)]
    return [*tools, *(WritingTool(name, files) for name in WRITING)] if config.allow_write else tools


def _make_failure(type: str, message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message, "type": type})
