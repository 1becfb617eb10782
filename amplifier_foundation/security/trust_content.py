"""Find what a bundle, or the settings of a project, would run: all files, and lines for the person who decides."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleError
from amplifier_core.frozen import slotted

from .trust_files import Seen, find_code, is_below, owner_of, path_of, read_seen
from .trust_texts import add_texts, folders_of_bundle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..bundle.load import LeaveOut
    from ..bundle.model import Bundle
    from ..settings.layer import Layer

MATTERS = ("bundle", "bundles", "notify", "overrides", "retention", "storage")
"""Settings of a project that run code, lead code or requests elsewhere, or delete sessions."""
OPTIONS = ("cwd", "env", "network", "pass_environment", "readable", "sandbox", "working_dir")
"""What a configuration of commands, or of a server, changes about them."""
_POWERS = (
    ("runs commands", ("bash", "shell", "command", "exec", "terminal", "python")),
    ("writes files", ("filesystem", "file", "write", "edit", "patch")),
    ("uses the network", ("fetch", "http", "web", "browse", "search", "mcp")),
    ("starts other agents", ("delegate", "spawn", "task")),
)
"""What a tool may do, by parts of its name."""
_READING = frozenset({"tool-search"})
"""Tools that read the files of the project, and do nothing else, whatever their names have in them."""


@slotted
class Content:
    """What would run from one place: its files, its folders of code, and a description."""

    place: str
    uid: int
    files: dict[str, Seen] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    digest: str = ""
    """The digest of the bundle."""
    lines: list[tuple[str, str]] = field(default_factory=list)
    """A label and what belongs to it, for people."""


def bundle_content(bundle: Bundle, place: str, names: Mapping[str, Any], installed: Sequence[str]) -> Content:
    """Return the content of a bundle with those of its background sessions. Nothing is run, and nothing fetched."""
    from ..sources.uris import redact_uris

    content = Content(place, owner_of(place), digest=bundle.digest)
    unfetched: list[str] = []
    bundles = [bundle, *_read_workers(bundle, names, unfetched)]
    sources = [source.path for each in bundles for source in each.local_sources.values()]
    for each in bundles:
        for path, digest in each.origins.items():
            known = path_of(path)
            if not is_below(known, installed):
                seen = read_seen(known)
                content.files[known] = seen if seen.digest == digest else Seen(digest)
    _add_code(content, sources)
    scripts = [path for each in bundles for path in find_bundle_scripts(each)]
    content.files.update({path: read_seen(path) for path in scripts if path not in content.files})
    content.lines = [*_describe(bundles, content, sources), *(("fetches", redact_uris(each)) for each in unfetched)]
    folders = dict.fromkeys(folder for each in bundles for folder in folders_of_bundle(each))
    add_texts(content, [each for each in folders if not is_below(path_of(each.path), installed)])
    content.lines += [("script", each) for each in scripts]
    return content


def settings_content(layers: Sequence[Layer], place: str, files: Iterable[Path]) -> Content:
    """Return the content of a project's settings: their files, and the code that they name."""
    content = Content(place, owner_of(place))
    content.files = {known: read_seen(known) for known in map(path_of, files)}
    sources = override_sources(layers)
    _add_code(content, sources)
    for layer in layers:
        content.lines += [
            (f"settings: {key}", _show(layer.values[key], key)) for key in MATTERS if layer.values.get(key)
        ]
    content.lines += [("code", str(each)) for each in sources]
    return content


def find_bundle_scripts(bundle: Bundle) -> list[str]:
    """Return the scripts that the commands of a bundle name in its folder and in the current one."""
    from amplifier_core.utils.scripts import find_scripts

    from ..bundle.sources import find_bundle_commands

    found: dict[str, None] = {}
    for command, folder in find_bundle_commands(bundle):
        here = os.getcwd()  # noqa: PTH109 - paths are text here
        variables = {
            **dict.fromkeys(("AMPLIFIER_PROJECT_DIR", "CLAUDE_PROJECT_DIR"), here),
            **dict.fromkeys(("AMPLIFIER_BUNDLE_DIR", "CLAUDE_PLUGIN_ROOT"), folder or here),
        }
        found |= dict.fromkeys(path_of(path) for path in find_scripts(command, here, variables))
    return list(found)


def override_sources(layers: Iterable[Layer]) -> list[Path]:
    """Return the paths of code in the `overrides` of settings."""
    from ..documents.local_paths import is_path

    overrides = [each for layer in layers for each in (layer.values.get("overrides") or {}).values()]
    return [Path(each["source"]) for each in overrides if each.get("source") and is_path(str(each["source"]))]


def without_fetching(names: Mapping[str, Any], unfetched: list[str]) -> LeaveOut:
    """Return a function for `leave_out`: an included bundle that is not in the cache is left out, and listed."""
    from ..bundle.references import remote_place
    from ..sources import default_cache, redact_uris

    def leave_out(source: str) -> str:
        place = remote_place(source, None, names)
        if place is None or default_cache().get(place) is not None:
            return ""
        unfetched.append(source)
        return f"{redact_uris(source)} is not fetched before you trust this bundle: amplifier trust"

    return leave_out


def _add_code(content: Content, sources: Iterable[Path]) -> None:
    folders: dict[str, None] = dict.fromkeys(content.folders)
    for source in sources:
        if source.is_dir():
            folders[os.path.realpath(source)] = None
        content.files.update({path: read_seen(path) for path in find_code(source) if path not in content.files})
    content.folders = tuple(folders)


def _read_workers(bundle: Bundle, names: Mapping[str, Any], unfetched: list[str]) -> Iterator[Bundle]:
    """Yield the bundles that the background sessions of `bundle` name; a broken one fails when it is started."""
    from ..bundle.load import read_bundle
    from ..documents.local_paths import is_remote
    from ..sources import default_cache

    for source in dict.fromkeys(config.bundle for config in bundle.background_sessions if config.bundle):
        if is_remote(source) and default_cache().get(source) is None:
            unfetched.append(source)
            continue
        beside = bundle.base_path is not None and source.startswith(("./", "../"))
        with suppress(BundleError):
            yield read_bundle(
                f"{bundle.base_path}/{source}" if beside else source,
                registry=names,
                leave_out=without_fetching(names, unfetched),
            )


def runs_bundle(names: Mapping[str, Any], place: str, file: str) -> bool:
    """Return whether a background session of the bundle at a `place` runs that of a `file`; nothing is fetched."""
    from ..bundle.load import read_bundle

    with suppress(BundleError):
        bundle = read_bundle(Path(place), registry=names, leave_out=without_fetching(names, []))
        workers = _read_workers(bundle, names, [])
        return any(each.source_path is not None and path_of(each.source_path) == file for each in workers)
    return False


def _describe(bundles: Sequence[Bundle], content: Content, sources: Sequence[Path]) -> Iterator[tuple[str, str]]:
    from amplifier_core.utils.command_secrets import redact_words

    from ..bundle.sources import find_bundle_commands

    for source in dict.fromkeys(sources):
        own = [path for path in content.files if is_below(path, (path_of(source), os.path.realpath(source)))]
        yield "code", f"{source} ({len(own)} files)" if source.is_dir() else str(source)
    others = [path for path in content.files if path != content.place and path.endswith((".md", ".yaml", ".yml"))]
    yield from (("includes", path) for path in others)
    for label in ("providers", "tools", "hooks"):
        entries = [entry for bundle in bundles for entry in _entries(bundle, label)]
        named = dict.fromkeys(f"{entry.get('module')}{_power_of(label, entry)}" for entry in entries)
        if named:
            yield label, ", ".join(named)
        yield from (("requests to", url) for url in dict.fromkeys(url for entry in entries for url in _urls(entry)))
        yield from (("with", each) for entry in entries for each in _list_options(entry))
    for bundle in bundles:
        commands = dict.fromkeys(command for command, _ in find_bundle_commands(bundle))
        yield from (("runs", redact_words(each)) for each in commands)
        for config in bundle.background_sessions:
            woken = ", ".join(trigger.module for trigger in config.triggers) or "by hand"
            acts = ", acts on text of strangers unasked" if config.untrusted == "act" else ""
            commits = f", commits its changes in git ({config.worktree.finish})" if config.worktree else ""
            yield "background", f"{config.name}: {woken}{commits}{acts}"


def _entries(bundle: Bundle, section: str) -> list[dict[str, Any]]:
    agents = [each for each in bundle.agents.values() if isinstance(each, dict)]
    found = [*getattr(bundle, section), *(entry for agent in agents for entry in agent.get(section) or ())]
    return [entry for entry in found if isinstance(entry, dict)]


def _power_of(section: str, entry: Mapping[str, Any]) -> str:
    name = str(entry.get("module"))
    acts = section == "tools" and name not in _READING
    powers = [power for power, parts in _POWERS if acts and any(part in name for part in parts)]
    powers += ["in a sandbox"] if entry.get("sandbox") else []
    return f" ({', '.join(powers)})" if powers else ""


def _urls(value: Any) -> Iterator[str]:
    from ..sources.uris import redact_uris

    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _urls(each)
    elif isinstance(value, str) and "://" in value:
        yield redact_uris(value)


def _list_options(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the configuration of a module, or a part of it such as a server, changes about its commands."""
    waiting = [("", entry.get("config"))]
    for name, value in waiting:
        if isinstance(value, dict):
            yield from list_options(value, f"{entry.get('module')}{name}")
            waiting += [(f"{name}.{key}", each) for key, each in value.items() if key not in OPTIONS]
        elif isinstance(value, list):
            waiting += [(f"{name}.{number}", each) for number, each in enumerate(value)]


def list_options(given: Mapping[str, Any], owner: str) -> Iterator[str]:
    """Yield what a configuration changes about commands: their environment, what they reach, and their sandbox."""
    yield from (f"{owner} {key}: {_show(given[key], key)}" for key in OPTIONS if given.get(key) is not None)


def _show(value: Any, key: str) -> str:
    """Return a value of a configuration whole, without secrets."""
    import json

    from .trust_secrets import redact_settings

    shown = redact_settings(value, key)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, default=str)
