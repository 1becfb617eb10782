"""Answer the requests of sessions: here with an echo, in your package with the answers of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "provider"
credential_env_vars = ()  # the variables with keys, such as ("EXAMPLE_API_KEY",)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the provider into a session."""
    from .provider import ExampleProvider  # not at import: whoever lists plugins would wait for it

    if config:
        raise ValueError(f"provider-example: {next(iter(config))}: unknown key; none is known")
    await coordinator.mount("providers", ExampleProvider(), name="example")
