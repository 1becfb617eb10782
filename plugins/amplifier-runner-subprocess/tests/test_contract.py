"""The contract of runners, for the runner that this package offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core import load_plugins
from amplifier_core.testing import check_runner
from amplifier_runner_subprocess import check_processes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PLAN = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": {"rules": [{"when": {"user": "yes"}, "say": "Yes."}]}}],
}


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
    assert [row["state"] for row in found] == ["ok", "off"]
    assert "tried just now" in found[0]["fact"]
