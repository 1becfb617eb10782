"""Make the tool of a session."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from amplifier_core.models import ToolResult

from .schemas import DESCRIPTION, SCHEMA, TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core import ModuleCoordinator

    from .config import SearchConfig

NAME = "search"
SEARCHES = 4
"""Searches of a session at one time: each is a process."""


class SearchTool:
    """Searches files; a failed call is a result with an error, never an exception."""

    name = NAME
    description = DESCRIPTION
    input_schema = SCHEMA
    accesses: ClassVar = {"path": "read inside", "files": "read inside"}
    """The permissions of a session are about the path; outside of the folder there is nothing to ask about."""

    def __init__(self, coordinator: ModuleCoordinator, config: Mapping[str, Any]) -> None:
        self._coordinator = coordinator
        self._given = config
        self._places = asyncio.Semaphore(SEARCHES)

    @cached_property
    def _config(self) -> SearchConfig:
        """The configuration, with the session's own working folder."""
        from .config import read_config

        folder = self._coordinator.get_capability("session.working_dir")
        return read_config({**self._given, **({"working_dir": str(folder)} if folder else {})})

    @cached_property
    def _root(self) -> Path:
        from pathlib import Path

        return Path(self._config.working_dir).resolve()

    @cached_property
    def _ripgrep(self) -> str:
        """The program `rg`, "" without one."""
        return find_program("rg", self._root) if self._config.ripgrep else ""

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Search; the `error` of a failed call has a `message` and a `type`."""
        from amplifier_tool_filesystem.failures import FileToolError
        from amplifier_tool_filesystem.schemas import check

        try:
            given = check(SCHEMA, input)
            _check_choices(given)
            async with self._places:
                return ToolResult(output=await self._search(given))
        except (FileToolError, ValueError) as failure:
            type_ = failure.type if isinstance(failure, FileToolError) else "ValueError"
            return ToolResult(success=False, error={"message": str(failure), "type": type_})

    async def _search(self, given: dict[str, Any]) -> dict[str, Any]:
        from importlib.util import find_spec

        from amplifier_tool_filesystem.searching import run_apart

        gate = getattr(self._coordinator, "permissions", None)  # another kernel has none
        more = {
            "root": str(self._root),
            "closed": gate.find_closed(NAME, given["path"]) if gate is not None else [],
            "ripgrep": self._ripgrep,
            "type": TYPES.get(given.get("type", ""), "**"),
            "seconds": self._config.timeout,
        }
        names = ("amplifier_core", "amplifier_tool_filesystem", "amplifier_trigger_file_watcher", "pathspec")
        files = [__file__, *(str(spec.origin) for spec in map(find_spec, names) if spec is not None)]
        return await run_apart(_CHILD, files, {**given, **more}, self._config.timeout)


_CHILD = "import sys; sys.path[:0] = sys.argv[1:]; from amplifier_tool_search.searching import main; main()"


def _check_choices(given: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for a value outside of a field's list, and for a pattern that no program can be given."""
    from difflib import get_close_matches

    from amplifier_tool_filesystem.failures import InvalidInput

    for name in ("type", "output"):
        known = SCHEMA["properties"][name]["enum"]
        if given.get(name) is not None and given[name] not in known:
            close = get_close_matches(given[name], known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
            raise InvalidInput(f"'{name}' cannot be {given[name]!r}; {hint}")
    try:
        is_text = "\0" not in given["pattern"] and bool(given["pattern"].encode())
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise InvalidInput("'pattern' has characters that no text has")


def find_program(name: str, root: Path) -> str:
    """Return the path of a program, "" for none; a folder of the project has none to run."""
    import os
    import shutil
    from pathlib import Path

    folders = [each for each in os.get_exec_path() if each.startswith("/")]
    for folder in folders:
        found = shutil.which(name, path=folder)
        if found and not Path(found).resolve().is_relative_to(root):
            return found
    return ""
