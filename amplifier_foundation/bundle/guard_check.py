"""Check the names in permissions, in matchers of hooks and in preferences: a misspelt one guards and prefers nothing.

A name is told when it resembles a known one, and nothing of the bundle can have it. Tools and hooks of other packages
may have any name, and so may the tools of MCP servers (`mcp__…`): beside the former, no name of a tool is told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..documents.problems import Problem, warning_at
from .names import place_of
from .origins import origin
from .packages import OURS
from .preferences import KEY, find_entry
from .sections import MODULE_LISTS
from .sources import module_entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from ..documents.positions import KeyPath
    from .model import Bundle

TOOLS = {
    "tool-bash": ("bash", "bash_kill", "bash_output"),
    "tool-delegate": ("delegate",),
    "tool-emit": ("emit",),
    "tool-filesystem": ("edit_file", "edit_notebook", "glob", "grep", "read_file", "write_file"),
    "tool-fork": ("fork",),
    "tool-issue": ("issue",),
    "tool-mcp": ("mcp_resources",),
    "tool-memory": ("memory",),
    "tool-search": ("search",),
    "tool-skills": ("skill",),
    "tool-todo": ("todo",),
    "tool-web": ("web_fetch", "web_search"),
}
"""The tools of the project's modules."""
MORE_NAMES = ("AskUserQuestion", "ExitPlanMode", "NotebookEdit", "SlashCommand", "WebSearch", "task")
"""What commands for Claude Code call tools, too."""

_TOOL_EVENTS = ("PreToolUse", "PostToolUse")
_LARGEST = 2**20
"""Bytes of a file that is looked at."""


def check_guards(bundle: Bundle, modules: Collection[str]) -> Iterator[Problem]:
    """Yield a warning for each misspelt name in a guard, and for each preferred provider that nothing provides.

    `modules` are the installed ones.
    """
    code = read_code_of_tools(bundle) if bundle.permissions or bundle.hooks else None
    if code is not None:
        from .importing.claude_agents import TOOLS as OF_CLAUDE_CODE

        own = [name for names in TOOLS.values() for name in names]
        named = [(each, own) for each in names_in_rules(bundle)]
        named += [(each, [*own, *OF_CLAUDE_CODE, *MORE_NAMES]) for each in names_in_matchers(bundle)]
        for (path, name), known in named:
            if not (name in known or name.startswith("mcp__") or re.search(rf"\b{re.escape(name)}\b", code)):
                yield from _warn(bundle, path, f"no tool is called '{name}'", name, known)
    providers = [each for each in {*OURS, *modules} if each.startswith("provider-")]
    known = [*providers, *(each.removeprefix("provider-") for each in providers)]
    preferred = [*preferred_providers(bundle)]
    missing = [each for each in preferred if each[2] not in known and find_entry(*each[1:]) is None]
    served = {each[0][:-2] for each in preferred if each not in missing}  # lists in which one can be found
    for path, plan, name in missing:
        if not re.search(r"\d", name):
            ids = [str(each.get("instance_id") or each.get("module")) for each in plan["providers"]]
            remedy = (
                f"Name one of the bundle ({', '.join(ids)}), or leave it out" if ids and path[:-2] not in served else ""
            )  # else one above may be
            yield from _warn(bundle, path, f"no provider is called '{name}'", name, [*known, *ids], remedy)


def _warn(
    bundle: Bundle, path: KeyPath, message: str, name: str, known: Collection[str], remedy: str = ""
) -> Iterator[Problem]:
    """Yield a warning with the nearest known name, else with a remedy, else none."""
    from difflib import get_close_matches

    from .importing.claude_agents import TOOLS as OF_CLAUDE_CODE

    same_case = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), same_case, n=1, cutoff=0.8)
    meant = OF_CLAUDE_CODE.get(name) or (same_case[close[0]] if close else None)
    advice = f"; did you mean '{meant}'?" if meant is not None else f". {remedy}" if remedy else ""
    if advice:
        place = origin(bundle, path) or place_of(bundle, *map(str, path))
        yield warning_at(place, "AMP122", f"{message}, so this has no effect{advice}")


def read_code_of_tools(bundle: Bundle) -> str | None:
    """Return the code of the tools and hooks that a bundle brings; None: others have tools, too, of unknown names."""
    found: dict[Path, str] = {}
    plans = [{each: getattr(bundle, each) for each in MODULE_LISTS}, *bundle.agents.values()]
    for section, _, entry in (each for plan in plans if isinstance(plan, dict) for each in module_entries(plan)):
        source = bundle.local_sources.get(str(entry.get("source")))
        if section == "providers" or (entry.get("module") in OURS and not entry.get("source")):
            continue
        if source is None:
            return None
        for file in [source.path] if source.path.is_file() else source.path.rglob("*.py"):
            if file not in found and file.is_file() and file.stat().st_size <= _LARGEST:
                found[file] = file.read_text(encoding="utf-8", errors="replace")
    return None if any(each.bundle for each in bundle.background_sessions) else "\n".join(found.values())


def names_in_rules(bundle: Bundle) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place of each rule of a bundle about one tool, and the tool's name."""
    for effect in ("deny", "ask", "allow"):
        rules = bundle.permissions.get(effect)
        for at, rule in enumerate(rules if isinstance(rules, list) else ()):
            name = re.match(r"\s*([\w.-]+)\s*(?:\(|$)", str(rule))
            if name is not None:
                yield ("permissions", effect, at), name[1]


def names_in_matchers(bundle: Bundle) -> Iterator[tuple[KeyPath, str]]:
    """Yield the same for each tool in the matchers of `hooks-shell`; an expression that is no name is left out."""
    for at, entry in enumerate(bundle.hooks):
        events: Any = (entry.get("config") or {}).get("hooks") if entry.get("module") == "hooks-shell" else None
        for event in _TOOL_EVENTS if isinstance(events, dict) else ():
            matchers = events.get(event)
            for number, each in enumerate(matchers if isinstance(matchers, list) else ()):
                pattern = each.get("matcher") if isinstance(each, dict) else None
                for name in str(pattern or "").split("|"):
                    if re.fullmatch(r"[\w-]+", name):
                        yield ("hooks", at, "config", "hooks", event, number, "matcher"), name


def preferred_providers(bundle: Bundle) -> Iterator[tuple[KeyPath, Mapping[str, Any], str]]:
    """Yield the place of each preferred provider, the plan that it is looked up in, and its name."""
    plans: list[tuple[KeyPath, Any, Any]] = [(("session", KEY), bundle.session.get(KEY), None)]
    for agent, config in bundle.agents.items():
        if isinstance(config, dict):
            plans.append((("agents", agent, KEY), config.get(KEY), config.get("providers")))
    for path, preferences, more in plans:
        plan = {"providers": [*bundle.providers, *(more if isinstance(more, list) else ())]}
        for at, each in enumerate(preferences if isinstance(preferences, list) else ()):
            if isinstance(each, dict) and isinstance(each.get("provider"), str):
                yield (*path, at, "provider"), plan, each["provider"]
