"""Offer notes that outlive sessions: a tool for agents, and the command `amplifier memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .notes import Note, NoteError, NoteNotFound, Notes

__all__ = ["Note", "NoteError", "NoteNotFound", "Notes", "mount"]

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import MemoryConfig

    return MemoryConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `memory`; with `inject`, its description has the titles of the newest notes.

    Each call looks up the session's capability `documents`. Raises `ValueError`, with the key, for a configuration that
    cannot work.
    """
    from .tool import MemoryTool

    options: dict[str, Any] = {}
    if config:
        from .config import read_config

        options = read_config(config).model_dump()
    inject = options.pop("inject", 0)
    tool = MemoryTool(coordinator, **options)
    if inject:
        await tool.describe_newest(inject)
    await coordinator.mount("tools", tool, name=tool.name)


def __getattr__(name: str) -> object:
    if name in __all__:
        from . import notes

        return getattr(notes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
