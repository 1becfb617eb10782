"""Offer issues: a tool for agents, the command `amplifier issue`, and the tracker `issue` of background sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .issues import Issue, IssueError, IssueNotFound
    from .tracker import Tracker

__all__ = ["Issue", "IssueError", "IssueNotFound", "Tracker", "mount"]

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import IssueConfig

    return IssueConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `issue`.

    Each call looks up the session's capability `documents`. Raises `ValueError`, with the key, for a configuration that
    cannot work.
    """
    from .config import read_config
    from .tool import IssueTool

    tool = IssueTool(coordinator, read_config(config or {}))
    await coordinator.mount("tools", tool, name=tool.name)


def __getattr__(name: str) -> object:
    if name == "Tracker":
        from .tracker import Tracker

        return Tracker
    if name in ("Issue", "IssueError", "IssueNotFound"):
        from . import issues

        return getattr(issues, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
