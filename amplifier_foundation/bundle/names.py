"""Check the names in a bundle against the installed modules and triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.entry_points import find_entry_points
from amplifier_core.errors import PluginRefused
from amplifier_core.loader import GROUP, modules_in_folders
from amplifier_core.permissions.hidden import is_printable
from amplifier_core.plugin_guard import guard_module

from ..documents.positions import Place, format_path
from ..documents.problems import Problem, error_at, warning_at
from .merge import entry_key
from .packages import describe_unknown
from .sections import DEFAULT_SESSION, MODULE_LISTS
from .sources import module_entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from amplifier_core.plugins import Plugins

    from ..documents.positions import KeyPath
    from .background_config import TriggerConfig
    from .model import Bundle


NAME_RULE = "1 to 128 printable characters, without ':', '/' and '\\'"
"""What `is_bundle_name` asks of a name, for people."""


def is_bundle_name(name: str) -> bool:
    """Whether `name` is valid for a bundle: it stands before `:` and a path, and names a folder."""
    is_line = 1 <= len(name) <= 128 and is_printable(name) and name == name.strip()
    return is_line and not set(name) & set(":/\\") and name not in (".", "..")


class NamedModule(NamedTuple):
    """One module without code in the bundle; `kind` is a key of `KINDS`, `source` and `package` as written."""

    place: Place
    kind: str
    name: str
    source: str | None
    package: str | None

    @classmethod
    def of(cls, place: Place, kind: str, entry: dict[str, Any], source: Any = None) -> NamedModule:
        """Return the module of an entry; `source` stands in for a missing one."""
        source, package = entry.get("source") or source, entry.get("package")
        texts = (value if isinstance(value, str) else None for value in (source, package))
        return cls(place, kind, entry["module"], *texts)

    def describe(self, installed: Collection[str]) -> str:
        """Return the message about the module when it is not installed."""
        return describe_unknown(self.kind, self.name, installed, source=self.source, package=self.package)


def check_names(
    bundle: Bundle, triggers: Collection[str], modules: Collection[str], plugins: Plugins | None = None
) -> list[Problem]:
    """Return an error for every trigger and module of a bundle not among the installed ones.

    A name of an agent alone is a warning: the bundle works without it. Modules with code in the bundle need no
    installation. The `plugins` say why one of them is not loaded.
    """
    named = list(named_modules(bundle))
    own = {each.name for each in named}
    problems = [error_at(each.place, "AMP110", each.describe(modules)) for each in named if each.name not in modules]
    problems += [
        warning_at(each.place, "AMP109", each.describe(modules))
        for each in modules_of_agents(bundle)
        if each.name not in modules and each.name not in own
    ]
    for place, trigger in declared_triggers(bundle):
        if trigger.module not in triggers:
            message = describe_unloaded("trigger", trigger.module, plugins) if plugins is not None else ""
            message = message or describe_unknown("trigger", trigger.module, triggers, package=trigger.package)
            problems.append(error_at(place, "AMP110", message))
    return problems


def describe_unloaded(kind: str, name: str, plugins: Plugins) -> str:
    """Return the message about an installed plugin that is not loaded, with its cause; '' for any other name."""
    row = next((each for each in plugins.rows if each.name == name and each.status != "loaded"), None)
    blocked = "it is blocked by --safe-mode, AMPLIFIER_LOAD_PLUGINS or AMPLIFIER_BLOCK_PLUGINS"
    return f"{kind} '{name}' of {row.owner} is not loaded: {row.error or blocked}" if row is not None else ""


def check_refusals(bundle: Bundle) -> Iterator[Problem]:
    """Yield each installed module without a function to mount it, or refused by the user or the project.

    It is an error where no session can be without it, else a warning. A module in place of a function is imported:
    it may be one to call.
    """
    refused = [*_refused(named_modules(bundle))]
    has_provider = len(bundle.providers) > sum(each.kind == "providers" for each, _ in refused)
    for each, cause in refused:
        is_needed = each.kind in DEFAULT_SESSION or (each.kind == "providers" and not has_provider)
        yield (error_at if is_needed else warning_at)(each.place, "AMP110", cause)
    for each, cause in _refused(modules_of_agents(bundle)):
        yield warning_at(each.place, "AMP109", cause)


def _refused(named: Iterator[NamedModule]) -> Iterator[tuple[NamedModule, str]]:
    in_folders = modules_in_folders()
    for each in named:
        try:
            for entry in () if each.name in in_folders else find_entry_points(GROUP, each.name):
                entry.check()
                if entry.value != entry.module or each.kind == "tools":  # in a sandbox, a tool is imported there alone
                    continue
                with guard_module(f"module '{each.name}' of {entry.dist}"):
                    mount = entry.load()
                if not callable(mount):
                    told = f"module '{each.name}' of {entry.dist} cannot be mounted: its entry point names no function"
                    yield each, f"{told}. Write '{entry.name} = \"{entry.module}:mount\"' into its pyproject.toml"
        except PluginRefused as refusal:
            yield each, str(refusal)
        except Exception:  # mounting reports the cause
            continue


def declared_triggers(bundle: Bundle) -> Iterator[tuple[Place, TriggerConfig]]:
    """Yield every trigger of the background sessions with its place."""
    for config in bundle.background_sessions:
        for number, trigger in enumerate(config.triggers):
            yield place_of(bundle, "background_sessions", config.name, str(number)), trigger


def named_modules(bundle: Bundle) -> Iterator[NamedModule]:
    """Yield every required installed module of a bundle."""
    for name, default in DEFAULT_SESSION.items():
        spec = bundle.session.get(name) or default
        entry = spec if isinstance(spec, dict) else {"module": spec}
        source = entry.get("source") or bundle.session.get(f"{name}_source")
        if source not in bundle.local_sources:
            yield NamedModule.of(place_of(bundle, "session", name), name, entry, source)
    for section in MODULE_LISTS:
        for entry in getattr(bundle, section):
            if entry.get("source") not in bundle.local_sources:
                yield NamedModule.of(place_of(bundle, section, *entry_key(entry)), section, entry)


def modules_of_agents(bundle: Bundle) -> Iterator[NamedModule]:
    """Yield every required installed module of the agents; inline agents may contain anything."""
    from .origins import origin

    for name, agent in bundle.agents.items():
        plan = agent if isinstance(agent, dict) else {}
        session = plan.get("session")
        entries: list[tuple[str, KeyPath, dict[str, Any]]] = []
        for kind in DEFAULT_SESSION:
            spec = session.get(kind) if isinstance(session, dict) else None
            if isinstance(spec, dict):
                entries.append((kind, ("session", kind, "module"), spec))
            else:
                entries.append((kind, ("session", kind), {"module": spec}))
        entries += [(section, (section, at, "module"), entry) for section, at, entry in module_entries(plan)]
        for kind, path, entry in entries:
            if isinstance(entry.get("module"), str) and entry.get("source") not in bundle.local_sources:
                whole = ("agents", name, *path)
                place = origin(bundle, whole) or Place(f"bundle '{bundle.name}'", path=format_path(whole))
                yield NamedModule.of(place, kind, entry)


def place_of(bundle: Bundle, *path: str) -> Place:
    """Return the position of a value checked after loading; the bundle itself, when a program made it."""
    return bundle.places.get(path) or Place(f"bundle '{bundle.name}'", path=".".join(path))
