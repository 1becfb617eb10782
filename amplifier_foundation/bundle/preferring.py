"""Prefer the provider and the model of a command line in a loaded bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .credentials import PREFIX
from .first_provider import choose_provider
from .preferences import KEY, find_entry, find_first

if TYPE_CHECKING:
    from .model import Bundle


def prefer(bundle: Bundle, provider: str | None, model: str | None) -> None:
    """Put a preference before those of the bundle; a provider that the bundle lacks is added to it.

    A model without a provider is for the provider that answers otherwise. Raises `ProviderMissing`.
    """
    preferences = list(bundle.session.get(KEY) or ())
    first = find_first({"providers": bundle.providers, "session": bundle.session})
    if provider is None and preferences:
        provider = str(preferences[0]["provider"])
    elif provider is None and first is not None:
        provider = str(first.get("instance_id") or first["module"])
    if provider is None or find_entry({"providers": bundle.providers}, provider) is None:
        choice = choose_provider(provider, model)
        entry = {"module": choice.module, "config": choice.config}
        if provider is not None and choice.module != PREFIX + provider.removeprefix(PREFIX):
            entry["instance_id"] = provider
        bundle.providers.append(entry)
        provider = provider or choice.module
    bundle.session[KEY] = [{"provider": provider, "model": model}, *preferences]
