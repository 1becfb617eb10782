"""Names in permissions, matchers of hooks and preferences: a misspelt one is told, and no other one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core import load_plugins
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_foundation.bundle import check_bundle
from amplifier_foundation.bundle.guard_check import TOOLS
from amplifier_foundation.bundle.packages import OURS

if TYPE_CHECKING:
    from pathlib import Path

PROVIDER = "providers: [{module: provider-playbook, instance_id: main}]\n"
RULES = PROVIDER + 'permissions: {deny: ["write_fil(*)"]}\n'
MISSPELT = (
    "bundle.md:4:22: warning[AMP122] permissions.deny[0]: no tool is called 'write_fil', "
    "so this has no effect; did you mean 'write_file'?"
)


async def told(path: Any) -> list[str]:
    return [str(each) for each in await check_bundle(path, load_plugins()) if each.code == "AMP122"]


async def test_a_misspelt_tool_of_a_rule_is_told(write: Any) -> None:
    assert await told(write(RULES + "tools: [{module: tool-filesystem}]\n")) == [MISSPELT]


async def test_a_rule_for_a_tool_of_claude_code_is_told_with_the_tool_here(write: Any) -> None:
    (line,) = await told(write(PROVIDER + 'permissions: {ask: ["bash", "Read(.env)"]}\n'))
    assert "permissions.ask[1]: no tool is called 'Read', so this has no effect; did you mean 'read_file'?" in line


async def test_rules_for_all_known_tools_patterns_and_tools_of_servers_are_not_told(write: Any) -> None:
    names = [name for names in TOOLS.values() for name in names]
    rules = [*names, "write_fil*", "mcp__files__write_fil", "deploy", "bash(bsh *)"]
    assert await told(write(PROVIDER + f"permissions: {{deny: {rules}}}\n")) == []


async def test_a_name_that_another_tool_may_have_is_not_told(write: Any, folder: Path) -> None:
    (folder / "t.py").write_text("NAME = 'write_fil'\n")
    (folder / "u.py").write_text("NAME = 'other'\n")
    assert await told(write(RULES + "tools: [{module: tool-t, source: ./t.py}]\n")) == []
    assert await told(write(RULES + "tools: [{module: tool-u, source: ./u.py}]\n")) == [MISSPELT]
    for others in (
        "tools: [{module: tool-of-others}]\n",
        "agents: {a: {tools: [{module: tool-t, source: ./t.py}]}}\n",
        "hooks: [{module: hooks-of-others}]\n",
        "tools: [{module: tool-filesystem, source: 'git+https://host/u'}]\n",
        "background_sessions: [{name: a, bundle: ./other.md}]\n",
    ):
        assert await told(write(RULES + others)) == []


async def test_a_misspelt_tool_of_a_matcher_is_told(write: Any) -> None:
    matchers = ("Wirte", "write", "Write|MultiEdit|NotebookRead|edit_fil|mcp__a.*", "Notebook.*", "*", "", "Deploy")
    hooks = [{"matcher": each, "hooks": [{"command": "true"}]} for each in matchers]
    config = {"hooks": {"PreToolUse": hooks, "SessionStart": [{"matcher": "Wirte", "hooks": [{"command": "true"}]}]}}
    found = await told(write(PROVIDER + f"hooks: [{{module: hooks-shell, config: {config}}}]\n"))
    assert [(line.split(":")[1], line.partition("PreToolUse")[2]) for line in found] == [
        ("4", f"[{at}].matcher: no tool is called '{name}', so this has no effect; did you mean '{meant}'?")
        for at, name, meant in ((0, "Wirte", "Write"), (1, "write", "Write"), (2, "edit_fil", "edit_file"))
    ]


async def test_a_misspelt_provider_of_a_preference_is_told(write: Any) -> None:
    preferences = "[{provider: anthropc, model: x}, {provider: main, model: x}, {provider: openai, model: x}]"
    path = write(
        PROVIDER + f"session: {{provider_preferences: {preferences}}}\n"
        "agents: {a: {provider_preferences: [{provider: provider-gemni, model: x}]}}\n"
        "tools: [{module: tool-of-others}]\n"
    )
    assert await told(path) == [
        "bundle.md:4:45: warning[AMP122] session.provider_preferences[0].provider: no provider is called 'anthropc', "
        "so this has no effect; did you mean 'anthropic'?",
        "bundle.md:5:48: warning[AMP122] agents.a.provider_preferences[0].provider: no provider is called "
        "'provider-gemni', so this has no effect; did you mean 'provider-gemini'?",
    ]


async def test_a_preferred_provider_that_nothing_provides_is_told_with_those_of_the_bundle(write: Any) -> None:
    preferred = "{provider_preferences: [{provider: nope, model: x}]}"
    path = write(f"{PROVIDER}session: {preferred}\nagents: {{a: {preferred}}}\n")
    message = "no provider is called 'nope', so this has no effect. Name one of the bundle ("
    found = await told(path)
    assert [line.partition(message)[0] for line in found] == [
        "bundle.md:4:45: warning[AMP122] session.provider_preferences[0].provider: ",
        "bundle.md:5:48: warning[AMP122] agents.a.provider_preferences[0].provider: ",
    ]
    assert all(line.endswith("), or leave it out") for line in found)
    assert await told(write(f"session: {preferred}\n")) == []  # the bundle that includes it may have that one
    others = "{provider_preferences: [{provider: nope, model: x}, {provider: openai, model: x}]}"
    assert await told(write(f"{PROVIDER}session: {others}\n")) == []  # the first that is there is taken


async def test_the_known_tools_are_those_that_the_modules_mount() -> None:
    assert TOOLS.keys() == {name for name in OURS if name.startswith("tool-")}
    for module, names in TOOLS.items():
        coordinator = ModuleCoordinator()
        await (await ModuleLoader().load(module))(coordinator)
        assert set(coordinator.get("tools") or ()) <= set(names)
