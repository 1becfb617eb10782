"""Resolve the files of a bundle: code of modules, and texts of the system prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

from ..documents.local_paths import is_path, kind_of, leaves, local_path
from ..documents.positions import Place, show_file
from ..documents.problems import Problem, error_at, warning_at
from .sections import DEFAULT_SESSION, MODULE_LISTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..documents.document import Document
    from ..documents.positions import KeyPath
    from .model import Bundle

COMMANDS, FOLDER = "hooks-shell", "bundle_dir"
"""The module that runs commands of a bundle, and the key of a command for the folder of that bundle."""
SERVERS = "tool-mcp"
"""The module that runs MCP servers."""


@frozen
class LocalSource:
    """Code at a path in a bundle. It must stay inside `root`; None for an absolute path."""

    path: Path
    root: Path | None
    place: Place

    def problem(self) -> Problem | None:
        """Return the problem with the path, or None."""
        if self.root is not None and leaves(self.root, self.path):
            return error_at(self.place, "AMP107", f"leads out of the bundle's folder {show_file(self.root)}")
        kind = kind_of(self.path)
        if kind == "folder" and self.path.resolve() == Path(self.path.resolve().anchor):
            return error_at(self.place, "AMP108", "is the root of the file system; name the folder of the module")
        if kind == "folder" or (kind == "file" and self.path.suffix == ".py"):
            return None
        what = "is neither a .py file nor a folder" if kind else "does not exist"
        return error_at(self.place, "AMP108", f"{show_file(self.path)} {what}")


def take_sources(document: Document, base: Path | None) -> tuple[dict[str, LocalSource], list[Problem]]:
    """Make every local `source` of a document absolute; return them by absolute path, and their problems.

    A command of `hooks-shell` gets the folder of the bundle: its scripts may be there.
    """
    sources: dict[str, LocalSource] = {}
    problems: list[Problem] = []
    for holder, key, path in find_sources(document.data or {}, ()):
        if base is not None and holder.get("module") == COMMANDS:
            for command in _find_commands(holder.get("config")):
                command.setdefault(FOLDER, str(base))
        written, place = holder.get(key), document.positions.at(path)
        if not isinstance(written, str) or not written or not is_path(written):  # remote: the installed module is used
            continue
        try:
            absolute, relative = local_path(written, base)
        except ValueError as error:
            problems.append(error_at(place, "AMP108", str(error)))
            continue
        if relative and base is None:
            message = "is relative, and the bundle has no folder; write an absolute path or give it a base_path"
            problems.append(error_at(place, "AMP108", message))
            continue
        source = LocalSource(absolute, base if relative else None, place)
        problems += filter(None, [source.problem()])
        holder[key] = str(source.path)
        sources[str(source.path)] = source
    return sources, problems


def find_bundle_commands(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Yield each command of a bundle, and the folder that it came from: of hooks, and of the servers of `tool-mcp`."""
    sections = {"hooks": bundle.hooks, "tools": bundle.tools, "agents": bundle.agents}
    for entry, _, _ in find_sources(sections, ()):
        for each in _find_commands(entry.get("config")) if entry.get("module") in (COMMANDS, SERVERS) else ():
            command = each["command"] if entry["module"] == COMMANDS else join_server_command(each)
            yield command, str(each.get(FOLDER) or bundle.base_path or "")


def join_server_command(server: Mapping[str, Any]) -> str:
    """Return the command of an MCP server as one text, followed by its words as paths from its `cwd` on."""
    import shlex

    arguments, folder = server.get("args"), server.get("cwd")
    words = [str(each) for each in (server.get("command"), *(arguments if isinstance(arguments, list) else ()))]
    paths = [str(Path(str(folder), each)) for each in words] if folder else []
    return shlex.join([*words, *paths])


def _find_commands(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the mappings with a command in a configuration."""
    if isinstance(value, dict):
        if isinstance(value.get("command"), str):
            yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _find_commands(each)


def find_sources(plan: dict[str, Any], path: KeyPath) -> Iterator[tuple[dict[str, Any], str, KeyPath]]:
    """Yield the mapping, key and path of every possible source, those of agents included."""
    session = plan.get("session")
    if isinstance(session, dict):
        for name in DEFAULT_SESSION:
            yield session, f"{name}_source", (*path, "session", f"{name}_source")
            if isinstance(session.get(name), dict):
                yield session[name], "source", (*path, "session", name, "source")
    for section, number, entry in module_entries(plan):
        yield entry, "source", (*path, section, number, "source")
    agents = plan.get("agents")
    if isinstance(agents, dict) and not path:
        for name, agent in agents.items():
            if isinstance(agent, dict):
                yield from find_sources(agent, ("agents", name))


def module_entries(plan: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the section, number and content of every module entry; other values than mappings are skipped."""
    for section in MODULE_LISTS:
        entries = plan.get(section)
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                yield section, number, entry


def take_context(
    document: Document, namespace: str, base: Path | None, root: Path | None
) -> tuple[dict[str, Path], dict[str, str], list[Problem]]:
    """Return the context files of a document by name, references to other bundles' files, and the problems.

    `root` is the folder for `namespace:path`, `base` the folder for paths.
    """
    section = (document.data or {}).get("context")
    files: dict[str, Path] = {}
    pending: dict[str, str] = {}
    problems: list[Problem] = []
    named = section if isinstance(section, dict) else {}
    listed = named.get("include")
    entries: list[tuple[str, Any, KeyPath]] = [
        (name, value, ("context", name)) for name, value in named.items() if name != "include"
    ]
    for number, value in enumerate(listed if isinstance(listed, list) else ()):
        entries.append((value, value, ("context", "include", number)))
    for name, written, path in entries:
        if not isinstance(written, str):
            continue
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
    """Return the problems of references to contexts of other bundles, once all bundles are known."""
    from .origins import origin

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


def _context_problem(path: Path, root: Path | None, place: Place) -> Problem | None:
    if root is not None and leaves(root, path):
        return error_at(place, "AMP107", f"leads out of the bundle's folder {show_file(root)}")
    return None if kind_of(path) == "file" else warning_at(place, "AMP108", f"{show_file(path)} does not exist")
