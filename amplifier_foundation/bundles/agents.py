"""Agents in files of their own: front matter says who one is and what it works with, the text below instructs it.

`agents: {include: [reviewer, foundation:bug-hunter]}` names `agents/reviewer.md` of the bundle itself, and
`agents/bug-hunter.md` of the bundle `foundation`. Paths in it are relative to that bundle's folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .documents import read_document
from .paths import kind_of, leaves
from .positions import Place, show_file
from .problems import UnreadableBundle, as_errors, error_at, has_errors, warning_at
from .references import SUFFIXES
from .secrets import find_secrets
from .sources import take_sources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .documents import Document
    from .model import Bundle
    from .problems import Problem

FOLDER = "agents"


def load_agents(bundle: Bundle) -> list[Problem]:
    """Read the agents that a bundle, and those it is put on top of, include by reference; return what is wrong.

    Each becomes an entry of `bundle.agents` with the sections of its file, `name`, `description` and `instruction`. One
    whose bundle is not known stays pending.
    """
    problems: list[Problem] = []
    for name, reference in list(bundle._pending_agents.items()):
        owner, _, inside = reference.rpartition(":")
        root = bundle.source_base_paths.get(owner)
        if root is not None:
            problems += _load(bundle, name, root, inside)
    return problems


def unknown_agents(bundle: Bundle) -> list[Problem]:
    """Return a warning for every agent whose bundle is not known."""
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
    wrong = _wrong_in(document)
    sources, problems = take_sources(document, root)
    problems = [*wrong, *problems]
    bundle.agents[name] = _agent(document.data, name, document.body.strip(), path)
    bundle.local_sources.update(sources)
    bundle.origins[str(path)] = document.digest
    del bundle._pending_agents[name]
    return problems


def problems_of_agent_file(path: Path) -> list[Problem] | None:
    """Return what is wrong in the file of an agent; None when the file says that it is a bundle, or cannot be read."""
    document = read_document(path)
    if document.data is None or "meta" not in document.data or "bundle" in document.data:
        return None
    return _wrong_in(document)


def _wrong_in(document: Document) -> list[Problem]:
    from .shape import check_agent

    secrets = find_secrets(document.data, document.positions)
    return sorted([*document.problems, *check_agent(document), *secrets], key=lambda each: (each.line, each.column))


def agent_path(root: Path, name: str) -> Path:
    """Return the file of an agent: `agents/<name>.md` below `root`, or the file that a name with a suffix is."""
    return root / name if name.endswith(SUFFIXES) else root / FOLDER / f"{name}.md"


def _agent(data: dict[str, Any], name: str, body: str, path: Path) -> dict[str, Any]:
    sections = {key: value for key, value in data.items() if value is not None and key != "meta"}
    meta = data.get("meta")
    about = {key: value for key, value in meta.items() if value is not None} if isinstance(meta, dict) else {}
    instruction = body or sections.get("instruction")
    return {**sections, **about, "name": name, "source_path": str(path)} | (
        {"instruction": instruction} if instruction else {}
    )


def _place(bundle: Bundle, name: str) -> Place:
    return bundle.places.get(("agents", name)) or Place(f"bundle '{bundle.name}'", path=f"agents.{name}")


def load_or_raise(bundle: Bundle, *, strict: bool = False, found: Iterable[Problem] = ()) -> None:
    """Load a bundle's agents; warnings, and those that were `found` before, become the bundle's.

    Raises `UnreadableBundle` when one of them is an error.
    """
    problems = [*found, *load_agents(bundle), *unknown_agents(bundle)]
    if strict:
        problems = as_errors(problems)
    if has_errors(problems):
        raise UnreadableBundle([*bundle.problems, *problems])
    bundle.problems.extend(problem for problem in problems if problem not in bundle.problems)
