"""Check a bundle without making sessions of it."""

from __future__ import annotations

import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleError
from amplifier_core.triggers import TriggerContext

from .agents import problems_of_agent_file
from .layers import origin
from .load import read_bundle
from .model import Bundle
from .names import check_names, place_of
from .paths import is_path
from .prepared import DEFAULT_SESSION
from .problems import BundleProblems, Problem, as_errors, error_at
from .references import find_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from amplifier_core.plugins import Plugins
    from amplifier_core.triggers import TriggerSource

    from .positions import KeyPath

_NAMED = re.compile(r"(?:trigger-[\w-]+: )?(?P<key>\w+)(?=[:.\[])")
"""The key that what a trigger says of its configuration begins with."""
_PATH = re.compile(r"(?P<path>\w+(?:\[\d+\]|\.\w+)*): ")


def problems_of(
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
        config.model_dump(by_alias=True) if hasattr(config, "model_dump") else config
        for config in bundle.background_sessions
    ]
    return sections


async def check_bundle(
    path: str | Path,
    plugins: Plugins,
    *,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
) -> list[Problem]:
    """Return everything wrong with the bundle at `path` and with the local bundles that its background sessions run.

    `path` is what `load_bundle` takes. Names are checked against `plugins` and the modules installed; triggers are
    given their configuration, and so are the modules that check it. None of the bundle's own code is imported. Warnings
    are errors when `strict`. An agent's file (`meta:` and no `bundle:`) is checked as what it is; the names in it are
    checked with the bundle that includes it. Raises `BundleNotFoundError` and `BundleLoadError` when there is no file.
    """
    import asyncio

    return await asyncio.to_thread(check_file, path, plugins, registry=registry, strict=strict)


def check_file(
    path: str | Path,
    plugins: Plugins,
    *,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
) -> list[Problem]:
    """Do what `check_bundle` does, for a program without an event loop."""
    try:
        of_agent = problems_of_agent_file(find_bundle(path, names=registry))
        if of_agent is None:
            bundle = read_bundle(path, registry=registry, strict=strict)
            problems = [*bundle.problems, *check_loaded(bundle, plugins)]
        else:
            problems = of_agent
    except BundleProblems as error:
        problems = list(error.problems)
    return as_errors(problems) if strict else problems


def check_loaded(bundle: Bundle, plugins: Plugins) -> list[Problem]:
    """Return what a bundle that was loaded names or configures wrongly, and so its background sessions' bundles."""
    modules = names_of_modules()
    triggers = {*plugins.triggers, *(name for name in modules if name.startswith("trigger-"))}
    problems = [
        *check_names(bundle, triggers, modules),
        *_check_modules(bundle, modules),
        *_check_triggers(bundle, plugins),
    ]
    for name, source in local_workers(bundle):
        try:
            worker = read_bundle(source)
            found = [*worker.problems, *check_names(worker, triggers, modules)]
        except BundleProblems as error:
            found = list(error.problems)
        except BundleError as error:
            found = [error_at(place_of(bundle, "background_sessions", name), "AMP108", str(error))]
        problems += [problem for problem in found if problem not in problems]
    return problems


def names_of_modules() -> set[str]:
    """Return the names of the modules that are installed, or in a folder of `AMPLIFIER_MODULES`; none is imported."""
    from importlib.metadata import entry_points

    from amplifier_core.loader import GROUP, modules_in_folders

    return {entry.name for entry in entry_points(group=GROUP)} | modules_in_folders()


def _check_modules(bundle: Bundle, installed: Collection[str]) -> Iterator[Problem]:
    """Ask the installed modules that say so what is wrong with their configuration; see `config_check`."""
    for path, entry in _installed_entries(bundle, installed):
        check, config = config_check(entry["module"]), entry.get("config")
        if check is None or not isinstance(config, dict):
            continue
        try:
            check(deepcopy(config))
        except Exception as error:
            message = str(error).removeprefix(f"{entry['module']}: ")
            at = (*path, "config", *_key_path(message))
            while len(at) > len(path) and (place := origin(bundle, at, key=isinstance(at[-1], str))) is None:
                at = at[:-1]
            spot = place if len(at) > len(path) else None
            yield error_at(spot or place_of(bundle, *map(str, path)), "AMP114", f"{entry['module']}: {message}")


def _installed_entries(bundle: Bundle, installed: Collection[str]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the modules of a bundle whose code it does not bring, and where they stand."""
    lists = ("providers", "tools", "hooks")
    entries: list[tuple[KeyPath, Any]] = [
        ((name, at), each) for name in lists for at, each in enumerate(getattr(bundle, name))
    ]
    entries += [(("session", name), bundle.session.get(name)) for name in DEFAULT_SESSION]
    for path, entry in entries:
        if isinstance(entry, dict) and entry.get("module") in installed and not entry.get("source"):
            yield path, entry


def config_check(module: str) -> Callable[[dict[str, Any]], object] | None:
    """Return the function `check_config(config)` of an installed module's package, which raises for a wrong one.

    None when it has none, or cannot be imported: mounting tells why.
    """
    from importlib.metadata import entry_points

    from amplifier_core.loader import GROUP

    for entry in entry_points(group=GROUP, name=module):
        try:
            mount = entry.load()
        except Exception:
            return None
        return getattr(sys.modules.get(mount.__module__), "check_config", None)
    return None


def _key_path(message: str) -> KeyPath:
    """Return the path that an error begins with: `rules[0].when.user: …`."""
    named = _PATH.match(message)
    parts = re.findall(r"\w+", named["path"]) if named else []
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _check_triggers(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    for index, config in enumerate(bundle.background_sessions):
        for number, declared in enumerate(config.triggers):
            if declared.module not in plugins.triggers:
                continue
            try:
                _configure(plugins.triggers.get(declared.module)(), declared.config, bundle.base_path)
            except Exception as error:
                for each in (error, *getattr(error, "others", ())):
                    named = _NAMED.match(str(each))
                    path = ("background_sessions", index, "triggers", number, "config", named["key"] if named else "")
                    place = origin(bundle, path, key=True) if path[-1] in declared.config else None
                    spot = place_of(bundle, "background_sessions", config.name, str(number))
                    yield error_at(place or spot, "AMP112", str(each))


def _configure(trigger: TriggerSource, config: Mapping[str, Any], folder: Path | None) -> None:
    bind = getattr(trigger, "bind", None)
    if bind is not None:
        bind(TriggerContext("check", working_dir=folder or Path.cwd()))
    trigger.configure(config)


def local_workers(bundle: Bundle) -> list[tuple[str, str]]:
    """Return the background sessions that run another bundle of this machine, and which."""
    return [
        (config.name, config.bundle)
        for config in bundle.background_sessions
        if config.bundle and is_path(config.bundle)
    ]
