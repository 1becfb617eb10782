"""Read agents in files of their own: front matter with their identity and modules, and an instruction below.

`agents: {include: [reviewer, foundation:bug-hunter]}` names `agents/reviewer.md` of the bundle itself, and
`agents/bug-hunter.md` of the bundle `foundation`. Paths in a file are relative to the folder of its bundle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..documents.document import read_document
from ..documents.local_paths import SUFFIXES, kind_of, leaves
from ..documents.positions import Place, show_file
from ..documents.problems import UnreadableBundle, as_errors, error_at, has_errors, warning_at
from ..documents.secrets import find_secrets
from .fetched import find_strays
from .sources import take_sources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..documents.document import Document
    from ..documents.problems import Problem
    from .model import Bundle

FOLDER = "agents"


def load_agents(bundle: Bundle) -> list[Problem]:
    """Read the agents included by reference in a bundle and the bundles below it; return the problems.

    Each becomes an entry of `bundle.agents` with the sections of its file, `name`, `description` and `instruction`. An
    agent of an unknown bundle stays pending.
    """
    problems: list[Problem] = []
    for name, reference in list(bundle._pending_agents.items()):
        owner, _, inside = reference.rpartition(":")
        root = bundle.source_base_paths.get(owner)
        if root is not None:
            problems += _load(bundle, name, root, inside)
    return problems


def unknown_agents(bundle: Bundle) -> list[Problem]:
    """Return a warning for every agent of an unknown bundle."""
    return [
        warning_at(_place(bundle, name), "AMP108", f"no bundle '{reference.rpartition(':')[0]}' is included")
        for name, reference in bundle._pending_agents.items()
        if reference.rpartition(":")[0] not in bundle.source_base_paths
    ]


def _load(bundle: Bundle, name: str, root: Path, inside: str) -> list[Problem]:
    place, path = _place(bundle, name), agent_path(root, inside)
    if leaves(root, path):
        return [error_at(place, "AMP107", f"leads out of the bundle's folder {show_file(root)}")]
    if kind_of(path) != "file":
        return [warning_at(place, "AMP108", f"{show_file(path)} does not exist")]
    document = read_document(path)
    if document.data is None:
        return document.problems
    found = [*_check(document), *find_strays(document, root)]
    sources, problems = take_sources(document, root)
    problems = [*found, *problems]
    sections = {key: value for key, value in document.data.items() if value is not None and key != "meta"}
    meta = document.data.get("meta")
    about = {key: value for key, value in meta.items() if value is not None} if isinstance(meta, dict) else {}
    bundle.agents[name] = {**sections, **about, "name": name, "source_path": str(path)}
    if document.body.strip():
        bundle.agents[name]["instruction"] = document.body.strip()
    bundle.local_sources.update(sources)
    bundle.origins[str(path)] = document.digest
    del bundle._pending_agents[name]
    return problems


def problems_of_agent_file(path: Path) -> list[Problem] | None:
    """Return the problems of an agent's file; None for a bundle's file, and for an unreadable one."""
    document = read_document(path)
    if document.data is None or "meta" not in document.data or "bundle" in document.data:
        return None
    return _check(document)


def _check(document: Document) -> list[Problem]:
    from .validation import check_agent

    secrets = find_secrets(document.data, document.positions)
    return sorted([*document.problems, *check_agent(document), *secrets], key=lambda each: (each.line, each.column))


def agent_path(root: Path, name: str) -> Path:
    """Return the file of an agent: `agents/<name>.md` below `root`, or `name` itself with a suffix."""
    return root / name if name.endswith(SUFFIXES) else root / FOLDER / f"{name}.md"


def _place(bundle: Bundle, name: str) -> Place:
    return bundle.places.get(("agents", name)) or Place(f"bundle '{bundle.name}'", path=f"agents.{name}")


def load_or_raise(bundle: Bundle, *, strict: bool = False, found: Iterable[Problem] = ()) -> None:
    """Load a bundle's agents; add the warnings, and the problems in `found`, to the bundle's.

    Raises `UnreadableBundle` for an error among them.
    """
    problems = [*found, *load_agents(bundle), *unknown_agents(bundle)]
    if strict:
        problems = as_errors(problems)
    if has_errors(problems):
        raise UnreadableBundle([*bundle.problems, *problems])
    bundle.problems.extend(problem for problem in problems if problem not in bundle.problems)
