"""The verbs of `amplifier session`, on real sessions in a real store."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import Delivery, SessionRecord, TriggerEvent, TriggerType, load_plugins
from amplifier_core.events import SessionEvent
from amplifier_core.storage import DurableStore
from amplifier_core.transcript import Message
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.lock import session_lock
from amplifier_foundation.sessions.presence import this_process

BUNDLE = """---
bundle: {name: echo}
providers:
  - module: provider-playbook
    config: {rules: [], otherwise: {say: "You said: {prompt}"}}
---
Answer.
"""

pytestmark = pytest.mark.usefixtures("home")

VERBS = (
    "cancel",
    "delete",
    "diff",
    "export",
    "fork",
    "import",
    "list",
    "prune",
    "record",
    "rename",
    "repair",
    "replay",
    "resume",
    "show",
    "tree",
    "undo",
)


@pytest.fixture
def bundle(project: Path) -> Path:
    path = project / "bundle.md"
    path.write_text(BUNDLE, encoding="utf-8")
    return path


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line; return its exit code, and what it said on stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err, err
        return code, out, err

    return run


@pytest.fixture
def data(told: Told) -> Callable[..., Any]:
    """Run a command with --json; return its data, when its schema is that of the verb."""

    def run(*arguments: str) -> Any:
        code, out, err = told(*arguments, "--json")
        assert code == exits.OK, err
        envelope = json.loads(out)
        verb = f"session.{arguments[1]}" if arguments[0] == "session" else arguments[0]
        assert envelope["schema"] == f"amplifier/{verb}/1"
        return envelope["data"]

    return run


Told = Callable[..., tuple[int, str, str]]
Data = Callable[..., Any]


def in_store(work: Callable[[DurableStore], Any]) -> Any:
    """Await what `work` makes of the store."""

    async def run() -> Any:
        store = open_inbox(load_plugins(environ={}))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def stored(session_id: str, messages: list[Message], **fields: Any) -> str:
    """Store a session of this folder."""
    fields = {"status": "completed", "project": str(Path.cwd()), **fields}

    async def write(store: DurableStore) -> None:
        await store.create(SessionRecord(session_id, **fields))
        await store.append(session_id, messages, at=0)
        await store.update(session_id, turn_count=sum(message["role"] == "user" for message in messages))

    in_store(write)
    return session_id


def aged(session_id: str, days: int, **fields: Any) -> None:
    """Store a session of this folder that changed so many days ago."""
    moment = datetime.now(UTC) - timedelta(days=days)
    fields = {"status": "completed", "project": str(Path.cwd()), "created": moment, "updated": moment, **fields}
    in_store(lambda store: store.create(SessionRecord(session_id, **fields)))


CALLS = [{"id": "c1", "tool": "read_file", "arguments": {"file_path": "a"}}, {"id": "c2", "tool": "grep"}]
IN_FLIGHT: list[Message] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "first"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c1", "content": "text"},
]


def texts(data: Data, session_id: str) -> list[str]:
    return [message["content"] for message in data("session", "show", session_id)["messages"]]


def test_help_lists_the_verbs_and_each_says_what_it_is(told: Told) -> None:
    code, out, _ = told("session", "--help")
    listed = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.strip()]
    assert (code, tuple(listed)) == (exits.OK, VERBS)
    for verb in VERBS:
        code, out, _ = told("session", verb, "--help")
        assert code == exits.OK
        assert "--json" in out


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"import", "list", "prune", "record", "replay"}))
def test_an_unknown_session_is_not_found(verb: str, bundle: Path, told: Told) -> None:
    more = {"diff": ["absent"], "rename": ["name"], "resume": ["hello"], "delete": ["--yes"]}
    code, out, err = told("session", verb, "absent", *more.get(verb, []))
    assert (code, out) == (exits.NOT_FOUND, "")
    assert err == "amplifier: no session 'absent'. See: amplifier session list --all\n"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("import", "list", "prune", "tree")])
def test_a_verb_without_its_session_is_a_mistake(verb: str, told: Told) -> None:
    code, out, err = told("session", verb)
    assert (code, out) == (exits.USAGE, "")
    assert "Missing argument" in err


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("fork", "x@y"), "the number of a turn, the id of a message (m12), or 'now'"),
        (("fork", "x@m"), "the id of a message (m12)"),
        (("fork", "x", "--orphans", "keep"), "'complete', 'remove', 'error'"),
        (("rename", "x", "key sk-proj-4f9a8b7c6d5e4f3a2b1c"), "the name holds a secret"),
        (("rename", "x", " \t"), "1 to 128 printable characters"),
        (("rename", "x", "a\x1b[31m"), "1 to 128 printable characters"),
        (("prune",), "--older-than 30d, or --keep 20"),
        (("prune", "--older-than", "30"), "such as 30d"),
        (("prune", "--keep", "-1"), "--keep"),
        (("list", "--limit", "0"), "--limit"),
        (("tree", "--format", "png"), "--format"),
        (("tree", "--output", "x"), "--format mermaid, dot or html"),
        (("tree", "--open", "--format", "dot"), "--open takes --format html"),
        (("lst",), "Did you mean 'list'?"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(arguments: tuple[str, ...], remedy: str, project: Path, told: Told) -> None:
    code, out, err = told("session", *arguments)
    assert (code, out) == (exits.USAGE, "")
    assert remedy in err


# fork


def test_messages_are_shown_with_the_ids_that_fork_takes(project: Path, told: Told, data: Data) -> None:
    source = stored("source", IN_FLIGHT)
    assert [each["id"] for each in data("session", "show", source)["messages"]] == ["m1", "m2", "m3", "m4", "m5"]
    shown = told("session", "show", source)[1]
    assert "m3 user\ntwo" in shown
    assert 'm4 assistant\n→ read_file {"file_path": "a"}' in shown


@pytest.mark.parametrize(
    ("point", "at", "turns"), [("", 3, 2), ("@now", 3, 2), ("@1", 2, 1), ("@2", 3, 2), ("@m1", 1, 1), ("@m3", 3, 2)]
)
def test_a_fork_is_made_now_at_a_turn_or_at_a_message(
    point: str, at: int, turns: int, project: Path, data: Data
) -> None:
    fork = data("session", "fork", stored("source", IN_FLIGHT) + point)
    assert (fork["fork_at"], fork["message_count"], fork["turn_count"]) == (at, at, turns)
    assert (fork["fork_of"], fork["parent_id"]) == ("source", "source")


@pytest.mark.parametrize("point", ["@3", "@m6", "@m0", "@0"])
def test_a_point_there_is_not_is_told_with_those_there_are(point: str, project: Path, told: Told) -> None:
    code, out, err = told("session", "fork", stored("source", IN_FLIGHT) + point)
    assert (code, out) == (exits.NOT_FOUND, "")
    assert "out of range. Valid range: " + ("m1-m5" if "m" in point else "1-2") in err


@pytest.mark.parametrize("point", ["", "@2", "@m5"])
def test_calls_in_flight_are_left_out_completed_or_refused(point: str, project: Path, told: Told, data: Data) -> None:
    source = stored("source", IN_FLIGHT) + point
    removed = data("session", "fork", source)
    assert (removed["fork_at"], removed["left_out"], removed["completed"]) == (3, 2, 0)
    completed = data("session", "fork", source, "--orphans", "complete")
    assert (completed["fork_at"], completed["message_count"], completed["completed"]) == (5, 6, 1)
    added = data("session", "show", completed["session_id"])["messages"][-1]
    assert (added["tool_call_id"], json.loads(added["content"])["interrupted"]) == ("c2", True)
    code, out, err = told("session", "fork", source, "--orphans", "error")
    assert (code, out) == (exits.CONFLICT, "")
    assert "tool calls without a result at m4 (grep)" in err
    assert "--orphans remove" in err


def test_a_person_is_told_what_a_fork_shares_and_leaves_out(project: Path, told: Told) -> None:
    source = stored("source", IN_FLIGHT)
    code, out, err = told("session", "fork", source, "--name", "what if")
    assert code == exits.OK
    assert out.startswith("what-if-")
    assert "shares 3 messages of source\n2 messages left out, from an open tool call or prompt on" in err
    assert (
        "1 unfinished tool call recorded as interrupted" in told("session", "fork", source, "--orphans", "complete")[2]
    )


def test_a_running_session_is_forked_and_goes_on(project: Path, data: Data) -> None:
    source = stored("source", IN_FLIGHT, status="running")
    fork = data("session", "fork", source)
    again = data("session", "fork", fork["session_id"])
    rest = [{"role": "tool", "tool_call_id": "c2", "content": "found"}, {"role": "assistant", "content": "done"}]
    in_store(lambda store: store.append(source, rest, at=5))
    assert texts(data, source)[-1] == "done"
    assert texts(data, fork["session_id"]) == texts(data, again["session_id"]) == ["one", "first"]


def test_a_fork_is_resumed_without_its_sources_continuation(bundle: Path, data: Data) -> None:
    answer: Message = {"role": "assistant", "content": "a", "metadata": {"openai:response_id": "r1", "model": "m"}}
    source = stored("source", [{"role": "user", "content": "q"}, answer], bundle_source=str(bundle))
    fork = data("session", "resume", data("session", "fork", source)["session_id"], "more")
    assert (fork["output"], fork["turn_count"]) == ("You said: more", 2)
    for session_id in (source, fork["session_id"]):
        assert data("session", "show", session_id)["messages"][1]["metadata"] == answer["metadata"]


# resume


def test_resume_takes_one_more_turn(bundle: Path, told: Told, data: Data) -> None:
    first = data("run", "one")["session_id"]
    code, out, err = told("session", "resume", first[:9], "two")
    assert (code, out) == (exits.OK, "You said: two\n")
    assert f"session {first}" in err
    assert data("session", "resume", first, "three")["turn_count"] == 3


@pytest.mark.parametrize("command", [("run", "two", "--resume"), ("run", "two", "--fork"), ("session", "resume")])
def test_a_bundle_that_changed_is_refused_until_it_is_accepted(
    command: tuple[str, ...], bundle: Path, told: Told, data: Data
) -> None:
    first = data("run", "one")["session_id"]
    bundle.write_text(BUNDLE.replace("You said", "You say"), encoding="utf-8")
    prompt = () if command[0] == "run" else ("two",)
    code, out, err = told(*command, first, *prompt)
    assert (code, out) == (exits.CONFLICT, "")
    assert f"has changed since session {first} last ran. Continue with its present version with --accept" in err
    assert len(data("session", "list")) == 1
    code, out, err = told(*command, first, *prompt, "--accept")
    assert (code, out) == (exits.OK, "You say: two\n")
    assert "continuing with its present version" in err


def test_a_change_is_accepted_once(bundle: Path, told: Told, data: Data) -> None:
    first = data("run", "one")["session_id"]
    bundle.rename(bundle.with_name("other.md"))
    other = str(bundle.with_name("other.md"))
    bundle.with_name("other.md").write_text(BUNDLE.replace("You said", "You say"), encoding="utf-8")
    assert told("session", "resume", first, "two", "-b", other)[0] == exits.CONFLICT
    assert told("session", "resume", first, "two", "-b", other, "--accept")[1] == "You say: two\n"
    assert told("session", "resume", first, "three")[1] == "You say: three\n"


@pytest.mark.parametrize(("answer", "code"), [("y\n", exits.OK), ("n\n", exits.CONFLICT)])
def test_a_person_is_asked_whether_to_go_on_with_a_changed_bundle(
    answer: str, code: int, bundle: Path, data: Data, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = data("run", "one")["session_id"]
    bundle.write_text(BUNDLE.replace("You said", "You say"), encoding="utf-8")
    at_a_terminal(monkeypatch, answer)
    got, _, err = told("session", "resume", first, "two")
    assert got == code
    assert "Continue with its present version? [y/N]" in err


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Have stdin be a person who types `answer`."""
    import io
    import sys

    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Typed(answer))


def test_a_list_that_is_cut_says_so(project: Path, told: Told, data: Data) -> None:
    for number in range(3):
        stored(f"source-{number}", IN_FLIGHT)
    for wanted in ([], ["--name", "source"], ["--json"]):
        assert (
            told("session", "list", "-n", "2", *wanted)[2]
            == "The last changed 2 are shown, and there are more: -n 20\n"
        )
        assert told("session", "list", "-n", "3", *wanted)[2] == ""
    assert len(data("session", "list", "-n", "2")) == 2


def test_a_terminal_shows_the_last_messages_of_a_long_session_and_says_so(
    project: Path, told: Told, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored("long", [{"role": "user", "content": f"said :smile: {number}"} for number in range(1, 61)])
    assert told("session", "show", "long")[1].count("said :smile:") == 60
    assert [each["id"] for each in data("session", "show", "long", "-n", "2")["messages"]] == ["m59", "m60"]
    all_of_it = "See all: amplifier session show long -n 60\n"
    _, out, err = told("session", "show", "long", "-n", "1")
    assert (out.count("said"), err) == (1, f"The last 1 of 60 messages are shown. {all_of_it}")
    assert out.endswith("\nm60 user\nsaid :smile: 60\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for more in ((), ("--follow",)):
        _, out, err = told("session", "show", "long", *more)
        assert (out.count("said"), err) == (50, f"The last 50 of 60 messages are shown. {all_of_it}")
        assert told("session", "show", "long", "-n", "60", *more)[2] == ""
    assert told("session", "show", "long", "--json")[1].count("said") == 60
    assert told("session", "show", "long", "--trace", "-n", "1")[0] == exits.USAGE


def test_messages_of_a_long_session_are_printed_without_a_rich_print_for_each(
    project: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    stored("long", [{"role": "user", "content": f"said {number}"} for number in range(60)])
    prints: list[object] = []
    show = Console.print
    monkeypatch.setattr(Console, "print", lambda self, *what, **how: [prints.append(what), show(self, *what, **how)])
    assert told("session", "show", "long")[1].count("said") == 60
    assert len(prints) < 30


# rename, export, diff


def test_a_session_is_renamed(project: Path, told: Told, data: Data) -> None:
    stored("source", IN_FLIGHT)
    assert (
        data("session", "rename", "source", "  a good name \U0001f469\u200d\U0001f4bb ")["name"]
        == "a good name \U0001f469\u200d\U0001f4bb"
    )
    assert "a good name" in told("session", "list")[1]
    assert told("session", "rename", "source", "best")[1] == "source: best\n"


def test_a_session_is_exported_as_json_lines(project: Path, told: Told) -> None:
    stored("source", IN_FLIGHT)
    head, *rest = map(json.loads, told("session", "export", "source")[1].splitlines())
    assert (head["schema"], head["session"]["session_id"]) == ("amplifier/session.export/1", "source")
    assert rest == [{"id": f"m{number}", "message": message} for number, message in enumerate(IN_FLIGHT, 1)]


@pytest.mark.parametrize("command", [("export", "source"), ("tree", "--format", "html")])
def test_a_file_that_is_there_becomes_private_before_a_session_is_written_into_it(
    command: tuple[str, ...], project: Path, told: Told
) -> None:
    stored("source", IN_FLIGHT)
    written = told("session", *command)[1]
    Path("open").write_text("x" * 2 * len(written))
    Path("open").chmod(0o644)
    Path("link").symlink_to("open")
    assert told("session", *command, "-o", "link")[0] == exits.OK
    assert (stat.S_IMODE(Path("open").stat().st_mode), Path("open").read_text(encoding="utf-8")) == (0o600, written)


def test_an_export_into_a_device_leaves_its_mode(project: Path, told: Told) -> None:
    stored("source", IN_FLIGHT)
    os.mkfifo("pipe", 0o644)
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert told("session", "export", "source", "-o", "pipe")[0] == exits.OK
    assert stat.S_IMODE(Path("pipe").stat().st_mode) == 0o644
    assert os.read(reader, 100_000).decode() == told("session", "export", "source")[1]
    os.close(reader)


def test_a_session_is_exported_as_markdown_to_a_private_file(project: Path, told: Told, data: Data) -> None:
    stored("source", IN_FLIGHT, name="reader")
    code, out, err = told("session", "export", "source", "--format", "markdown", "-o", "out.md")
    assert (code, out, err) == (exits.OK, "", "out.md: 5 messages of source\n")
    assert stat.S_IMODE(Path("out.md").stat().st_mode) == 0o600
    text = Path("out.md").read_text(encoding="utf-8")
    assert text.startswith("# reader\n\nSession `source`, completed")
    assert "## m2 assistant\n\nfirst\n" in text
    assert data("session", "export", "source", "-o", "out.jsonl")["path"] == "out.jsonl"
    assert len(Path("out.jsonl").read_text(encoding="utf-8").splitlines()) == 6
    assert len(data("session", "export", "source")["messages"]) == 5
    code, _, err = told("session", "export", "source", "-o", "absent/out")
    assert (code, "absent/out cannot be written" in err) == (exits.USAGE, True)


def test_diff_shows_where_forks_part_and_what_each_says_then(bundle: Path, told: Told, data: Data) -> None:
    first = data("run", "one")["session_id"]
    a = data("run", "red", "--fork", first)["session_id"]
    b = data("run", "blue", "--fork", first)["session_id"]
    found = data("session", "diff", a, b)
    assert found["shared"] == 2
    assert [side["session_id"] for side in found["sessions"]] == [a, b]
    assert [side["messages"][0]["content"] for side in found["sessions"]] == ["red", "blue"]
    assert {side["messages"][0]["id"] for side in found["sessions"]} == {"m3"}
    out = told("session", "diff", a, b)[1]
    assert out.startswith(f"The first 2 messages are shared\n\n── {a}: 2 messages of its own\n\nm3 user\nred\n")
    assert "m3 user\nblue\n" in out
    stored("stranger", IN_FLIGHT)
    assert told("session", "diff", a, "stranger")[1].startswith("They share no messages\n")


def test_a_chain_of_a_thousand_forks_is_told_as_json(project: Path, data: Data) -> None:
    async def chain(store: DurableStore) -> None:
        await store.create(SessionRecord("f0", project=str(project), status="idle"))
        for number in range(1, 1000):
            above = f"f{number - 1}"
            await store.create(
                SessionRecord(f"f{number}", parent_id=above, fork_of=above, fork_at=0, project=str(project))
            )

    in_store(chain)
    trees = data("session", "tree")
    assert [tree["session_id"] for tree in trees] == [f"f{number}" for number in range(0, 1000, 100)]
    assert json.dumps(trees).count('"session_id"') == 1000


# delete, prune, repair


def test_deleting_says_what_forks_keep_and_they_keep_it(project: Path, told: Told, data: Data) -> None:
    stored("source", IN_FLIGHT)
    fork = data("session", "fork", "source")["session_id"]
    code, out, err = told("session", "delete", "source", "--yes")
    assert (code, out) == (exits.OK, "deleted source\n")
    assert err == "source: 5 messages; 1 fork will keep the shared ones\n"
    assert texts(data, fork) == ["one", "first", "two"]
    assert told("session", "show", "source")[0] == exits.NOT_FOUND
    assert data("session", "delete", fork, "--yes") == [{"session_id": fork, "forks": []}]
    assert data("session", "list") == []


def test_deleting_asks_a_person_and_needs_yes_elsewhere(
    project: Path, told: Told, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored("source", IN_FLIGHT)
    code, out, err = told("session", "delete", "source")
    assert (code, out) == (exits.USAGE, "")
    assert "use --yes" in err
    at_a_terminal(monkeypatch, "n\n")
    assert told("session", "delete", "source")[:2] == (exits.OK, "")
    assert len(data("session", "list")) == 1
    at_a_terminal(monkeypatch, "y\n")
    assert told("session", "delete", "source")[1] == "deleted source\n"


def test_a_session_that_runs_is_deleted_by_force_alone(project: Path, told: Told) -> None:
    stored("source", IN_FLIGHT, status="running")
    code, _, err = told("session", "delete", "source", "--yes")
    assert (code, "--force" in err) == (exits.CONFLICT, True)
    assert told("session", "delete", "source", "--yes", "--force")[0] == exits.OK


def test_a_session_that_somebody_has_open_is_neither_deleted_nor_pruned(project: Path, told: Told) -> None:
    aged("talked", 90)
    with session_lock("talked"):
        for force in ([], ["--force"]):
            code, _, err = told("session", "delete", "talked", "--yes", *force)
            assert (code, f"process {os.getpid()} has session 'talked' open" in err) == (exits.CONFLICT, True)
        assert told("session", "prune", "--older-than", "30d", "--yes")[2] == "No session is that old.\n"
    assert told("session", "delete", "talked", "--yes")[1] == "deleted talked\n"


def test_a_turn_that_somebody_else_takes_is_stopped_there(project: Path, told: Told) -> None:
    stored("talked", IN_FLIGHT)
    stored("child", IN_FLIGHT, status="running", metadata={"process": this_process()})
    with session_lock("talked"):
        for session in ("talked", "child"):
            code, _, err = told("session", "cancel", session)
            assert code == exits.NOT_FOUND
            assert f"process {os.getpid()} works in session '{session}', and a turn is stopped there: Ctrl-C at" in err


def test_pruning_forgets_what_is_old_and_nobody_needs(project: Path, told: Told, data: Data) -> None:
    for number in range(4):
        aged(f"old-{number}", 40 + number)
    aged("at-work", 90, status="running")
    aged("awaited", 90)
    stored("fresh", IN_FLIGHT)
    event = TriggerEvent(TriggerType.MANUAL, "by hand")
    in_store(lambda store: offered(store, event, "awaited"))
    code, out, _ = told("session", "prune", "--older-than", "30d", "--keep", "2", "--dry-run")
    assert (code, [line.split()[2].strip(",") for line in out.splitlines()]) == (exits.OK, ["old-3", "old-2", "old-1"])
    assert len(data("session", "list")) == 7
    assert told("session", "prune", "--older-than", "30d")[0] == exits.USAGE
    pruned = data("session", "prune", "--older-than", "6w", "--yes")
    assert pruned == {"deleted": True, "sessions": ["old-3", "old-2"], "deliveries": 0, "events": 0}
    assert told("session", "prune", "--older-than", "30d", "--yes")[1].count("deleted old-") == 2
    assert {each["session_id"] for each in data("session", "list")} == {"fresh", "at-work", "awaited"}
    assert told("session", "prune", "--older-than", "1d", "--yes")[2] == "No session is that old.\n"


def test_pruning_names_the_oldest_of_many_sessions_and_the_number_of_the_others(
    project: Path, told: Told, data: Data
) -> None:
    for number in range(60):
        aged(f"old-{number:02}", 100 - number)
    see = "; --json prints the ids of all"
    for arguments, done, more in (("--dry-run", "would delete", see), ("--yes", "deleted", "")):
        found = data("session", "prune", "--older-than", "30d", "--dry-run")
        assert found["sessions"] == [f"old-{number:02}" for number in range(60)]
        assert (found["deleted"], found["deliveries"], found["events"]) == (False, 0, 0)
        first, *rest = told("session", "prune", "--older-than", "30d", arguments)[1].splitlines()
        assert first.startswith(f"{done} old-00, ")
        assert (len(rest), rest[-1]) == (50, f"… and 10 more{more}")
    assert data("session", "list") == []


def test_pruning_forgets_events_and_deliveries_where_no_session_is_old(
    project: Path, told: Told, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(store: DurableStore) -> None:
        for event in ("handled", "waits"):
            await store.enqueue("/p", "queue", "t", TriggerEvent(TriggerType.MANUAL, event))
        claimed = await store.claim("/p", "queue", owner="me", lease=60, session_id="gone")
        assert claimed is not None
        await store.commit(claimed, emits=[SessionEvent("session:completed", {"output": "a"}, "gone")] * 2)

    in_store(handle)
    everything = ("session", "prune", "--older-than", "0s", "--all")
    assert told("session", "prune", "--older-than", "0s", "--yes")[2] == "No session is that old.\n"
    assert told(*everything, "--dry-run")[1] == "would delete 1 finished delivery and 2 events\n"
    assert data(*everything, "--dry-run") == {"deleted": False, "sessions": [], "deliveries": 1, "events": 2}
    at_a_terminal(monkeypatch, "y\n")
    code, out, err = told(*everything)
    assert (code, out) == (exits.OK, "deleted 1 finished delivery and 2 events\n")
    assert "Delete 1 finished delivery, 2 events?" in err
    assert told(*everything, "--yes")[2] == "No session, delivery or event is that old.\n"
    [left] = in_store(lambda store: store.deliveries())
    assert (left.event.source, in_store(lambda store: store.events())) == ("waits", [])


def test_a_deleted_session_takes_what_it_answered_and_what_woke_it_along(
    project: Path, told: Told, data: Data, home: Path
) -> None:
    queue = """background_sessions:
  - {name: clerk, instruction_template: "{text}", triggers: [{module: trigger-manual}]}
---
A"""
    (project / "bundle.md").write_text(BUNDLE.replace("---\nA", queue), encoding="utf-8")
    assert told("trigger", "fire", "clerk", "--data", '{"text": "MARK"}')[0] == exits.OK
    assert told("up", "--once", "-q")[0] == exits.OK
    ids = [each["session_id"] for each in data("session", "list")]
    assert "MARK" in text_of(home)
    assert told("session", "delete", "--yes", *ids)[0] == exits.OK
    assert "MARK" not in text_of(home)
    [ended] = [each for each in in_store(lambda store: store.events()) if each.name == "session:completed"]
    assert (ended.data["output"], ended.data["trigger"], ended.data["success"]) == ("", {}, True)
    assert told("why", ended.event_id)[0] == exits.OK


def text_of(home: Path) -> str:
    """Return all rows of the store."""
    with closing(sqlite3.connect(home / "amplifier.db")) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE rootpage > 0 AND type = 'table'").fetchall()
        return str([db.execute(f'SELECT * FROM "{table}"').fetchall() for (table,) in tables])


async def offered(store: DurableStore, event: TriggerEvent, session_id: str) -> Delivery | None:
    await store.enqueue("/p", "queue", "t", event)
    return await store.claim("/p", "queue", owner="me", lease=60, session_id=session_id)


def test_repair_says_what_it_would_do_and_does_it_when_told(project: Path, told: Told, data: Data) -> None:
    assert told("session", "repair", stored("sound", IN_FLIGHT[:3]))[1:] == ("", "sound: no faults\n")
    stored("lost", IN_FLIGHT[:3], parent_id="nobody")
    code, out, err = told("session", "repair", "lost")
    assert (code, "(missing_parent)" in out) == (exits.OK, True)
    assert err == "nothing was changed. Repair it with: amplifier session repair lost --yes\n"
    found = data("session", "repair", "lost")
    assert (found["session_id"], found["mended"], len(found["findings"])) == ("lost", False, 1)
    assert told("session", "repair", "lost", "--yes")[2] == "lost: 1 fault repaired\n"
    assert data("session", "repair", "lost")["findings"] == []


def test_calls_without_a_result_are_found_and_settled(project: Path, told: Told, data: Data) -> None:
    [finding] = data("session", "repair", stored("cut", IN_FLIGHT))["findings"]
    assert finding["kind"] == "unpaired_call"
    assert told("session", "repair", "cut")[1].startswith("m4: the call of grep has no result")
    assert data("session", "repair", "cut", "--yes")["mended"] is True
    assert data("session", "repair", "cut")["findings"] == []
    messages = data("session", "show", "cut")["messages"]
    assert messages[:5] == [{**message, "id": f"m{number}"} for number, message in enumerate(IN_FLIGHT, 1)]
    assert messages[5]["tool_call_id"] == "c2"


# tree


def test_the_tree_is_drawn_in_every_format(bundle: Path, told: Told, data: Data) -> None:
    first = data("run", "one")["session_id"]
    fork = data("session", "fork", first)["session_id"]
    assert told("session", "tree", "--format", "json")[1] == told("session", "tree", "--json")[1]
    assert f"└── {fork}" in told("session", "tree")[1]
    drawn = told("session", "tree", first, "--format", "mermaid")[1]
    assert drawn.startswith("flowchart LR\n")
    assert 's0 ==>|"fork, shares m1#8211;m2"| s1' in drawn
    drawn = told("session", "tree", "--format", "dot")[1]
    assert 's0 -> s1 [style=bold, label="fork, shares m1\N{EN DASH}m2"]' in drawn
    assert told("session", "tree", "--format", "html")[1].startswith("<!doctype html>")
    code, out, err = told("session", "tree", "--format", "html", "-o", "tree.html")
    assert (code, out, err) == (exits.OK, "", "tree.html: 2 sessions\n")
    assert "You said: one" in Path("tree.html").read_text(encoding="utf-8")


def test_the_page_is_opened_in_the_browser_from_a_private_folder(
    bundle: Path, told: Told, data: Data, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data("run", "one")
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n', encoding="utf-8")
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("webbrowser._tryorder", None)
    code, out, err = told("session", "tree", "--open")
    [page] = tmp_path.glob("amplifier-tree-*/sessions.html")
    assert (code, out, err) == (exits.OK, "", f"{page}: 1 session\n")
    assert seen.read_text(encoding="utf-8") == f"{page.as_uri()}\n"
    assert (stat.S_IMODE(page.parent.stat().st_mode), stat.S_IMODE(page.stat().st_mode)) == (0o700, 0o600)
    told("session", "tree", "--open", "-o", "here.html")
    assert seen.read_text(encoding="utf-8") == f"{Path('here.html').absolute().as_uri()}\n"


def test_at_a_terminal_the_page_goes_to_a_file_and_says_where(
    bundle: Path, told: Told, data: Data, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data("run", "one")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out, err = told("session", "tree", "--format", "html")[1:]
    [page] = tmp_path.glob("amplifier-tree-*/sessions.html")
    assert (out, err) == ("", f"{page}: 1 session\n")


# show --trace


def test_a_trace_says_where_time_and_money_went(bundle: Path, told: Told, data: Data) -> None:
    session_id = data("run", "one")["session_id"]
    envelope = json.loads(told("session", "show", session_id, "--trace", "--json")[1])
    trace = envelope["data"]
    assert envelope["schema"] == "amplifier/session.trace/1"
    assert [(each["kind"], each["name"], each["count"]) for each in trace["sums"]] == [
        ("turn", "", 1),
        ("model", "playbook/playbook", 1),
    ]
    assert (trace["session_id"], trace["notes"], trace["sums"][1]["cost"]) == (session_id, [], "$0")
    assert trace["spans"][1]["message"] == "m2"
    code, out, err = told("session", "show", session_id, "--trace")
    assert (code, err) == (exits.OK, "")
    assert out.startswith("WHERE ")
    assert "model playbook/playbook  1 " in out


def test_a_trace_of_messages_without_times_says_so(project: Path, told: Told) -> None:
    out, err = told("session", "show", stored("old", IN_FLIGHT), "--trace")[1:]
    assert "model unknown model" in out
    assert "calls have no time: it was not recorded" in err
    assert "have no tokens and no cost: they were not recorded" in err


def test_last_stands_for_the_last_changed_session_of_this_project(bundle: Path, told: Told, data: Data) -> None:
    assert told("session", "show", "last")[0] == exits.NOT_FOUND
    said: list[Message] = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "first"}]
    stored("older-1111", said)
    stored("newer-2222", [*said, {"role": "user", "content": "two"}, {"role": "assistant", "content": "second"}])
    stored("last-9999", said, project="/elsewhere")
    stored("empty-3333", [])
    stored("run-4444", said, metadata={"flow": {"name": "w"}})
    assert data("session", "show", "last")["session_id"] == "newer-2222"
    assert data("session", "fork", "last@1")["fork_of"] == "newer-2222"
    assert told("session", "delete", "last", "--yes")[1].startswith("deleted fork-")
    links = json.loads(told("why", "last", "--json")[1])["data"]["links"]
    assert [link["id"] for link in links if link["asked"]] == ["newer-2222"]
    assert data("run", "--resume", "last", "three")["session_id"] == "newer-2222"
    assert json.loads(told("flow", "show", "last", "--json")[1])["data"]["run"] == "run-4444"


def test_sessions_are_found_by_status_name_text_and_age(told: Told, data: Data) -> None:
    stored("review-1111", [{"role": "user", "content": "Look at PARSER.py"}], name="Änderung")
    stored(
        "review-2222", [{"role": "user", "content": [{"type": "text", "text": "the parser fails"}]}], status="failed"
    )
    stored("notes-3333", [{"role": "user", "content": "nothing"}])
    aged("review-4444", days=30)

    def found(*options: str) -> set[str]:
        return {each["session_id"] for each in data("session", "list", *options)}

    assert found("--status", "failed") == {"review-2222"}
    assert found("--status", "failed", "-s", "running") == {"review-2222"}
    assert found("--name", "änd") == {"review-1111"}
    assert found("--name", "REVIEW", "--since", "1d") == {"review-1111", "review-2222"}
    assert found("--search", "parser") == {"review-1111", "review-2222"}
    assert found("--search", "notes") == {"notes-3333"}
    assert len(found("--search", "parser", "--limit", "1")) == 1
    code, out, err = told("session", "list", "--search", "absent")
    assert (code, out) == (exits.OK, "")
    assert err == "No such session in this folder. All folders: amplifier session list --all\n"
    assert found("--name", "REVIEW", "--since", "2000-01-01") >= {"review-1111", "review-4444"}
    for future in ("2100-01-01T00:00+02:00", "9999-12-31T23:59:59.999999"):
        code, _, err = told("session", "list", "--since", future)
        assert (code, f"{future} is in the future; a time without a zone is in UTC" in err) == (4, True)
    assert told("session", "list", "--since", "0s")[2].startswith("No such session")
    code, _, err = told("session", "list", "--since", "soon")
    assert (code, "'soon' is not a duration; write numbers with units" in err, "or a date" in err) == (4, True, True)


def test_a_session_whose_process_is_gone_is_found_as_interrupted(told: Told, data: Data) -> None:
    said: list[Message] = [{"role": "user", "content": "one"}]
    for number in range(3):
        stored(f"gone-{number}111", said, status="running", metadata={"process": f"99999{number}-abc"})
    stored("done-4444", said)

    def found(*options: str) -> list[str]:
        return [each["session_id"] for each in data("session", "list", *options)]

    assert sorted(found("--status", "interrupted")) == ["gone-0111", "gone-1111", "gone-2111"]
    assert found("--status", "running", "--limit", "1") == []
    assert len(found("--status", "interrupted", "--limit", "2")) == 2
    assert sorted(found("--search", "one", "--status", "interrupted")) == ["gone-0111", "gone-1111", "gone-2111"]


def test_a_session_in_an_unanswered_question_waits(told: Told, data: Data) -> None:
    held = {"held": {"call-1": {"tool": "bash"}}}
    stored("asks-1111", IN_FLIGHT, status="interrupted", metadata=held)
    stored("gone-2222", IN_FLIGHT, status="running", metadata={"process": "999999-abc"})

    rows = [line.split()[:2] for line in told("session", "list")[1].splitlines()[1:]]
    assert sorted(rows) == [["asks-1111", "waiting"], ["gone-2222", "interrupted"]]
    statuses = [each["status"] for each in data("session", "list", "--status", "waiting")]
    assert statuses == ["waiting"]
    assert [each["session_id"] for each in data("session", "list", "--status", "interrupted")] == ["gone-2222"]
    assert "status    waiting" in told("session", "show", "asks-1111")[1]
    [line] = [each for each in told("session", "tree")[1].splitlines() if "asks-1111" in each]
    assert " waiting" in line


def test_a_search_says_where_it_stopped(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_foundation.operations.session_search.SEARCHED", 3)
    for number in range(3):
        stored(f"s-{number}111", [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])
    code, out, err = told("session", "list", "--search", "->")
    assert (code, out) == (exits.OK, "")
    assert "searched the last changed 1 of 3 sessions, which is 3 messages" in err
    assert told("session", "list", "--search", "absent")[2].startswith("No such session")


def test_a_search_finds_words_in_sessions_that_it_does_not_read(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_foundation.operations.session_search.SEARCHED", 3)
    for number, text in enumerate(("the Parser fails", "x", "y", "the parser is a test")):
        stored(f"s-{number}111", [{"role": "user", "content": text}, {"role": "assistant", "content": "z"}])
    for text, found in (
        ("parser", {"s-0111", "s-3111"}),
        ("parser fails", {"s-0111"}),
        ("arser is", {"s-3111"}),
        ("arse", {"s-0111", "s-3111"}),
        ("arser fa", {"s-0111"}),
        ("arser that", set()),
    ):
        assert {each["session_id"] for each in data("session", "list", "--search", text)} == found
