"""Ask Anthropic's Claude models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "provider"
credential_env_vars = ("ANTHROPIC_API_KEY",)


def check_config(config: dict[str, Any]) -> list[str]:
    """Return a warning for each unknown key: it may be for other programs.

    Raises `ValueError`, with the key, for one that cannot work or looks mistyped.
    """
    from .config import Settings

    return Settings.check(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import Settings

    return Settings.model_json_schema()


def preload() -> None:
    """Import what the first request needs, the SDK above all; a kernel calls it in a thread."""
    from importlib import import_module

    import_module(".provider", __name__)
    import_module("anthropic")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount the provider `anthropic`, and return its end: it closes the connections.

    Anthropic's SDK is imported meanwhile, in a thread. Raises `ValueError`, with the key, for a configuration that
    cannot work. A missing API key is an error of the first request.
    """
    from .config import Settings
    from .provider import AnthropicProvider

    provider = AnthropicProvider(Settings.read(config or {}), getattr(coordinator, "hooks", None))
    await coordinator.mount("providers", provider, name=provider.name)
    return provider.close
