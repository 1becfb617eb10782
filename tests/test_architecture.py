"""The rules of the house: who may import whom, how long things get, who owns a task, and one name everywhere."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    "google.genai",
    "html_to_markdown",
    "httpcore",
    "httpx",
    "httpx2",
    "jinja2",
    "mcp",
    "mcp_types",
    "nats",
    "ollama",
    "openai",
    "opentelemetry.sdk",
    "pathspec",
    "psycopg",
    "pydantic",
    "ray",
    "re2",
    "sqlite3",
    "starlette",
    "uvicorn",
    "watchdog",
}
"""What no plugin may import before it is used: whoever lists plugins would wait for it."""

LONGEST_FUNCTION, MEDIAN_FUNCTION, LONG_FUNCTION = 60, 8, 25
"""Lines from `def` to the end: of any function, of the median, and of the 90th percentile."""
LONGEST_MODULE = 400

SPAWNING = {"create_task", "ensure_future", "run_until_complete", "Task"}
SPAWNERS = {
    "amplifier_core/testing/trigger_checks.py:_first_of": "cancels it before it returns",
    "amplifier_core/testing/trigger_checks.py:_until_armed": "cancels it before it returns",
    "amplifier_core/testing/trigger_checks.py:_watching": "cancels it and waits for it at the end of its block",
    "amplifier_foundation/background/lookout.py:serving": "one task for all, ended and awaited by the last",
    "amplifier_foundation/background/starting.py:_wait_until_armed": "cancels what it waits for before it returns",
    "amplifier_foundation/background/manager.py:_stand_by": "one task a stopped one, ended and awaited by its start",
    "amplifier_foundation/background/manager.py:_start": "one task a background session, which `stop` ends and awaits",
    "amplifier_foundation/spawning/own_loops.py:_make_task": "it makes the task for whoever starts it in this loop",
    "amplifier_foundation/spawning/own_loops.py:begin": "`run` waits for it, and cancels it when cancelled itself",
    "amplifier_foundation/spawning/family.py:start": "one task a child, which the end of its parent cancels and awaits",
    "amplifier_foundation/background/control.py:_answer": "`answering` cancels it at the end of its block",
    "amplifier_foundation/background/renewing.py:begin": "one task a worker, which `rest` cancels and `stop` awaits",
    "amplifier_foundation/background/worker.py:_claim": "waits for it, also when it is cancelled itself",
    "amplifier_foundation/background/worker.py:_handle_claimed": "waits for it, and cancels it when cancelled itself",
    "amplifier_foundation/sessions/recording.py:begin_write": "its caller waits for it; one that is late ends alone",
    "amplifier_foundation/background/tasks.py:run_apart": "waits for it; what ignores a cancellation is kept and named",
    "amplifier_foundation/background/tasks.py:run_beside": "cancels it and waits for it at the end of its block",
    "amplifier_foundation/isolation/child.py:run": "waits for them, or cancels them, before it returns",
    "amplifier_foundation/isolation/link.py:__aenter__": "`__aexit__` cancels and awaits it",
    "amplifier_foundation/isolation/link.py:_take": "one task a call, which `__aexit__` cancels and awaits",
    "amplifier_foundation/isolation/processes.py:__aenter__": "`__aexit__` ends the process, and awaits them",
    "amplifier_foundation/isolation/runner.py:_run_child": "one task a process that ends, which kills it in the end",
    "amplifier_foundation/isolation/runner.py:_wait": "waits for one, and cancels both before it returns",
    "amplifier_bundle_foreman/panel.py:__init__": "one task a panel, which the end of its session cancels and awaits",
    "amplifier_foundation/background/beside.py:start": "`__aexit__` has it end, and awaits it",
    "amplifier_acp/agent.py:_open_stored": "one task a followed session, which its end and that of the agent cancel",
    "amplifier_acp/editor_session.py:open": "the end of the session cancels it",
    "amplifier_acp/editor_session.py:prompt": "waits for it, also when it is cancelled itself",
    "amplifier_acp/editor_session.py:stop": "the end of the turn cancels it",
    "amplifier_acp/following.py:_compare": "one task a question, cancelled by an answer elsewhere, and the end",
    "amplifier_foundation/spawning/hosting.py:wait": "it ends with the turn, or is cancelled before it returns",
    "amplifier_acp/peer.py:_dispatch": "one task a request, which the end of `serve` cancels and awaits",
    "amplifier_acp/peer.py:_start": "one task a notification, which the end of `serve` cancels and awaits",
    "amplifier_acp/peer.py:serve": "cancels them and waits for them before it returns",
    "amplifier_acp/serving.py:_make_agent": "the end of `run` cancels and awaits it",
    "amplifier_acp/serving.py:_start": "every request waits for it",
    "amplifier_trigger_webhook/server.py:start": "one task a server, which the last `leave` cancels and awaits",
    "amplifier_dashboard/talks.py:begin": "one task a turn or a run, which the end of the server ends and awaits",
    "amplifier_foundation/isolation/sandboxed_process.py:start": "`close` waits for it, or cancels it",
    "amplifier_foundation/isolation/sandboxed_process.py:execute": "waits for it, also when it is cancelled itself",
    "amplifier_hooks_shell/running.py:finish": "cancels them before it returns",
    "amplifier_hooks_shell/session.py:_notify": "one task a notification, which `close` cancels and awaits",
    "amplifier_tool_mcp/commands/testing.py:_read_facts": "ends it, and waits for it, before it returns",
    "amplifier_tool_mcp/connection.py:_wait_for_any": "cancels them before it returns",
    "amplifier_tool_mcp/stdio.py:_run_to_end": "waits for it, also when it is cancelled itself",
    "amplifier_tool_mcp/hub.py:start": "one task a server, which the end of the session ends and awaits",
    "amplifier_runner_ray/bridge.py:_relay": "cancels it before it returns",
    "amplifier_runner_ray/bridge.py:_take_request": "one task a child, which the end of the bridge cancels",
    "amplifier_runner_ray/host.py:begin": "one task a session, which kills it in the end",
    "amplifier_runner_ray/pieces.py:__aenter__": "`__aexit__` cancels and awaits it",
    "amplifier_tool_bash/background.py:start": "one task a command, which `close` cancels and awaits",
    "amplifier_tool_filesystem/locking.py:run_to_end": "waits for it, also when it is cancelled itself",
    "amplifier_trigger_file_watcher/trigger.py:_pause": "cancels what it waits for before it returns",
    "amplifier_core/log_triggers.py:_next": "cancels what it waits for, and waits until that has ended",
    "amplifier_trigger_timer/sleeping.py:begin": "the timer waits for its sleep, and cancels it before it returns",
}
"""Who may start a task outside a task group, and why that task has an owner all the same."""

RANKS = {
    "__main__": 12,
    "cli": 11,
    "operations": 10,
    "flows": 9,
    "background": 8,
    "subprocess_runner": 9,
    "isolation": 8,
    "spawn": 7,
    "spawning": 7,
    "packages": 6,
    "security": 6,
    "sessions": 5,
    "transports": 5,
    "bundle": 4,
    "mentions": 3,
    "sources": 3,
    "settings": 2,
    "documents": 1,
    "events": 1,
    "first_process": 0,
    "hookspecs": 0,
    "paths": 0,
    "session": 7,
    "triggers": 0,
}
"""The rooms and files of the foundation: each imports only those of a lower rank."""
SAME_RANK = {("spawn", "spawning"): "the published name of the room", ("spawning", "spawn"): "agents are spawned by it"}
"""Rooms of one rank that import each other all the same, and why."""
TYPES_UPWARD: dict[tuple[str, str], str] = {}
"""Rooms that name types of a higher rank, and why; at run time they import nothing of it."""
BESIDE_ROOMS = {
    *("__init__", "__main__", "first_process"),
    *("hookspecs", "paths", "session", "spawn", "subprocess_runner", "triggers"),
}
"""Modules that may stand beside the rooms: published names, the program, and those below all rooms."""

SHARED = {"amplifier-orchestration", "amplifier-providers", "amplifier-sandbox"}
"""Packages that programs or plugins import; they offer no module, runner, storage or trigger."""
BUILT_ON = {
    "amplifier-bundle-foreman": {
        "amplifier-loop-basic",
        "amplifier-loop-streaming",
        "amplifier-provider-playbook",
        "amplifier-runner-subprocess",
        "amplifier-tool-bash",
        "amplifier-tool-filesystem",
        "amplifier-tool-issue",
        "amplifier-trigger-file-watcher",
        "amplifier-trigger-issue",
        "amplifier-trigger-session-event",
    },
    "amplifier-dashboard": {"amplifier-trigger-webhook"},
    "amplifier-loop-streaming": {"amplifier-loop-basic"},
    "amplifier-orchestration": {
        "amplifier-trigger-file-watcher",
        "amplifier-trigger-manual",
        "amplifier-trigger-session-event",
        "amplifier-trigger-timer",
    },
    "amplifier-provider-anthropic": {"amplifier-providers"},
    "amplifier-provider-gemini": {"amplifier-providers"},
    "amplifier-provider-ollama": {"amplifier-providers"},
    "amplifier-provider-openai": {"amplifier-providers"},
    "amplifier-tool-bash": {"amplifier-sandbox"},
    "amplifier-tool-search": {"amplifier-tool-filesystem", "amplifier-trigger-file-watcher"},
}
"""Plugins that are built on other packages, and require them; these run on other kernels: they are no part of ours."""
FOUNDED = {
    "amplifier-acp",
    "amplifier-bundle-foreman",
    "amplifier-dashboard",
    "amplifier-orchestration",
    "amplifier-runner-ray",
    "amplifier-runner-subprocess",
    "amplifier-sandbox",
    "amplifier-tool-bash",
    "amplifier-tool-issue",
    "amplifier-tool-mcp",
    "amplifier-tool-memory",
    "amplifier-tool-skills",
    "amplifier-transport-nats",
}
"""Plugins that are built on the foundation: their part of it is a room of the foundation, or they hide its folder."""

APPLICATIONS = {"amplifier-acp", "amplifier-dashboard"}
"""Plugins that are a command of their own name."""
OTHER_OFFERS = {
    "amplifier-bundle-foreman": {
        ("amplifier", "bundle-foreman"): "amplifier_bundle_foreman",
        ("amplifier.modules", "orchestrator-foreman"): "amplifier_bundle_foreman",
    },
    "amplifier-tool-issue": {
        ("amplifier", "tool-issue"): "amplifier_tool_issue.plugin",
        ("amplifier.commands", "issue"): "amplifier_tool_issue.command",
        ("amplifier.modules", "tool-issue"): "amplifier_tool_issue",
    },
    "amplifier-tool-mcp": {
        ("amplifier.commands", "mcp"): "amplifier_tool_mcp.command",
        ("amplifier.modules", "tool-mcp"): "amplifier_tool_mcp",
    },
    "amplifier-tool-memory": {
        ("amplifier.commands", "memory"): "amplifier_tool_memory.command",
        ("amplifier.modules", "tool-memory"): "amplifier_tool_memory",
    },
}
"""What plugins offer besides a module or a plugin of their own name."""

MODULE_PREFIXES = ("context-", "hooks-", "loop-", "provider-", "tool-")
PLUGIN_PREFIXES = ("runner-", "storage-", "transport-", "trigger-")


class Import(NamedTuple):
    """One import statement: what it imports, and where it stands."""

    name: str
    place: str


class RoomImport(NamedTuple):
    """One import within the foundation: from which room, of which, for types alone or at run time, and where."""

    room: str
    imported: str
    for_types: bool
    place: str

    @property
    def is_upward(self) -> bool:
        """Whether it breaks the order of the rooms; an unknown room breaks it always."""
        rooms = self.room, self.imported
        below = RANKS.get(self.imported, 99) < RANKS.get(self.room, 0)
        return not (below or self.room == self.imported or rooms in SAME_RANK)


class Spawn(NamedTuple):
    """One call that starts a task by itself."""

    function: str
    call: str


def package_of(plugin: Path) -> Path:
    return plugin / plugin.name.replace("-", "_")


def sources(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if "templates" not in path.relative_to(package).parts]


def all_sources() -> list[Path]:
    return [path for package in (KERNEL, FOUNDATION, *map(package_of, PLUGINS)) for path in sources(package)]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Let go of the trees when they have been judged."""
    yield
    tree_of.cache_clear()
    nodes_of.cache_clear()


@cache
def imports_of(package: Path) -> list[Import]:
    """Return what a package imports from elsewhere; imports within it, written with dots, are its own affair."""
    found = []
    for path in sources(package):
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                found.append(Import(name, f"{path.relative_to(ROOT)}:{node.lineno}"))
    return found


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
    groups: dict[str, dict[str, str]] = project(folder)["project"].get("entry-points", {})
    return groups


per_plugin = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)


# who imports whom


def test_the_kernel_imports_neither_foundation_nor_plugins() -> None:
    assert [found for found in imports_besides(KERNEL) if ours(found)] == []


def test_the_kernel_needs_importlib_metadata_pluggy_and_pydantic_and_nothing_else() -> None:
    needed = {found.name.partition(".")[0] for found in imports_of(KERNEL) if foreign(found) and not for_pytest(found)}
    assert needed == {"importlib_metadata", "pluggy", "pydantic"}


def test_foundation_imports_no_plugin() -> None:
    assert [found for found in imports_besides(FOUNDATION, KERNEL.name) if ours(found)] == []


@per_plugin
def test_a_plugin_imports_the_kernel_and_no_other_package_of_ours_but_those_it_is_built_on(plugin: Path) -> None:
    below = {name.replace("-", "_") for name in BUILT_ON.get(plugin.name, ())} | {KERNEL.name}
    below |= {FOUNDATION.name} if plugin.name in FOUNDED else set()
    assert [found for found in imports_besides(package_of(plugin), *below) if ours(found)] == []


PORTABLE = ("loop-basic", "context-simple", "provider-playbook", "tool-filesystem")
"""Modules that run on the published kernel too."""
PUBLISHED = {"approval", "cancellation", "content_models", "coordinator", "events", "hooks", "interfaces", "llm_errors"}
PUBLISHED |= {"loader", "message_models", "models", "module_sources", "session", "testing", "utils", "validation"}
"""The parts of amplifier-core 2.0.2."""


@pytest.mark.parametrize("name", PORTABLE)
def test_a_module_for_every_kernel_imports_at_once_what_every_kernel_has(name: str) -> None:
    package = PLUGINS[0].parent / f"amplifier-{name}" / f"amplifier_{name.replace('-', '_')}"
    needed = [node for path in sources(package) for node in tree_of(path).body if isinstance(node, ast.ImportFrom)]
    parts = [(each.module or "").split(".") for each in needed if not each.level]
    found = {part[1] for part in parts if part[0] == "amplifier_core" and len(part) > 1}
    assert found
    assert found <= PUBLISHED


UNREACHED = {
    *("actions.py _resolve", "diffs.py show_change"),  # behind a gate, and in a preview
}
"""Functions of these modules that another kernel does not reach."""


@pytest.mark.parametrize("name", PORTABLE)
def test_a_module_for_every_kernel_does_without_what_another_kernel_lacks(name: str) -> None:
    package = PLUGINS[0].parent / f"amplifier-{name}" / f"amplifier_{name.replace('-', '_')}"
    unguarded = set()
    for path in sources(package):
        for function in (node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            tries = {
                id(each)
                for node in ast.walk(function)
                if isinstance(node, ast.Try | ast.With)  # `suppress(ImportError)`, too
                for each in ast.walk(node)
            }
            for each in ast.walk(function):
                part = (getattr(each, "module", None) or "").split(".") if isinstance(each, ast.ImportFrom) else []
                if part[:1] == [KERNEL.name] and part[1:2] and part[1] not in PUBLISHED and id(each) not in tries:
                    unguarded.add(f"{path.name} {function.name}")
    assert unguarded <= UNREACHED


def test_a_plugin_takes_a_missing_name_of_a_module_of_the_kernel_for_no_other_kernel() -> None:
    """A name that has changed is an error: a stand-in for it would hide no secret, and keep no file closed."""
    tries = [(path, node) for path in all_sources() for node in nodes_of(path) if isinstance(node, ast.Try)]
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, node in tries
        if any(isinstance(each.type, ast.Name) and each.type.id == "ImportError" for each in node.handlers)
        and any(isinstance(each, ast.ImportFrom) and (each.module or "").startswith(KERNEL.name) for each in node.body)
    ]
    assert found == []


@cache
def distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@pytest.mark.parametrize("package", [FOUNDATION, *map(package_of, PLUGINS)], ids=lambda package: package.name)
def test_what_a_package_imports_from_others_is_among_its_dependencies(package: Path) -> None:
    dists = dict(distributions())
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


@cache
def room_imports() -> list[RoomImport]:
    """Return every import between rooms of the foundation, also those within functions."""
    found = []
    for path in sources(FOUNDATION):
        inside = path.relative_to(FOUNDATION)
        package = [FOUNDATION.name, *inside.parent.parts]
        waiting: list[tuple[bool, ast.AST]] = [(False, tree_of(path))]
        while waiting:
            for_types, node = waiting.pop()
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                waiting.extend((True, each) for each in node.body)
                waiting.extend((for_types, each) for each in node.orelse)
                continue
            waiting.extend((for_types, child) for child in ast.iter_child_nodes(node))
            for name in names_imported(node, package):
                room = inside.parts[0].removesuffix(".py")
                if name[0] == FOUNDATION.name and len(name) > 1 and room != "__init__":
                    place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                    found.append(RoomImport(room, name[1], for_types, place))
    return found


def names_imported(node: ast.AST, package: list[str]) -> list[list[str]]:
    """Return the full names that a statement in `package` imports, each in its parts."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".") for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package[: len(package) - node.level + 1] if node.level else []
    return [[*above, *(node.module or "").split("."), alias.name] if node.module else [*above, alias.name]
            for alias in node.names]  # fmt: skip


def test_a_room_imports_only_rooms_below_it() -> None:
    upward = [found for found in room_imports() if found.is_upward]
    assert [found for found in upward if not found.for_types] == []
    assert {(found.room, found.imported) for found in upward} == set(TYPES_UPWARD)


def test_every_import_between_rooms_is_seen() -> None:
    arrows = {(found.room, found.imported) for found in room_imports()}
    assert arrows >= {("cli", "background"), ("background", "spawning"), ("bundle", "documents"), *SAME_RANK}


def test_nothing_stands_beside_the_rooms_of_the_foundation_but_what_is_named() -> None:
    beside = {path.stem for path in FOUNDATION.glob("*.py")}
    rooms = {path.parent.name for path in FOUNDATION.glob("*/__init__.py")}
    assert beside <= BESIDE_ROOMS
    assert rooms == set(RANKS) - BESIDE_ROOMS
    others = {path.name for path in FOUNDATION.iterdir() if path.is_file() and path.suffix != ".py"}
    assert others == {"README.md", "py.typed"}


# how long things get


def function_lengths() -> dict[str, int]:
    """Return the lines of every function, by its place."""
    return {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in all_sources()
        for node in functions_in(path)
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


# how it reads

PRIVATE_ONCE, PARTICIPLES, RELATIVES = 0.10, 0.02, 0.025
"""At most: private helpers used once, of all functions; names that are bare participles; relative pronouns a word."""
_IRREGULAR_VERBS = """
begun bound broken brought built caught chosen dealt done drawn driven fallen fed felt fought frozen given gone
grown heard held hidden hung kept known laid led left lent lit lost made meant met paid risen said seen sent
shaken shown slept slid sold spoken stolen stood struck stuck swept taken taught thought thrown told torn
understood woken won worn woven written
"""
IRREGULAR = frozenset(_IRREGULAR_VERBS.split())
NOT_PARTICIPLES = frozenset({"embed", "exceed", "feed", "need", "seed", "speed"})
RELATIVE = re.compile(r"\b(?:which|who|whom|whose|that|what|where|whatever|whoever)\b", re.IGNORECASE)
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


def functions_in(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return "_" not in word and (word in IRREGULAR or (word.endswith("ed") and word not in NOT_PARTICIPLES))


def private_helpers_used_once(path: Path) -> list[str]:
    """Return the private functions of a module that one place of it names."""
    names = Counter(node.id for node in nodes_of(path) if isinstance(node, ast.Name))
    helpers = [node.name for node in tree_of(path).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for name in helpers if name.startswith("_") and not name.startswith("__") and names[name] == 1]


def docstrings() -> Iterator[tuple[ast.AST, str]]:
    for path in all_sources():
        for node in nodes_of(path):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                yield node, text


def test_few_private_helpers_are_used_once() -> None:
    once = sum(len(private_helpers_used_once(path)) for path in all_sources())
    assert once / sum(len(functions_in(path)) for path in all_sources()) < PRIVATE_ONCE


def test_functions_are_named_by_verbs_and_not_by_bare_participles() -> None:
    names = [node.name for path in all_sources() for node in functions_in(path)]
    assert len([name for name in names if is_participle(name)]) / len(names) < PARTICIPLES


def test_docstrings_seldom_need_a_relative_pronoun() -> None:
    texts = [text for _, text in docstrings()]
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts)
    assert sum(len(RELATIVE.findall(text)) for text in texts) / words < RELATIVES


def test_the_docstring_of_a_module_begins_with_what_it_does() -> None:
    first = [text.split()[0] for node, text in docstrings() if isinstance(node, ast.Module)]
    assert {"How", "What", "When", "Where", "Which", "Who", "Why"}.isdisjoint(first)


def test_an_error_with_others_below_ends_in_error() -> None:
    above = {
        (node.name, ast.unparse(base).rpartition(".")[2])
        for path in all_sources()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    errors, found = {"Exception", "AmplifierError"}, {"Exception"}
    while found:
        found = {name for name, base in above if base in errors} - errors
        errors |= found
    assert {base for name, base in above if name in errors and base in errors and not base.endswith("Error")} == {
        "Exception"
    }


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


@cache
def spawns_of(path: Path) -> list[Spawn]:
    """Return the calls that start a task by themselves: `asyncio.…`, a loop's, or a name that was imported."""
    nodes, found = list(functions_of(path)), []
    groups = {
        node.optional_vars.id
        for _, node in nodes
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name)
        and ast.unparse(node.context_expr).endswith("TaskGroup()")
    }  # fmt: skip
    for function, node in nodes:
        if not isinstance(node, ast.Call):
            continue
        if getattr(node.func, "attr", getattr(node.func, "id", "")) not in SPAWNING:
            continue
        owner, _, name = ast.unparse(node.func).rpartition(".")
        if name in SPAWNING and owner not in groups and (name != "Task" or owner == "asyncio"):  # not a workflow's
            place = f"{path.parent.relative_to(_folder_of(path))}/{path.name}:{function}"
            found.append(Spawn(place, ast.unparse(node)))
    return found


def _folder_of(path: Path) -> Path:
    """Return the folder that the top package of a module stands in."""
    return next((plugin for plugin in PLUGINS if path.is_relative_to(plugin)), ROOT)


def test_every_task_has_an_owner() -> None:
    assert [spawn for path in all_sources() for spawn in spawns_of(path) if spawn.function not in SPAWNERS] == []


def test_nobody_may_start_a_task_who_starts_none() -> None:
    assert set(SPAWNERS) == {spawn.function for path in all_sources() for spawn in spawns_of(path)}


def edits_import_path(node: ast.AST) -> bool:
    """Return whether a statement or call changes `sys.path`: by a method, an assignment or a deletion."""
    if isinstance(node, ast.Call):
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return isinstance(owner, ast.Attribute) and ast.unparse(owner) == "sys.path"
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    changes = isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete)
    return changes and any(each is not None and ast.unparse(each).startswith("sys.path") for each in targets)


def test_the_import_path_is_edited_in_one_place() -> None:
    edits = [path for path in all_sources() if any(map(edits_import_path, nodes_of(path)))]
    begin = FOUNDATION / "isolation" / "begin.py"  # a script that begins a process, before any package is found
    assert edits == [KERNEL / "search_path.py", begin]


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
    beside = {("amplifier", name): f"{package}.plugin"} if (package_of(plugin) / "plugin.py").is_file() else {}
    if plugin.name in SHARED:
        assert offered == beside
        return
    if plugin.name in APPLICATIONS:
        assert offered == {("amplifier", name): f"{package}.plugin", ("amplifier.commands", name): f"{package}.command"}
        return
    if plugin.name in OTHER_OFFERS:
        assert offered == OTHER_OFFERS[plugin.name]
        return
    group = "amplifier" if name.startswith(PLUGIN_PREFIXES) else "amplifier.modules"
    assert name.startswith(PLUGIN_PREFIXES + MODULE_PREFIXES)
    assert offered == {(group, name): package, **beside}


@per_plugin
def test_a_plugin_brings_its_licence(plugin: Path) -> None:
    assert (plugin / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@per_plugin
def test_a_plugin_depends_on_amplifier_and_on_no_other_package_of_ours_but_those_it_is_built_on(plugin: Path) -> None:
    expected = {"amplifier", *BUILT_ON.get(plugin.name, ())}
    assert {name for name in requirements(plugin) if name.startswith("amplifier")} == expected


@per_plugin
def test_the_readme_has_a_line_for_every_plugin(plugin: Path) -> None:
    table = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert [line for line in table if f"`{plugin.name}`" in line or f"[{plugin.name}]" in line]
