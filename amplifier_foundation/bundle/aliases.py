"""Resolve the aliases of models in the settings: `models: {fast: …, strong: …}`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

MODEL_KEYS = ("default_model", "model")
"""The members of a provider's configuration with its model."""


def resolve_alias(model: str, provider: str, coordinator: ModuleCoordinator | None) -> str:
    """Return the model of an alias for a provider, named with or without `provider-`; any other name as it is.

    The settings are those of the session's folder; damaged ones are a warning.
    """
    from amplifier_core.errors import AmplifierError

    from ..settings import read_settings, settings_exist

    folder = coordinator.get_capability("session.working_dir") if coordinator is not None else None
    try:
        known: dict[str, Any] = read_settings(folder).get("models") if settings_exist(folder) else {}
    except AmplifierError as error:
        logger.warning("the aliases of models are not read: %s", error)
        return model
    found = known.get(model, model)
    if isinstance(found, dict):
        name = provider.removeprefix("provider-")
        return str(found.get(name, found.get(f"provider-{name}", model)))
    return str(found)


def names_model(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration of a provider names a model."""
    default, model = MODEL_KEYS
    return config.get(default) is not None or config.get(model) is not None


def with_model(config: dict[str, Any], provider: str, coordinator: ModuleCoordinator | None) -> dict[str, Any]:
    """Return the configuration of a provider with the model of its alias."""
    named = {key: config[key] for key in MODEL_KEYS if isinstance(config.get(key), str)}
    return {**config, **{key: resolve_alias(model, provider, coordinator) for key, model in named.items()}}
