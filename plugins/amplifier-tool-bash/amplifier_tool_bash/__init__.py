"""Offer tools to run shell commands in a sandbox; each command is decoded for the permissions of the session."""

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
    from .config import BashConfig

    return BashConfig.model_json_schema()


def describe_sandbox() -> dict[str, Any]:
    """Return the sandbox of this machine, the reasons against others, and the facts that it covers.

    `kind` is `bubblewrap`, `landlock`, `sandbox-exec`, or None; `missing` says by kind why it cannot run; `covers` and
    `open` are lists of sentences; `tested` says whether this process has tried it.
    """
    from amplifier_sandbox.choosing import describe

    return describe()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `bash`, `bash_output` and `bash_kill`. Raises `ValueError`, with the key, for a wrong configuration."""
    from .config import read_config
    from .tools import make_tools

    checked = read_config(config or {}, coordinator.get_capability("session.working_dir"))
    for tool in make_tools(checked, coordinator):
        await coordinator.mount("tools", tool, name=tool.name)
