"""Tools that read, write, edit and search files inside the session's working folder, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` naming the key of a configuration that cannot work."""
    from .config import read_config

    read_config(config, None)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount read_file, glob and grep, and write_file and edit_file unless `allow_write` is false.

    Raises `ValueError` naming the key of a configuration that cannot work.
    """
    from .config import read_config
    from .tools import make_tools

    settings = read_config(config or {}, coordinator.get_capability("session.working_dir"))
    for tool in make_tools(settings, getattr(coordinator, "hooks", None)):
        await coordinator.mount("tools", tool, name=tool.name)
