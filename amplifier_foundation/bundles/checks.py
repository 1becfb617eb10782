"""Check bundles without making sessions of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import UnknownName

from .load import read_bundle
from .model import Bundle
from .positions import Place
from .prepared import DEFAULT_SESSION
from .problems import BundleProblems, Problem, error_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

_KINDS = {
    "providers": ("provider", ("provider-",)),
    "tools": ("tool", ("tool-",)),
    "hooks": ("hook", ("hooks-", "hook-")),
    "orchestrator": ("orchestrator", ("loop-", "orchestrator-")),
    "context": ("context", ("context-",)),
}


def validate_bundle(
    bundle: Bundle | str | Path, *, registry: Mapping[str, str | Path] | None = None, strict: bool = False
) -> list[Problem]:
    """Return everything wrong with a bundle, or with the first broken one that it includes; warnings too.

    Raises `BundleNotFoundError` and `BundleLoadError` when there is no file to check.
    """
    try:
        if not isinstance(bundle, Bundle):
            return read_bundle(bundle, registry=registry, strict=strict).problems
        known = {(problem.code, problem.path) for problem in bundle.problems}
        found = Bundle.from_dict(_as_data(bundle), bundle.base_path, strict=strict).problems
        return [*bundle.problems, *(problem for problem in found if (problem.code, problem.path) not in known)]
    except BundleProblems as error:
        return list(error.problems)


def _as_data(bundle: Bundle) -> dict[str, Any]:
    """Return the front matter of a bundle that a program may have changed."""
    about = {"name": bundle.name, "version": bundle.version, "description": bundle.description}
    sections: dict[str, Any] = {"bundle": about, **bundle.to_mount_plan(), "includes": list(bundle.includes)}
    sections["context"] = {name: str(path) for name, path in bundle.context.items()}
    sections["background_sessions"] = [
        config.model_dump() if hasattr(config, "model_dump") else config for config in bundle.background_sessions
    ]
    return sections


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
    from .merge import entry_key

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
