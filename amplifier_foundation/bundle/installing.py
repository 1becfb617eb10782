"""Plan the installation of everything named in bundles and not installed."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from amplifier_core.frozen import frozen

from ..documents.fields import MODULE_ID
from .names import declared_triggers, modules_of_agents, named_modules
from .packages import requirement_of, suggest
from .sections import KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..documents.positions import Place
    from .model import Bundle

_MODULE = re.compile(MODULE_ID)


@frozen
class Missing:
    """One missing module or trigger: its kind, and the place of its first mention.

    `requirement` is for pip, `` when no package is known; `suggestion` is a hint at a similar name, or ``.
    """

    kind: str
    name: str
    place: Place
    requirement: str
    suggestion: str = ""


def missing_from(bundles: Iterable[Bundle], *, modules: Collection[str], triggers: Collection[str]) -> list[Missing]:
    """Return the missing modules, those of agents included, and triggers of `bundles`, each once.

    See `requirement_of` for their packages. A name similar to an installed one is a typo: it has no requirement,
    unless the bundle names a source or package for it.
    """
    found: dict[tuple[str, str], Missing] = {}
    for bundle in bundles:
        for place, kind, name, source, package in (*named_modules(bundle), *modules_of_agents(bundle)):
            if name not in modules and _MODULE.fullmatch(name):
                wanted = requirement_of(name, source, package)
                missing = Missing(KINDS[kind].name, name, place, wanted, "" if wanted else suggest(kind, name, modules))
                found.setdefault(("module", name), missing)
        for place, trigger in declared_triggers(bundle):
            name = trigger.module
            if name not in triggers:
                wanted = requirement_of(name, package=trigger.package)
                suggestion = "" if wanted else suggest("trigger", name, triggers)
                found.setdefault(("trigger", name), Missing("trigger", name, place, wanted, suggestion))
    return list(found.values())


def pip_command(requirement: str) -> list[str]:
    """Return the command to install `requirement` into this environment; it runs no code of the current folder."""
    return [sys.executable, "-P", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", requirement]
