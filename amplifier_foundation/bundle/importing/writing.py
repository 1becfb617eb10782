"""Write the bundle of a plugin: `bundle.md`, its agents, and copies of its files."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict

from ...documents.files import to_yaml, write_whole
from .claude_plugins import place_root
from .sources import MOST_BYTES, MOST_FILES, ImportFailed

if TYPE_CHECKING:
    from pathlib import Path

    from .claude_plugins import Plugin


def write_bundle(plugin: Plugin, folder: Path, *, overwrite: bool = False) -> Path:
    """Write the bundle into a folder and return its file.

    Raises `SessionConflict` if a file is there already, unless it may `overwrite` those; `ImportFailed`, `OSError`.
    """
    folder = folder.resolve()
    if folder.is_relative_to(plugin.source.root) and plugin.files:
        raise ImportFailed(f"{folder} is within {plugin.source.root}; choose another folder with --to")
    sizes = [file.stat().st_size for file in plugin.files.values()]
    if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
        raise ImportFailed(
            f"{plugin.source.root} has {len(sizes):,} files with {sum(sizes) // 2**20:,} MiB; at most {MOST_FILES:,} "
            f"with {MOST_BYTES // 2**20:,} MiB are copied. Remove what the plugin does not need"
        )
    texts = {"bundle.md": _write_text(plugin, folder)}
    for agent in plugin.agents:
        about = {"name": agent.name, **({"description": agent.description} if agent.description else {})}
        tools = {"tools": [{"module": each} for each in agent.modules]} if agent.modules else {}
        texts[f"agents/{agent.name}.md"] = _join({"meta": about, **tools, **agent.sections}, agent.instruction)
    places = [*plugin.files, *texts]
    there = [place for place in places if os.path.lexists(folder / place)]
    if there and not overwrite:
        raise SessionConflict(
            str(folder), f"{folder / there[0]} exists and stays as it is; choose another folder with --to"
        )
    for place in places:
        if not (folder / place).parent.resolve().is_relative_to(folder):
            raise ImportFailed(f"{folder / place} leads out of {folder}, by a link")
    for place, file in plugin.files.items():
        _make_folder(folder / place)
        if (folder / place).is_symlink():
            (folder / place).unlink()
        shutil.copyfile(file, folder / place, follow_symlinks=False)
        shutil.copymode(file, folder / place, follow_symlinks=False)
    for place, text in texts.items():
        _make_folder(folder / place)
        write_whole(folder / place, text)
    return folder / "bundle.md"


def _make_folder(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)


def _write_text(plugin: Plugin, folder: Path) -> str:
    """Return the text of `bundle.md`. Its provider gives way to any other one."""
    modules = list(dict.fromkeys([*plugin.modules, *(each for agent in plugin.agents for each in agent.modules)]))
    modules += ["tool-delegate"] if plugin.agents and "tool-delegate" not in modules else []
    modules += ["tool-skills"] if (plugin.skills or plugin.commands) and "tool-skills" not in modules else []
    tools: list[dict[str, Any]] = [{"module": each} for each in modules]
    if plugin.servers:
        tools.append({"module": "tool-mcp", "config": {"mcpServers": place_root(plugin.servers, folder)}})
    data: dict[str, Any] = {
        "bundle": {key: value for key, value in plugin.about.items() if value},
        "providers": [{"module": "provider-anthropic", "stand_in": True}],
        **({"tools": tools} if tools else {}),
        **({"hooks": [{"module": "hooks-shell", "config": {"hooks": plugin.hooks}}]} if plugin.hooks else {}),
        **({"agents": {"include": [agent.name for agent in plugin.agents]}} if plugin.agents else {}),
        **plugin.sections,
    }
    return _join(data, plugin.instruction)


def _join(data: dict[str, Any], text: str) -> str:
    return f"---\n{to_yaml(data)}---\n{text}\n"
