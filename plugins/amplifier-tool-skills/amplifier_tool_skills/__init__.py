"""Offer the skills and slash commands of the bundle, the project and the person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import SkillsConfig

    return SkillsConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `skill`, and offer slash commands. Raises `ValueError`, with the key, for an impossible configuration."""
    from .catalog import LIST_CHARS, OWNERS, Catalog
    from .tool import SkillTool

    owners, list_chars = OWNERS, LIST_CHARS
    if config:
        from .config import read_config

        checked = read_config(config)
        owners, list_chars = tuple(checked.sources), checked.list_chars
    catalog = Catalog(coordinator, owners)
    tool = SkillTool(catalog, list_chars)
    await coordinator.mount("tools", tool, name=tool.name)
    coordinator.hooks.register("prompt:submit", catalog.on_prompt, name="tool-skills")
    coordinator.register_contributor("prompt.commands", "tool-skills", tool.offer_commands)
