"""Check a bundle without making sessions of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleError

from .load import read_bundle
from .model import Bundle
from .names import check_names
from .paths import is_path
from .positions import Place
from .problems import BundleProblems, Problem, error_at

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from amplifier_core.plugins import Plugins


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


async def check_bundle(path: str | Path, plugins: Plugins) -> list[Problem]:
    """Return everything wrong with the bundle at `path` and with the local bundles that its background sessions run.

    Names are checked against `plugins` and the modules installed; no module is imported. Raises `BundleNotFoundError`
    and `BundleLoadError` when there is no file to check.
    """
    import asyncio

    return await asyncio.to_thread(_check_file, path, set(plugins.triggers), _installed_modules())


def _installed_modules() -> set[str]:
    from importlib.metadata import entry_points

    from amplifier_core.loader import GROUP

    return {entry.name for entry in entry_points(group=GROUP)}


def _check_file(path: str | Path, triggers: Collection[str], modules: Collection[str]) -> list[Problem]:
    try:
        bundle = read_bundle(path)
    except BundleProblems as error:
        return list(error.problems)
    problems = [*bundle.problems, *check_names(bundle, triggers, modules)]
    for name, source in _local_workers(bundle):
        try:
            worker = read_bundle(source)
            found = [*worker.problems, *check_names(worker, triggers, modules)]
        except BundleProblems as error:
            found = list(error.problems)
        except BundleError as error:
            found = [error_at(_place_of(bundle, name), "AMP108", str(error))]
        problems += [problem for problem in found if problem not in problems]
    return problems


def _local_workers(bundle: Bundle) -> list[tuple[str, str]]:
    """Return the background sessions that run another bundle of this machine, and which."""
    return [
        (config.name, config.bundle)
        for config in bundle.background_sessions
        if config.bundle and is_path(config.bundle)
    ]


def _place_of(bundle: Bundle, name: str) -> Place:
    return bundle.places.get(("background_sessions", name)) or Place(f"bundle '{bundle.name}'", path=name)
