"""Names in bundles: what may be one, and which are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import UnknownName

from .merge import entry_key
from .paths import is_remote
from .positions import Place, format_path
from .prepared import DEFAULT_SESSION
from .problems import Problem, error_at, warning_at
from .sources import module_entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .model import Bundle
    from .positions import KeyPath

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

    place: Place
    kind: str
    name: str
    source: str | None


def check_names(bundle: Bundle, triggers: Collection[str], modules: Collection[str]) -> list[Problem]:
    """Return an error for every trigger and module of a bundle that is not among those installed.

    For what only its agents name, a warning: it works without them. A module whose code the bundle brings needs no
    installation.
    """
    problems = [
        error_at(each.place, "AMP110", _unknown(each.kind, each.name, modules, each.source))
        for each in named_modules(bundle)
        if each.name not in modules
    ]
    told = {each.name for each in named_modules(bundle)}
    problems += [
        warning_at(each.place, "AMP109", _unknown(each.kind, each.name, modules, each.source))
        for each in modules_of_agents(bundle)
        if each.name not in modules and each.name not in told
    ]
    for config in bundle.background_sessions:
        for number, trigger in enumerate(config.triggers):
            if trigger.module not in triggers:
                place = place_of(bundle, "background_sessions", config.name, str(number))
                problems.append(error_at(place, "AMP110", _unknown("trigger", trigger.module, triggers)))
    return problems


def named_modules(bundle: Bundle) -> Iterator[NamedModule]:
    """Yield every module that must be installed."""
    for name, default in DEFAULT_SESSION.items():
        spec = bundle.session.get(name) or default
        entry = spec if isinstance(spec, dict) else {"module": spec}
        source = entry.get("source") or bundle.session.get(f"{name}_source")
        if source not in bundle.local_sources:
            yield NamedModule(place_of(bundle, "session", name), name, entry["module"], source)
    for section in ("providers", "tools", "hooks"):
        for entry in getattr(bundle, section):
            if entry.get("source") not in bundle.local_sources:
                place = place_of(bundle, section, *entry_key(entry))
                yield NamedModule(place, section, entry["module"], entry.get("source"))


def modules_of_agents(bundle: Bundle) -> Iterator[NamedModule]:
    """Yield every module that an agent needs beside those; nobody has checked what an inline agent says."""
    from .layers import origin

    for name, agent in bundle.agents.items():
        for kind, path, entry in _entries_of(agent):
            module, source = entry.get("module"), entry.get("source")
            if isinstance(module, str) and source not in bundle.local_sources:
                whole = ("agents", name, *path)
                place = origin(bundle, whole) or Place(f"bundle '{bundle.name}'", path=format_path(whole))
                yield NamedModule(place, kind, module, source if isinstance(source, str) else None)


def _entries_of(agent: Any) -> Iterator[tuple[str, KeyPath, dict[str, Any]]]:
    """Yield the kind of each module entry in an agent's plan, where its name stands, and the entry."""
    plan = agent if isinstance(agent, dict) else {}
    session = plan.get("session")
    for kind in ("orchestrator", "context"):
        spec = session.get(kind) if isinstance(session, dict) else None
        if isinstance(spec, dict):
            yield kind, ("session", kind, "module"), spec
        else:
            yield kind, ("session", kind), {"module": spec}
    for section, number, entry in module_entries(plan):
        yield section, (section, number, "module"), entry


def place_of(bundle: Bundle, *spot: str) -> Place:
    """Return where something stands that can only be checked later; the bundle itself, when a program made it."""
    return bundle.places.get(spot) or Place(f"bundle '{bundle.name}'", path=".".join(spot))


def _unknown(kind: str, name: str, installed: Collection[str], source: str | None = None) -> str:
    shown, prefixes = KINDS.get(kind, (kind, ()))
    alike = [known for known in installed if known.startswith(prefixes)] if prefixes else installed
    message = str(UnknownName(shown, name, alike))
    if source and is_remote(source):
        message = message.removesuffix(f"pip install amplifier-{name}") + "amplifier bundle install"
    return message
