"""A command imports what it uses, and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: plain}
providers: [{module: provider-playbook, config: {otherwise: {say: "ok"}}}]
---
"""
SHOW = """
import sys
from amplifier_foundation.cli import invoke
invoke(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
"""
HEAVY = {"rich", "tempfile", "watchdog", "yaml", "importlib_metadata"}
READING = HEAVY | {"asyncio", "pydantic"}
UNUSED = {"amplifier_core.store_administration", "amplifier_core.utils.retry", "amplifier_foundation.cli.profiling"}
OF_SESSIONS = {"amplifier_foundation.bundle.prepared", "amplifier_foundation.sources.cache"}


def modules_of(*command: str, folder: Path) -> set[str]:
    """Return the modules of a command whose kept results are there from a call before."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SHOW, *command],
            cwd=folder,
            env={**os.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
    return set(done.stderr.splitlines()[-1].split())


@pytest.fixture
def folder(home: Path, project: Path) -> Path:
    home.mkdir()
    (project / "bundle.md").write_text(BUNDLE)
    return project


@pytest.mark.parametrize("command", [("session", "list"), ("ps",), ("logs", "-n", "20"), ("--help",)])
def test_commands_that_read_need_neither_an_event_loop_nor_pydantic(command: tuple[str, ...], folder: Path) -> None:
    assert modules_of(*command, folder=folder) & (READING | UNUSED) == set()


def test_a_tree_of_lines_imports_nothing_of_pages_and_pictures(folder: Path) -> None:
    loaded = modules_of("session", "tree", folder=folder)
    assert (
        loaded & (READING | UNUSED | OF_SESSIONS | {"webbrowser", "amplifier_foundation.sessions.lineage_html"})
        == set()
    )
    assert [each for each in loaded if each.startswith("amplifier_foundation.flows.")] == []


def test_the_list_of_triggers_imports_nothing_of_sessions(folder: Path) -> None:
    loaded = modules_of("trigger", "list", folder=folder)
    assert loaded & (READING | UNUSED | OF_SESSIONS) == set()
    assert "difflib" not in loaded


def test_a_turn_without_mentions_and_background_sessions_imports_neither(folder: Path) -> None:
    unused = {"amplifier_foundation.mentions.loading", "amplifier_foundation.bundle.event_names", "html"}
    unused |= {"amplifier_foundation.cli.running.panel", "amplifier_foundation.cli.running.talking"}
    assert modules_of("run", "hello", folder=folder) & ((HEAVY - {"tempfile"}) | unused) == set()


def test_who_has_no_transport_imports_nothing_of_them(folder: Path) -> None:
    (folder / "bundle.md").write_text(BUNDLE.replace("---\n", "---\nbackground_sessions: [{name: s}]\n", 1))
    loaded = modules_of("up", "--once", folder=folder)
    assert [each for each in loaded if each.startswith(("amplifier_foundation.transports", "nats"))] == []


@pytest.mark.parametrize("command", [("up", "--once"), ("ps",), ("logs", "-n", "5"), ("why", "last")])
def test_a_host_alone_imports_nothing_of_many_hosts(command: tuple[str, ...], folder: Path) -> None:
    (folder / "bundle.md").write_text(BUNDLE.replace("---\n", "---\nbackground_sessions: [{name: s}]\n", 1))
    loaded = modules_of(*command, folder=folder)
    heavy = {each for each in loaded if each.startswith("amplifier_foundation.background.hosts.")}
    assert heavy <= {"amplifier_foundation.background.hosts.sharing"}
    assert "amplifier_core.shared_stores" not in loaded


def test_background_sessions_for_a_pipe_import_no_colours_repairs_other_stores_or_http(folder: Path) -> None:
    text = BUNDLE.replace("---\n", "---\nbackground_sessions: [{name: idle}]\n", 1)
    (folder / "bundle.md").write_text(text)
    loaded = modules_of("up", "--once", folder=folder)
    assert "amplifier_foundation.background.worker" in loaded
    unused = {"rich", "amplifier_storage_sqlite.salvaging", "amplifier_core.testing", "urllib.request"}
    assert loaded & unused == set()


def test_what_handles_events_and_serves_webhooks_is_imported_once_all_triggers_are_armed(folder: Path) -> None:
    triggers = "[{module: trigger-webhook, config: {port: 0}}, {module: trigger-manual}]"
    text = BUNDLE.replace("---\n", f"---\nbackground_sessions: [{{name: s, triggers: {triggers}}}]\n", 1)
    (folder / "bundle.md").write_text(text)
    program = """
import os, sys, time
from threading import Thread
from amplifier_foundation.background import later
from amplifier_foundation.cli import invoke, view

note = view.RunView.note

def finish():
    while not set(later.NEEDED) <= sys.modules.keys():
        time.sleep(0.001)
    os._exit(0)

def watch(self, text, **more):
    note(self, text, **more)
    if text.startswith("Watching"):
        late = {"amplifier_foundation.background.handling", "amplifier_foundation.spawn", "uvicorn", "starlette"}
        late |= {"amplifier_core.models", "amplifier_core.message_models", "amplifier_loop_basic.turn"}
        print(*late & sys.modules.keys(), "late", flush=True)
        Thread(target=finish).start()

view.RunView.note = watch
invoke(["up"])
"""
    environ = {**os.environ, "AMPLIFIER_HOME": str(folder / "home"), "AMPLIFIER_TRUST": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert "late" in run.stdout.splitlines()[-1].split()[:1]


def test_a_turn_does_not_read_about_distributions_because_of_pydantic(folder: Path) -> None:
    program = """
import sys
from amplifier_foundation.__main__ import main
sys.argv[1:] = ["run", "hello"]
try:
    main()
finally:
    print(*{"pydantic", "zipfile", "email.message"} & sys.modules.keys())
"""
    subprocess.run([sys.executable, "-c", SHOW, "run", "hello"], cwd=folder, check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["ok", "pydantic"]


@pytest.mark.parametrize(
    "use",
    [
        "from importlib.metadata import version",
        "from importlib import metadata; version = metadata.version",
        "import importlib.metadata; version = importlib.metadata.version",
        "import importlib.metadata as metadata; version = metadata.version",
        "from importlib.metadata import entry_points, version; assert entry_points(group='amplifier')",
        "from importlib.metadata._adapters import Message; from importlib.metadata import version",
        "from importlib.resources import files; from importlib.metadata import files, version",
        "assert importlib.util.find_spec('importlib.metadata'); from importlib.metadata import version",
    ],
)
def test_who_asks_about_distributions_gets_the_module_itself(use: str) -> None:
    program = f"""
import importlib.util, sys
from threading import Thread
from amplifier_foundation.__main__ import LateMetadata
late = sys.modules["importlib.metadata"] = importlib.metadata = LateMetadata()

def ask():
    {use}
    found.append(version("click"))

found = []
threads = [Thread(target=ask) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert importlib.metadata is sys.modules["importlib.metadata"] is not late
assert [late.version("click")] * 8 == found, found
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_garbage_of_a_start_is_collected_as_usual_when_it_is_over(folder: Path) -> None:
    program = """
import gc, sys
import amplifier_foundation.__main__
from amplifier_foundation.cli import invoke
assert gc.get_threshold() == (1_000_000, 20, 20)
invoke(sys.argv[1:])
print(*gc.get_threshold(), gc.get_freeze_count() > 0)
"""
    for command, shown in (("run", "100000 20 20 True"), ("ps", "1000000 20 20 False")):
        done = subprocess.run(
            [sys.executable, "-c", program, command, *(["hello"] if command == "run" else [])],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == shown
