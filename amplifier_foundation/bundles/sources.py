"""The files that a bundle brings: code of modules, and texts for the system prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .paths import is_path, kind_of, leaves, local_path
from .positions import Place, show_file
from .problems import Problem, error_at, warning_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .documents import Document
    from .model import Bundle
    from .positions import KeyPath

MODULE_LISTS = ("providers", "tools", "hooks")


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Code that a bundle names by a path. It must stay within `root`; None: the author wrote an absolute path."""

    path: Path
    root: Path | None
    place: Place

    def problem(self) -> Problem | None:
        """Return what keeps the code from being used, or None."""
        if self.root is not None and leaves(self.root, self.path):
            return error_at(self.place, "AMP107", f"leads out of the bundle's folder {show_file(self.root)}")
        kind = kind_of(self.path)
        if kind == "folder" or (kind == "file" and self.path.suffix == ".py"):
            return None
        what = "is neither a .py file nor a folder" if kind else "does not exist"
        return error_at(self.place, "AMP108", f"{show_file(self.path)} {what}")


def take_sources(document: Document, base: Path | None) -> tuple[dict[str, LocalSource], list[Problem]]:
    """Make every local `source` of a document absolute; return them by that path, and what is wrong with them."""
    sources: dict[str, LocalSource] = {}
    problems: list[Problem] = []
    for holder, key, path in _holders(document.data or {}, ()):
        written, place = holder.get(key), document.positions.at(path)
        if not isinstance(written, str) or not written:
            continue
        try:
            source = _local_source(written, base, place)
        except ValueError as error:
            problems.append(error_at(place, "AMP108", str(error)))
            continue
        if source is None:  # an installed module of that name is used
            continue
        problems += filter(None, [source.problem()])
        holder[key] = str(source.path)
        sources[str(source.path)] = source
    return sources, problems


def _local_source(written: str, base: Path | None, place: Place) -> LocalSource | None:
    if not is_path(written):
        return None
    path, relative = local_path(written, base)
    if relative and base is None:
        raise ValueError("is relative, and the bundle has no folder; write an absolute path or give it a base_path")
    return LocalSource(path, base if relative else None, place)


def _holders(plan: dict[str, Any], path: KeyPath) -> Iterator[tuple[dict[str, Any], str, KeyPath]]:
    """Yield every mapping that may hold a source, the key it is under, and the path to it; agents' plans included."""
    session = plan.get("session")
    if isinstance(session, dict):
        for name in ("orchestrator", "context"):
            yield session, f"{name}_source", (*path, "session", f"{name}_source")
            if isinstance(session.get(name), dict):
                yield session[name], "source", (*path, "session", name, "source")
    for section, number, entry in module_entries(plan):
        yield entry, "source", (*path, section, number, "source")
    agents = plan.get("agents")
    if isinstance(agents, dict) and not path:
        for name, agent in agents.items():
            if isinstance(agent, dict):
                yield from _holders(agent, ("agents", name))


def module_entries(plan: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the section, number and content of every module entry that is a mapping."""
    for section in MODULE_LISTS:
        entries = plan.get(section)
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                yield section, number, entry


def take_context(
    document: Document, namespace: str, base: Path | None, root: Path | None
) -> tuple[dict[str, Path], dict[str, str], list[Problem]]:
    """Return the context files of a document by name, those of other bundles by reference, and what is wrong.

    `root` is what `namespace:path` is relative to, `base` what a path is.
    """
    section = (document.data or {}).get("context")
    files: dict[str, Path] = {}
    pending: dict[str, str] = {}
    problems: list[Problem] = []
    for name, written, path in _context_entries(section):
        place = document.positions.at(path)
        own = written.removeprefix(f"{namespace}:")
        if own == written and not is_path(written):
            pending[name] = written
            continue
        folder = base if own == written else root
        try:
            files[name], relative = local_path(own, folder)
        except ValueError as error:
            problems.append(error_at(place, "AMP108", str(error)))
            continue
        problems += filter(None, [_context_problem(files[name], folder if relative else None, place)])
    return files, pending, problems


def check_pending_context(bundle: Bundle) -> list[Problem]:
    """Return what is wrong with references to contexts of other bundles, now that all are known."""
    from .layers import origin

    problems: list[Problem | None] = []
    pending = {name: text for layer in bundle.layers or [bundle] for name, text in layer._pending_context.items()}
    for name, reference in pending.items():
        owner, _, inside = reference.partition(":")
        place = origin(bundle, ("context", name)) or Place(f"bundle '{bundle.name}'", path="context")
        root = bundle.source_base_paths.get(owner)
        if root is None:
            problems.append(warning_at(place, "AMP108", f"no bundle '{owner}' is included"))
        else:
            problems.append(_context_problem(root / inside, root, place))
    return [problem for problem in problems if problem is not None]


def _context_entries(section: Any) -> Iterator[tuple[str, str, KeyPath]]:
    if not isinstance(section, dict):
        return
    for name, value in section.items():
        if name != "include" and isinstance(value, str):
            yield name, value, ("context", name)
    listed = section.get("include")
    for number, value in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(value, str):
            yield value, value, ("context", "include", number)


def _context_problem(path: Path, root: Path | None, place: Place) -> Problem | None:
    if root is not None and leaves(root, path):
        return error_at(place, "AMP107", f"leads out of the bundle's folder {show_file(root)}")
    return None if kind_of(path) == "file" else warning_at(place, "AMP108", f"{show_file(path)} does not exist")
