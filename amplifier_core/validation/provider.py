"""Validate providers: the way of a session to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .validator import ModuleValidator, check_complete, check_method, record_absence

if TYPE_CHECKING:
    from ..testing import MockCoordinator
    from .base import ValidationResult

PROTOCOL = ("name", "get_info", "list_models", "complete", "parse_tool_calls")


class ProviderValidator(ModuleValidator):
    """Validates a module of providers; no model is asked."""

    module_type: ClassVar[str] = "provider"

    def check_mounted(self, result: ValidationResult, coordinator: MockCoordinator) -> None:
        """Record whether each provider keeps the protocol."""
        providers = coordinator.get("providers")
        if not providers:
            record_absence(result, "provider", '"providers", provider, name="…"')
        for name, provider in providers.items():
            if check_complete(result, f"provider '{name}'", provider, PROTOCOL):
                _check(result, f"provider '{name}'", provider)


def _check(result: ValidationResult, title: str, provider: Any) -> None:
    name = provider.name
    good, bad = f"{title} is named {name!r}", f"{title}: name must be a text that is not empty, not {name!r}"
    result.record("provider_name", isinstance(name, str) and bool(name), good, bad)
    _check_info(result, title, provider)
    check_method(result, "provider_list_models", f"{title}: list_models()", provider.list_models)
    check_method(result, "provider_complete", f"{title}: complete()", provider.complete, "request")
    parses = callable(provider.parse_tool_calls)
    good, bad = f"{title}: parse_tool_calls() found", f"{title}: parse_tool_calls must be a method"
    result.record("provider_parse_tool_calls", parses, good, bad)


def _check_info(result: ValidationResult, title: str, provider: Any) -> None:
    from ..models import ProviderInfo

    try:
        info = provider.get_info()
    except Exception as error:  # it may need credentials, or a network
        bad = f"{title}: get_info() raised {type(error).__name__}: {error}"
        result.record("provider_get_info", False, "", bad, "warning")
        return
    good = f"{title}: get_info() returns ProviderInfo"
    bad = f"{title}: get_info() must return ProviderInfo, not {type(info).__name__}"
    result.record("provider_get_info", isinstance(info, ProviderInfo), good, bad)
