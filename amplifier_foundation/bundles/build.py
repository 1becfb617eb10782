"""From a document to a `Bundle`: check everything, then take what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .merge import entry_key
from .model import Bundle
from .paths import is_path, leaves, local_path
from .problems import InvalidBundle, Problem, UnreadableBundle, as_errors, error_at, has_errors
from .references import SUFFIXES
from .secrets import find_secrets
from .shape import FIELD_SPELLING, at_path, check_shape
from .sources import LocalSource, module_entries, take_context, take_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..background.config import BackgroundSessionConfig
    from .documents import Document
    from .positions import KeyPath, Place, Positions


def build_bundle(document: Document, base: Path | None, *, strict: bool = False) -> Bundle:
    """Return the bundle that a document declares; its `problems` are warnings.

    The document's data becomes the bundle's. Raises `UnreadableBundle` and `InvalidBundle` with everything that is
    wrong; `strict` makes warnings wrong too.
    """
    problems = list(document.problems)
    if document.data is None:
        raise UnreadableBundle(problems)
    secrets = find_secrets(document.data, document.positions)
    configs, found = check_shape(document)
    name, namespace = names_of(document.data, base)
    sources, in_sources = take_sources(document, base)
    context, pending, in_context = take_context(document, name, base, namespace)
    problems += [
        *found,
        *secrets,
        *_duplicates(document),
        *_two_instructions(document),
        *_bad_bundles(document),
        *in_sources,
        *in_context,
    ]
    problems.sort(key=lambda problem: (problem.line, problem.column))
    if strict:
        problems = as_errors(problems)
    if has_errors(problems):
        raise (UnreadableBundle if document.problems else InvalidBundle)(problems)
    bundle = _bundle(document, sources, problems)
    bundle.base_path = base
    bundle.source_base_paths = {name: namespace} if namespace else {}
    bundle.context, bundle._pending_context = context, pending
    bundle.background_sessions = [_with_absolute_bundle(config, bundle) for config in configs]
    return bundle


def names_of(data: dict[str, Any], base: Path | None) -> tuple[str, Path | None]:
    """Return a bundle's name, empty where there is none, and the folder that `name:path` is relative to."""
    name, root = at_path(data, ("bundle", "name")), at_path(data, ("bundle", "namespace_root"))
    folder = base / root if base is not None and isinstance(root, str) else base
    return name if isinstance(name, str) else "", folder


def _bundle(document: Document, sources: dict[str, LocalSource], warnings: list[Problem]) -> Bundle:
    data = document.data or {}
    about, places = data["bundle"], dict(_places(document))
    return Bundle(
        name=about["name"],
        version=about.get("version", "1.0.0"),
        description=about.get("description") or "",
        namespace_root=about.get("namespace_root"),
        includes=[_reference(item) for item in data.get("includes") or ()],
        session=_session(data.get("session") or {}),
        providers=_entries(data.get("providers")),
        tools=_entries(data.get("tools")),
        hooks=_entries(data.get("hooks")),
        spawn=data.get("spawn") or {},
        agents=_agents(data.get("agents") or {}),
        _pending_agents=_agent_references(data, about["name"]),
        instruction=document.body.strip() or data.get("instruction") or None,
        workflows=data.get("workflows"),
        source_path=document.path,
        digest=document.digest,
        origins={str(document.path): document.digest} if document.path else {},
        local_sources=sources,
        places=places,
        problems=warnings,
        positions=document.positions,
    )


def _reference(item: str | dict[str, str]) -> str:
    return item if isinstance(item, str) else item["bundle"]


def _session(section: dict[str, Any]) -> dict[str, Any]:
    """Return the section without the background sessions, which are nobody's but the bundle's."""
    config = at_path(section, FIELD_SPELLING[1:-1])
    if isinstance(config, dict):
        config.pop(FIELD_SPELLING[-1], None)
    return {key: value for key, value in section.items() if value is not None}


def _entries(entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if value is not None} for entry in entries or ()]


def _agents(section: dict[str, Any]) -> dict[str, Any]:
    inline = {name: plan for name, plan in section.items() if name != "include"}
    return {name: {"name": name} for name in section.get("include") or ()} | inline


def _agent_references(data: dict[str, Any], bundle: str) -> dict[str, str]:
    """Return where the agents of other files are, as `namespace:name`, by how they are named here."""
    included = at_path(data, ("agents", "include")) or ()
    return {name: name if ":" in name else f"{bundle}:{name}" for name in included}


def _with_absolute_bundle(config: BackgroundSessionConfig, bundle: Bundle) -> BackgroundSessionConfig:
    """Make a path in this bundle's folder absolute: a bundle that includes this one has another folder."""
    written, base = config.bundle or "", bundle.base_path
    owner, _, inside = written.partition(":")
    root = bundle.source_base_paths.get(owner)
    if inside and root is not None and not leaves(root, root / inside):
        return config.model_copy(update={"bundle": str(root / inside)})
    if base is None or not _is_file(written):
        return config
    return config.model_copy(update={"bundle": str(local_path(written, base)[0])})


def _is_file(written: str) -> bool:
    return is_path(written) and (written.startswith(("./", "../")) or written.endswith(SUFFIXES))


def _bad_bundles(document: Document) -> Iterator[Problem]:
    for entry, path in _background_entries(document.data or {}):
        written = entry.get("bundle")
        try:
            if isinstance(written, str) and _is_file(written):
                local_path(written)
        except ValueError as error:
            yield error_at(document.positions.at((*path, "bundle")), "AMP108", str(error))


def _duplicates(document: Document) -> Iterator[Problem]:
    data, positions = document.data or {}, document.positions
    modules = [
        (f"{section} {entry_key(entry)}", entry_key(entry)[0], (section, number, "module"))
        for section, number, entry in module_entries(data)
        if entry_key(entry)[0]
    ]
    sessions = [
        (entry["name"], entry["name"], (*path, "name"))
        for entry, path in _background_entries(data)
        if isinstance(entry.get("name"), str)
    ]
    yield from _twice(modules, positions, "; give each an 'instance_id' of its own")
    yield from _twice(sessions, positions, "")


def _twice(named: Iterable[tuple[str, str, KeyPath]], positions: Positions, remedy: str) -> Iterator[Problem]:
    first: dict[str, Place] = {}
    for identity, name, path in named:
        place = positions.at(path)
        before = first.setdefault(identity, place)
        if before is not place:
            yield error_at(place, "AMP105", f"'{name}' stands here twice, first at {before}{remedy}")


def _background_entries(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], KeyPath]]:
    for path in (("background_sessions",), FIELD_SPELLING):
        listed = at_path(data, path)
        for number, entry in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(entry, dict):
                yield entry, (*path, number)


def _two_instructions(document: Document) -> Iterator[Problem]:
    if document.body.strip() and (document.data or {}).get("instruction"):
        place = document.positions.at(("instruction",), key=True)
        yield error_at(place, "AMP104", "the text below the front matter is the instruction; keep one of the two")


def _places(document: Document) -> Iterator[tuple[tuple[str, ...], Place]]:
    """Yield where everything stands that is checked against what is installed."""
    data, positions = document.data or {}, document.positions
    for name in ("orchestrator", "context"):
        yield ("session", name), positions.at(("session", name))
    for section, number, entry in module_entries(data):
        yield (section, *entry_key(entry)), positions.at((section, number, "module"))
    for entry, path in _background_entries(data):
        yield ("background_sessions", entry["name"]), positions.at((*path, "bundle"))
        for number, trigger in enumerate(entry.get("triggers") or ()):
            key = "module" if "module" in trigger else "type"
            place = positions.at((*path, "triggers", number, key))
            yield ("background_sessions", entry["name"], str(number)), place
    for number, name in enumerate(at_path(data, ("agents", "include")) or ()):
        yield ("agents", name), positions.at(("agents", "include", number))
    for number, _ in enumerate(data.get("includes") or ()):
        yield ("includes", str(number)), positions.at(("includes", number))
