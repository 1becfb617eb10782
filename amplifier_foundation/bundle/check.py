"""Check a bundle without making sessions of it."""

from __future__ import annotations

import re
import sys
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core import search_path
from amplifier_core.errors import BundleError, UnknownName
from amplifier_core.loader import ModuleValidationError

from ..documents.local_paths import is_path, is_remote
from ..documents.problems import BundleProblemsError, Problem, as_errors, error_at, has_errors, text_of, warning_at
from .agents import load_agents, problems_of_agent_file
from .code_check import check_code
from .guard_check import check_guards
from .load import read_bundle, read_leniently
from .mention_check import check_mentions
from .merge import entry_key
from .model import Bundle
from .names import check_names, check_refusals, describe_unloaded, place_of
from .origins import leaves, origin
from .packages import NO_SANDBOX, TRACKERS, describe_unknown
from .preferences import find_first
from .references import find_bundle
from .registry import BundleRegistry
from .sections import DEFAULT_SESSION, MODULE_LISTS, PROMPT_TOOL, SECTIONS
from .sources import module_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from amplifier_core.plugins import Plugins

    from ..documents.positions import KeyPath
    from .load import LeaveOut

    Entry = tuple[KeyPath, dict[str, Any]]

_PATH = re.compile(r"(?P<path>\w+(?:\[\d+\]|\.\w+)*): ")


def problems_of(
    bundle: Bundle | str | Path, *, registry: Mapping[str, str | Path] | None = None, strict: bool = False
) -> list[Problem]:
    """Return every problem of a bundle, or of its first broken include, warnings too.

    Raises `BundleNotFoundError` and `BundleLoadError` for a missing file.
    """
    try:
        if not isinstance(bundle, Bundle):
            return read_bundle(bundle, registry=registry, strict=strict).problems
        known = {(problem.code, problem.path) for problem in bundle.problems}
        about = {"name": bundle.name, "version": bundle.version, "description": bundle.description}
        sections = {each.name: each.dump(getattr(bundle, each.name)) for each in SECTIONS}
        found = Bundle.from_dict({"bundle": about, **sections}, bundle.base_path, strict=strict).problems
        return [*bundle.problems, *(problem for problem in found if (problem.code, problem.path) not in known)]
    except BundleProblemsError as error:
        return list(error.problems)


async def check_bundle(
    path: str | Path,
    plugins: Plugins,
    *,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
) -> list[Problem]:
    """Return every problem of the bundle at `path` and of the local bundles of its background sessions.

    `path` is as for `load_bundle`. Names are checked against `plugins` and the installed modules; triggers, and modules
    with a `check_config`, check their configuration. None of the bundle's own code is imported. With `strict`, warnings
    are errors. An agent's file (`meta:` and no `bundle:`) is checked against its own schema, with the configuration of
    its modules, and the names of these together with the including bundle. Raises `BundleNotFoundError` and
    `BundleLoadError` for a missing file.
    """
    import asyncio

    return await asyncio.to_thread(check_file, path, plugins, registry=registry, strict=strict)


def check_file(
    path: str | Path,
    plugins: Plugins,
    *,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
    leave_out: LeaveOut | None = None,
) -> list[Problem]:
    """Check as `check_bundle`, for a program without an event loop; `leave_out` is that of `read_bundle`."""
    try:
        file = find_bundle(path, names=registry)
        problems = problems_of_agent_file(file)
        if problems is None:
            problems = _check_whole(path, plugins, registry, leave_out)
        else:
            problems += _check_agent_file(file)
    except BundleProblemsError as error:
        problems = list(error.problems)
    return as_errors(problems) if strict else problems


def _check_whole(
    path: str | Path, plugins: Plugins, registry: Mapping[str, str | Path] | None, leave_out: LeaveOut | None
) -> list[Problem]:
    """Return every problem of a bundle: of its text, its schema and everything named in it, as far as it is usable."""
    bundle, problems = read_leniently(path, registry=registry, leave_out=leave_out)
    found = check_loaded(bundle, plugins, leave_out, is_whole=True) if bundle is not None else []
    if has_errors(problems):  # a provider may be among the mistakes, and so may a trigger
        found = [each for each in found if each.code != "AMP115"]
        wrong = {each.path.partition(".triggers[")[0] for each in problems if ".triggers[" in each.path}
        problems = [
            each for each in problems if each.severity == "error" or each.path[: -len(".triggers")] not in wrong
        ]
    return list(dict.fromkeys([*problems, *found]))


def check_loaded(
    bundle: Bundle,
    plugins: Plugins,
    leave_out: LeaveOut | None = None,
    *,
    runs: bool = False,
    is_whole: bool = False,
) -> list[Problem]:
    """Return the wrong names and configurations of a loaded bundle, and all problems of its workers' bundles.

    With `runs`, it is checked as before a start: a missing secret or key is a problem of this machine alone. The
    modules of workers' bundles are asked with `runs` or `is_whole`, those of agents with `is_whole`: it imports them.
    """
    modules = names_of_modules()
    triggers = {*plugins.triggers, *(name for name in modules if name.startswith("trigger-"))}
    problems = [
        *check_names(bundle, triggers, modules, plugins),
        *check_refusals(bundle),
        *_check_modules(bundle, _entries_of(bundle), modules),
        *_check_sandbox(bundle, plugins),
        *_check_triggers(bundle, plugins, runs=runs),
        *_check_trackers(bundle, plugins),
        *_check_runners(bundle, plugins),
        *_check_event_names(bundle, plugins),
        *_check_workflows(bundle, plugins),
        *_check_untrusted(bundle),
        *check_code(bundle),
        *check_guards(bundle, modules),
        *check_mentions(bundle),
        *_check_prompt_files(bundle),
        *(_check_agents(bundle, modules) if is_whole else ()),
    ]
    if runs:
        problems += _check_key(bundle)
    runs_itself = any(not each.bundle for each in bundle.background_sessions)
    if not bundle.providers and (runs_itself or (bundle.instruction and not bundle.background_sessions)):
        problems.append(_warn_no_provider(bundle))
    workers = local_workers(bundle)
    names = BundleRegistry(plugins=plugins).names() if workers else {}
    for name, source in workers:
        try:
            worker, found = read_leniently(source, registry=names, leave_out=leave_out)
        except BundleError as error:
            worker, found = None, [error_at(place_of(bundle, "background_sessions", name), "AMP108", str(error))]
        if worker is not None:
            if not has_errors(found) and not worker.providers and not bundle.providers:  # else it inherits them
                found.append(_warn_no_provider(worker))
            found += [
                *check_names(worker, triggers, modules, plugins),
                *check_refusals(worker),
                *check_guards(worker, modules),
                *(_check_modules(worker, _entries_of(worker), modules, starts=runs) if runs or is_whole else ()),
                *(_check_key(worker) if runs else ()),
                *(_check_agents(worker, modules) if is_whole else ()),
            ]
        problems += [problem for problem in found if problem not in problems]
    return problems


def _check_workflows(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    if bundle.workflows or any(each.workflow for each in bundle.background_sessions):
        from .workflow_check import check_workflows

        yield from check_workflows(bundle, plugins)


def _check_triggers(bundle: Bundle, plugins: Plugins, *, runs: bool) -> Iterator[Problem]:
    if bundle.background_sessions:
        from .trigger_check import check_triggers

        yield from check_triggers(bundle, plugins, runs=runs)


def _check_event_names(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    if bundle.background_sessions:
        from .event_names import check_event_names

        yield from check_event_names(bundle, plugins)


def _check_prompt_files(bundle: Bundle) -> list[Problem]:
    """Return warnings about the skills and commands of a bundle: its sessions work without the broken ones."""
    if not bundle.has_tool(PROMPT_TOOL):
        return []
    from .prompt_folders import read_bundle_prompts

    return [replace(each, severity="warning") for each in read_bundle_prompts(bundle)[1]]


def _check_untrusted(bundle: Bundle) -> Iterator[Problem]:
    """Yield a warning for a session with tools that reads webhooks, and does not say whether it acts on their text."""
    for index, config in enumerate(bundle.background_sessions):
        is_woken_by_strangers = any(trigger.module == "trigger-webhook" for trigger in config.triggers)
        if is_woken_by_strangers and "untrusted" not in config.model_fields_set and (bundle.tools or config.bundle):
            message = (
                "reads webhooks: its sessions are asked before they write, delegate, emit or send, and refused where "
                "nobody answers. Say 'untrusted: act' to let them act on what strangers write, or 'untrusted: ask'"
            )
            spot = origin(bundle, ("background_sessions", index, "name"))
            yield warning_at(spot or place_of(bundle, "background_sessions", config.name), "AMP119", message)


def names_of_modules() -> set[str]:
    """Return the names of the installed modules, and of those in folders of `AMPLIFIER_MODULES`; import none."""
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.loader import GROUP, modules_in_folders

    return {entry.name for entry in find_entry_points(GROUP)} | modules_in_folders().keys()


def _warn_no_provider(bundle: Bundle) -> Problem:
    message = "the bundle has no provider: its sessions have no model to ask. Add one under 'providers'"
    return warning_at(place_of(bundle, "providers"), "AMP115", message)


def _entries_of(bundle: Bundle) -> Iterator[Entry]:
    """Yield the path and content of every entry of a module of a bundle, those of its agents left out."""
    yield from _entries_in({"session": bundle.session, **{name: getattr(bundle, name) for name in MODULE_LISTS}}, ())


def _entries_in(plan: dict[str, Any], path: KeyPath) -> Iterator[Entry]:
    for section, number, entry in module_entries(plan):
        yield (*path, section, number), entry
    session: Any = plan.get("session")
    for kind in DEFAULT_SESSION if isinstance(session, dict) else ():
        if isinstance(session.get(kind), dict):
            yield (*path, "session", kind), {"source": session.get(f"{kind}_source"), **session[kind]}


def _check_key(bundle: Bundle) -> Iterator[Problem]:
    """Yield a warning if the provider that answers has no key on this machine; the key may still come."""
    from .credentials import PREFIX, find_missing_key

    entry = find_first({"providers": bundle.providers, "session": bundle.session}) or {}
    if names := find_missing_key(entry):
        module = str(entry["module"])
        message = (
            f"{module} has no key on this machine: events wait for one. Keep it with: "
            f"amplifier auth login {module.removeprefix(PREFIX)}, or set {' or '.join(names)}"
        )
        path = ("providers", bundle.providers.index(entry), "module")
        yield warning_at(origin(bundle, path) or place_of(bundle, "providers"), "AMP115", message)


def _check_modules(
    bundle: Bundle, entries: Iterable[Entry], installed: Collection[str], *, starts: bool = False
) -> Iterator[Problem]:
    """Check the configuration of modules by name with a `check_config`; see `config_check`.

    With `starts`, there are only warnings about those that sessions work without.
    """
    for path, entry in entries:
        module, source = entry.get("module"), entry.get("source")
        has_code = isinstance(source, str) and is_path(source)  # for any other source, the installed one is used
        if has_code or not isinstance(module, str) or module not in installed or entry.get("sandbox"):
            continue  # the code of a sandboxed one is imported in its sandbox alone
        spot = origin(bundle, (*path, "module")) or place_of(bundle, *map(str, path))
        try:
            check, config = config_check(module), entry.get("config")
        except ModuleValidationError as error:
            yield warning_at(spot, "AMP114", str(error))
            continue
        if check is None or not isinstance(config, dict):
            continue
        try:
            said, problem_at = check(deepcopy(config)), warning_at
        except Exception as error:
            said, problem_at = [str(error).removeprefix(f"{module}: ")], error_at
            if (source or starts) and "session" not in path:  # with a source, the key may be one of the code there
                problem_at = warning_at
        for message in map(str, said) if isinstance(said, list) else ():
            named = _PATH.match(message)
            parts = re.findall(r"\w+", named["path"]) if named else []
            at = (*path, "config", *(int(part) if part.isdigit() else part for part in parts))
            while len(at) > len(path) and (place := origin(bundle, at, key=isinstance(at[-1], str))) is None:
                at = at[:-1]
            yield problem_at(place if len(at) > len(path) and place else spot, "AMP114", f"{module}: {message}")


def _check_agents(bundle: Bundle, installed: Collection[str]) -> list[Problem]:
    """Return warnings about the configurations of the modules of agents: the bundle works without them."""
    plans = [(name, agent) for name, agent in bundle.agents.items() if isinstance(agent, dict)]
    entries = [each for name, agent in plans for each in _entries_in(agent, ("agents", name))]
    return [replace(each, severity="warning") for each in _check_modules(bundle, entries, installed)]


def _check_agent_file(file: Path) -> list[Problem]:
    """Return the warnings about an agent without a bundle around it."""
    alone = Bundle(file.stem, source_base_paths={"": file.parent}, _pending_agents={file.stem: file.name})
    load_agents(alone)  # its problems are known, and a source may be relative to the folder of a bundle
    modules = names_of_modules()
    return [*_check_agents(alone, modules), *check_guards(alone, modules)]


def _check_sandbox(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    """Yield an error for each tool with `sandbox: true` where no plugin offers a sandbox."""
    confined = [entry for entry in bundle.tools if entry.get("sandbox")]
    if confined and not list(plugins.registry_of("sandbox")):
        yield from (error_at(place_of(bundle, "tools", *entry_key(each)), "AMP110", NO_SANDBOX) for each in confined)


def config_check(module: str) -> Callable[[dict[str, Any]], object] | None:
    """Return the function `check_config(config)` of a module's package; it raises for a wrong config.

    A list that it returns has warnings, as `key: …`. The module is one in a folder of `AMPLIFIER_MODULES`, else an
    installed one, as for a session. None for a package without one, and for an unimportable package: mounting reports
    the cause. Raises `ModuleValidationError` for one that is no module, or that ends the program at its import.
    """
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.loader import GROUP, import_from_path, modules_in_folders
    from amplifier_core.plugin_guard import guard_module

    folder = modules_in_folders().get(module)
    if folder is not None:
        search_path.acquire(str(folder))
        try:
            with guard_module(f"module '{module}' in {folder}"):
                return getattr(import_from_path(module, folder), "check_config", None)
        except ModuleValidationError:
            raise
        except Exception:
            return None
        finally:
            search_path.release(str(folder))
    for entry in find_entry_points(GROUP, module):
        try:
            with guard_module(f"module '{module}' of {entry.dist}"):
                mount = entry.load()
        except ModuleValidationError:
            raise
        except Exception:
            return None
        return getattr(sys.modules.get(getattr(mount, "__module__", "")), "check_config", None)
    return None


def _check_trackers(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    """Yield an error for each tracker of a background session that nobody offers, or that refuses its config."""
    for index, config in enumerate(bundle.background_sessions):
        tracker = config.tracker
        if tracker is None:
            continue
        path: KeyPath = ("background_sessions", index, "tracker")
        spot = origin(bundle, path) or place_of(bundle, "background_sessions", config.name)
        try:
            plugins.registry_of("tracker").get(tracker.name)(deepcopy(tracker.config))
        except UnknownName as error:
            install = f". Install it with: pip install {TRACKERS[tracker.name]}" if tracker.name in TRACKERS else ""
            yield error_at(spot, "AMP110", f"{error}{install}")
        except Exception as error:
            key = str(error).partition(":")[0]
            place = origin(bundle, (*path, "config", key), key=True) if key in tracker.config else None
            yield error_at(place or spot, "AMP114", f"tracker '{tracker.name}': {text_of(error)}")


def _check_runners(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    """Yield an error for each runner that nobody offers: of background sessions, agents and workflows' tasks."""
    sections = {
        "background_sessions": [{"runner": each.runner} for each in bundle.background_sessions],
        "agents": {name: agent for name, agent in bundle.agents.items() if isinstance(agent, dict)},
        "workflows": bundle.workflows,
    }
    for path, name in leaves(sections, ()):
        if path[-1:] == ("runner",) and isinstance(name, str):
            full = f"runner-{name.removeprefix('runner-')}"
            if not {name, full} & set(plugins.runners):
                spot = origin(bundle, path) or place_of(bundle, *map(str, path[:2]))
                message = describe_unloaded("runner", full, plugins)
                message = message or describe_unknown("runner", full, list(plugins.runners))
                yield error_at(spot, "AMP110", message)


def local_workers(bundle: Bundle) -> list[tuple[str, str]]:
    """Return the names of background sessions with another bundle of this machine, and the bundles."""
    return [
        (config.name, config.bundle)
        for config in bundle.background_sessions
        if config.bundle and not is_remote(config.bundle)
    ]
