"""Read a plugin of Claude Code, a `.claude` folder, or a project with one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.utils import is_sensitive
from amplifier_core.utils.secrets import holds_key

from ..names import is_bundle_name
from .claude_agents import USUAL_MODULES, Agent, read_agent
from .sources import ImportFailed, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGIN = ".claude-plugin/plugin.json"
EVENTS = (
    *("PreToolUse", "PostToolUse", "UserPromptSubmit", "Notification", "Stop", "SubagentStop", "PreCompact"),
    *("SessionStart", "SessionEnd"),
)
"""The events of hooks that hooks-shell knows."""

_ABOUT = ("version", "description", "homepage", "repository", "license")
_PARTS = ("name", "author", "keywords", "agents", "commands", "skills", "hooks", "mcpServers", *_ABOUT)
_SERVER: dict[str, Any] = {
    "type": str,
    "command": str,
    "args": list,
    "env": dict,
    "cwd": str,
    "url": str,
    "headers": dict,
}
_ROOT = re.compile(r"\$\{?CLAUDE_PLUGIN_ROOT\}?")
_WITH_DEFAULT = re.compile(r"\$\{\w+:-")
LONGEST_NAME = 200
"""Bytes of the name of an agent: a file is called so."""
_IN_CLAUDE_FOLDER = ("agents", "commands", "skills", "hooks", "scripts")


class Plugin:
    """What becomes a bundle: its identity, agents, hooks and servers, and the files to copy by their new place."""

    def __init__(self, source: Source, name: str) -> None:
        self.source = source
        self.about: dict[str, Any] = {"name": name}
        self.instruction = ""
        self.sections: dict[str, Any] = {}
        """Further sections of the bundle."""
        self.modules: list[str] = []
        self.agents: list[Agent] = []
        self.hooks: dict[str, list[dict[str, Any]]] = {}
        self.servers: dict[str, dict[str, Any]] = {}
        self.files: dict[str, Path] = {}

    @property
    def skills(self) -> list[str]:
        """The names of its skills."""
        found = (Path(place).parts for place in self.files if place.endswith("/SKILL.md"))
        return sorted({parts[1] for parts in found if parts[0] == "skills" and len(parts) == 3})

    @property
    def commands(self) -> list[str]:
        """The names of its slash commands."""
        found = (place for place in self.files if place.startswith("commands/") and place.endswith(".md"))
        return sorted(place.removeprefix("commands/").removesuffix(".md").replace("/", ":") for place in found)

    def take_hooks(self, given: Any, usual: str, manifest: Path) -> None:
        """Take the hooks of a file, and of what a manifest gives: a path, the hooks themselves, or a list of both."""
        for data, file in _read_parts(self.source, given, usual, manifest):
            events = data.get("hooks", {})
            for event, matchers in events.items() if isinstance(events, dict) else ():
                if event not in EVENTS:
                    self.source.leave_out(file, f"hooks.{event}", "hooks-shell has no such event")
                    continue
                for matcher in matchers if isinstance(matchers, list) else ():
                    kept = self._read_matcher(matcher, file, event)
                    if kept is not None:
                        self.hooks.setdefault(event, []).append(kept)

    def _read_matcher(self, matcher: Any, file: Path, event: str) -> dict[str, Any] | None:
        """Return the commands for a pattern of tools, as hooks-shell has them; None if there are none."""
        commands = []
        given: Any = matcher.get("hooks") if isinstance(matcher, dict) else None
        for hook in given if isinstance(given, list) else ():
            if (
                not isinstance(hook, dict)
                or hook.get("type", "command") != "command"
                or not isinstance(hook.get("command"), str)
            ):
                kind = hook.get("type") if isinstance(hook, dict) else hook
                self.source.leave_out(
                    file, f"hooks.{event}", f"a hook of the type {kind!r}: hooks-shell runs commands alone"
                )
                continue
            timeout = hook.get("timeout")
            is_time = isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout <= 3600
            commands.append(
                {"type": "command", "command": hook["command"], **({"timeout": timeout} if is_time else {})}
            )
            for key in hook.keys() - {"type", "command", *(("timeout",) if is_time else ())}:
                self.source.leave_out(file, f"hooks.{event}.{key}", "hooks-shell has no such key")
        if not commands:
            return None
        pattern = matcher.get("matcher")
        return {**({"matcher": pattern} if isinstance(pattern, str) and pattern else {}), "hooks": commands}

    def take_servers(self, given: Any, manifest: Path) -> None:
        """Take the servers of a file, and of what a manifest gives, as with hooks."""
        for data, file in _read_parts(self.source, given, ".mcp.json", manifest):
            servers = data.get("mcpServers", data)
            for name, server in servers.items() if isinstance(servers, dict) else ():
                kept = self._read_server(str(name), server, file)
                if kept is not None:
                    self.servers[str(name)] = kept

    def _read_server(self, name: str, server: Any, file: Path) -> dict[str, Any] | None:
        """Return a server as tool-mcp has it; None, noted, for one that it cannot have."""
        where = f"mcpServers.{name}"
        if not isinstance(server, dict) or ("command" in server) == ("url" in server):
            self.source.leave_out(file, where, "a server has either a command or a url")
            return None
        if server.get("type") == "sse":
            self.source.leave_out(
                file, where, "the transport sse was replaced in 2025: give it the streamable HTTP address"
            )
            return None
        kept: dict[str, Any] = {}
        for key, value in server.items():
            if key not in _SERVER or not isinstance(value, _SERVER[key]):
                self.source.leave_out(file, f"{where}.{key}", "tool-mcp has no such key")
            elif isinstance(value, dict):
                kept[key] = {
                    str(each): self._without_secret(f"{where}.{key}.{each}", str(each), str(text), file)
                    for each, text in value.items()
                }
            else:
                kept[key] = [str(each) for each in value] if isinstance(value, list) else value
        if _WITH_DEFAULT.search(str(kept)):
            self.source.leave_out(file, where, "the default in ${NAME:-default}: set the variable NAME")
        return kept

    def _without_secret(self, where: str, name: str, value: str, file: Path) -> str:
        """Return a value, or a variable in place of a secret: no secret is written into a bundle."""
        if "${" in value or not (holds_key(value) or (is_sensitive(name) and value)):
            return value
        variable = re.sub(r"\W", "_", name).upper()
        self.source.leave_out(file, where, f"a secret is not copied; set the environment variable {variable}")
        return f"${{{variable}}}"


def read_plugin(path: Path) -> Plugin:
    """Return what a file or folder of Claude Code becomes. Raises `ImportFailed` for one of another kind."""
    if path.is_file():
        return _read_one_agent(path)
    if not path.is_dir():
        raise ImportFailed(f"{path}: there is no such file or folder")
    if (path / PLUGIN).is_file():
        return _read_plugin_folder(path)
    folder = path if path.name == ".claude" else path / ".claude"
    if folder.is_dir() and not folder.is_symlink():
        return _read_claude_folder(path)
    if any((path / each).is_dir() for each in ("agents", "commands", "skills")):
        return _read_plugin_folder(path)  # the manifest is optional
    raise ImportFailed(
        f"{path}: this is no plugin ({PLUGIN}, agents, commands, skills), no .claude folder and no file of an agent"
    )


def _read_one_agent(path: Path) -> Plugin:
    source = Source(path.parent)
    agent = read_agent(source, source.root / path.name) if path.suffix == ".md" else None
    if agent is None or not (agent.description or agent.instruction):
        why = source.left_out[-1].reason if source.left_out else "an agent is a Markdown file with a description"
        raise ImportFailed(f"{path}: this is no file of an agent: {why}")
    plugin = Plugin(source, agent.name)
    plugin.about["description"] = agent.description
    plugin.instruction = agent.instruction
    sections = dict(agent.sections)
    preferences = sections.pop("provider_preferences", None)
    plugin.sections = {**({"session": {"provider_preferences": preferences}} if preferences else {}), **sections}
    plugin.modules = list(agent.modules)
    return plugin


def _read_plugin_folder(path: Path) -> Plugin:
    source = Source(path)
    manifest = source.root / PLUGIN
    data = source.read_json(manifest) if manifest.is_file() else {}
    name = data.get("name")
    plugin = Plugin(source, name if isinstance(name, str) and is_bundle_name(name) else source.root.name)
    plugin.about |= {key: data[key] for key in _ABOUT if isinstance(data.get(key), str)}
    author = data.get("author")
    author = author.get("name") if isinstance(author, dict) else author
    plugin.about |= {"author": author} if isinstance(author, str) else {}
    keywords = data.get("keywords")
    tags = [each for each in keywords if isinstance(each, str)] if isinstance(keywords, list) else []
    plugin.about |= {"tags": tags} if tags else {}
    for key in data:
        if key not in _PARTS:
            source.leave_out(manifest, str(key), "bundles have no such key")
    for file in source.list_files(source.root):
        plugin.files[file.relative_to(source.root).as_posix()] = file
    source.left_out[:] = [each for each in source.left_out if each.file not in (".claude-plugin", ".mcp.json", ".git")]
    _take_folders(plugin, data, manifest)
    plugin.take_hooks(data.get("hooks"), "hooks/hooks.json", manifest)
    plugin.take_servers(data.get("mcpServers"), manifest)
    plugin.files.pop("hooks/hooks.json", None)
    plugin.modules = list(USUAL_MODULES)
    plugin.instruction = f"You are a helpful agent.\n\n{plugin.about.get('description', '')}".strip()
    return plugin


def _read_claude_folder(path: Path) -> Plugin:
    source = Source(path)
    folder = source.root if path.name == ".claude" else source.root / ".claude"
    own = source.root.parent.name if path.name == ".claude" else source.root.name
    plugin = Plugin(source, own if is_bundle_name(own) else "imported")
    for each in sorted(folder.iterdir()):
        if each.name in _IN_CLAUDE_FOLDER and each.is_dir() and not each.is_symlink():
            for file in source.list_files(each):
                plugin.files[file.relative_to(folder).as_posix()] = file
        elif each.name not in ("settings.json", "CLAUDE.md"):
            source.leave_out(each, "", "it is no part of a bundle")
    _take_folders(plugin, {}, folder)
    settings = folder / "settings.json"
    data = source.read_json(settings) if settings.is_file() else {}
    plugin.take_hooks({"hooks": data.get("hooks")} if "hooks" in data else None, "", settings)
    for key in data:
        if key not in ("hooks", "$schema"):
            source.leave_out(settings, str(key), "your own settings decide: amplifier config")
    if path.name != ".claude":
        plugin.take_servers(None, settings)
    memories = [file for file in (source.root / "CLAUDE.md", folder / "CLAUDE.md") if file.is_file()]
    plugin.instruction = "\n\n".join(filter(None, map(source.read_text, dict.fromkeys(memories)))).strip()
    plugin.instruction = plugin.instruction or "You are a helpful agent."
    plugin.modules = list(USUAL_MODULES)
    return plugin


def _take_folders(plugin: Plugin, data: dict[str, Any], manifest: Path) -> None:
    """Take the agents, and put skills and commands where a bundle has them, also those that the manifest names."""
    source = plugin.source
    for part in ("agents", "commands", "skills"):
        named = data.get(part)
        for given in [named] if isinstance(named, str) else named if isinstance(named, list) else ():
            place = source.find(str(given), manifest) if isinstance(given, str) else None
            if place is None or place == source.root:
                continue
            base = place.parent if place.is_file() or (place / "SKILL.md").is_file() else place
            for file in [place] if place.is_file() else source.list_files(place):
                plugin.files.pop(file.relative_to(source.root).as_posix(), None)
                plugin.files.setdefault(f"{part}/{file.relative_to(base).as_posix()}", file)
    for name in [each for each in plugin.files if each.startswith("agents/") and each.endswith(".md")]:
        agent = read_agent(source, file := plugin.files.pop(name))
        if agent is None or not (agent.description or agent.instruction):
            continue
        if not is_bundle_name(agent.name) or len(agent.name.encode()) > LONGEST_NAME:
            source.leave_out(file, "name", "no agent can be called so; give its file another name")
        elif agent.name in [each.name for each in plugin.agents]:
            source.leave_out(file, "name", f"another agent is called '{agent.name}'")
        else:
            plugin.agents.append(agent)


def _read_parts(source: Source, given: Any, usual: str, manifest: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield the objects of a part with their files: in its usual file, in files that a manifest names, or inline."""
    named = given if isinstance(given, list) else [given]
    for each in [usual, *named] if usual else named:
        if isinstance(each, dict):
            yield each, manifest
        elif isinstance(each, str) and (path := source.find(each, "" if each == usual else manifest)) is not None:
            yield source.read_json(path), path


def place_root(value: Any, folder: Path) -> Any:
    """Return the configuration of a server with the place of the plugin's files in it."""
    if isinstance(value, dict):
        return {key: place_root(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [place_root(each, folder) for each in value]
    return _ROOT.sub(lambda _: str(folder), value) if isinstance(value, str) else value
