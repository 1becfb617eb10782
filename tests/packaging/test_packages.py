"""What people get from `pip install`: the root alone, a plugin beside it, all but one, a stranger's, a broken one."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest

from amplifier_foundation.cli import ELSEWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .conftest import Environment, Wheels

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
SESSION = ("amplifier-loop-basic", "amplifier-context-simple", "amplifier-provider-playbook")
"""What a session needs at least."""
IMPORTED = ("amplifier-orchestration", "amplifier-providers")
"""Packages that are no plugins: others import them."""

QUIET = """\
---
bundle: {name: quiet, version: 1.0.0}
providers:
  - module: provider-playbook
    config: {otherwise: {say: "You said: {prompt}"}}
background_sessions:
  - name: listener
    triggers: []
---
You listen.
"""
TICKING = QUIET.replace("triggers: []", "triggers: [{module: trigger-timer, config: {interval_seconds: 3600}}]")
COMMITTED = QUIET.replace("triggers: []", "triggers: [{module: trigger-git-commit}]")

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "amplifier-trigger-broken"
version = "1.2.3"
dependencies = ["amplifier"]

[project.entry-points.amplifier]
trigger-broken = "amplifier_trigger_broken"
"""


def readme_block(language: str, first_line: str) -> str:
    """Return the block of the kernel's README that is written in `language` and begins with `first_line`."""
    text = (ROOT / "amplifier_core" / "README.md").read_text(encoding="utf-8")
    _, found, block = text.partition(f"\n```{language}\n{first_line}\n")
    assert found, f"amplifier_core/README.md has no {language} block that begins with {first_line!r}"
    return block.partition("\n```")[0] + "\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def commit(project: Path) -> None:
    """Make the folder a git repository with one commit."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "core.logAllRefUpdates=true")
    for arguments in (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "-m", "begin")):
        subprocess.run([*git, *arguments], cwd=project, check=True)


def data_of(done: subprocess.CompletedProcess[str]) -> Any:
    """Return the data of a `--json` answer."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


def installed(environment: Environment) -> dict[str, Any]:
    data: dict[str, Any] = data_of(environment.amplifier("plugin", "list", "--load", "--json"))
    return data


def faults(plugins: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{row['name']}: {row['error']}" for row in plugins if row["status"] != "loaded"]


def test_the_root_alone_shows_its_help_and_its_own_plugin(environment: Environment) -> None:
    helped = environment.amplifier("--help")
    assert helped.returncode == 0, helped.stderr
    assert "Run AI-agent sessions" in helped.stdout
    pages = {each["name"] for each in data_of(environment.amplifier("docs", "--json"))}
    assert pages == {"reference", "authors", *(path.stem for path in ROOT.glob("amplifier_*/docs/*.md"))}
    found = installed(environment)
    assert [(row["name"], row["dist"], row["status"]) for row in found["plugins"]] == [
        ("runner-inprocess", "amplifier", "loaded"),
        ("runner-workflow", "amplifier", "loaded"),
        ("spawn-limits", "amplifier", "loaded"),
    ]
    assert found["modules"] == []


def test_up_without_a_store_says_which_package_is_missing(environment: Environment, tmp_path: Path) -> None:
    environment.install(*SESSION)
    done = environment.amplifier("up", "--once", str(write(tmp_path / "bundle.md", QUIET)))
    assert done.returncode != 0
    assert "pip install amplifier-storage-sqlite" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_first_bundle_is_written_with_the_line_that_installs_what_it_needs(
    environment: Environment, tmp_path: Path
) -> None:
    written = environment.amplifier("init", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    *_, missing, example = written.stderr.splitlines()
    told, _, names = missing.partition(": pip install ")
    assert (told, example) == ("It needs packages that are missing. Install them with", 'Try it: amplifier run "hello"')
    environment.install(*names.split())
    assert environment.amplifier("run", "hello", cwd=tmp_path).stdout == "You said: hello\n"
    again = environment.amplifier("bundle", "new", "another", cwd=tmp_path)
    assert again.stderr == 'Try it: amplifier run -b another "hello"\n'


def test_the_check_for_editors_tells_what_is_missing(environment: Environment) -> None:
    def check() -> tuple[str, str]:
        (row,) = json.loads(environment.amplifier("doctor", "--acp", "--json").stdout)["data"]
        return row["fact"].removeprefix("amplifier acp does not serve an editor: session/new: "), row["remedy"]

    environment.install("amplifier-acp")
    assert check() == (
        "unknown storage 'storage-sqlite'. Installed: none.",
        "pip install amplifier-storage-sqlite",
    )
    environment.install("amplifier-storage-sqlite")
    problem, remedy = check()
    assert "\n" not in problem
    command, *names = remedy.split(" install ")
    assert command == "pip"
    environment.install(*names[0].split())
    served = environment.amplifier("doctor", "--acp")
    assert served.returncode == 0, served.stdout


def test_the_commands_of_other_packages_are_known() -> None:
    found = {}
    for dist in PLUGINS:
        project = tomllib.loads((ROOT / "plugins" / dist / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        found.update(dict.fromkeys(project.get("entry-points", {}).get("amplifier.commands", {}), dist))
    assert found == ELSEWHERE


def test_a_command_of_a_missing_package_is_refused_with_its_remedy(environment: Environment) -> None:
    done = environment.amplifier("dashboard")
    assert done.returncode == 4
    assert done.stderr.endswith("No such command 'dashboard'. Install it with: pip install amplifier-dashboard\n")


def test_a_copy_to_a_missing_storage_names_its_package(environment: Environment, tmp_path: Path) -> None:
    environment.install("amplifier-storage-jsonl")
    done = environment.amplifier("store", "copy", "sqlite", str(tmp_path / "new.db"))
    assert "unknown storage 'storage-sqlite'" in done.stderr
    assert done.stderr.endswith("Install it with: pip install amplifier-storage-sqlite\n")


def test_one_line_installs_a_working_program(environment: Environment, tmp_path: Path) -> None:
    environment.install_standard()
    environment.check()
    found = installed(environment)
    assert faults(found["plugins"]) == []
    there = {row["dist"] for row in (*found["plugins"], *found["modules"])}
    left_out = set(PLUGINS) - there - {"amplifier-providers"}  # that is no plugin
    assert left_out == {
        "amplifier-orchestration",
        "amplifier-runner-ray",
        "amplifier-storage-jsonl",
        "amplifier-storage-postgres",
        "amplifier-transport-nats",
    }
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    *names, last = sorted(left_out)
    assert f"all [packages](#packages) but `{'`, `'.join(names)}` and `{last}`" in readme
    project = write(tmp_path / "project" / "bundle.md", TICKING).parent
    assert environment.amplifier("run", "hello", cwd=project).stdout == "You said: hello\n"
    assert environment.amplifier("up", "--once", cwd=project).returncode == 0


@pytest.mark.parametrize("dist", PLUGINS)
def test_a_wheel_holds_its_typed_package_and_nothing_else(dist: str, wheels: Wheels) -> None:
    package = dist.replace("-", "_")
    with ZipFile(wheels[dist]) as wheel:
        names = wheel.namelist()
    assert f"{package}/py.typed" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {package}


@pytest.mark.parametrize("dist", [dist for dist in PLUGINS if dist not in IMPORTED])
def test_a_plugin_works_alone_beside_the_root(dist: str, environment: Environment) -> None:
    environment.install(dist)
    found = installed(environment)
    name = dist.removeprefix("amplifier-")
    assert faults(found["plugins"]) == []
    offered = [row["offers"] for row in found["plugins"] if (row["name"], row["dist"]) == (name, dist)]
    mounted = [row["name"] for row in found["modules"] if row["dist"] == dist]
    others = {
        "amplifier-bundle-foreman": ([["foreman"]], ["orchestrator-foreman"]),
        "amplifier-hooks-otel": ([[]], ["hooks-otel"]),
        "amplifier-runner-ray": ([["runner-ray", "ray"]], []),
        "amplifier-runner-subprocess": ([["runner-subprocess", "processes"]], []),
        "amplifier-sandbox": ([["sandbox", "sandbox"]], []),
        "amplifier-tool-issue": ([["issue"]], ["tool-issue"]),
    }
    assert (offered, mounted) in ([others[dist]] if dist in others else [([[name]], []), ([], [name])])


def test_the_names_for_programs_work_alone_beside_the_root_and_go_without_harm(environment: Environment) -> None:
    environment.install("amplifier-orchestration")
    environment.check()
    environment.python("from amplifier_orchestration import *; FileChangeTrigger(), TimerTrigger(), EventRouter()")
    environment.uninstall("amplifier-orchestration")
    found = installed(environment)["plugins"]
    assert faults(found) == []
    triggers = {"trigger-file-watcher", "trigger-manual", "trigger-session-event", "trigger-timer"}
    assert {row["name"] for row in found if row["dist"] != "amplifier"} == triggers


def test_a_bundle_that_names_an_uninstalled_plugin_is_told_how_to_get_it(
    environment: Environment, tmp_path: Path
) -> None:
    environment.install(*PLUGINS)
    environment.check()
    quiet, ticking = write(tmp_path / "quiet.md", QUIET), write(tmp_path / "ticking.md", TICKING)
    assert environment.amplifier("bundle", "validate", str(ticking)).returncode == 0
    environment.uninstall("amplifier-trigger-timer")
    refused = environment.amplifier("bundle", "validate", str(ticking))
    assert refused.returncode == 4
    assert "unknown trigger 'trigger-timer'" in refused.stderr
    assert "pip install amplifier-trigger-timer" in refused.stderr
    assert environment.amplifier("bundle", "validate", str(quiet)).returncode == 0
    assert faults(installed(environment)["plugins"]) == []


def test_the_trigger_of_the_readme_wakes_a_session(environment: Environment, wheels: Wheels, tmp_path: Path) -> None:
    package = "amplifier_trigger_git_commit"
    source = tmp_path / "source"
    write(source / package / "__init__.py", readme_block("python", f"# {package}/__init__.py"))
    write(source / "pyproject.toml", readme_block("toml", "# pyproject.toml"))
    wheels.build(source)
    environment.install("amplifier-storage-sqlite", *SESSION, "amplifier-trigger-git-commit")
    assert ["trigger-git-commit"] in [row["offers"] for row in installed(environment)["plugins"]]

    project = write(tmp_path / "project" / "bundle.md", COMMITTED).parent
    commit(project)
    done = environment.amplifier("up", "--once", "bundle.md", cwd=project)
    assert done.returncode == 0, done.stderr
    sessions = data_of(environment.amplifier("session", "list", "--json", cwd=project))
    assert [row["status"] for row in sessions if row["event_id"]] == ["completed"]


def test_a_broken_plugin_is_named_and_everything_else_works(
    environment: Environment, wheels: Wheels, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    write(source / "amplifier_trigger_broken" / "__init__.py", "def amplifier_register_trigger(register:\n")
    write(source / "pyproject.toml", PROJECT)
    wheels.build(source)
    environment.install("amplifier-trigger-timer", "amplifier-trigger-broken")
    assert environment.amplifier("--help").returncode == 0
    rows = {row["name"]: row for row in installed(environment)["plugins"]}
    assert rows["trigger-timer"]["status"] == "loaded"
    broken = rows["trigger-broken"]
    assert (broken["dist"], broken["version"], broken["status"]) == ("amplifier-trigger-broken", "1.2.3", "failed")
    assert "SyntaxError" in broken["error"]


FOREIGN = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "amplifier-core"
version = "2.0.2"

[tool.hatch.build.targets.wheel]
packages = ["amplifier_core"]
"""


@pytest.mark.parametrize("source", ["class AmplifierSession: ...\n", "raise ImportError('no engine')\n"])
def test_another_distribution_of_our_import_name_is_said_with_the_remedy(
    source: str, environment: Environment, wheels: Wheels, tmp_path: Path
) -> None:
    write(tmp_path / "source" / "amplifier_core" / "__init__.py", source)
    write(tmp_path / "source" / "pyproject.toml", FOREIGN)
    wheels.build(tmp_path / "source")
    environment.install("amplifier-core")
    told = environment.amplifier("--help")
    assert told.returncode == 1
    assert "Traceback" not in told.stderr
    assert "pip uninstall amplifier-core && pip install --force-reinstall --no-deps amplifier" in told.stderr
