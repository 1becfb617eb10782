"""Tools that read and write the files of the session's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from amplifier_core import ModuleCoordinator, ToolResult
from amplifier_core.events import ARTIFACT_READ, ARTIFACT_WRITE

__amplifier_module_type__ = "tool"


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    config = config or {}
    folder = config.get("working_dir") or coordinator.get_capability("session.working_dir") or "."
    for tool in (ReadTool(Path(folder), coordinator), WriteTool(Path(folder), coordinator)):
        await coordinator.mount("tools", tool, name=tool.name)


class ReadTool:
    name = "read_file"
    description = "Read a file; @names are mentions."
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }

    def __init__(self, folder: Path, coordinator: ModuleCoordinator) -> None:
        self.folder = folder
        self.coordinator = coordinator

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        path = self._resolve(input["path"])
        if path is None or not path.is_file():
            return ToolResult(success=False, error={"message": f"no file {input['path']}"})
        await self.coordinator.hooks.emit(ARTIFACT_READ, {"path": str(path), "bytes": path.stat().st_size})
        return ToolResult(success=True, output={"path": path.name, "content": path.read_text(encoding="utf-8")})

    def _resolve(self, path: str) -> Path | None:
        if not path.startswith("@"):
            return self.folder / path
        resolver = self.coordinator.get_capability("mention_resolver")
        return resolver.resolve(path) if resolver is not None else None


class WriteTool:
    name = "write_file"
    description = "Write a file."
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    }

    def __init__(self, folder: Path, coordinator: ModuleCoordinator) -> None:
        self.folder = folder
        self.coordinator = coordinator

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        path = self.folder / input["path"]
        written = path.write_text(input["content"], encoding="utf-8")
        await self.coordinator.hooks.emit(ARTIFACT_WRITE, {"path": str(path), "bytes": written})
        return ToolResult(success=True, output={"path": path.name, "bytes": written})
