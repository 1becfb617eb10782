"""What a session in a process of its own cannot do above, whatever it sends."""

from __future__ import annotations

import asyncio
import logging
import socket
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import SessionRecord
from amplifier_core.errors import BudgetExceeded, SessionConflict
from amplifier_core.hook_data import SpawnRequest
from amplifier_core.llm_errors import RateLimitError
from amplifier_core.permissions import Policy
from amplifier_core.permissions.gate import ALWAYS, PermissionGate
from amplifier_core.testing import MemoryStore
from amplifier_foundation.isolation.above import StoreAbove
from amplifier_foundation.isolation.error_forms import read_error, write_error
from amplifier_foundation.isolation.link import HEAD, LARGEST, Link
from amplifier_foundation.isolation.record_forms import write_value
from amplifier_foundation.isolation.serving import Services
from amplifier_foundation.isolation.zygotes import Zygotes
from amplifier_foundation.spawning.requests import spawn_of

if TYPE_CHECKING:
    from amplifier_foundation.spawning.child import Spawn

PLAN = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}}


class Person:
    """Answers every question with the option given."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    async def request_approval(self, *asked: Any) -> str:
        return self.answer


@pytest.fixture
async def store() -> MemoryStore:
    """A store with the child's session and a stranger's."""
    made = MemoryStore()
    for session_id in ("own", "strange"):
        await made.create(SessionRecord(session_id, parent_id="above"))
    return made


def spawn_with(store: MemoryStore, **options: Any) -> Spawn:
    return spawn_of(SpawnRequest("own", "above", "", "Go", PLAN, ""), store=store, **options)


async def test_it_writes_in_its_own_history_and_in_those_below_it(store: MemoryStore) -> None:
    services = Services(spawn_with(store))
    below = write_value(SessionRecord("below", parent_id="own"))
    await services.serve("create", {"record": below})
    for session_id in ("own", "below"):
        assert await services.serve("append", {"session_id": session_id, "messages": [{"role": "user"}], "at": 0}) == 1


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("append", {"session_id": "strange", "messages": [{"role": "user"}], "at": 0}),
        ("update", {"session_id": "strange", "changes": {"status": "failed"}}),
        ("update", {"session_id": "above", "changes": {"metadata": {}}}),
        ("create", {"record": write_value(SessionRecord("new", parent_id="strange"))}),
    ],
)
async def test_it_writes_in_no_other(store: MemoryStore, call: str, given: dict[str, Any]) -> None:
    await store.create(SessionRecord("above"))
    with pytest.raises(SessionConflict, match="is not below this one"):
        await Services(spawn_with(store)).serve(call, given)
    assert await store.read("strange") == []


@pytest.mark.parametrize("call", ["delete", "close", "repair", "serve", "__init__", "_store", "end"])
async def test_it_can_ask_for_nothing_else(store: MemoryStore, call: str) -> None:
    with pytest.raises(LookupError, match="cannot ask for"):
        await Services(spawn_with(store)).serve(call, {})


@pytest.mark.parametrize(
    ("answer", "kept"), [(f"{ALWAYS}: bash(ls)", ["bash(ls)"]), ("Allow once", []), (f"{ALWAYS}: bash(cat)", [])]
)
async def test_a_rule_for_good_is_one_that_a_person_chose(store: MemoryStore, answer: str, kept: list[str]) -> None:
    spawn, rules = spawn_with(store, approval_system=Person(answer)), []
    spawn.parent.coordinator.guard(PermissionGate(Policy(remember=rules.append), "."))
    services = Services(spawn)
    asked = {"prompt": "?", "options": [answer], "timeout": 1, "default": "deny"}
    await services.serve("remember", {"rule": "bash(ls)"})
    assert await services.serve("approve", asked) == answer
    await services.serve("remember", {"rule": "bash(ls)"})
    assert rules == kept


async def test_it_forges_no_line_of_the_log(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    told = {"name": "x", "level": 50, "text": "fine\nERROR amplifier: forged"}
    await Services(spawn_with(store)).serve("log", told)
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "own (x): fine ERROR amplifier: forged")


@pytest.mark.parametrize("sent", [HEAD.pack(LARGEST + 1), HEAD.pack(4) + b"\xff\xff\xff\xff", HEAD.pack(2) + b"[]"])
async def test_a_message_that_is_none_ends_the_link(sent: bytes) -> None:
    own, other = socket.socketpair()
    own.setblocking(False)

    async def serve(name: str, arguments: dict[str, Any]) -> None: ...

    with other:
        async with Link(own, serve) as link:
            other.sendall(sent)
            await link.wait_closed()
    assert link.failure is not None
    own.close()


def test_an_error_crosses_with_its_class_its_facts_and_its_cause() -> None:
    error = BudgetExceeded("s", 5, 6, unit="turns")  # type: ignore[arg-type]
    error.__cause__ = RateLimitError("slow down", provider="p", retry_after=3.0)
    read = read_error(write_error(error))
    assert (type(read), str(read), vars(read)) == (BudgetExceeded, str(error), vars(error))
    cause = read.__cause__
    assert isinstance(cause, RateLimitError)
    assert (str(cause), cause.retry_after, cause.provider) == ("slow down", 3.0, "p")


def test_an_error_of_a_module_keeps_its_name_and_runs_no_code() -> None:
    class Strange(ValueError):
        def __init__(self) -> None:
            super().__init__("odd")

    read = read_error(write_error(Strange()))
    assert (type(read).__name__, str(read), isinstance(read, RuntimeError)) == ("Strange", "odd", True)


@pytest.mark.parametrize(
    "written",
    [None, [], {}, {"home": "os", "name": "system"}, {"home": "builtins", "name": "exec"}, {"name": "a b"},
     {"home": "builtins", "name": "BaseException"},
     {"home": "builtins", "name": "ValueError", "state": {"__class__": 1}}],
)  # fmt: skip
def test_what_is_no_error_is_read_as_one_all_the_same(written: Any) -> None:
    assert isinstance(read_error(written), Exception)


def test_only_our_own_modules_and_those_of_the_plan_are_imported_for_all() -> None:
    zygotes, told = Zygotes(), ["amplifier_core.models", "antigravity", "amplifier_x.y", 7, "amplifier_core.__main__"]
    zygotes.learn(told, ["amplifier_x"])
    assert zygotes._learnt == {"amplifier_core.models", "amplifier_x.y"}


async def test_an_answer_that_cannot_be_written_is_an_error_and_keeps_nobody_waiting() -> None:
    own, other = socket.socketpair()

    async def serve(name: str, arguments: dict[str, Any]) -> Any:
        return {"number": float("nan"), "object": object()}[name]

    for each in (own, other):
        each.setblocking(False)
    async with Link(own, serve) as asking, Link(other, serve):
        for name in ("number", "object"):
            with pytest.raises(TypeError, match="is not JSON"):
                await asking.call(name)
    own.close()
    other.close()


async def test_what_a_store_keeps_crosses_as_a_store_writes_it(store: MemoryStore) -> None:
    own, other = socket.socketpair()
    for each in (own, other):
        each.setblocking(False)
    message = {"role": "user", "content": "half \ud83d", "metadata": MappingProxyType({"cost": Decimal("0.10")})}
    async with Link(own, Services(spawn_with(store)).serve) as above, Link(other, Services(spawn_with(store)).serve):
        assert await StoreAbove(above, own).append("own", [message], at=0) == 1
        read = await StoreAbove(above, own).read("own")
    assert read == [{"role": "user", "content": "half \ud83d", "metadata": {"cost": "0.10"}}]
    own.close()
    other.close()


async def test_a_link_closes_its_socket_also_when_its_end_is_cancelled() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    link = Link(ours, lambda *_: None)  # type: ignore[arg-type, return-value]  # nothing is served
    await link.__aenter__()
    ending = asyncio.ensure_future(link.__aexit__())
    await asyncio.sleep(0)  # it waits for its reader to end
    ending.cancel()
    await asyncio.wait({ending})
    assert link._writer.is_closing()
    theirs.close()
