"""Tools whose effects must happen once, killed in the middle of a call by real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from amplifier_core import load_plugins
from amplifier_core.storage import SessionRecord
from amplifier_foundation import open_store
from amplifier_foundation.cli import exits, invoke
from tests import forks

pytestmark = pytest.mark.slow

TOOL = """
import asyncio, os, signal
from pathlib import Path

class Pay:
    name, description = "pay", "Pays."
    input_schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    effects = EFFECTS

    def __init__(self, coordinator):
        self.coordinator = coordinator

    async def execute(self, input):
        call = self.coordinator.get_capability("tool.call")()
        with Path("ledger.txt").open("a") as ledger:
            ledger.write(f"{input['amount']} {call['idempotency_key']}\\n")
        if Path("die").exists():
            Path("die").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if Path("hang").exists():
            await asyncio.sleep(3600)
        return "paid"

async def mount(coordinator, config):
    await coordinator.mount("tools", Pay(coordinator))
"""

BUNDLE = """---
bundle: {name: shop}
session: {orchestrator: loop-basic, context: context-simple}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: "order"}, call: {tool: pay, input: {amount: 7}}}
        - {when: {tool: pay}, say: "{result}"}
        - {when: {user: "interrupted call"}, say: "{prompt}"}
      otherwise: {say: "What?"}
tools: [{module: pay, source: ./pay.py}]
background_sessions:
  - name: orders
    triggers: [{module: trigger-manual}]
    instruction: "order"
    timeout: 2
    retry: {delay: 0.01}
---
"""


class Ran(NamedTuple):
    """How a command ended."""

    returncode: int
    out: StringIO
    err: StringIO

    @property
    def stdout(self) -> str:
        return self.out.getvalue()

    @property
    def stderr(self) -> str:
        return self.err.getvalue()


class Shop:
    """A folder whose background session pays once for each order."""

    def __init__(self, folder: Path, effects: str = '"once"') -> None:
        self.folder = folder
        (folder / "bundle.md").write_text(BUNDLE)
        (folder / "pay.py").write_text(TOOL.replace("EFFECTS", effects))

    def run(self, *arguments: str) -> Ran:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            return Ran(invoke(arguments), out, err)

    def order(self) -> None:
        assert self.run("trigger", "fire", "orders").returncode == exits.OK

    def up(self) -> int:
        return forks.run(("up", "--once"), cwd=self.folder).returncode

    def dead(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("trigger", "dead", "--json").stdout)["data"]
        return found

    def ledger(self) -> list[str]:
        return (self.folder / "ledger.txt").read_text().splitlines()

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        shown: dict[str, Any] = json.loads(self.run("session", "show", session_id, "--json").stdout)["data"]
        return list(shown["messages"])

    def answer(self, session_id: str) -> str:
        blocks = self.messages(session_id)[-1]["content"]
        return blocks if isinstance(blocks, str) else "".join(block.get("text", "") for block in blocks)


@pytest.fixture
def shop(project: Path, home: Path) -> Shop:
    return Shop(project)


def kill_during_a_call(shop: Shop) -> dict[str, Any]:
    """Kill `up` while it pays, start it again, and return the dead letter."""
    (shop.folder / "die").touch()
    shop.order()
    assert shop.up() == -signal.SIGKILL
    assert len(shop.ledger()) == 1
    assert shop.up() == exits.FAILED
    [letter] = shop.dead()
    assert len(shop.ledger()) == 1, "nobody was asked"
    return letter


def test_an_interrupted_call_with_effects_once_waits_for_a_person(shop: Shop) -> None:
    letter = kill_during_a_call(shop)
    assert "the call of 'pay' in session" in letter["reason"]
    assert "amplifier trigger retry ID --assume-done, or --run-again" in letter["reason"]
    plain = shop.run("trigger", "retry", letter["delivery_id"])
    assert (plain.returncode, len(shop.dead())) == (exits.USAGE, 1)
    assert "nothing is retried: the call of 'pay'" in plain.stderr
    everything = shop.run("trigger", "retry", "--all")
    assert (everything.returncode, len(shop.dead())) == (exits.OK, 1)
    assert "not retried: the call of 'pay'" in everything.stderr
    # The person looks, and finds that it is paid.
    assert shop.run("trigger", "retry", letter["delivery_id"], "--assume-done").returncode == exits.OK
    assert shop.up() == exits.OK
    assert (len(shop.ledger()), shop.dead()) == (1, [])
    assert "took effect. Its output is unknown" in shop.answer(letter["session_id"])
    again = shop.run("trigger", "retry", letter["delivery_id"], "--assume-done")
    assert again.returncode == exits.USAGE


def test_a_person_has_the_call_run_again_with_its_own_key(shop: Shop) -> None:
    letter = kill_during_a_call(shop)
    assert shop.run("trigger", "retry", letter["delivery_id"], "--run-again").returncode == exits.OK
    assert shop.up() == exits.OK
    first, second = shop.ledger()
    assert first == second, "the amount and the key are the same"
    assert (shop.answer(letter["session_id"]), shop.dead()) == ("paid", [])


def test_a_call_that_runs_again_and_is_killed_again_waits_again(shop: Shop) -> None:
    letter = kill_during_a_call(shop)
    shop.run("trigger", "retry", letter["delivery_id"], "--run-again")
    (shop.folder / "die").touch()
    assert shop.up() == -signal.SIGKILL
    assert shop.up() == exits.FAILED
    assert ([each["delivery_id"] for each in shop.dead()], len(shop.ledger())) == ([letter["delivery_id"]], 2)


def test_a_call_that_a_time_limit_cuts_waits_too(shop: Shop) -> None:
    (shop.folder / "hang").touch()
    shop.order()
    assert shop.up() == exits.FAILED
    [letter] = shop.dead()
    assert "the call of 'pay'" in letter["reason"]
    (shop.folder / "hang").unlink()
    assert shop.run("trigger", "retry", letter["delivery_id"], "--assume-done").returncode == exits.OK
    assert shop.up() == exits.OK
    assert len(shop.ledger()) == 1
    said = shop.messages(letter["session_id"])
    assert ["took effect. Its output is unknown" in str(each["content"]) for each in said].count(True) == 1


def test_a_tool_without_the_declaration_is_left_to_the_model(project: Path, home: Path) -> None:
    shop = Shop(project, effects="None")
    (project / "die").touch()
    shop.order()
    assert shop.up() == -signal.SIGKILL
    assert shop.up() == exits.OK
    assert (len(shop.ledger()), shop.dead()) == (2, [])


def test_a_person_at_the_terminal_goes_on_with_the_session(shop: Shop) -> None:
    letter = kill_during_a_call(shop)
    ran = shop.run("run", "--resume", letter["session_id"], "--json", "is it paid?")
    assert ran.returncode == exits.OK, ran.stderr
    assert shop.run("trigger", "retry", letter["delivery_id"]).returncode == exits.OK
    assert (shop.up(), len(shop.ledger())) == (exits.OK, 1)


def test_calls_that_ended_leave_no_mark(shop: Shop) -> None:
    shop.order()
    assert shop.up() == exits.OK
    assert len(shop.ledger()) == 1

    async def records() -> list[SessionRecord]:
        store = open_store(load_plugins(environ={}))
        try:
            return await store.sessions()
        finally:
            await store.close()

    marked = [record for record in asyncio.run(records()) if "once" in record.metadata]
    assert marked == []
