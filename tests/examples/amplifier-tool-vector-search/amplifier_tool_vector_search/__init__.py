"""Find the passages of a folder that are nearest to a question."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from amplifier_core import ToolResult

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .index import Index

__amplifier_module_type__ = "tool"

FILES = "**/*.md"
MOST = 10
"""Passages in a result."""


class VectorSearchTool:
    """Makes the index of a folder at its first call, and searches it."""

    name = "vector_search"
    description = "Find the passages of the notes that are nearest to a question, the best first."
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "The question, in your own words."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST,
                "description": "Passages; by default 3.",
            },
        },
        "required": ["query"],
    }

    def __init__(self, folder: Path, files: str = FILES) -> None:
        self._folder, self._files = folder, files
        self._index: Index | None = None

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Return the passages with their places and scores; a wrong argument is a failed result."""
        query, limit = input.get("query"), input.get("limit", 3)
        if not isinstance(query, str) or not query.strip():
            return ToolResult(success=False, error={"message": "query: write a question"})
        if not isinstance(limit, int) or not 1 <= limit <= MOST:
            return ToolResult(success=False, error={"message": f"limit: a number from 1 to {MOST}"})
        found = await asyncio.to_thread(self._search, query, limit)
        return ToolResult(output={"passages": found, "count": len(found)})

    def _search(self, query: str, limit: int) -> list[dict[str, Any]]:
        if self._index is None:
            from .index import Index

            self._index = Index.of_folder(self._folder, self._files)
        return [
            {"file": passage.file, "line": passage.line, "score": round(score, 3), "text": passage.text}
            for score, passage in self._index.search(query, limit)
        ]


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` for a key that is unknown, or has a value that cannot work."""
    for key, value in config.items():
        if key != "files":
            raise ValueError(f"tool-vector-search: {key}: unknown key; known is files")
        if not isinstance(value, str) or value.startswith("/") or ".." in Path(value).parts:
            raise ValueError("tool-vector-search: files: must be a pattern below the working folder, such as **/*.md")


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    return {"type": "object", "properties": {"files": {"type": "string"}}, "additionalProperties": False}


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the tool for the working folder of the session."""
    check_config(config or {})
    folder = coordinator.get_capability("session.working_dir") or Path.cwd()
    tool = VectorSearchTool(Path(folder), **(config or {}))
    await coordinator.mount("tools", tool, name=tool.name)
