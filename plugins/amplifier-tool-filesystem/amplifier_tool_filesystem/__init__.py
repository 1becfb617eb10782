"""Offer tools to read, write, edit and search files inside the session's working folder, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config, None)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import FilesystemConfig

    return FilesystemConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount read_file, glob and grep; and write_file and edit_file unless `allow_write` is false.

    Raises `ValueError`, with the key, for a configuration that cannot work.
    """
    from .config import read_config
    from .tools import make_tools

    checked = read_config(config or {}, coordinator.get_capability("session.working_dir"))
    for tool in make_tools(checked, coordinator):
        await coordinator.mount("tools", tool, name=tool.name)
