"""The ends of worktrees besides success: retries, dead letters, replaced and deleted sessions, hostile ones."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_foundation.background import git as git_module
from amplifier_foundation.background.worktree_steps import release_worktrees
from amplifier_foundation.background.worktrees import read_worktree
from tests.programs import require

from .repositories import Repository, Worker

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    return Repository.make(tmp_path, monkeypatch)


@pytest.fixture
def worker(repository: Repository, store: DurableStore, plugins: Plugins) -> Worker:
    return Worker(repository, store, plugins)


def assert_nothing_is_left(repository: Repository, home: Path, *branches: str) -> None:
    """Assert that there are these branches beside main, and no worktree."""
    assert sorted(repository.branches) == sorted([*branches, "main"])
    assert repository.is_clean()
    assert [each.name for each in (home / "worktrees").iterdir()] == []


def clear(folder: Path) -> None:
    """Remove everything in a folder."""
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


async def test_a_retry_goes_on_in_the_worktree_and_a_dead_letter_leaves_its_work_on_the_branch(
    repository: Repository, worker: Worker, home: Path
) -> None:
    code = (
        "run import pathlib\nlog = pathlib.Path(folder, 'log.txt')\n"
        "log.write_text((log.read_text() if log.exists() else '') + 'again ')"
    )
    fails = {"when": {"tool": "code"}, "say": "{unknown}"}
    asks = {"when": {"user": r"run (?P<code>[\s\S]*)"}, "call": {"tool": "code", "input": {"code": "{code}"}}}
    [delivery] = await worker.handle(code, max_attempts=3, model={"rules": [asks, fails]})
    assert delivery.state == "dead"
    branch = f"amplifier/{delivery.session_id}"
    assert_nothing_is_left(repository, home, branch)
    assert repository.show(branch, "log.txt") == "again"
    assert repository.git("log", "-1", "--format=%s", branch) == "unfinished: Task 1"
    [end] = await worker.ends()
    assert (end["status"], end["branch"], end["merged"]) == ("failed", branch, False)


@pytest.mark.parametrize("looks", [False, True])
async def test_a_dead_letter_that_is_delivered_again_goes_on_with_its_branch(
    repository: Repository, worker: Worker, home: Path, looks: bool
) -> None:
    asks = {"when": {"user": "hold"}, "call": {"tool": "write_file", "input": {"file_path": "b.txt", "content": "x"}}}
    fails = {"when": {"tool": "write_file"}, "say": "{unknown}"}
    [delivery] = await worker.handle("hold b.txt x", max_attempts=1, model={"rules": [asks, fails]})
    branch = f"amplifier/{delivery.session_id}"
    assert (delivery.state, repository.branches) == ("dead", [branch, "main"])
    if looks:
        repository.git("worktree", "add", "--quiet", "../look", branch)
    await worker.store.redeliver(delivery.delivery_id, now=datetime.now(UTC))
    [delivery] = await worker.handle()
    assert delivery.state == "done", delivery.reason
    assert repository.read("b.txt") == "x"
    [_, end] = await worker.ends()
    assert (end["merged"], end["branch"]) == (True, f"{branch}-2" if looks else branch)
    assert repository.branches == ([branch, "main"] if looks else ["main"])


async def test_a_replaced_session_leaves_its_work_on_its_branch(
    repository: Repository, worker: Worker, home: Path
) -> None:
    worker.hold.touch()
    async with worker.run(worktree="merge", mode="restart") as up:
        await up.manager.fire("coder", {"task": "hold first.txt x", "title": "First"})
        await worker.wait_for(lambda: list(home.glob("worktrees/*/first.txt")))
        await up.manager.fire("coder", {"task": "write b.txt hello", "title": "Second"})
        await worker.drain(up)
    first, second = await worker.deliveries()
    assert (first.state, second.state) == ("skipped", "done")
    branch = f"amplifier/{first.session_id}"
    assert_nothing_is_left(repository, home, branch)
    assert repository.show(branch, "first.txt") == "x"
    assert repository.read("b.txt") == "hello\n"


async def test_leftovers_are_committed_and_removed_at_the_next_start(
    repository: Repository, worker: Worker, home: Path
) -> None:
    delivery = await worker.leave_unfinished("b.txt", "hello")
    worktree = read_worktree(str(delivery.session_id))
    assert worktree is not None
    assert Path(worktree.path, "b.txt").read_text() == "hello\n"
    await worker.store.drop(delivery.delivery_id, reason="by hand")
    await worker.handle(worktree="merge")
    branch = f"amplifier/{delivery.session_id}"
    assert_nothing_is_left(repository, home, branch)
    assert repository.show(branch, "b.txt") == "hello"
    assert repository.git("log", "-1", "--format=%s", branch) == f"unfinished: session {delivery.session_id}"


@pytest.mark.parametrize("runs", [True, False])
async def test_a_session_whose_worktree_and_note_were_removed_has_failed_and_git_forgets_it(
    repository: Repository, worker: Worker, home: Path, runs: bool
) -> None:
    tip = repository.git("rev-parse", "HEAD")
    if runs:
        worker.hold.touch()
        async with worker.run(worktree="merge") as up:
            await up.manager.fire("coder", {"task": "hold b.txt hello"})
            await worker.wait_for(lambda: list(home.glob("worktrees/*/b.txt")))
            clear(home / "worktrees")
            worker.hold.unlink()
            await worker.drain(up)
    else:
        await worker.leave_unfinished("b.txt", "hello")
        clear(home / "worktrees")
        await worker.handle()
    [delivery] = await worker.deliveries()
    assert (delivery.state, "was removed, with the work of its session" in str(delivery.reason)) == ("dead", True)
    assert_nothing_is_left(repository, home)
    assert repository.git("rev-parse", "HEAD") == tip
    if runs:
        assert (await worker.store.get(str(delivery.session_id))).status == "failed"


async def test_a_session_whose_note_alone_was_removed_loses_nothing(
    repository: Repository, worker: Worker, home: Path
) -> None:
    worker.hold.touch()
    async with worker.run(worktree="merge") as up:
        await up.manager.fire("coder", {"task": "hold b.txt hello"})
        await worker.wait_for(lambda: list(home.glob("worktrees/*/b.txt")))
        for note in (home / "worktrees").glob("*.json"):
            note.unlink()
        worker.hold.unlink()
        await worker.drain(up)
    assert_nothing_is_left(repository, home)
    assert repository.read("b.txt") == "hello\n"


async def test_the_version_before_reads_a_note_and_members_of_a_later_one_are_left_out(
    repository: Repository, worker: Worker, home: Path
) -> None:
    known = "session_id project top repository common prefix branch base is_ready commit result"
    delivery = await worker.leave_unfinished("b.txt", "hello")
    worktree = read_worktree(str(delivery.session_id))
    assert worktree is not None
    worktree.commit_changes("work")
    result = worktree.settle()
    [note] = (home / "worktrees").glob("*.json")
    stored = json.loads(note.read_text())
    assert stored.keys() == set(known.split())
    assert stored["result"].keys() == {"branch", "commit", "merged", "conflicts", "reason"}
    note.write_text(json.dumps({**stored, "later": 1, "result": {**stored["result"], "later": 1}}))
    worktree = read_worktree(str(delivery.session_id))
    assert worktree is not None and worktree.result == result


async def test_a_start_sweeps_half_written_notes_that_are_old(worker: Worker, home: Path) -> None:
    torn, fresh = (home / "worktrees" / f".new-{name}" for name in ("torn", "fresh"))
    torn.parent.mkdir(parents=True)
    for path in (torn, fresh):
        path.write_text("{")
    os.utime(torn, (0, 0))
    await worker.handle(worktree="branch")
    assert (torn.exists(), fresh.exists()) == (False, True)


async def test_the_worktree_of_a_waiting_delivery_is_no_leftover(
    repository: Repository, worker: Worker, home: Path
) -> None:
    await worker.leave_unfinished("b.txt", "hello")
    [delivery] = await worker.handle(worktree="merge")
    assert delivery.state == "done", delivery.reason
    assert_nothing_is_left(repository, home)
    assert repository.read("b.txt") == "hello\n"


async def test_a_deleted_session_leaves_no_worktree(repository: Repository, worker: Worker, home: Path) -> None:
    delivery = await worker.leave_unfinished("b.txt", "hello")
    await release_worktrees([str(delivery.session_id), "unknown"])
    branch = f"amplifier/{delivery.session_id}"
    assert_nothing_is_left(repository, home, branch)
    assert repository.show(branch, "b.txt") == "hello"


PLANTS = {
    "a file .git that leads elsewhere": """
import pathlib
evil = pathlib.Path(folder, 'evil')
git('init', '-q', str(evil))
git('-C', str(evil), 'config', 'core.fsmonitor', f'touch {mark}; false')
git('-C', str(evil), 'config', 'filter.x.clean', f'touch {mark}; cat')
pathlib.Path(folder, '.gitattributes').write_text('* filter=x\\n')
pathlib.Path(folder, '.git').unlink()
pathlib.Path(folder, '.git').write_text(f'gitdir: {evil}/.git\\n')
""",
    "a folder .git": """
import pathlib
pathlib.Path(folder, '.git').unlink()
git('init', '-q', folder)
git('-C', folder, 'config', 'core.fsmonitor', f'touch {mark}; false')
""",
    "no .git": """
import pathlib
pathlib.Path(folder, '.git').unlink()
""",
    "a nested repository with a monitor": """
import pathlib
inner = pathlib.Path(folder, 'inner')
git('init', '-q', str(inner))
(inner / 'file.txt').write_text('inner')
git('-C', str(inner), 'add', '.')
who = ['-c', 'user.name=x', '-c', 'user.email=x@y']
git('-C', str(inner), *who, 'commit', '-qm', 'x')
git('-C', str(inner), 'config', 'core.fsmonitor', f'touch {mark}; false')
""",
    "a bare repository": """
import pathlib
bare = pathlib.Path(folder, 'bare')
git('init', '-q', '--bare', str(bare))
git('-C', str(bare), 'config', 'core.fsmonitor', f'touch {mark}; false')
""",
    "links": """
import os, pathlib
os.symlink(elsewhere, pathlib.Path(folder, 'link'))
os.symlink('/etc', pathlib.Path(folder, 'etc'))
""",
    "closed folders": """
import os, pathlib
closed = pathlib.Path(folder, 'closed')
closed.mkdir()
(closed / 'file.txt').write_text('x')
closed.chmod(0)
""",
    "names that no repository may have": """
import pathlib
odd = pathlib.Path(folder, 'git~1')
odd.mkdir()
(odd / 'config').write_text('x')
""",
    "a program called git": """
import pathlib
program = pathlib.Path(folder, 'git')
program.write_text(f'#!/bin/sh\\ntouch {mark}\\n')
program.chmod(0o755)
""",
    "attributes of a filter that nobody has set": """
import pathlib
pathlib.Path(folder, '.gitattributes').write_text(f'* filter=touch diff=x merge=x\\n')
""",
}

GUARDED = {"a file .git that leads elsewhere", "links", "attributes of a filter that nobody has set"}
"""What brings files that git obeys, or links out of the project: it is not merged."""


@pytest.mark.parametrize("plant", PLANTS)
async def test_nothing_that_a_session_plants_makes_git_run_or_write_elsewhere(
    repository: Repository, worker: Worker, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    hooks = repository.top / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    mark, elsewhere = tmp_path / "mark", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for hook in ("pre-commit", "post-checkout", "post-merge", "pre-merge-commit", "reference-transaction"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / hook).chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_DIR", str(elsewhere))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {mark}")
    names = f"mark, elsewhere = {str(mark)!r}, {str(elsewhere)!r}\n"
    clean = (
        "import os, subprocess\nplain = {name: value for name, value in os.environ.items() if name != 'GIT_DIR'}\n"
        "def git(*arguments): subprocess.run(['git', *map(str, arguments)], check=True, env=plain)\n"
    )
    keep = "import pathlib\npathlib.Path(folder, 'kept.txt').write_text('kept')\n"
    [delivery] = await worker.handle(f"run {clean}{names}{PLANTS[plant]}{keep}")
    monkeypatch.delenv("GIT_DIR")
    assert delivery.state == "done", delivery.reason
    [end] = await worker.ends()
    assert end["merged"] is (plant not in GUARDED)
    assert not mark.exists()
    assert list(elsewhere.iterdir()) == []
    work = end["branch"] if plant in GUARDED else "HEAD"
    kept = repository.show(work, "kept.txt") if plant in GUARDED else repository.read("kept.txt")
    assert kept == "kept"
    assert [each.name for each in (home / "worktrees").iterdir()] == []
    assert "160000" not in repository.git("ls-tree", "-r", work)
    if "nested" in plant:
        assert repository.show("HEAD", "inner/file.txt") == "inner"
        assert "Without its own history: inner" in repository.git("log", "-1", "--format=%b", "HEAD^2")
    if "no repository may have" in plant:
        assert "Left out: git~1/config" in repository.git("log", "-1", "--format=%b", "HEAD^2")


async def test_a_submodule_stays_as_it_is_and_files_in_it_are_named(
    repository: Repository, worker: Worker, tmp_path: Path
) -> None:
    inner = Repository(tmp_path / "inner", tmp_path / "inner")
    inner.git("init", "--quiet")
    inner.write("x.txt", "x")
    commit = inner.commit()
    allow = ("-c", "protocol.file.allow=always")
    repository.git(*allow, "submodule", "--quiet", "add", str(inner.top), "vendor")
    repository.commit()
    code = "run import pathlib\nfor each in ('vendor/y.txt', 'z.txt'): pathlib.Path(folder, each).write_text('y')"
    await worker.handle(code)
    assert repository.git("ls-tree", "HEAD", "vendor").split()[:3] == ["160000", "commit", commit]
    assert repository.read("z.txt") == "y"
    assert "Left out: vendor" in repository.git("log", "-1", "--format=%b", "HEAD^2")
    [end] = await worker.ends()
    assert (end["merged"], end["left_out"]) == (True, ["vendor"])


async def test_work_that_git_keeps_nothing_of_is_named(repository: Repository, worker: Worker, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner", tmp_path / "inner")
    inner.git("init", "--quiet")
    inner.write("x.txt", "x")
    inner.commit()
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.top), "vendor")
    repository.write(".gitignore", "gen/\n*.log\n")
    repository.commit()
    code = (
        "run import pathlib\nfor each in ({}):\n    path = pathlib.Path(folder, each)\n"
        "    path.parent.mkdir(exist_ok=True)\n    path.touch()"
    )
    files = ("'vendor/y.txt',", "'gen/a.txt', 'gen/b.txt', 'c.log'", "'kept.txt', 'c.log'")
    await worker.handle(*(code.format(each) for each in files))
    assert [end["left_out"] for end in await worker.ends()] == [["vendor"], [], []]
    told = [each.facts["worktree"] for each in worker.activities if each.kind == "completed"]
    assert told[:2] == ["not kept by git: vendor", ""]
    assert told[2].startswith("merged amplifier/")
    [told] = [each.facts["text"] for each in worker.activities if each.kind == "unversioned"]
    assert told.partition(": ")[2] == "git ignores c.log, gen/, so they are not kept"


async def test_of_many_files_that_git_does_not_take_a_hundred_are_named_and_all_counted(
    repository: Repository, worker: Worker
) -> None:
    code = (
        "run import pathlib\nodd = pathlib.Path(folder, 'git~1')\nodd.mkdir()\n"
        "for each in range(200):\n    (odd / f'{each}.o').touch()"
    )
    [delivery] = await worker.handle(code)
    [end] = await worker.ends()
    assert (len(end["left_out"]), end["left_out_count"]) == (100, 200)
    assert (await worker.store.get(str(delivery.session_id))).metadata["worktree"]["left_out"] == end["left_out"]
    [told] = [each.facts["worktree"] for each in worker.activities if each.kind == "completed"]
    assert told.endswith(", git~1/101.o and 195 more")


async def test_a_git_that_hangs_stops_its_session_alone(
    repository: Repository, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, folder = require("git"), tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\ncase "$* $GIT_WORK_TREE" in *commit-tree*) cat >{tmp_path}/message;'
        f' if grep -q slow.txt {tmp_path}/message; then sleep 600; fi; exec {real} "$@" <{tmp_path}/message;; esac\n'
        f'exec {real} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(git_module, "TIME_LIMIT", 3.0)
    slow, fast = await worker.handle("write slow.txt x", "write fast.txt x", max_attempts=1)
    assert (slow.state, fast.state) == ("dead", "done")
    assert slow.reason == "its worktree cannot be finished: git commit-tree took longer than 3 s, and was ended"
    assert repository.read("fast.txt") == "x\n"
    [error] = [each["error_type"] for each in await worker.ends() if each["status"] == "failed"]
    assert error == "GitError"


@pytest.mark.parametrize(
    "step",
    [
        "worktree add",
        "write-tree",
        "commit-tree",
        "merge-tree",
        "merge-base",
        "update-ref",
        "update-ref -d",
    ],
)
async def test_a_git_that_is_killed_says_nothing_about_the_repository(
    repository: Repository, worker: Worker, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What it was asked for is done by the next attempt."""
    real, folder, killed = require("git"), tmp_path / "bin", tmp_path / "killed"
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *"{step}"*) if [ ! -e {killed} ]; then touch {killed}; kill -9 $$; fi;; esac\n'
        f'exec {real} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    [delivery] = await worker.handle("write b.txt hello")
    assert (killed.exists(), delivery.state) == (True, "done"), delivery.reason
    assert repository.read("b.txt") == "hello\n"
    assert_nothing_is_left(repository, home)


async def test_without_git_the_start_says_what_to_install(
    repository: Repository, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(git_module.GitError, match="git is not installed. Install it: apt-get install git"):
        await worker.handle()


async def test_a_session_cannot_write_into_the_project_or_another_worktree(
    repository: Repository, worker: Worker, home: Path
) -> None:
    first = await worker.leave_unfinished("b.txt", "hello")
    other = home.resolve() / "worktrees" / str(first.session_id) / "b.txt"
    *_, one, two = await worker.handle(f"write {other} mine", f"write {repository.top}/a.txt mine")
    assert {one.state, two.state} <= {"done", "dead"}
    assert set(repository.git("log", "--format=%s", "--no-merges").splitlines()) == {"Wrote b.txt", "first"}
    assert repository.read("a.txt") == "one\ntwo\nthree\n"
    assert repository.read("b.txt") == "hello\n"


async def test_a_merged_file_does_not_wake_its_own_session(repository: Repository, worker: Worker) -> None:
    trigger = {"type": "file_change", "config": {"patterns": ["*.txt"]}}
    async with worker.run(worktree="merge", triggers=[trigger], instruction_template="write out.txt again") as up:
        repository.write("in.txt", "x\n")
        await worker.wait_for((repository.project / "out.txt").exists)
        await worker.drain(up)
    done = [each.event.file_path for each in await worker.deliveries() if each.state == "done"]
    assert set(done) <= {"a.txt", "in.txt"}


async def test_in_the_sandbox_a_session_writes_its_worktree_alone_and_git_reads(
    repository: Repository, worker: Worker, home: Path
) -> None:
    require("bwrap")
    other = await worker.leave_unfinished("b.txt", "hello")
    foreign = home.resolve() / "worktrees" / str(other.session_id) / "b.txt"
    (home / "settings.yaml").write_text("permissions: {allow: [bash]}\n")
    targets = (repository.top / "a.txt", repository.top / ".git" / "config", foreign)
    repository.write(
        "try.py",
        f"for path in {list(map(str, targets))!r}:\n    try:\n        open(path, 'a').write('evil')\n"
        "    except OSError:\n        print('refused')\n",
    )
    repository.commit()
    command = "echo mine >a.txt; git status --short >status.txt; git diff >diff.txt; python3 try.py >refused.txt"
    rules = [
        {"when": {"user": "shell"}, "call": {"tool": "bash", "input": {"command": command}}},
        {"when": {"tool": "bash"}, "say": "Ran it"},
        {"when": {"tool": "hold"}, "say": "Wrote it"},
    ]
    tools = [{"module": "tool-bash"}]
    *_, delivery = await worker.handle("shell", model={"rules": rules}, tools=tools)
    assert delivery.state == "done", delivery.reason
    assert repository.read("a.txt") == "mine\n"
    assert repository.read("status.txt").splitlines()[0] == " M a.txt"
    assert "+mine" in repository.read("diff.txt")
    assert "evil" not in (repository.top / ".git" / "config").read_text()
    assert repository.read("b.txt") == "hello\n"
    assert "refused" in repository.read("refused.txt")
