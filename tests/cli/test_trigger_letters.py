"""What was given up: listed, tried again and dropped."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from amplifier_core import Delivery, TriggerEvent, TriggerType
from amplifier_core.plugins import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.lock import owner_lock

pytestmark = pytest.mark.usefixtures("home")


async def _give_up(project: Path, queue: str, numbers: Sequence[int]) -> list[str]:
    store = open_inbox(load_plugins(environ={}))
    for number in numbers:
        event = TriggerEvent(TriggerType.TIMER, "trigger-timer", data={"tick": number})
        await store.enqueue(str(project.resolve()), queue, f"{queue}/trigger-timer#1", event)
        claimed = await store.claim(str(project.resolve()), queue, owner="o", lease=60.0, session_id=f"a-{number}")
        assert claimed is not None
        await store.dead_letter(claimed, reason=f"no answer to {number}\nTraceback")
    letters = await store.deliveries(queue=queue)
    await store.close()
    return [letter.delivery_id for letter in letters]


def stored(**wanted: Any) -> list[Delivery]:
    """Return the deliveries, the newest first."""

    async def read() -> list[Delivery]:
        store = open_inbox(load_plugins(environ={}))
        found = await store.deliveries(**wanted)
        await store.close()
        return found

    return asyncio.run(read())


def ran(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = exits.OK) -> tuple[str, str]:
    capsys.readouterr()
    assert invoke(["trigger", *arguments]) == code
    return capsys.readouterr()


@pytest.fixture
def ids(project: Path) -> Sequence[str]:
    """The ids of two dead letters of this folder, the newest first."""
    return asyncio.run(_give_up(project, "b/a", (1, 2)))


def test_dead_letters_are_listed_in_words(ids: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    heading, *rows = ran(capsys, "dead")[0].splitlines()
    assert heading.split() == ["ID", "WHEN", "BACKGROUND", "SESSION", "EVENT", "ATTEMPTS", "REASON"]
    assert [row.split()[0] for row in rows] == [each[:8] for each in ids]
    assert " ".join(rows[0].split()[2:]) == "b/a timer, tick 2 1 no answer to 2"
    [newest, _] = json.loads(ran(capsys, "dead", "--json")[0])["data"]
    assert (newest["delivery_id"], newest["state"], newest["session_id"]) == (ids[0], "dead", "a-2")
    assert (newest["reason"], newest["data"]) == ("no answer to 2\nTraceback", {"tick": 2})


def test_dead_letters_are_those_of_this_folder_of_a_bundle_or_of_all(
    ids: Sequence[str], tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    asyncio.run(_give_up(other, "c/a", (3,)))
    asyncio.run(_give_up(project, "c/a", (4,)))
    (project / "c.md").write_text("---\nbundle: {name: c}\n---\n", encoding="utf-8")
    assert [len(ran(capsys, "dead", *of)[0].splitlines()) - 1 for of in ([], ["-b", "c.md"], ["--all"])] == [3, 1, 4]


def test_a_list_of_dead_letters_that_is_cut_says_so(
    ids: Sequence[str], project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_give_up(project, "c/a", (3,)))
    (project / "b.md").write_text("---\nbundle: {name: b}\n---\n", encoding="utf-8")
    for of in ([], ["--all"], ["-b", "b.md"]):
        out, err = ran(capsys, "dead", "-n", "1", *of)
        assert (len(out.splitlines()), err.splitlines()[0]) == (2, "The newest 1 are shown, and there are more: -n 10")
        assert "there are more" not in ran(capsys, "dead", "-n", "3", *of)[1]
    monkeypatch.setattr("amplifier_foundation.cli.triggers.dead_letters.LETTERS", 1)
    assert ran(capsys, "dead")[1].startswith("The newest 1 are shown, and there are more: -n 10\n")
    out, err = ran(capsys, "dead", "--json")
    assert (len(json.loads(out)["data"]), err) == (3, "")
    out, err = ran(capsys, "dead", "-n", "1", "-b", "b.md", "--json")
    assert [each["delivery_id"] for each in json.loads(out)["data"]] == [ids[0]]
    assert "there are more" in err


def test_no_dead_letters_are_said_to_be_none(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "dead") == ("", "No dead letters in this folder. All folders: amplifier trigger dead --all\n")
    assert ran(capsys, "dead", "--all") == ("", "No dead letters.\n")
    assert ran(capsys, "retry", "--all") == ("", "No dead letters in this folder.\n")


def test_a_dead_letter_is_due_again_and_goes_on_in_its_session(
    ids: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = ran(capsys, "retry", ids[1][:6])
    follows = "waits for the next: amplifier up, in its session a-1"
    assert out == f"{ids[1][:8]} b/a: timer, tick 1 {follows}\n"
    assert [(each.state, each.attempts) for each in stored()] == [("dead", 1), ("pending", 0)]


async def _put_back(project: Path, *reasons: str, in_place: bool = False) -> list[str]:
    store, place = open_inbox(load_plugins(environ={})), (str(project.resolve()), "b/a")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for reason in reasons:
        await store.enqueue(*place, "b/a/manual", TriggerEvent(TriggerType.MANUAL, "manual"))
        claimed = await store.claim(*place, owner="o", lease=60.0, session_id="a-1")
        assert claimed is not None
        due = claimed.available_at if in_place else tomorrow
        await store.nack(claimed, reason=reason, available_at=due, counted=False)
    waiting = await store.deliveries(queue="b/a")
    await store.close()
    return [each.delivery_id for each in reversed(waiting)]


def test_an_event_that_waits_for_a_budget_is_due_at_once_when_a_person_retries_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held, asked = asyncio.run(_put_back(project, "postponed: its budget is spent", "waits for approval: 1 bash"))
    assert "waits for the next: amplifier up" in ran(capsys, "retry", held)[0]
    assert "is pending" in ran(capsys, "retry", asked, code=exits.CONFLICT)[1]
    assert [each.available_at < datetime.now(UTC) for each in stored()] == [False, True]


def test_an_event_that_waits_with_its_queue_is_not_said_to_be_handled(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (late,) = asyncio.run(_put_back(project, "postponed by an outage: the model is overloaded"))
    both = asyncio.run(_put_back(project, "postponed with its queue: the folder is gone", in_place=True))
    (blocked,) = set(both) - {late}
    with owner_lock({"projects": [str(project.resolve())], "socket": ""}):
        out, _ = ran(capsys, "retry", blocked, late)
    assert re.search(r" waits with its queue: the folder is gone\n", out)
    assert re.search(r" waits with its queue until \S+: the model is overloaded\n\Z", out)
    assert invoke(["why", blocked]) == exits.OK
    told = capsys.readouterr().out
    assert ("postponed with its queue" in told, "Try what is postponed" in told) == (True, False)


def test_all_dead_letters_are_retried_at_once_by_an_up_that_runs(
    ids: Sequence[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with owner_lock({"projects": [str(project.resolve())], "socket": ""}):
        out, _ = ran(capsys, "retry", "--all")
    assert [line.split(",")[1] for line in out.splitlines()] == [" tick 1 is handled now", " tick 2 is handled now"]
    assert {each.state for each in stored()} == {"pending"}


def test_a_dropped_one_is_skipped_with_its_reason_and_may_still_be_retried(
    ids: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = ran(capsys, "drop", *ids, ids[0][:8], "--reason", "of no use")
    assert out.count("is skipped: of no use\n") == 2
    assert {(each.state, each.reason) for each in stored()} == {("skipped", "of no use")}
    ran(capsys, "retry", ids[0])
    assert [each.state for each in stored()] == ["pending", "skipped"]


def test_what_is_named_twice_is_dropped_once(ids: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, "retry", "--all")
    out, err = ran(capsys, "drop", "b/a", ids[0], "b/a")
    assert (out.count("is skipped: dropped by hand\n"), err) == (2, "")
    assert {each.state for each in stored()} == {"skipped"}


def test_what_cannot_be_dropped_keeps_back_nothing_else(ids: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, "drop", ids[0])
    out, err = ran(capsys, "drop", *ids, code=exits.CONFLICT)
    assert out == f"{ids[1][:8]} b/a: timer, tick 1 is skipped: dropped by hand\n"
    assert err == f"not dropped: delivery '{ids[0]}' is skipped: it cannot be dropped\n"


def test_what_cannot_be_retried_keeps_back_nothing_else(ids: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, "retry", ids[0])
    out, err = ran(capsys, "retry", *ids, code=exits.CONFLICT)
    assert out == f"{ids[1][:8]} b/a: timer, tick 1 waits for the next: amplifier up, in its session a-1\n"
    assert err == f"not retried: delivery '{ids[0]}' is pending: it cannot be delivered again\n"
    assert [each.state for each in stored()] == ["pending", "pending"]


def test_a_process_of_an_earlier_version_is_said_to_handle_what_it_was_woken_for(
    ids: Sequence[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = f"{folder}/socket"
        listening.bind(path)
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b'{"ok": true, "answer": null}\n')

        with ThreadPoolExecutor(1) as pool, owner_lock({"projects": [str(project.resolve())], "socket": path}):
            answering = pool.submit(answer)
            out, _ = ran(capsys, "retry", ids[0])
            answering.result()
    assert "tick 2 is handled now" in out


def test_ids_that_name_nothing_or_cannot_be_retried_change_nothing(
    ids: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no delivery 'nope'" in ran(capsys, "retry", ids[0], "nope", code=exits.NOT_FOUND)[1]
    assert "no delivery" in ran(capsys, "drop", ids[0][:3], code=exits.NOT_FOUND)[1]
    told = f"Nothing waits for b/a in {Path.cwd()}. Name another folder with --folder\n"
    assert ran(capsys, "drop", "b/a", ids[0], code=exits.NOT_FOUND) == ("", told)
    assert [each.state for each in stored()] == ["dead", "dead"]
    ran(capsys, "retry", ids[0])
    assert "cannot be delivered again" in ran(capsys, "retry", ids[0], code=exits.CONFLICT)[1]
    for arguments in ([], [ids[0], "--all"]):
        assert "give ids shown by amplifier trigger dead" in ran(capsys, "retry", *arguments, code=exits.USAGE)[1]


def test_a_beginning_of_several_ids_is_a_conflict(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from amplifier_core import SessionConflict
    from amplifier_foundation.cli.triggers.dead_letters import shortest_length
    from amplifier_foundation.operations.deliveries import the_only

    ids = asyncio.run(_give_up(project, "b/a", (1, 2)))
    with pytest.raises(SessionConflict, match=f"'abcd' begins the ids of several deliveries: {ids[0]}, {ids[1]}"):
        the_only("abcd", stored())
    assert [shortest_length(each) for each in (["12345678a"], ["12345678a", "12345678b"])] == [8, 9]
