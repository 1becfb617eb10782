"""Who may write the record of a session, and when a stored "running" counts for nothing."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.errors import SessionConflict
from amplifier_core.hooks import HookResult
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_foundation import PreparedBundle, converse
from amplifier_foundation.sessions.lock import session_lock
from amplifier_foundation.sessions.presence import (
    KEY,
    LOCK,
    as_it_is,
    is_running,
    refuse_deletion,
    refuse_occupied,
    this_host,
    this_process,
)
from amplifier_foundation.sessions.records import resume_changes
from amplifier_foundation.spawning.conversation import open_conversation
from tests.foundation.conftest import playbook

MakeBundle = Callable[..., PreparedBundle]

WORKER = """
import asyncio, sqlite3, sys
from amplifier_core import load_plugins
from amplifier_core.errors import StoreUnavailable
from amplifier_foundation import Bundle, converse, open_inbox

async def main():
    plugins = load_plugins()
    store = open_inbox(plugins, {"name": "storage-sqlite", "config": {"path": sys.argv[1], "busy_timeout": 0.01}})
    bundle = Bundle.from_dict({"bundle": {"name": "talk"}, "providers": [{"module": "provider-playbook"}]})
    blocker = sqlite3.connect(sys.argv[1], isolation_level=None)

    def watch(session):
        if sys.argv[2] == "fails":
            blocker.execute("BEGIN IMMEDIATE")
        else:
            print(session.session_id, flush=True)
            input()

    try:
        await converse(bundle, "one", store, plugins, observe=watch)
    except StoreUnavailable:
        blocker.execute("ROLLBACK")
    [record] = await store.sessions()
    print(record.session_id, flush=True)
    input()
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("turn", ["fails", "runs"])
async def test_a_turn_whose_end_could_not_be_stored_leaves_its_session_free_though_its_process_lives(
    turn: str, store: DurableStore, make_bundle: MakeBundle, plugins: Plugins, tmp_path: Path
) -> None:
    path, bundle = tmp_path / "store" / "amplifier.db", make_bundle("talk", providers=playbook()).bundle
    program = [sys.executable, "-c", WORKER, str(path), turn]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        session_id = worker.stdout.readline().strip()
        record = await store.get(session_id)
        below = SessionRecord("child", metadata={KEY: record.metadata[KEY], LOCK: record.metadata[LOCK]})
        assert record.status == "running"
        if turn == "runs":
            assert as_it_is(record) == record and is_running(record) and is_running(below)
            with pytest.raises(SessionConflict, match=f"process {worker.pid} runs session"):
                refuse_occupied(record)
            with pytest.raises(SessionConflict, match="talks in session"):
                await converse(bundle, "two", store, plugins, resume=record)
        else:
            assert as_it_is(record) == record and not is_running(record) and not is_running(below)
            refuse_deletion(record)
            with session_lock(session_id):
                seen = as_it_is(below)
            assert (seen.status, seen.error) == ("interrupted", "its turn ended, and the end could not be stored")
            assert (await converse(bundle, "two", store, plugins, resume=record)).output == "You said: two"
        worker.communicate("\n\n")


async def test_a_running_record_counts_by_its_process_alone_where_that_holds_no_lock(
    make_bundle: MakeBundle, store: DurableStore
) -> None:
    record = SessionRecord("s", metadata={KEY: this_process()})  # of the last version, or of a background session
    assert is_running(record)
    locked = replace(record, **resume_changes(record, lock="s"))
    assert not is_running(locked)
    resumed = replace(locked, **resume_changes(locked))
    assert is_running(resumed)
    by_last_version = replace(locked, metadata={**locked.metadata, LOCK: ["1-a@elsewhere", "s"]})
    assert is_running(by_last_version)
    elsewhere = replace(record, metadata={KEY: "1-a@elsewhere", LOCK: ["1-a@elsewhere", "s"]})
    assert is_running(elsewhere)


async def test_a_record_that_was_read_before_its_turn_ended_tells_of_no_failure(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins
) -> None:
    read: list[SessionRecord] = []

    def watch(session: AmplifierSession) -> None:
        async def look(event: str, data: dict[str, Any]) -> None:
            read.append(await store.get(session.session_id))

        session.coordinator.hooks.register("provider:request", look, name="look")

    await converse(make_bundle("talk", providers=playbook()).bundle, "one", store, plugins, observe=watch)
    assert [(each.status, as_it_is(each), is_running(each)) for each in read] == [("running", read[0], False)]


async def test_a_worker_with_the_number_of_the_one_that_lives_goes_on_where_that_has_let_go(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins
) -> None:
    """In two containers with one data folder, each worker may be number 1."""
    bundle = make_bundle("talk", providers=playbook()).bundle
    session_id = (await converse(bundle, "one", store, plugins)).session_id
    name, processes = f"{os.getpid()}-0123456789ab", Path(os.environ["AMPLIFIER_HOME"], "processes")
    process = f"{name}@{this_host()}"
    await store.update(session_id, status="running", metadata={KEY: process, LOCK: [process, session_id]})
    with (processes / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = await store.get(session_id)
        assert as_it_is(record) == record
        assert (await converse(bundle, "two", store, plugins, resume=record)).turn_count == 2


async def _deny(event: str, data: dict[str, Any]) -> HookResult:
    return HookResult(action="deny", reason="rate limit")


async def test_a_conversation_that_was_refused_goes_on_when_its_place_is_free_and_its_turn_is_stored_whole(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, home = make_bundle("talk", providers=playbook()).bundle, os.environ["AMPLIFIER_HOME"]
    record = await store.get((await converse(bundle, "one", store, plugins)).session_id)
    async with open_conversation(bundle, store, plugins, resume=record) as slow:
        monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "other host"))
        async with open_conversation(bundle, store, plugins, resume=record) as quick:

            async def interfere(event: str, data: dict[str, Any]) -> HookResult:
                before = await store.get(record.session_id)
                with monkeypatch.context() as here:
                    here.setenv("AMPLIFIER_HOME", home)
                    with pytest.raises(SessionConflict, match="runs session"):
                        await slow.say("late")
                    with pytest.raises(SessionConflict, match="runs session"):
                        await slow.keep("noted", "there")
                assert await store.get(record.session_id) == before
                return await _deny(event, data)

            quick.session.coordinator.hooks.register("prompt:submit", interfere, name="interfere")
            assert (await quick.say("two")).status == "incomplete"
        monkeypatch.setenv("AMPLIFIER_HOME", home)
        assert (await slow.say("again")).status == "completed"
        left = await store.get(record.session_id)
        assert (left.status, left.turn_count, left.message_count) == ("completed", 2, 4)
        await slow.keep("noted", "here")
        assert (await store.get(record.session_id)).metadata["noted"] == "here"


async def test_each_turn_is_stored_as_running_by_the_process_that_takes_it(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, home, read = make_bundle("talk", providers=playbook()).bundle, os.environ["AMPLIFIER_HOME"], []
    async with open_conversation(bundle, store, plugins) as conversation:

        async def look(event: str, data: dict[str, Any]) -> None:
            record = await store.get(conversation.session.session_id)
            await conversation.keep("noted", str(len(read)))
            read.append((record.metadata[KEY], record.metadata[LOCK], is_running(record)))

        conversation.session.coordinator.hooks.register("provider:request", look, name="look")
        await conversation.say("one")
        monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "other host"))
        resume = await store.get(conversation.session.session_id)
        async with open_conversation(bundle, store, plugins, resume=resume) as other:
            other.session.coordinator.hooks.register("prompt:submit", _deny, name="deny")
            await other.say("two")
        monkeypatch.setenv("AMPLIFIER_HOME", home)
        await conversation.say("three")
    own = [this_process(), [this_process(), resume.session_id], True]
    assert [list(each) for each in read] == [own, own]
    left = await store.get(resume.session_id)
    assert (left.status, left.turn_count, left.message_count) == ("completed", 2, 4)


async def test_a_session_that_another_host_has_gone_on_with_meanwhile_is_left_as_that_host_leaves_it(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, home, refused = make_bundle("talk", providers=playbook()), os.environ["AMPLIFIER_HOME"], []
    record = await store.get((await converse(bundle.bundle, "one", store, plugins)).session_id)
    async with open_conversation(bundle, store, plugins, resume=record) as slow:
        monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "other host"))
        async with open_conversation(bundle, store, plugins, resume=record) as quick:

            async def interfere(event: str, data: dict[str, Any]) -> None:
                with monkeypatch.context() as here:
                    here.setenv("AMPLIFIER_HOME", home)
                    with pytest.raises(SessionConflict, match=r"host .* runs session .* amplifier host adopt \S+$"):
                        await slow.say("late")
                refused.append(await store.get(record.session_id))

            quick.session.coordinator.hooks.register("provider:request", interfere, name="interfere")
            await quick.say("two")
            assert [each.status for each in refused] == ["running"]
        monkeypatch.setenv("AMPLIFIER_HOME", home)
        left = await store.get(record.session_id)
        assert (left.status, left.turn_count) == ("completed", 2)
        with pytest.raises(SessionConflict, match="has .* messages, not 2: somebody else wrote it"):
            await slow.say("late again")
        with pytest.raises(SessionConflict, match="somebody else wrote it"):
            await slow.keep("noted", "here")
        assert await store.get(record.session_id) == left


async def test_the_loser_of_a_message_changes_nothing_of_the_record(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins
) -> None:
    bundle = make_bundle("talk", providers=playbook()).bundle
    record = await store.get((await converse(bundle, "one", store, plugins)).session_id)
    won: list[SessionRecord] = []

    def watch(session: AmplifierSession) -> None:
        async def win(event: str, data: dict[str, Any]) -> None:
            await store.append(record.session_id, [{"role": "user", "content": "of another host"}], at=2)
            await store.update(record.session_id, status="completed", metadata={KEY: "1-a@elsewhere"}, turn_count=2)
            won.append(await store.get(record.session_id))

        session.coordinator.hooks.register("execution:start", win, name="win")

    with pytest.raises(SessionConflict, match="has 3 messages, not 2"):
        await converse(bundle, "two", store, plugins, resume=record, observe=watch)
    assert won == [await store.get(record.session_id)]
