"""The contract of runners, for the runner that this package offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_core import load_plugins
from amplifier_core.testing import check_runner
from amplifier_foundation.isolation.control_groups import find_places
from amplifier_runner_subprocess import check_processes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PLAN = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": {"rules": [{"when": {"user": "yes"}, "say": "Yes."}]}}],
}


RESTLESS = """
import sys, threading
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

threading.Thread(target=threading.Event().wait, daemon=True).start()
real = PathFinder.find_spec(__name__, sys.path[1:])
sys.modules[__name__] = module_from_spec(real)
real.loader.exec_module(sys.modules[__name__])
"""
"""In place of a module that all import."""


async def test_the_runner_keeps_the_contract() -> None:
    make = load_plugins().runners.get("runner-subprocess")
    await check_runner(make, config=PLAN, instruction="Say yes", answer="Yes.", patience=60)


def test_all_runners_of_a_program_share_one_limit() -> None:
    plugins = load_plugins()
    make = plugins.runners.get("runner-subprocess")
    assert make() is make()
    assert make() is not load_plugins().runners.get("runner-subprocess")()


def test_the_setting_max_subprocess_is_that_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".amplifier").mkdir()
    (tmp_path / ".amplifier" / "settings.yaml").write_text("max_subprocess: 2\n")
    monkeypatch.chdir(tmp_path)
    runner = load_plugins().runners.get("runner-subprocess")()
    assert runner._zygotes.places._free == 2


def test_doctor_tries_to_start_a_process() -> None:
    found = list(check_processes())
    assert [row["state"] for row in found] == ["ok", "ok" if find_places() else "off"]
    assert ("together" if find_places() else "by itself") in found[1]["fact"]
    assert found[0]["fact"] == "runner-subprocess forks processes for sessions, which was tried just now"


def test_doctor_says_why_each_session_has_a_fresh_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typing_extensions.py").write_text(RESTLESS)
    monkeypatch.syspath_prepend(tmp_path)
    fact = next(iter(check_processes()))["fact"]
    reason = "an installed package starts 1 thread with Python"
    assert fact == f"runner-subprocess starts a fresh Python for each session ({reason}), which was tried just now"
