"""Names in bundles: what may be one, and which are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.errors import UnknownName

from .merge import entry_key
from .paths import is_remote
from .positions import Place
from .prepared import DEFAULT_SESSION
from .problems import Problem, error_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .model import Bundle

KINDS = {
    "providers": ("provider", ("provider-",)),
    "tools": ("tool", ("tool-",)),
    "hooks": ("hook", ("hooks-", "hook-")),
    "orchestrator": ("orchestrator", ("loop-", "orchestrator-")),
    "context": ("context", ("context-",)),
}
"""What a module is called in the section that it stands in, and how its name begins there."""


def is_bundle_name(name: str) -> bool:
    """Whether a bundle may be called so: it stands before `:` and a path in it."""
    return 1 <= len(name) <= 128 and name.isprintable() and name == name.strip() and not set(name) & set(":/\\")


class NamedModule(NamedTuple):
    """One module that a bundle mounts and brings no code for; `kind` is a key of `KINDS`, `source` as written."""

    section: str
    key: tuple[str, ...]
    kind: str
    name: str
    source: str | None


def check_names(bundle: Bundle, triggers: Collection[str], modules: Collection[str]) -> list[Problem]:
    """Return an error for every trigger and module of a bundle that is not among those installed.

    A module whose code the bundle brings needs no installation.
    """
    problems = [
        _unknown(bundle, (each.section, *each.key), each.kind, each.name, modules, each.source)
        for each in named_modules(bundle)
        if each.name not in modules
    ]
    for config in bundle.background_sessions:
        for number, trigger in enumerate(config.triggers):
            if trigger.module not in triggers:
                spot = ("background_sessions", config.name, str(number))
                problems.append(_unknown(bundle, spot, "trigger", trigger.module, triggers))
    return problems


def named_modules(bundle: Bundle) -> Iterator[NamedModule]:
    """Yield every module that must be installed."""
    for name, default in DEFAULT_SESSION.items():
        spec = bundle.session.get(name) or default
        entry = spec if isinstance(spec, dict) else {"module": spec}
        source = entry.get("source") or bundle.session.get(f"{name}_source")
        if source not in bundle.local_sources:
            yield NamedModule("session", (name,), name, entry["module"], source)
    for section in ("providers", "tools", "hooks"):
        for entry in getattr(bundle, section):
            if entry.get("source") not in bundle.local_sources:
                yield NamedModule(section, entry_key(entry), section, entry["module"], entry.get("source"))


def _unknown(
    bundle: Bundle,
    spot: tuple[str, ...],
    kind: str,
    name: str,
    installed: Collection[str],
    source: str | None = None,
) -> Problem:
    place = bundle.places.get(spot) or Place(f"bundle '{bundle.name}'", path=".".join(spot))
    shown, prefixes = KINDS.get(kind, (kind, ()))
    alike = [known for known in installed if known.startswith(prefixes)] if prefixes else installed
    message = str(UnknownName(shown, name, alike))
    if source and is_remote(source):
        message = message.removesuffix(f"pip install amplifier-{name}") + "amplifier bundle install"
    return error_at(place, "AMP110", message)
