"""Who may write the record of a session, and when a stored "running" counts for nothing."""

from __future__ import annotations

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
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_foundation import PreparedBundle, converse
from amplifier_foundation.sessions.presence import KEY, LOCK, as_it_is, refuse_deletion, refuse_occupied, this_process
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
            assert as_it_is(record) == record and as_it_is(below) == below
            with pytest.raises(SessionConflict, match=f"process {worker.pid} runs session"):
                refuse_occupied(record)
            with pytest.raises(SessionConflict, match="talks in session"):
                await converse(bundle, "two", store, plugins, resume=record)
        else:
            why = "its turn ended, and the end could not be stored"
            assert (as_it_is(record).status, as_it_is(record).error) == ("interrupted", why)
            assert as_it_is(below).status == "interrupted"
            refuse_deletion(record)
            assert (await converse(bundle, "two", store, plugins, resume=record)).output == "You said: two"
        worker.communicate("\n\n")


async def test_a_running_record_counts_by_its_process_alone_where_that_holds_no_lock(
    make_bundle: MakeBundle, store: DurableStore
) -> None:
    record = SessionRecord("s", metadata={KEY: this_process()})  # of the last version, or of a background session
    assert as_it_is(record).status == "running"
    locked = replace(record, **resume_changes(record, lock="s"))
    assert as_it_is(locked).status == "interrupted"
    resumed = replace(locked, **resume_changes(locked))
    assert as_it_is(resumed).status == "running"
    by_last_version = replace(locked, metadata={**locked.metadata, LOCK: ["1-a@elsewhere", "s"]})
    assert as_it_is(by_last_version).status == "running"
    elsewhere = replace(record, metadata={KEY: "1-a@elsewhere", LOCK: ["1-a@elsewhere", "s"]})
    assert as_it_is(elsewhere).status == "running"


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
