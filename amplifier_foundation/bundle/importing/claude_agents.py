"""Read an agent of Claude Code: a Markdown file with front matter, and its instruction as the text below."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ...documents.files import parse_frontmatter
from ..names import is_bundle_name

if TYPE_CHECKING:
    from pathlib import Path

    from .sources import Source

TOOLS = {
    "Read": "read_file",
    "NotebookRead": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Glob": "glob",
    "LS": "glob",
    "Grep": "grep",
    "Bash": "bash",
    "BashOutput": "bash",
    "KillBash": "bash",
    "KillShell": "bash",
    "Task": "delegate",
    "Agent": "delegate",
    "TodoRead": "todo",
    "TodoWrite": "todo",
    "WebFetch": "web_fetch",
    "Skill": "skill",
}
"""The tools of Claude Code, and ours in their place."""
MODULES = {
    "read_file": "tool-filesystem",
    "write_file": "tool-filesystem",
    "edit_file": "tool-filesystem",
    "glob": "tool-filesystem",
    "grep": "tool-filesystem",
    "bash": "tool-bash",
    "delegate": "tool-delegate",
    "todo": "tool-todo",
    "web_fetch": "tool-web",
    "skill": "tool-skills",
}
"""The modules of our tools."""
USUAL_MODULES = ("tool-filesystem", "tool-bash")
"""The modules for an agent that names no tools: there it has all."""
MODELS = {"haiku": "claude-haiku-*", "sonnet": "claude-sonnet-*", "opus": "claude-opus-*"}
"""Patterns for the newest model of each kind."""

_KEY = re.compile(r"([A-Za-z][\w-]*):(?:\s+(.*)|\s*)")
_RULE = re.compile(r"([\w*-]+)\s*(?:\((.*)\))?", re.DOTALL)
_KNOWN = ("name", "description", "tools", "disallowedTools", "disallowed-tools", "model", "permissionMode")
_WHY_NOT = {
    "color": "agents have no colour here",
    "hooks": "hooks are a bundle's: give it hooks-shell",
    "mcpServers": "servers are a bundle's: give it tool-mcp",
    "skills": "every skill of the bundle is offered to it",
    "permissionMode": "an agent cannot widen what it may do: that is for your own settings",
}


class Agent(NamedTuple):
    """An agent: its name, the sections of its front matter here, and its instruction."""

    name: str
    description: str
    modules: tuple[str, ...]
    sections: dict[str, Any]
    instruction: str


def read_agent(source: Source, path: Path) -> Agent | None:
    """Return the agent of a file; None, noted, if the file cannot be read."""
    text = source.read_text(path)
    if text is None:
        return None
    about, body = read_frontmatter(text)
    name = about.get("name")
    name = name.strip() if isinstance(name, str) and is_bundle_name(name.strip()) else path.stem
    sections: dict[str, Any] = {}
    tools = _read_tools(source, path, "tools", about.get("tools"))
    denied = _read_tools(source, path, "disallowedTools", about.get("disallowedTools", about.get("disallowed-tools")))
    deny = [tool for tool in MODULES if (tools is not None and tool not in tools) or tool in (denied or ())]
    permissions: dict[str, Any] = {"deny": deny} if deny else {}
    if about.get("permissionMode") == "plan":
        permissions = {"mode": "read-only", **permissions}
    elif about.get("permissionMode") not in (None, "default"):
        source.leave_out(path, "permissionMode", _WHY_NOT["permissionMode"])
    if permissions:
        sections["permissions"] = permissions
    preference = read_model(about.get("model"))
    if preference is not None:
        sections["provider_preferences"] = [preference]
    elif about.get("model") not in (None, "", "inherit", "default"):
        source.leave_out(path, "model", "it is no model of Anthropic's")
    for key in about:
        if key not in _KNOWN:
            source.leave_out(path, str(key), _WHY_NOT.get(str(key), "agents have no such key here"))
    modules = USUAL_MODULES if tools is None else tuple(dict.fromkeys(MODULES[tool] for tool in tools))
    description = about.get("description")
    words = description.split() if isinstance(description, str) else []
    return Agent(name, " ".join(words), modules, sections, body.strip())


def read_model(model: Any) -> dict[str, str] | None:
    """Return the preference for a model of Claude Code; None for one that is no particular model."""
    if not isinstance(model, str) or model in ("", "inherit", "default"):
        return None
    name = model.removesuffix("[1m]").strip().lower()
    name = MODELS.get(name, name)
    return {"provider": "anthropic", "model": name} if name.startswith("claude-") else None


def read_frontmatter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter of a Markdown file and its text.

    Many files have a description that is no YAML: there, each `key: value` line counts as text.
    """
    try:
        return parse_frontmatter(text)
    except ValueError:
        pass
    _, _, rest = text.lstrip("\ufeff").partition("\n")
    head, fence, body = rest.partition("\n---")
    if not fence:
        return {}, text
    about: dict[str, Any] = {}
    last = ""
    for line in head.splitlines():
        if (found := _KEY.fullmatch(line)) is not None:
            last = found[1]
            about[last] = (found[2] or "").strip().strip("\"'")
        elif last:
            about[last] = f"{about[last]} {line.strip()}".strip()
    return about, body.partition("\n")[2]


def _read_tools(source: Source, path: Path, key: str, given: Any) -> list[str] | None:
    """Return our tools for a list of theirs; None for no list, and for all of them."""
    if isinstance(given, str):
        given = [each.strip() for each in re.split(r",(?![^(]*\))", given) if each.strip()]
    if not isinstance(given, list) or not given or "*" in given:
        return None
    tools: list[str] = []
    for each in given:
        rule = _RULE.fullmatch(str(each).strip())
        name = rule[1] if rule is not None else str(each)
        if name in TOOLS and rule is not None and rule[2] not in (None, "", "*"):
            source.leave_out(path, key, f"{each}: the tool is there for all arguments; your permissions decide")
        elif name.startswith("mcp__"):
            source.leave_out(path, key, f"{each}: tools of the bundle's MCP servers are there for all of its agents")
        elif name not in TOOLS:
            source.leave_out(path, key, f"{each}: there is no such tool here")
        if name in TOOLS and (key == "tools" or rule is None or rule[2] in (None, "", "*")):
            tools.append(TOOLS[name])
    return tools
