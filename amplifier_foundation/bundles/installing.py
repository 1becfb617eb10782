"""What a bundle names and nothing installed provides: which packages would, and how they are installed."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleError

from ..background.config import MODULE_ID
from .names import KINDS, modules_of_agents, named_modules, place_of
from .paths import is_remote

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from .model import Bundle
    from .positions import Place

ARCHIVES = (".whl", ".zip", ".tar.gz")
_MODULE = re.compile(MODULE_ID)


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that is named and not installed; `kind` is what it is called, `place` where it is named first."""

    kind: str
    name: str
    place: Place
    requirements: tuple[str, ...]
    """What pip may be asked for; the first that can be had is enough."""


def missing_from(bundles: Iterable[Bundle], *, modules: Collection[str], triggers: Collection[str]) -> list[Missing]:
    """Return what is missing of what `bundles` name, each once: modules, also those of agents, and triggers.

    Where a bundle says a `source` that pip can install, that is what provides it; else a package of the index, named
    `amplifier-<name>` or, for modules, also `amplifier-module-<name>`.
    """
    found: dict[tuple[str, str], Missing] = {}
    for bundle in bundles:
        for place, kind, name, source in (*named_modules(bundle), *modules_of_agents(bundle)):
            if name not in modules and _MODULE.fullmatch(name):
                wanted = Missing(KINDS[kind][0], name, place, requirements_of(name, source))
                found.setdefault(("module", name), wanted)
        for name, place in _triggers_of(bundle):
            if name not in triggers:
                found.setdefault(("trigger", name), Missing("trigger", name, place, (f"amplifier-{name}",)))
    return list(found.values())


def _triggers_of(bundle: Bundle) -> Iterator[tuple[str, Place]]:
    for config in bundle.background_sessions:
        for number, trigger in enumerate(config.triggers):
            yield trigger.module, place_of(bundle, "background_sessions", config.name, str(number))


def requirements_of(name: str, source: str | None) -> tuple[str, ...]:
    """Return what pip may be asked for to get the module `name`, whose bundle says `source`."""
    from_source = _requirement_of(source) if source and is_remote(source) else None
    return (from_source,) if from_source else (f"amplifier-{name}", f"amplifier-module-{name}")


def _requirement_of(source: str) -> str | None:
    """Return a source as pip takes it; None for what is no repository and no archive."""
    from ..sources.fetching import fetchable

    try:
        parsed = fetchable(source)
    except BundleError:
        return None
    part = f"#subdirectory={parsed.subpath}" if parsed.subpath else ""
    if parsed.is_git:
        return f"git+{parsed.url}{'@' if parsed.ref else ''}{parsed.ref}{part}"
    is_archive = parsed.is_zip or parsed.path.partition("?")[0].lower().endswith(ARCHIVES)
    return parsed.url + part if is_archive else None


def pip_command(requirement: str) -> list[str]:
    """Return the command that installs `requirement` where this program runs."""
    return [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", requirement]
