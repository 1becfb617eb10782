"""Names in bundles: what may be one, and which are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import UnknownName

from .merge import entry_key
from .positions import Place
from .prepared import DEFAULT_SESSION
from .problems import Problem, error_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .model import Bundle

_KINDS = {
    "providers": ("provider", ("provider-",)),
    "tools": ("tool", ("tool-",)),
    "hooks": ("hook", ("hooks-", "hook-")),
    "orchestrator": ("orchestrator", ("loop-", "orchestrator-")),
    "context": ("context", ("context-",)),
}


def is_bundle_name(name: str) -> bool:
    """Whether a bundle may be called so: it stands before `:` and a path in it."""
    return 1 <= len(name) <= 128 and name.isprintable() and name == name.strip() and not set(name) & set(":/\\")


def check_names(bundle: Bundle, triggers: Collection[str], modules: Collection[str]) -> list[Problem]:
    """Return an error for every trigger and module of a bundle that is not among those installed.

    A module whose code the bundle brings needs no installation.
    """
    problems = [
        _unknown(bundle, (section, *key), kind, name, modules)
        for section, key, kind, name in _named_modules(bundle)
        if name not in modules
    ]
    for config in bundle.background_sessions:
        for number, trigger in enumerate(config.triggers):
            if trigger.module not in triggers:
                spot = ("background_sessions", config.name, str(number))
                problems.append(_unknown(bundle, spot, "trigger", trigger.module, triggers))
    return problems


def _named_modules(bundle: Bundle) -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    """Yield section, key, kind and name of every module that must be installed."""
    for name, default in DEFAULT_SESSION.items():
        spec = bundle.session.get(name) or default
        entry = spec if isinstance(spec, dict) else {"module": spec, "source": bundle.session.get(f"{name}_source")}
        if entry.get("source") not in bundle.local_sources:
            yield "session", (name,), name, entry["module"]
    for section in ("providers", "tools", "hooks"):
        for entry in getattr(bundle, section):
            if entry.get("source") not in bundle.local_sources:
                yield section, entry_key(entry), section, entry["module"]


def _unknown(bundle: Bundle, spot: tuple[str, ...], kind: str, name: str, installed: Collection[str]) -> Problem:
    place = bundle.places.get(spot) or Place(f"bundle '{bundle.name}'", path=".".join(spot))
    shown, prefixes = _KINDS.get(kind, (kind, ()))
    alike = [known for known in installed if known.startswith(prefixes)] if prefixes else installed
    return error_at(place, "AMP110", str(UnknownName(shown, name, alike)))
