"""Plugins as a person sees them: listed, shown, switched off, and pinned for a project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from amplifier_core import entry_points
from amplifier_core.errors import PluginRefused
from amplifier_core.loader import ModuleLoader
from amplifier_core.plugin_marks import PAUSE
from amplifier_core.plugins import load_plugins
from amplifier_core.testing import MockCoordinator
from amplifier_foundation.cli import COMPLETE, _plugin_commands, cli, exits, invoke
from amplifier_foundation.isolation.sandboxed_tools import make_mount
from amplifier_foundation.packages.gate import Gate, read_disabled
from amplifier_foundation.settings import write_setting
from tests.core.conftest import Site, site

pytestmark = pytest.mark.slow

__all__ = ["site"]

PLAYBOOK = "amplifier-provider-playbook 0.1.0"
Told = Callable[..., tuple[int, str, str]]
TRIGGER = """
from amplifier_core.hookspecs import hookimpl

@hookimpl
def amplifier_register_trigger(register):
    register("trigger-zeta", object)
"""
NOTING = """
import os
from amplifier_core import hookimpl

@hookimpl
def amplifier_register_runner(register):
    with open({calls!r}, "a") as file:
        print(os.getpid(), file=file)
"""
MOUNT = "async def mount(coordinator, config):\n    pass\n"


LIST = """
import sys
from amplifier_foundation.cli import invoke
invoke(['plugin', 'list'])
print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture
def told(home: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """Give a command; returns code, stdout and stderr."""
    (project / ".git").mkdir()

    def give(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(arguments)
        return code, *capsys.readouterr()

    return give


@pytest.fixture
def zeta(site: Site) -> Site:
    """A package with a trigger and a tool, and a package with another tool."""
    files = {"zeta/__init__.py": TRIGGER, "zeta/tool.py": MOUNT, "zeta/data.txt": "one\n"}
    offers = {"amplifier": {"trigger-zeta": "zeta"}, "amplifier.modules": {"tool-zeta": "zeta.tool:mount"}}
    site.install("dist-zeta", offers, files, "2.1")
    site.install("dist-eta", {"amplifier.modules": {"tool-eta": "eta:mount"}}, {"eta.py": MOUNT})
    return site


def data_of(told: Told, *arguments: str) -> Any:
    code, out, err = told(*arguments, "--json")
    assert code == exits.OK, err
    return json.loads(out)["data"]


def row_of(told: Told, name: str, *arguments: str) -> dict[str, Any]:
    data = data_of(told, "plugin", "list", *arguments)
    [row] = [row for part in data.values() for row in part if row["name"] == name]
    return dict(row)


# failures


def test_run_names_a_plugin_that_fails_once(told: Told, site: Site, project: Path) -> None:
    site.plugin("dist-bad", "raise OSError('gone')\n", name="bad")
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nproviders: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n"
        "background_sessions: [{name: b, instruction_template: go}]\n---\n"
    )
    code, _, err = told("run", "--trust", "hello")
    assert (code, err.count("plugin 'bad' of dist-bad 1.0 was not loaded: OSError: gone")) == (exits.OK, 1)


def test_run_has_plugins_register_once(told: Told, site: Site, project: Path) -> None:
    calls = project / "calls"
    site.plugin("dist-noting", NOTING.format(calls=str(calls)), name="noting")
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nproviders: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n"
        "background_sessions: [{name: b, instruction_template: go}]\n---\n"
    )
    assert told("run", "--trust", "hello")[0] == exits.OK
    assert calls.read_text().split().count(str(os.getpid())) == 1


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise OSError('gone')", "OSError: gone ({file}:1)"),
        ("exit(3)", "SystemExit: 3 ({file}:1)"),
        ("run = (", "SyntaxError: '(' was never closed ({file}:1)"),
        ("run = 1", "bad:run is no command of click"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_named_with_its_package(
    told: Told, site: Site, source: str, problem: str
) -> None:
    site.install("dist-bad", {"amplifier.commands": {"bad": "bad:run"}}, {"bad.py": f"{source}\n"})
    _plugin_commands.cache_clear()
    try:
        code, _, err = told("bad")
    finally:
        _plugin_commands.cache_clear()
    assert code == exits.FAILED
    problem = problem.replace("{file}", str(site.folder / "bad.py"))
    assert err == f"amplifier: command 'bad' of dist-bad 1.0 was not loaded: {problem}. Update or remove dist-bad\n"


def test_a_command_that_cannot_be_loaded_leaves_the_completions_of_the_others(home: Path, site: Site) -> None:
    site.install("dist-bad", {"amplifier.commands": {"session-bad": "bad:run"}}, {"bad.py": "raise OSError('gone')\n"})
    _plugin_commands.cache_clear()
    try:
        complete = ShellComplete(cli, {}, "amplifier", COMPLETE).get_completions
        assert [item.value for item in complete([], "sess")] == ["session"]
        assert complete(["session-bad"], "") is not None
    finally:
        _plugin_commands.cache_clear()


def test_of_two_packages_with_one_command_neither_is_run_and_both_are_named(told: Told, site: Site) -> None:
    for name in ("one", "two"):
        site.install(f"dist-{name}", {"amplifier.commands": {"both": f"{name}:run"}}, {f"{name}.py": "exit(3)\n"})
    _plugin_commands.cache_clear()
    try:
        code, _, err = told("both")
        rows = [row for row in data_of(told, "plugin", "list")["others"] if row["name"] == "both"]
    finally:
        _plugin_commands.cache_clear()
    taken = "command 'both' is registered by both dist-one 1.0 and dist-two 1.0; neither is used. Uninstall one of them"
    assert (code, err) == (exits.USAGE, f"amplifier: {taken}\n")
    assert [row["error"] for row in rows] == [taken, taken]


RIVAL = """
from amplifier_core.hookspecs import hookimpl

@hookimpl
def amplifier_register_storage(register):
    register("storage-sqlite", dict)
"""


@pytest.mark.parametrize("name", ["storage-aa", "storage-zz"])  # loaded before it, and after it
def test_a_storage_is_that_of_the_plugin_with_its_name_for_every_command(
    name: str, told: Told, site: Site, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nproviders: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n---\n"
    )
    site.plugin("dist-rival", RIVAL, name=name)
    code, _, err = told("run", "--trust", "hello")
    taken = "storage 'storage-sqlite' is registered by both amplifier-storage-sqlite 0.1.0 and dist-rival 1.0; "
    remedy = "the first is used. Uninstall one of them, or block its plugin with AMPLIFIER_BLOCK_PLUGINS"
    assert (code, f"{taken}{remedy}" in err) == (exits.OK, True)
    assert len(data_of(told, "session", "list")) == 1
    monkeypatch.setenv("AMPLIFIER_BLOCK_PLUGINS", name)
    code, _, err = told("run", "hello")
    assert (code, "registered" in err) == (exits.OK, False)


def test_of_two_plugins_of_one_name_every_command_uses_the_first_and_the_list_names_both(
    told: Told, site: Site
) -> None:
    site.plugin("dist-rival", RIVAL, name="storage-sqlite")  # before the other one on the path
    taken = "plugin 'storage-sqlite' is registered by both dist-rival 1.0 and amplifier-storage-sqlite 0.1.0; the first"
    for command in ("session list", "up --once"):
        err = told(*command.split())[2]
        assert f"{taken} is used. Uninstall one of them\n" in err
        assert "does not load" not in err
    rows = [each for each in data_of(told, "plugin", "list")["plugins"] if each["name"] == "storage-sqlite"]
    assert [each["error"] for each in rows] == ["", f"{taken} is used. Uninstall one of them"]


def test_a_module_whose_entry_point_names_no_function_is_found_before_a_start(
    told: Told, site: Site, project: Path
) -> None:
    site.install("dist-loop", {"amplifier.modules": {"loop-bad": "bad"}}, {"bad.py": MOUNT})
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nsession: {orchestrator: loop-bad}\nproviders: [{module: provider-playbook}]\n"
        "background_sessions: [{name: b, instruction_template: go}]\n---\n"
    )
    said = "cannot be mounted: its entry point names no function. Write 'loop-bad = \"bad:mount\"' into its pyproject"
    for command in ("bundle validate", "up --once --trust", "run --trust hello"):
        code, _, err = told(*command.split())
        assert (code, said in err) == (exits.USAGE, True), err


def test_a_module_that_can_be_called_itself_is_mounted(told: Told, site: Site, project: Path) -> None:
    code = """
import sys, types

class Called(types.ModuleType):
    async def __call__(self, coordinator, config=None):
        from amplifier_context_simple import mount
        return await mount(coordinator, config or {})

sys.modules[__name__].__class__ = Called
"""
    site.install("dist-own", {"amplifier.modules": {"context-own": "own_context"}}, {"own_context.py": code})
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nsession: {context: context-own}\n"
        "providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n---\n"
    )
    for command in ("bundle validate", "run --trust hello"):
        code, _, err = told(*command.split())
        assert (code, "no function" in err) == (exits.OK, False), err


def test_a_plugin_named_as_what_another_one_offers_reserves_nothing_that_it_does_not_offer(site: Site) -> None:
    hook = "from amplifier_core.hookspecs import hookimpl\n\n@hookimpl\n"
    runner = f"{hook}def amplifier_register_runner(register):\n    register('trigger-zeta', object)\n"
    site.plugin("dist-hooks", runner, name="trigger-zeta")
    site.plugin("dist-events", TRIGGER, name="zeta-events")
    plugins = load_plugins()
    offers = {name: plugins.offers_of(name) for name in ("trigger-zeta", "zeta-events")}
    assert offers == {"trigger-zeta": {"runner": ["trigger-zeta"]}, "zeta-events": {"trigger": ["trigger-zeta"]}}


@pytest.mark.parametrize("mark", ["block", "disable"])
def test_a_package_in_place_of_a_plugin_that_is_not_loaded_is_used(
    mark: str, told: Told, site: Site, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("dist-rival", RIVAL, name="storage-aa")
    if mark == "block":
        monkeypatch.setenv("AMPLIFIER_BLOCK_PLUGINS", "storage-sqlite")
    else:
        assert told("plugin", "disable", "storage-sqlite")[0] == exits.OK
    rows = data_of(told, "plugin", "list", "--load")["plugins"]
    statuses = {each["name"]: (each["status"], each["error"]) for each in rows if each["name"] == "storage-aa"}
    assert statuses == {"storage-aa": ("loaded", "")}


# listing


def test_the_list_names_everything_and_imports_none_of_it(told: Told, zeta: Site) -> None:
    row = row_of(told, "trigger-zeta")
    assert row == {
        **{"name": "trigger-zeta", "kind": "trigger", "group": "amplifier", "dist": "dist-zeta", "version": "2.1"},
        **{"target": "zeta", "summary": "About dist-zeta", "status": "installed", "error": "", "offers": []},
        **{"hooks": [], "milliseconds": None},
    }
    assert row_of(told, "tool-zeta")["kind"] == "tool"
    assert {"zeta", "zeta.tool"}.isdisjoint(sys.modules)
    out = told("plugin", "list")[1]
    heading, *lines = out.splitlines()
    assert heading.split() == ["NAME", "KIND", "FROM", "VERSION", "STATUS", "CAUSE"]
    assert [line.split() for line in lines if "-zeta" in line] == [
        ["tool-zeta", "tool", "dist-zeta", "2.1", "installed"],
        ["trigger-zeta", "trigger", "dist-zeta", "2.1", "installed"],
    ]


def test_a_load_shows_offers_hooks_time_and_causes(told: Told, zeta: Site) -> None:
    row = row_of(told, "trigger-zeta", "--load")
    assert (row["status"], row["offers"], row["hooks"]) == (
        *("loaded", ["trigger-zeta"], ["amplifier_register_trigger"]),
    )
    assert row["milliseconds"] > 0
    (zeta.folder / "zeta" / "__init__.py").write_text("import nothing_of_this_name")
    sys.modules.pop("zeta")
    row = row_of(told, "trigger-zeta", "--load")
    cause = f"No module named 'nothing_of_this_name' ({zeta.folder / 'zeta' / '__init__.py'}:1)"
    assert (row["status"], row["error"]) == ("failed", f"ModuleNotFoundError: {cause}")
    heading = told("plugin", "list", "--load")[1].splitlines()[0]
    assert heading.split() == ["NAME", "KIND", "OFFERS", "MS", "FROM", "VERSION", "STATUS", "CAUSE"]


def test_a_requirement_that_is_not_met_is_named(told: Told, site: Site) -> None:
    site.install("dist-new", {"amplifier.modules": {"tool-new": "new:mount"}}, {"new.py": MOUNT})
    wanted = ["click>=1", "amplifier>=99", "absent-one", "!", "other ; extra == 'more'", "third ; python_version < '3'"]
    with (site.folder / "dist_new-1.0.dist-info" / "METADATA").open("a") as metadata:
        metadata.write("".join(f"Requires-Dist: {each}\n" for each in wanted) + "\nRequires-Dist: no-header\n")
    installed = version("amplifier")
    needs = f"amplifier>=99 (installed: {installed}), absent-one (not installed), ! (Expected"
    row = row_of(told, "tool-new", "--load")
    assert (row["status"], row["error"][: 18 + len(needs)]) == ("installed", f"its package needs {needs}")
    assert not {"other", "third", "no-header"} & set(re.findall("[a-z-]+", row["error"]))
    code, out, _ = told("plugin", "check", "dist-new")
    assert (code, f"error: dist-new needs amplifier>=99 (installed: {installed})" in out) == (exits.FAILED, True)
    code, out, _ = told("doctor", "--json")
    [fact] = [each["fact"] for each in json.loads(out)["data"] if each["part"] == "packages"]
    assert (code, fact.startswith(f"dist-new needs {needs}")) == (exits.FAILED, True)


def test_two_packages_that_offer_one_module_are_both_named(told: Told, site: Site) -> None:
    for dist in ("dist-one", "dist-two"):
        site.install(dist, {"amplifier.modules": {"tool-both": f"{dist.replace('-', '_')}:mount"}}, {})
    rows = [row for part in data_of(told, "plugin", "list").values() for row in part if row["name"] == "tool-both"]
    cause = (
        "module 'tool-both' is registered by both dist-one 1.0 and dist-two 1.0; neither is used. Uninstall one of them"
    )
    assert [row["error"] for row in rows] == [cause, cause]


def test_the_list_imports_no_plugin_and_nothing_heavy(zeta: Site, home: Path, project: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(zeta.folder)}
    done = subprocess.run([sys.executable, "-c", LIST], env=environment, capture_output=True, text=True, check=True)
    assert "trigger-zeta" in done.stdout
    loaded = set(done.stderr.splitlines()[-1].split())
    assert loaded & {"zeta", "asyncio", "pydantic", "yaml", "rich", "subprocess", "amplifier_trigger_timer"} == set()


def test_everything_about_a_plugin_or_a_package_is_shown(told: Told, zeta: Site) -> None:
    code, out, _ = told("plugin", "show", "dist-zeta", "--load")
    assert code == exits.OK
    assert re.sub(r"\d+\.\d ms", "TIME", out).splitlines() == [
        "tool-zeta: installed",
        "  kind:        tool",
        "  package:     dist-zeta 2.1",
        "  about:       About dist-zeta",
        "  entry point: zeta.tool:mount (amplifier.modules)",
        "trigger-zeta: loaded",
        "  kind:        trigger",
        "  package:     dist-zeta 2.1",
        "  about:       About dist-zeta",
        "  entry point: zeta (amplifier)",
        "  offers:      trigger-zeta",
        "  hooks:       amplifier_register_trigger",
        "  load time:   TIME",
    ]
    code, _, err = told("plugin", "show", "trigger-zet")
    assert (code, "did you mean 'trigger-zeta'?" in err) == (exits.NOT_FOUND, True)


def test_a_misspelled_name_in_the_environment_is_told_once(
    told: Told, zeta: Site, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "unknown plugin 'trigger-zetta'; did you mean 'trigger-zeta'?"
    monkeypatch.setenv("AMPLIFIER_BLOCK_PLUGINS", "trigger-zetta")
    code, _, err = told("session", "list")  # it loads the plugin of its storage alone
    assert (code, "WARNING" in err) == (exits.OK, False)
    code, _, err = told("plugin", "list", "--load")
    assert (code, err.count("WARNING"), err.count(f"AMPLIFIER_BLOCK_PLUGINS: {hint}")) == (exits.OK, 1, 1)
    monkeypatch.setenv("AMPLIFIER_LOAD_PLUGINS", "trigger-zetta")
    monkeypatch.delenv("AMPLIFIER_BLOCK_PLUGINS")
    _, _, err = told("session", "list")
    assert (err.count("WARNING"), err.count(f"AMPLIFIER_LOAD_PLUGINS: {hint}")) == (1, 1)


def test_a_plugin_that_took_too_long_is_skipped_until_it_changes_or_is_enabled(
    told: Told, zeta: Site, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_core.plugins.IMPORT_TIME_LIMIT", 0.2)
    monkeypatch.setenv("AMPLIFIER_LOAD_PLUGINS", "trigger-zeta")
    file = zeta.folder / "zeta" / "__init__.py"
    file.write_text("while True: pass")
    late = f"TimeoutError: it took longer than 0.2 s to load ({file}:1)"
    assert row_of(told, "trigger-zeta", "--load")["error"] == late
    for _ in range(2):
        assert row_of(told, "trigger-zeta")["status"] == "slow"
        skipped = row_of(told, "trigger-zeta", "--load")
        assert (skipped["status"], skipped["milliseconds"]) == ("slow", 0)
        assert "is skipped for ten minutes, or until it changes" in skipped["error"]
    assert told("plugin", "enable", "trigger-zeta")[0] == exits.OK
    assert row_of(told, "trigger-zeta")["status"] == "installed"
    assert row_of(told, "trigger-zeta", "--load")["error"] == late
    long_ago = time.time() - PAUSE - 1
    os.utime(home / "slow-plugin-trigger-zeta", (long_ago, long_ago))
    assert row_of(told, "trigger-zeta")["status"] == "installed"
    assert row_of(told, "trigger-zeta", "--load")["error"] == late
    file.write_text(TRIGGER)
    assert row_of(told, "trigger-zeta", "--load")["status"] == "loaded"
    assert list(home.glob("slow-plugin-*")) == []


def test_a_plugin_that_ended_a_process_is_listed_as_such_and_tried_in_one_of_its_own(
    told: Told, zeta: Site, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_LOAD_PLUGINS", "trigger-zeta")
    monkeypatch.setenv("PYTHONPATH", str(zeta.folder))
    (zeta.folder / "zeta" / "__init__.py").write_text("import os\nos._exit(3)")
    home.mkdir()
    (home / "loading-1-1").write_text("trigger-zeta")
    for _ in range(2):
        assert row_of(told, "trigger-zeta")["status"] == "accused"
        row = row_of(told, "trigger-zeta", "--load")
        assert (row["status"], row["error"]) == ("failed", "it ends the process that loads it")


def test_a_module_that_prints_at_its_import_or_ends_the_program_is_named(told: Told, site: Site, project: Path) -> None:
    code = "import sys\nprint('loud')\nif 'ends' in __name__: sys.exit(3)\n"
    for name in ("tool_ends", "tool_loud", "hooks_loud", "provider_loud"):
        kind = name.replace("_", "-")
        site.install(f"dist-{kind}", {"amplifier.modules": {kind: f"{name}:mount"}}, {f"{name}.py": code + MOUNT})
    (project / "own.py").write_text(code + MOUNT)
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nproviders: [{module: provider-playbook, config: {otherwise: {say: hi}}}, "
        "{module: provider-loud, config: {}}]\nhooks: [{module: hooks-loud, config: {}}]\n"
        "tools: [{module: tool-ends, config: {}}, {module: tool-loud, config: {}}, "
        "{module: tool-own, source: ./own.py}]\n---\n"
    )
    for command in (("bundle", "validate", "--format", "json"), ("run", "--json", "hello")):
        for name in [each for each in sys.modules if each.endswith(("_ends", "_loud"))]:
            del sys.modules[name]
        code_of_end, out, err = told(*command)
        assert (code_of_end, type(json.loads(out))) == (exits.OK, dict), err
        assert "module 'tool-loud' of dist-tool-loud 1.0: it printed while it was loaded" in err
        assert err.count("loud\n") >= 4
        if "validate" in command:
            (problem,) = json.loads(out)["data"]["problems"]
            assert (problem["code"], problem["path"]) == ("AMP114", "tools[0].module")
            assert problem["message"].startswith("module 'tool-ends' of dist-tool-ends 1.0 ends the program")
    assert "module 'tool-own' in " in err
    assert (
        "tool 'tool-ends' was not mounted: module 'tool-ends' of dist-tool-ends 1.0 "
        "ends the program while it is imported (SystemExit: 3). Update it, or remove it"
    ) in err


# switching


def test_a_disabled_plugin_is_not_loaded_until_it_is_enabled(told: Told, zeta: Site, home: Path) -> None:
    assert told("plugin", "disable", "trigger-zeta")[1] == "trigger-zeta is disabled\n"
    row = row_of(told, "trigger-zeta", "--load")
    cause = "you have disabled it. Enable it with: amplifier plugin enable trigger-zeta"
    assert (row["status"], row["error"], row["offers"]) == ("disabled", cause, [])
    assert "zeta" not in sys.modules
    assert row_of(told, "tool-zeta")["status"] == "installed"
    assert (home / "settings.yaml").read_text() == "disabled_plugins:\n- trigger-zeta\n"
    assert told("plugin", "disable", "trigger-zeta")[1] == "trigger-zeta was disabled\n"
    assert told("plugin", "enable", "trigger-zeta")[1] == "trigger-zeta is enabled\n"
    assert told("plugin", "enable", "trigger-zeta")[1] == "trigger-zeta was enabled\n"
    assert row_of(told, "trigger-zeta", "--load")["status"] == "loaded"


def test_plugins_that_are_disabled_and_enabled_at_once_lose_none(home: Path, project: Path) -> None:
    names = ["hooks-logging", "hooks-otel", "tool-web", "tool-todo"]
    for verb, after in (("disable", sorted(names)), ("enable", [])):
        command = (sys.executable, "-m", "amplifier_foundation", "plugin", verb)
        at_once = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in names]
        assert [each.communicate()[0] for each in at_once] == [f"{name} is {verb}d\n".encode() for name in names]
        assert read_disabled() == after


async def test_who_goes_on_with_a_disabled_plugin_is_named(running: Any, say: Any, background: Path) -> None:
    text = f"Process {os.getpid()} in {background.parent} goes on with the plugins of its start. Start it anew there: "
    for verb in ("disable", "enable"):
        code, out, err = await say("plugin", verb, "tool-todo")
        assert (code, out, err) == (exits.OK, f"tool-todo is {verb}d\n", f"{text}amplifier stop --all; amplifier up\n")
    assert (await say("plugin", "enable", "tool-todo"))[2] == ""


def test_a_package_is_disabled_as_a_whole_and_its_module_does_not_mount(told: Told, zeta: Site) -> None:
    assert data_of(told, "plugin", "disable", "dist-zeta") == {
        "names": ["trigger-zeta", "tool-zeta"],
        "disabled_plugins": ["tool-zeta", "trigger-zeta"],
    }
    entry_points.guard_with(Gate())
    try:
        with pytest.raises(PluginRefused, match="'tool-zeta' of dist-zeta 2.1 is not loaded: you have disabled it"):
            ModuleLoader()._from_entry_point("tool-zeta")
    finally:
        entry_points.guard_with(None)


async def test_a_disabled_module_gets_no_sandbox_either(told: Told, zeta: Site) -> None:
    written = write_setting("user", "disabled_plugins", ["tool-zeta"])
    assert written.is_file()
    entry_points.guard_with(Gate())
    try:
        with pytest.raises(PluginRefused, match="you have disabled it"):
            await make_mount(ModuleLoader(), "tool-zeta", {}, None)(MockCoordinator())
    finally:
        entry_points.guard_with(None)


def test_the_bundle_that_needs_a_disabled_package_is_told_so(told: Told, zeta: Site, project: Path) -> None:
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nproviders: [{module: provider-playbook}]\ntools: [{module: tool-zeta}]\n"
        "agents: {b: {tools: [{module: tool-zeta}]}}\n"
        "background_sessions: [{name: c, triggers: [{module: trigger-zeta}]}]\n---\n"
    )
    told("plugin", "disable", "dist-zeta")
    told("plugin", "disable", "provider-playbook")
    code, _, err = told("bundle", "validate")
    cause = "is not loaded: you have disabled it. Enable it with: amplifier plugin enable"
    assert (code, sorted(err.splitlines())) == (
        exits.USAGE,
        [
            f"bundle.md:3:22: error[AMP110] providers[0].module: 'provider-playbook' of {PLAYBOOK} {cause} "
            "provider-playbook",
            f"bundle.md:4:18: warning[AMP110] tools[0].module: 'tool-zeta' of dist-zeta 2.1 {cause} tool-zeta",
            f"bundle.md:5:31: warning[AMP109] agents.b.tools[0].module: 'tool-zeta' of dist-zeta 2.1 {cause} tool-zeta",
            "bundle.md:6:53: error[AMP110] background_sessions[0].triggers[0].module: "
            f"trigger 'trigger-zeta' of dist-zeta 2.1 {cause} trigger-zeta",
        ],
    )
    assert told("bundle", "install", "--dry-run")[:2] == (exits.OK, "Nothing is missing.\n")
    told("plugin", "enable", "provider-playbook")
    told("plugin", "enable", "trigger-zeta")
    assert "error[AMP110]" not in told("bundle", "validate")[2]


def test_a_project_cannot_disable_a_plugin(told: Told, zeta: Site, project: Path) -> None:
    (project / ".amplifier").mkdir()
    (project / ".amplifier" / "settings.yaml").write_text("disabled_plugins: [trigger-zeta]\n")
    assert row_of(told, "trigger-zeta", "--load")["status"] == "loaded"


def test_a_part_of_the_program_and_an_unknown_name_cannot_be_disabled(told: Told) -> None:
    assert told("plugin", "disable", "spawn-limits")[0] == exits.USAGE
    assert told("plugin", "disable", "trigger-timr")[0] == exits.NOT_FOUND


def test_a_session_switches_and_pins_nothing(told: Told, zeta: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_foundation.security.session_mark.is_within_session", lambda: True)
    for command in (("disable", "tool-zeta"), ("enable", "tool-zeta"), ("lock",)):
        assert told("plugin", *command)[0] == exits.WAITING
    assert row_of(told, "tool-zeta")["status"] == "installed"


# pinning


def test_a_pinned_package_that_changed_is_refused_with_what_changed(told: Told, zeta: Site, project: Path) -> None:
    lock = project / ".amplifier" / "plugins.lock"
    code, out, err = told("plugin", "lock")
    assert (code, out) == (exits.OK, f"{lock}\n")
    assert "dist-zeta" in err
    pinned = json.loads(lock.read_text())["packages"]["dist-zeta"]
    assert (pinned["version"], pinned["offers"]) == ("2.1", ["tool-zeta", "trigger-zeta"])
    assert {"zeta/__init__.py", "zeta/tool.py", "zeta/data.txt"} <= set(pinned["files"])
    assert row_of(told, "trigger-zeta", "--load")["status"] == "loaded"
    assert told("plugin", "lock", "--check")[:2] == (exits.OK, "")
    (zeta.folder / "zeta" / "tool.py").write_text(MOUNT + "# more\n")
    (zeta.folder / "zeta" / "new.py").write_text("")
    (zeta.folder / "zeta" / "data.txt").unlink()
    changes = "zeta/data.txt is gone, zeta/new.py is new, zeta/tool.py has changed"
    remedy = "Install what was pinned, or look at the change and pin it with: amplifier plugin lock"
    for name in ("trigger-zeta", "tool-zeta"):
        row = row_of(told, name)
        assert (row["status"], row["error"]) == ("refused", f"it is not as {lock} pins it: {changes}. {remedy}")
    assert row_of(told, "tool-eta")["status"] == "installed"
    code, _, err = told("plugin", "list", "--load")
    assert f"'trigger-zeta' of dist-zeta 2.1 is not loaded: it is not as {lock} pins it" in err
    assert told("plugin", "lock", "--check")[0] == exits.CONFLICT
    assert "changed: dist-zeta" in told("plugin", "lock")[2]
    assert row_of(told, "trigger-zeta", "--load")["status"] == "loaded"


def test_another_version_is_refused(told: Told, zeta: Site, project: Path) -> None:
    told("plugin", "lock")
    about = zeta.folder / "dist_zeta-2.1.dist-info"
    (about / "METADATA").write_text((about / "METADATA").read_text().replace("2.1\n", "2.2\n"))
    about.rename(zeta.folder / "dist_zeta-2.2.dist-info")
    assert "pins dist-zeta 2.1. Install what was pinned" in row_of(told, "trigger-zeta")["error"]


def test_a_package_that_is_not_pinned_is_left_out_and_one_with_a_pinned_name_is_a_fault(
    told: Told, zeta: Site, project: Path
) -> None:
    told("plugin", "lock")
    site_packages = {"amplifier.modules": {"tool-zeta": "evil:mount", "tool-theta": "evil:mount"}}
    zeta.install("dist-evil", site_packages, {"evil.py": MOUNT})
    lock = project / ".amplifier" / "plugins.lock"
    found = {
        (row["name"], row["dist"]): (row["status"], row["error"]) for row in data_of(told, "plugin", "list")["modules"]
    }
    assert found["tool-zeta", "dist-zeta"] == ("installed", "")
    remedy = "Add it with: amplifier plugin lock"
    assert found["tool-theta", "dist-evil"] == ("refused", f"{lock} does not pin its package. {remedy}")
    assert found["tool-zeta", "dist-evil"] == (
        "refused",
        f"{lock} pins dist-zeta 2.1 for this name. Uninstall one of them",
    )


def test_a_damaged_lock_is_named_and_nothing_of_others_is_loaded(told: Told, zeta: Site, project: Path) -> None:
    (project / ".amplifier").mkdir()
    (project / ".amplifier" / "plugins.lock").write_text("{")
    code, _, err = told("plugin", "list")
    assert code == exits.USAGE
    assert "plugins.lock: it cannot be read" in err
    assert "pin the installed packages anew: amplifier plugin lock" in err
    (project / "bundle.md").write_text("---\nbundle: {name: a}\n---\n")
    for command in (["run", "hello"], ["ps"], ["session", "list"], ["bundle", "validate"]):
        assert told(*command) == (exits.USAGE, "", err)
    entry_points.guard_with(Gate())
    try:
        loaded = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-zeta,spawn-limits"})
    finally:
        entry_points.guard_with(None)
    assert {row.name: row.status for row in loaded.rows if row.status != "blocked"} == {
        "spawn-limits": "loaded",
        "trigger-zeta": "failed",
    }
    assert told("plugin", "lock")[0] == exits.OK
    assert row_of(told, "trigger-zeta", "--load")["status"] == "loaded"


def test_a_process_of_a_session_keeps_to_the_gate(zeta: Site, home: Path, project: Path) -> None:
    invoke(["plugin", "disable", "tool-zeta"])
    script = Path(entry_points.__file__).parents[1] / "amplifier_foundation" / "isolation" / "begin.py"
    (zeta.folder / "asking.py").write_text(
        "from amplifier_core.entry_points import find_entry_points\n"
        "def ask():\n    find_entry_points('amplifier.modules', 'tool-zeta')[0].load()\n"
    )
    command = [sys.executable, str(script), "asking:ask", json.dumps([*sys.path])]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert "PluginRefused: 'tool-zeta' of dist-zeta 2.1 is not loaded: you have disabled it" in done.stderr
