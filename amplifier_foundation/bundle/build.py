"""Build a `Bundle` from a document, after a check of everything in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..documents.dicts import at_path
from ..documents.kept import Check
from ..documents.local_paths import SUFFIXES, is_path, leaves, local_path
from ..documents.problems import (
    InvalidBundle,
    Problem,
    UnreadableBundle,
    as_errors,
    error_at,
    has_errors,
    warning_at,
)
from ..documents.secrets import find_secrets
from .fetched import find_strays
from .merge import entry_key
from .model import Bundle
from .sections import DEFAULT_SESSION, FIELD_SPELLING, FOREMAN, SECTIONS
from .sources import module_entries, take_context, take_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..documents.document import Document
    from ..documents.positions import KeyPath, Place, Positions
    from .background_config import BackgroundSessionConfig

_HERE = Path(__file__).parent
_CHECK = Check(
    "bundles",
    (
        *(
            _HERE / name
            for name in ("schema.py", "background_config.py", "budget_config.py", "sections.py", "validation.py")
        ),
        *(_HERE.parent / "documents" / name for name in ("fields.py", "validation.py")),
    ),
)


def build_bundle(document: Document, base: Path | None, *, strict: bool = False) -> Bundle:
    """Return the bundle of a document; its `problems` are warnings.

    The document's data becomes the bundle's. Raises `UnreadableBundle` and `InvalidBundle` with every mistake; `strict`
    turns warnings into errors.
    """
    problems = list(document.problems)
    if document.data is None:
        raise UnreadableBundle(problems)
    secrets = find_secrets(document.data, document.positions)
    in_pools = _spell_out_pools(document.data, document.positions)
    configs, found = _check_schema(document)
    name, namespace = names_of(document.data, base)
    strays = list(find_strays(document, base))
    sources, in_sources = take_sources(document, base)
    context, pending, in_context = take_context(document, name, base, namespace)
    problems += [*in_pools, *found, *secrets, *_check_values(document), *strays, *in_sources, *in_context]
    problems.sort(key=lambda problem: (problem.line, problem.column))
    if strict:
        problems = as_errors(problems)
    if has_errors(problems):
        raise (UnreadableBundle if document.problems else InvalidBundle)(problems)
    bundle = _build(document, configs, context)
    bundle.problems, bundle.local_sources, bundle._pending_context = problems, sources, pending
    bundle.base_path = base
    bundle.source_base_paths = {name: namespace} if namespace else {}
    bundle.background_sessions = [make_absolute(config, bundle) for config in configs]
    return bundle


def _spell_out_pools(data: dict[str, Any], positions: Positions) -> list[Problem]:
    """Add the background sessions of a foreman's pools of workers to the others of its config; return the problems.

    A declared background session of the same name counts instead. An orchestrator from another place has its own ways
    with pools.
    """
    orchestrator, config = at_path(data, FIELD_SPELLING[:-2]), at_path(data, FIELD_SPELLING[:-1])
    if not isinstance(config, dict) or config.get("worker_pools") is None:
        return []
    if orchestrator.get("module") != FOREMAN or orchestrator.get("source"):
        return []
    from .validation import check_pools

    entries, problems = check_pools(config, positions)
    names = {entry.get("name") for entry, _ in _background_entries(data)}
    declared = config.get(FIELD_SPELLING[-1])
    if declared is None or isinstance(declared, list):
        config[FIELD_SPELLING[-1]] = [*(declared or ()), *(each for each in entries if each["name"] not in names)]
    return problems


def _check_schema(document: Document) -> tuple[list[BackgroundSessionConfig], list[Problem]]:
    """Check as `check_schema`; a file that had no problems is not checked again, which saves the import of pydantic."""
    data, path = document.data or {}, None if document.is_changed else document.path
    if path is not None and _CHECK.find(path, document.digest) is not None:
        entries = [entry for entry, _ in _background_entries(data)]
        if not entries:
            return [], []
        from .background_config import BackgroundSessionConfig

        return [BackgroundSessionConfig.model_validate(entry) for entry in entries], []
    from .validation import check_schema

    configs, problems = check_schema(document)
    if path is not None and not problems:
        _CHECK.keep(path, document.digest)
    return configs, problems


def names_of(data: dict[str, Any], base: Path | None) -> tuple[str, Path | None]:
    """Return a bundle's name, or ``, and the folder for `name:path`."""
    name, root = at_path(data, ("bundle", "name")), at_path(data, ("bundle", "namespace_root"))
    folder = base / root if base is not None and isinstance(root, str) else base
    return name if isinstance(name, str) else "", folder


def _build(document: Document, configs: list[BackgroundSessionConfig], context: dict[str, Path]) -> Bundle:
    data = document.data or {}
    about, places = data["bundle"], dict(_find_places(document))
    orchestrator_config = at_path(data, FIELD_SPELLING[:-1])
    if isinstance(orchestrator_config, dict):
        orchestrator_config.pop(FIELD_SPELLING[-1], None)  # the bundle's, and no config of the orchestrator
    sections = {each.name: each.build(data.get(each.name)) for each in SECTIONS}
    sections |= {"context": context, "background_sessions": configs}
    sections["instruction"] = document.body.strip() or sections["instruction"] or None
    included = at_path(data, ("agents", "include")) or ()
    return Bundle(
        name=about["name"],
        version=about.get("version", "1.0.0"),
        description=about.get("description") or "",
        namespace_root=about.get("namespace_root"),
        _pending_agents={name: name if ":" in name else f"{about['name']}:{name}" for name in included},
        source_path=document.path,
        digest=document.digest,
        origins={str(document.path): document.digest} if document.path else {},
        places=places,
        positions=document.positions,
        **sections,
    )


def make_absolute(config: BackgroundSessionConfig, bundle: Bundle) -> BackgroundSessionConfig:
    """Return a background session with the path of its bundle absolute: an including bundle has another folder."""
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


def _check_values(document: Document) -> Iterator[Problem]:
    """Yield the mistakes beyond the schema: duplicate names, impossible paths, two instructions."""
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
    yield from _find_duplicates(modules, positions, "; give each an 'instance_id' of its own")
    yield from _find_duplicates(sessions, positions, "")
    if document.body.strip() and data.get("instruction"):
        place = positions.at(("instruction",), key=True)
        yield error_at(place, "AMP104", "the text below the front matter is the instruction; keep one of the two")
    for entry, path in _background_entries(data):
        if entry.get("triggers", ...) in ([], None):
            message = "no trigger is listed: only `amplifier trigger fire` wakes it. List one, or remove the key"
            yield warning_at(positions.at((*path, "triggers")), "AMP104", message)
        written = entry.get("bundle")
        try:
            if isinstance(written, str) and _is_file(written):
                local_path(written)
        except ValueError as error:
            yield error_at(positions.at((*path, "bundle")), "AMP108", str(error))


def _find_duplicates(named: Iterable[tuple[str, str, KeyPath]], positions: Positions, remedy: str) -> Iterator[Problem]:
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


def _find_places(document: Document) -> Iterator[tuple[tuple[str, ...], Place]]:
    """Yield the positions of all values checked after loading, by their keys in `Bundle.places`."""
    data, positions = document.data or {}, document.positions
    yield ("providers",), positions.at(("providers",), key=True)
    for name in DEFAULT_SESSION:
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
