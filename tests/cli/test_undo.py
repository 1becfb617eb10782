"""`amplifier session undo`, on sessions that have really written files."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.file_changes import FileChange, bound_contents, read_changes, read_content
from amplifier_foundation.sessions.undoing import plan_undo, read_chains, restore

BUNDLE = """---
bundle: {name: writer}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: 'hand over (?P<task>.+)'}
          call: {tool: delegate, input: {agent: writer, instruction: "{task}"}}
        - when: {user: 'put (?P<path>\\S+) (?P<text>\\S+)'}
          call: {tool: write_file, input: {file_path: "{path}", content: "{text}\\n"}}
        - when: {user: 'swap (?P<path>\\S+) (?P<old>\\S+) (?P<new>\\S+)'}
          call: {tool: edit_file, input: {file_path: "{path}", old_string: "{old}", new_string: "{new}"}}
        - when: {tool: delegate}
          say: handed over
        - when: {tool: write_file}
          say: written
        - when: {tool: edit_file}
          say: edited
tools: [{module: tool-filesystem}, {module: tool-delegate}]
agents:
  writer: {description: Writes., instruction: Write.}
---
Write.
"""
Told = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.slow]


@pytest.fixture
def work(project: Path) -> Path:
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (project / "a.txt").write_text("old\n")
    (project / "a.txt").chmod(0o640)
    return project


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Run the command line; return its exit code, and what it said on stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err, err
        return code, out, err

    return run


def turns(told: Told, *prompts: str) -> str:
    """Run turns of one session, and return its id."""
    err = ""
    for number, prompt in enumerate(prompts):
        code, _, err = told("run", *(["--resume", "last"] if number else []), prompt)
        assert code == exits.OK, err
    found = re.search(r"session (\S+)", err)
    assert found is not None
    return found[1]


def files(told: Told, *arguments: str) -> tuple[int, list[tuple[str, str, list[int], bool]]]:
    code, out, _ = told("session", "undo", *arguments, "--json", "--yes")
    data = json.loads(out)["data"]
    return code, [(Path(f["path"]).name, f["action"], f["turns"], f["problem"] is not None) for f in data["files"]]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o755])
def test_an_undo_leaves_the_mode_that_a_file_has_got_meanwhile(work: Path, told: Told, mode: int) -> None:
    session = turns(told, "put a.txt one")
    (work / "a.txt").chmod(mode)
    for way, content in (("--yes", "old\n"), ("--redo", "one\n")):
        assert told("session", "undo", session, way, "--yes")[0] == exits.OK
        assert ((work / "a.txt").read_text(), stat.S_IMODE((work / "a.txt").stat().st_mode)) == (content, mode)


def test_an_undone_undo_of_a_new_file_gives_it_the_mode_that_it_had(work: Path, told: Told) -> None:
    session = turns(told, "put b.txt two")
    (work / "b.txt").chmod(0o600)
    for way in ("--yes", "--redo"):
        assert told("session", "undo", session, way, "--yes")[0] == exits.OK
    assert stat.S_IMODE((work / "b.txt").stat().st_mode) == 0o600


def test_the_last_turn_is_undone_with_its_difference_shown_and_the_mode_kept(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one", "put b.txt two", "swap a.txt one three")
    code, out, err = told("session", "undo", session, "--yes")
    assert (code, (work / "a.txt").read_text()) == (exits.OK, "one\n")
    shown = (
        f"restore {work}/a.txt (turn 3)\n  --- now\n  +++ restored\n  @@ -1 +1 @@\n  -three\n  +one\nrestored 1 file\n"
    )
    assert (out, f"amplifier session undo {session} --redo" in err) == (shown, True)
    assert told("session", "undo", session, "--yes")[0] == exits.OK
    assert not (work / "b.txt").exists()  # the session had created it
    told("session", "undo", session, "--yes")
    assert (work / "a.txt").read_text() == "old\n"
    assert stat.S_IMODE((work / "a.txt").stat().st_mode) == 0o640
    assert "There is nothing to undo." in told("session", "undo", session, "--yes")[1]


def test_all_turns_are_undone_at_once_and_each_undo_is_taken_back(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one", "put b.txt two", "put a.txt three")
    told("session", "undo", session, "--yes")
    assert files(told, session, "--all") == (
        exits.OK,
        [("a.txt", "restore", [1], False), ("b.txt", "delete", [2], False)],
    )
    assert ((work / "a.txt").read_text(), (work / "b.txt").exists()) == ("old\n", False)
    told("session", "undo", session, "--redo", "--yes")
    assert ((work / "a.txt").read_text(), (work / "b.txt").read_text()) == ("one\n", "two\n")
    told("session", "undo", session, "--redo", "--yes")
    assert (work / "a.txt").read_text() == "three\n"
    assert "There is no undo to take back." in told("session", "undo", session, "--redo", "--yes")[1]
    assert files(told, session, "--all")[1] == [("a.txt", "restore", [1, 3], False), ("b.txt", "delete", [2], False)]


def test_one_turn_alone_is_undone_unless_a_later_one_changed_the_same_file(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one", "put b.txt two", "put a.txt three")
    assert files(told, session, "--turn", "2")[1] == [("b.txt", "delete", [2], False)]
    code, _, err = told("session", "undo", session, "--turn", "1", "--yes")
    assert (code, (work / "a.txt").read_text()) == (exits.CONFLICT, "three\n")
    assert "a later turn changed it again; undo that first" in err


def test_a_file_that_somebody_else_changed_stays_and_so_do_all_others_without_force(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one", "put b.txt two")
    (work / "a.txt").write_text("mine\n")
    code, _, err = told("session", "undo", session, "--all", "--yes")
    assert code == exits.CONFLICT and f"{work}/a.txt: somebody else, a command or a hook" in err
    assert ((work / "a.txt").read_text(), (work / "b.txt").read_text()) == ("mine\n", "two\n")
    assert told("session", "undo", session, "--all", "--force", "--yes")[0] == exits.OK
    assert ((work / "a.txt").read_text(), (work / "b.txt").exists()) == ("old\n", False)
    told("session", "undo", session, "--redo", "--yes")
    assert (work / "a.txt").read_text() == "mine\n"  # what the force replaced


def test_a_change_of_somebody_else_between_two_turns_is_seen(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one")
    (work / "a.txt").write_text("mine\n")
    told("run", "--resume", session, "put a.txt two")
    told("session", "undo", session, "--yes")
    assert (work / "a.txt").read_text() == "mine\n"
    assert told("session", "undo", session, "--yes")[0] == exits.CONFLICT


def test_a_dry_run_and_a_missing_terminal_restore_nothing(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one")
    assert told("session", "undo", session, "--dry-run")[0] == exits.OK
    code, _, err = told("session", "undo", session)
    assert (code, "use --yes" in err, (work / "a.txt").read_text()) == (exits.USAGE, True, "one\n")


def test_a_fork_undoes_its_own_changes_and_a_parent_those_of_its_children_when_told(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one")
    told("run", "--fork", session, "put b.txt two")
    code, _, _ = told("session", "undo", "last", "--all", "--yes")
    assert (code, (work / "a.txt").read_text(), (work / "b.txt").exists()) == (exits.OK, "one\n", False)

    parent = turns(told, "hand over put c.txt three")
    assert (work / "c.txt").exists()
    assert "There is nothing to undo." in told("session", "undo", parent, "--yes")[1]
    assert told("session", "undo", parent, "--descendants", "--yes")[0] == exits.OK
    assert not (work / "c.txt").exists()
    told("session", "undo", parent, "--descendants", "--redo", "--yes")
    assert (work / "c.txt").read_text() == "three\n"


def test_a_file_that_cannot_be_written_is_named_and_the_rest_is_undone_later(work: Path, told: Told) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "b.txt").write_text("old\n")
    session = turns(told, "put a.txt one", "put sub/b.txt two")
    (work / "sub").rename(work / "moved")
    (work / "sub").write_text("a file in place of the folder")
    code, out, err = told("session", "undo", session, "--all", "--force", "--yes")
    assert (code, (work / "a.txt").read_text(), "restored 1" in out) == (exits.CONFLICT, "old\n", False)
    assert f"1 of 2 files restored. {work}/sub/b.txt: File exists. Mend that" in err
    (work / "sub").unlink()
    (work / "moved").rename(work / "sub")
    assert files(told, session, "--all") == (exits.OK, [("b.txt", "restore", [2], False)])
    assert (work / "sub" / "b.txt").read_text() == "old\n"


def test_an_undo_that_another_one_has_overtaken_changes_nothing(work: Path, told: Told) -> None:
    session = turns(told, "put a.txt one")
    [chain] = read_chains([session])
    step = plan_undo(chain, {each.id for each in chain.changes})
    assert step is not None
    restore([step], session)
    with pytest.raises(SessionConflict, match="it has just been changed by somebody else"):
        restore([step], session)
    assert len(read_changes(session)) == 2
    told("session", "undo", session, "--redo", "--yes")
    assert (work / "a.txt").read_text() == "one\n"


def test_thousands_of_changes_of_one_file_are_compared_one_by_one_and_not_each_with_all(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "undo" / "long"
    folder.mkdir(parents=True)
    lines = [
        {"id": f"{n}", "path": f"{project}/a.txt", "before": f"{n}", "after": f"{n + 1}", "time": f"{n:05}"}
        for n in range(2000)
    ]
    (folder / "changes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    compared = 0

    def compare(self: FileChange, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    monkeypatch.setattr(FileChange, "__eq__", compare)
    [chain] = read_chains(["long"])
    assert (len(chain.changes), chain.gap, compared) == (2000, 2000, 0)


def test_a_link_in_place_of_the_file_is_not_followed(work: Path, told: Told, tmp_path: Path) -> None:
    session = turns(told, "put a.txt one")
    (tmp_path / "elsewhere").write_text("one\n")
    (work / "a.txt").unlink()
    (work / "a.txt").symlink_to(tmp_path / "elsewhere")
    code, _, err = told("session", "undo", session, "--force", "--yes")
    assert code == exits.CONFLICT
    assert err.endswith("a.txt: it cannot be read: it is a link now. Move it away\n")
    assert (tmp_path / "elsewhere").read_text() == "one\n"


def test_what_is_kept_is_private_and_goes_with_its_session_and_over_its_bound(
    work: Path, home: Path, told: Told
) -> None:
    (work / "server.pem").write_text("TOKEN=before\n")
    session = turns(told, "put a.txt one", "put server.pem new")
    kept = home / "undo" / session
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in kept.iterdir()} == {0o600}
    assert len(list(kept.iterdir())) == 2  # one content: that of server.pem is no secret of ours to keep
    assert (work / "server.pem").read_text() == "new\n"
    code, _, err = told("session", "undo", session, "--yes")
    assert code == exits.CONFLICT and "its name says that it holds secrets" in err
    bound_contents(0)
    assert "is no longer kept" in told("session", "undo", session, "--turn", "1", "--yes")[2]
    told("session", "delete", session, "--yes")
    assert not kept.exists()


def test_without_room_for_contents_nothing_is_kept_and_the_session_writes_on(
    work: Path, home: Path, told: Told
) -> None:
    told("config", "set", "retention.undo", "0", "--scope", "user")
    session = turns(told, "put a.txt one")
    assert ((work / "a.txt").read_text(), (home / "undo").exists()) == ("one\n", False)
    assert "There is nothing to undo." in told("session", "undo", session, "--yes")[1]


def test_the_bound_of_a_project_takes_nothing_from_the_sessions_of_others(work: Path, told: Told) -> None:
    (work / "a.txt").write_text("before\n")
    session = turns(told, "put a.txt one")
    told("config", "set", "retention.undo", "1", "--scope", "project")
    turns(told, "put b.txt one", "put b.txt two")
    assert told("session", "undo", session, "--yes")[0] == exits.OK
    assert (work / "a.txt").read_text() == "before\n"


KILLED = """
import os, sys
from amplifier_foundation.cli import main
import amplifier_tool_filesystem.actions as actions

def die(*args):
    os.kill(os.getpid(), 9)

if sys.argv.pop(1) == "before":
    actions.write_file = die
else:
    write = actions.write_file
    actions.write_file = lambda *args: write(*args) is die()
main()
"""


@pytest.mark.parametrize(("moment", "left"), [("before", "old\n"), ("after", "one\n")])
def test_a_kill_around_the_write_leaves_a_file_that_can_be_undone(
    work: Path, home: Path, told: Told, moment: str, left: str
) -> None:
    program = [sys.executable, "-c", KILLED, moment, "run", "--name", "killed", "put a.txt one"]
    assert subprocess.run(program, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert (work / "a.txt").read_text() == left
    [session] = [each.name for each in (home / "undo").iterdir()]
    [change] = read_changes(session)
    assert change.before is not None and read_content(session, change.before) == b"old\n"
    code, done = files(told, session)
    assert (code, len(done)) == (exits.OK, int(moment == "after"))
    assert (work / "a.txt").read_text() == "old\n"


def test_a_line_that_a_kill_has_cut_is_left_out_and_the_next_one_is_whole(work: Path, home: Path, told: Told) -> None:
    session = turns(told, "put a.txt one")
    with (home / "undo" / session / "changes.jsonl").open("a") as journal:
        journal.write('{"id": "x", "path": "/a')
    turns(told, "put z.txt z")  # another session
    told("run", "--resume", session, "put a.txt two")
    assert [Path(each.path).name for each in read_changes(session)] == ["a.txt", "a.txt"]
    assert files(told, session, "--all")[1] == [("a.txt", "restore", [1, 2], False)]


def test_lines_that_a_power_cut_has_lost_are_told_and_the_others_can_be_undone(
    work: Path, home: Path, told: Told
) -> None:
    session = turns(told, "put a.txt one", "put z.txt z")
    journal = home / "undo" / session / "changes.jsonl"
    first, last = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first + bytes(len(last)))
    code, out, err = told("session", "undo", session, "--all", "--yes")
    assert (code, "restored 1 file" in out, (work / "a.txt").read_text()) == (exits.FAILED, True, "old\n")
    assert f"amplifier: 1 line of {journal} cannot be read, as after a power cut: " in err
    journal.write_bytes(bytes(len(first)))
    code, out, _ = told("session", "undo", session)
    assert (code, out) == (exits.FAILED, "There is nothing to undo in what can be read.\n")
    assert json.loads(told("session", "undo", session, "--json")[1])["data"]["unreadable"] == 1
    journal.unlink()
    assert told("session", "undo", session)[:2] == (exits.OK, "There is nothing to undo.\n")
    journal.mkdir()
    code, _, err = told("session", "undo", session)
    assert (code, f"amplifier: {journal}: cannot be used (Is a directory)." in err) == (exits.TRY_AGAIN, True)


def test_large_and_binary_contents_come_back_as_they_were(work: Path, told: Told) -> None:
    data = os.urandom(3_000_000)
    (work / "a.txt").write_bytes(data)
    session = turns(told, "put a.txt one")
    code, out, _ = told("session", "undo", session, "--yes")
    assert (code, "(not text, or too large to compare)" in out) == (exits.OK, True)
    assert (work / "a.txt").read_bytes() == data


def test_changes_in_a_sandbox_are_undone_too(work: Path, told: Told) -> None:
    from tests.programs import require

    require("bwrap")
    (work / "bundle.md").write_text(
        BUNDLE.replace("{module: tool-filesystem}", "{module: tool-filesystem, sandbox: true}")
    )
    session = turns(told, "put a.txt one")
    assert (work / "a.txt").read_text() == "one\n"
    assert told("session", "undo", session, "--yes")[0] == exits.OK
    assert (work / "a.txt").read_text() == "old\n"
