"""The rules of the house: who may import whom, how long things get, who owns a task, and one name everywhere."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
KERNEL = ROOT / "amplifier_core"
FOUNDATION = ROOT / "amplifier_foundation"
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))

TOP_LEVEL = {
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "amplifier_core",
    "amplifier_foundation",
    "constraints.txt",
    "plugins",
    "pyproject.toml",
    "tests",
}

HEAVY = {
    "anthropic",
    "asyncio",
    "croniter",
    "httpx",
    "mcp",
    "openai",
    "pydantic",
    "sqlite3",
    "starlette",
    "uvicorn",
    "watchdog",
}
"""What no plugin may import before it is used: whoever lists plugins would wait for it."""

LONGEST_FUNCTION, MEDIAN_FUNCTION, LONG_FUNCTION = 60, 8, 25
"""Lines from `def` to the end: of any function, of the median, and of the 90th percentile."""
LONGEST_MODULE = 400

SPAWNING = {"create_task", "ensure_future", "run_until_complete"}
SPAWNERS = {
    "amplifier_core/testing/trigger_checks.py:_first_of": "cancels it before it returns",
    "amplifier_core/testing/trigger_checks.py:_until_armed": "cancels it before it returns",
    "amplifier_core/testing/trigger_checks.py:_watching": "cancels it and waits for it at the end of its block",
    "amplifier_foundation/background/manager.py:_late": "cancels what it waits for before it returns",
    "amplifier_foundation/background/manager.py:_start": "one task a background session, which `stop` ends and awaits",
    "amplifier_foundation/spawning/family.py:start": "one task a child, which the end of its parent cancels and awaits",
    "amplifier_foundation/background/worker.py:_claim": "waits for it, also when it is cancelled itself",
    "amplifier_foundation/recording.py:carried_out": "waits for it, also when it is cancelled itself",
    "amplifier_foundation/retention.py:kept_small": "cancels it and waits for it at the end of its block",
    "amplifier_tool_filesystem/tools.py:to_the_end": "waits for it, also when it is cancelled itself",
    "amplifier_trigger_file_watcher/trigger.py:_pause": "cancels what it waits for before it returns",
    "amplifier_trigger_session_event/trigger.py:_next": "cancels what it waits for, and waits until that has ended",
    "amplifier_trigger_timer/trigger.py:_interruptible_sleep": "cancels the sleep before it returns",
}
"""Who may start a task outside a task group, and why that task has an owner all the same."""

MODULE_PREFIXES = ("context-", "hooks-", "loop-", "provider-", "tool-")
PLUGIN_PREFIXES = ("runner-", "storage-", "trigger-")


class Import(NamedTuple):
    """One import statement: what it imports, and where it stands."""

    name: str
    place: str


class Spawn(NamedTuple):
    """One call that starts a task by itself."""

    function: str
    call: str


def package_of(plugin: Path) -> Path:
    return plugin / plugin.name.replace("-", "_")


def sources(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def all_sources() -> list[Path]:
    return [path for package in (KERNEL, FOUNDATION, *map(package_of, PLUGINS)) for path in sources(package)]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(package: Path) -> Iterator[Import]:
    """Yield what a package imports from elsewhere; imports within it, written with dots, are its own affair."""
    for path in sources(package):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                yield Import(name, f"{path.relative_to(ROOT)}:{node.lineno}")


def imports_besides(package: Path, *allowed: str) -> list[Import]:
    """Return the imports of `package` that are neither its own nor below one of the `allowed` names."""
    known = {package.name, *allowed}
    return [found for found in imports_of(package) if found.name.partition(".")[0] not in known]


def ours(found: Import) -> bool:
    return found.name.startswith("amplifier")


def foreign(found: Import) -> bool:
    return not ours(found) and found.name.partition(".")[0] not in sys.stdlib_module_names


FOR_PYTEST = ("pytest_plugin.py", "validation/structural.py", "validation/fixtures.py", "validation/behavioral/")
"""Files of the kernel that are imported when pytest runs, and then only."""


def for_pytest(found: Import) -> bool:
    return found.place.removeprefix("amplifier_core/").startswith(FOR_PYTEST)


def project(folder: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    return table


def requirements(folder: Path) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in project(folder)["project"]["dependencies"]}


def entry_points(folder: Path) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = project(folder)["project"]["entry-points"]
    return groups


per_plugin = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)


# who imports whom


def test_the_kernel_imports_neither_foundation_nor_plugins() -> None:
    assert [found for found in imports_besides(KERNEL) if ours(found)] == []


def test_the_kernel_needs_pluggy_and_pydantic_and_nothing_else() -> None:
    needed = {found.name.partition(".")[0] for found in imports_of(KERNEL) if foreign(found) and not for_pytest(found)}
    assert needed == {"pluggy", "pydantic"}


def test_foundation_imports_no_plugin() -> None:
    assert [found for found in imports_besides(FOUNDATION, KERNEL.name) if ours(found)] == []


@per_plugin
def test_a_plugin_imports_the_kernel_and_no_other_package_of_ours(plugin: Path) -> None:
    assert [found for found in imports_besides(package_of(plugin), KERNEL.name) if ours(found)] == []


@pytest.mark.parametrize("package", [FOUNDATION, *map(package_of, PLUGINS)], ids=lambda package: package.name)
def test_what_a_package_imports_from_others_is_among_its_dependencies(package: Path) -> None:
    dists = dict(packages_distributions())
    declared = requirements(package.parent) | requirements(ROOT)
    dists["pydantic_core"] = ["pydantic"]  # which pins it: they are two halves of one library
    imported = {found.name.partition(".")[0]: found.place for found in imports_of(package) if foreign(found)}
    undeclared = {
        name: place
        for name, place in imported.items()
        if declared.isdisjoint(map(canonicalize_name, dists.get(name, ["?"])))
    }
    assert undeclared == {}


def test_a_plugin_imports_nothing_heavy_before_it_is_used() -> None:
    targets = [
        target.partition(":")[0] for plugin in PLUGINS for group in entry_points(plugin).values()
        for target in group.values()
    ]  # fmt: skip
    code = f"""
import json, sys
sys.path[:0] = {[str(plugin) for plugin in PLUGINS]!r}
import amplifier_core.hookspecs
heavy = {{}}
for target in {targets!r}:
    before = set(sys.modules)
    __import__(target)
    heavy[target] = sorted({HEAVY!r} & (set(sys.modules) - before))
print(json.dumps(heavy))
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(answer.stdout) == {target: [] for target in targets}


# how long things get


def function_lengths() -> dict[str, int]:
    """Return the lines of every function, by its place."""
    return {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in all_sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_no_function_is_longer_than_a_screen() -> None:
    assert {place: lines for place, lines in function_lengths().items() if lines > LONGEST_FUNCTION} == {}


def test_most_functions_fit_in_a_glance() -> None:
    lengths = list(function_lengths().values())
    assert median(lengths) <= MEDIAN_FUNCTION
    assert quantiles(lengths, n=10)[-1] <= LONG_FUNCTION


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in all_sources()
    }
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_MODULE} == {}


# who owns what


def functions_of(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Yield each statement and expression of a module with the name of the innermost function it stands in."""
    waiting: list[tuple[str, ast.AST]] = [("", tree_of(path))]
    while waiting:
        function, node = waiting.pop()
        yield function, node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        waiting.extend((function, child) for child in ast.iter_child_nodes(node))


def spawns_of(path: Path) -> Iterator[Spawn]:
    """Yield the calls that start a task by themselves: `asyncio.…`, a loop's, or a name that was imported."""
    groups = {
        node.optional_vars.id
        for _, node in functions_of(path)
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name)
        and ast.unparse(node.context_expr).endswith("TaskGroup()")
    }  # fmt: skip
    for function, node in functions_of(path):
        if not isinstance(node, ast.Call):
            continue
        owner, _, name = ast.unparse(node.func).rpartition(".")
        if name in SPAWNING and owner not in groups:
            yield Spawn(f"{path.parent.relative_to(_folder_of(path))}/{path.name}:{function}", ast.unparse(node))


def _folder_of(path: Path) -> Path:
    """Return the folder that the top package of a module stands in."""
    return next((plugin for plugin in PLUGINS if path.is_relative_to(plugin)), ROOT)


def test_every_task_has_an_owner() -> None:
    assert [spawn for path in all_sources() for spawn in spawns_of(path) if spawn.function not in SPAWNERS] == []


def test_nobody_may_start_a_task_who_starts_none() -> None:
    assert set(SPAWNERS) == {spawn.function for path in all_sources() for spawn in spawns_of(path)}


def test_the_import_path_is_edited_in_one_place() -> None:
    edits = [
        str(path.relative_to(ROOT))
        for path in all_sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path"
    ]
    assert set(edits) == {"amplifier_core/search_path.py"}


# where things are


def test_the_top_level_shows_what_the_design_lists() -> None:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    assert {
        name for line in listed.stdout.split("\0") if line and not (name := line.partition("/")[0]).startswith(".")
    } == (TOP_LEVEL)


@per_plugin
def test_a_plugin_folder_has_everything_a_package_needs(plugin: Path) -> None:
    expected = [plugin / "README.md", package_of(plugin) / "__init__.py", package_of(plugin) / "py.typed"]
    assert [path for path in expected if not path.is_file()] == []
    assert list(plugin.glob("tests/test_*.py"))


@per_plugin
def test_a_plugin_has_one_name(plugin: Path) -> None:
    about = project(plugin)
    package, name = package_of(plugin).name, plugin.name.removeprefix("amplifier-")
    assert about["project"]["name"] == plugin.name
    assert about["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [package]
    offered = {
        (group, entry): target.partition(":")[0]
        for group, entries in entry_points(plugin).items()
        for entry, target in entries.items()
    }
    group = "amplifier" if name.startswith(PLUGIN_PREFIXES) else "amplifier.modules"
    assert name.startswith(PLUGIN_PREFIXES + MODULE_PREFIXES)
    assert offered == {(group, name): package}


@per_plugin
def test_a_plugin_depends_on_amplifier_and_on_no_other_package_of_ours(plugin: Path) -> None:
    assert {name for name in requirements(plugin) if name.startswith("amplifier")} == {"amplifier"}


@per_plugin
def test_the_readme_has_a_line_for_every_plugin(plugin: Path) -> None:
    table = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert [line for line in table if f"`{plugin.name}`" in line or f"[{plugin.name}]" in line]
