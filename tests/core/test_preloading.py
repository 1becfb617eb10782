"""Test that the packages of providers are imported in a thread: the event loop goes on, and one import is enough."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.loader import GROUP, ModuleLoader
from amplifier_core.preloading import preload, wait_for_import

if TYPE_CHECKING:
    from pathlib import Path

    from tests.core.conftest import Site

SLOW = """
import sys
import threading

gate = sys.modules["tests_of_preloading_gate"]
gate.threads.append(threading.current_thread().name)
gate.begun.set()
gate.may_end.wait(30)

def preload():
    gate.preloaded.append(threading.current_thread().name)

async def mount(coordinator, config):
    gate.mounted.append(threading.current_thread().name)
"""


class Gate:
    """Holds up an import, and knows the threads of each step."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.threads: list[str] = []
        self.preloaded: list[str] = []
        self.mounted: list[str] = []


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setitem(sys.modules, "tests_of_preloading_gate", gate)
    return gate


async def test_a_slow_import_leaves_the_event_loop_to_others(site: Site, gate: Gate) -> None:
    site.install("slow-one", {GROUP: {"provider-slow-one": "slow_one:mount"}}, {"slow_one.py": SLOW})
    loading = asyncio.create_task(ModuleLoader().load("provider-slow-one"))
    async with asyncio.timeout(120):
        while not gate.begun.is_set():
            await asyncio.sleep(0.001)  # the loop goes on while the import waits
    assert not loading.done()
    gate.may_end.set()
    mount = await loading
    await mount(ModuleCoordinator())
    assert (gate.threads, gate.preloaded, gate.mounted) == (["preload"], ["preload"], ["MainThread"])


async def test_an_import_that_has_begun_is_waited_for_and_not_begun_again(site: Site, gate: Gate) -> None:
    site.install("slow-two", {GROUP: {"provider-slow-two": "slow_two:mount"}}, {"slow_two.py": SLOW})
    preload(["provider-slow-two"], GROUP)
    preload(["provider-slow-two"], GROUP)
    waiting = asyncio.create_task(wait_for_import("provider-slow-two", GROUP))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.may_end.set()
    await waiting
    await ModuleLoader().load("provider-slow-two")
    assert gate.threads == ["preload"]


async def test_an_import_that_fails_is_reported_by_the_mount(site: Site) -> None:
    site.install("broken-one", {GROUP: {"provider-broken-one": "broken_one:mount"}}, {"broken_one.py": "1 / 0"})
    with pytest.raises(ZeroDivisionError):
        await ModuleLoader().load("provider-broken-one")


async def test_a_name_that_is_not_installed_is_no_error_here() -> None:
    preload(["provider-of-nobody"], GROUP)
    await wait_for_import("provider-of-nobody", GROUP)


SLEEPING = """
import time
from pathlib import Path

time.sleep({seconds})
done = Path(__file__).with_name("done")
done.write_text("imported")

def preload():
    done.write_text("more")
"""


def test_the_end_of_a_program_waits_for_the_import_that_runs_and_begins_no_further_one(site: Site) -> None:
    groups = {GROUP: {"provider-slow-three": "slow_three:mount", "provider-slow-four": "slow_three:mount"}}
    site.install("slow-three", groups, {"slow_three.py": SLEEPING.format(seconds=0.5)})
    program = (
        "import sys; from amplifier_core import preloading\n"
        "preloading.preload(['provider-slow-three', 'provider-slow-four'], sys.argv[1])\n"
        "while 'slow_three' not in sys.modules: pass\n"
        "print(preloading.is_importing(), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, GROUP],
        env={**os.environ, "PYTHONPATH": str(site.folder)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert (site.folder / "done").read_text() == "imported"


def test_a_command_that_ends_early_waits_for_no_import(site: Site, tmp_path: Path) -> None:
    files = {"slow_five.py": SLEEPING.format(seconds=600)}
    site.install("slow-five", {GROUP: {"provider-slow-five": "slow_five:mount"}}, files)
    (tmp_path / "bundle.md").write_text("---\nbundle: {name: b}\nproviders: [{module: provider-slow-five}]\n---\n")
    done = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", "run", ""],
        env={**os.environ, "PYTHONPATH": str(site.folder), "AMPLIFIER_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 4, done.stderr
