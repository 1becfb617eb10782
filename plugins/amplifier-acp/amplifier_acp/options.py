"""Offer the permission mode, the provider and the model of a session as options of the editor."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.capabilities import VISION
from amplifier_core.permissions import Layer, Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.permissions import Mode
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord
    from amplifier_foundation.bundle.model import Bundle

CHOSEN = "editor"
"""The member of a record's metadata with the choices of the person: `mode`, `provider`, `model`."""
MODE, PROVIDER, MODEL = "mode", "provider", "model"
EPHEMERAL = "ephemeral"
"""The choice of a fork that is deleted when it is closed."""
MADE_HERE = "made_in_editor"
"""The member of a record's metadata with the id of its session, which a fork inherits from its source, and the process
that has made it.
"""
DEFAULT = "default"
"""The value for the model that the provider takes by itself."""
MODES: dict[Mode, tuple[str, str]] = {
    "auto": ("Auto", "Tools act in the working folder; commands, the network and files elsewhere are asked for."),
    "ask": ("Ask", "Everything is asked for, but reading in the working folder."),
    "read-only": ("Read only", "Nothing is written, run or sent."),
}
"""The modes, the laxest first."""
_ORDER = list(MODES)


def offered_modes(policy: Policy | None) -> list[Mode]:
    """Return the modes that a person can choose: the bundle and the project only let them be stricter."""
    if policy is None:
        return _ORDER
    given = [layer.mode for layer in policy.layers if layer.mode is not None and not layer.is_own]
    laxest = max((_ORDER.index(mode) for mode in given), default=0)
    return _ORDER[laxest:]


def mode_of(policy: Policy) -> Mode:
    """Return the mode in force: the strictest of all layers."""
    given = [_ORDER.index(layer.mode) for layer in policy.layers if layer.mode is not None]
    return _ORDER[max(given, default=0)]


def with_mode(policy: Policy, mode: Mode) -> Policy:
    """Return the policy with a mode chosen by the person: that of the own settings gives way, and their rules stay."""
    own = next((layer for layer in policy.layers if layer.is_own), Layer("the editor", is_own=True))
    others = [
        Layer(layer.source, layer.rules, None, is_own=True) if layer.is_own else layer
        for layer in policy.layers
        if layer is not own
    ]
    return Policy([Layer(own.source, own.rules, mode, is_own=True), *others], policy.remember, policy.refresh)


def show_modes(current: str, offered: Sequence[str]) -> dict[str, Any]:
    """Return the modes as the protocol has them."""
    listed = [{"id": mode, "name": MODES[mode][0], "description": MODES[mode][1]} for mode in MODES if mode in offered]
    return {"currentModeId": current, "availableModes": listed}


def show_options(
    modes: dict[str, Any], providers: Sequence[str], model: str, models: Sequence[str]
) -> list[dict[str, Any]]:
    """Return all options as the protocol has them; the first of the providers answers."""
    told = [
        _show_select(
            MODE,
            "Permissions",
            modes["currentModeId"],
            [
                {"value": each["id"], "name": each["name"], "description": each["description"]}
                for each in modes["availableModes"]
            ],
        )
    ]
    if providers:
        listed = [{"value": each, "name": each.removeprefix("provider-")} for each in providers]
        told.append(_show_select(PROVIDER, "Provider", providers[0], listed))
        known = dict.fromkeys((model, DEFAULT, *models))
        options = [{"value": each, "name": "the provider's default" if each == DEFAULT else each} for each in known]
        told.append(_show_select(MODEL, "Model", model, options))
    return told


def _show_select(number: str, name: str, current: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    category = {MODE: "mode", MODEL: "model"}.get(number, "_provider")
    return {
        "id": number,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": options,
    }


def chosen_of(record: SessionRecord) -> dict[str, Any]:
    """Return the choices of the person in a session; that it is not to be kept is none for a fork of it."""
    chosen, made = record.metadata.get(CHOSEN), record.metadata.get(MADE_HERE)
    is_own = isinstance(made, list) and made[:1] == [record.session_id]
    found = chosen.items() if isinstance(chosen, dict) else ()
    return {name: value for name, value in found if name != EPHEMERAL or is_own}


def providers_of(bundle: Bundle) -> list[str]:
    """Return the names of a bundle's providers, the one that answers first."""
    from amplifier_foundation.bundle.preferences import find_entry, list_preferred, priority_of

    entries = sorted(bundle.providers, key=priority_of)
    for name in reversed(list_preferred({"session": bundle.session})):
        found = find_entry({"providers": bundle.providers}, name)
        if found is not None:
            entries = [found, *(each for each in entries if each is not found)]
    return [str(entry.get("instance_id") or entry["module"]) for entry in entries]


def provider_of(session: AmplifierSession) -> Any:
    """Return the mounted provider that answers, a preferred one or the first by priority; None: there is none."""
    from amplifier_foundation.bundle.preferences import find_mounted, list_preferred

    mounted = session.coordinator.get("providers") or {}
    for name in list_preferred(session.coordinator.config or {}):
        if (found := find_mounted(name, session.coordinator)) is not None:
            return mounted[found]
    return min(mounted.values(), key=lambda each: getattr(each, "priority", 100), default=None)


def takes_images(provider: Any) -> bool:
    """Return whether a provider says that it sees images; one that says nothing may."""
    with suppress(Exception):  # it is the code of others
        abilities = provider.get_info().capabilities
        return not abilities or VISION in abilities
    return True


def read_info(provider: Any, name: str) -> Any:
    """Return a default of a provider's description; None where it has none."""
    with suppress(Exception):  # it is the code of others
        return provider.get_info().defaults.get(name)
    return None
