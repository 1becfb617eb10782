"""Sessions in git worktrees of their own: real repositories, real git."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from amplifier_foundation.background.git import Git, GitError
from amplifier_foundation.background.worktree_merges import Merge
from tests.programs import require

from .repositories import Repository, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core import Delivery
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_foundation.background.worktree_merges import MayWrite

pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    return Repository.make(tmp_path, monkeypatch)


@pytest.fixture
def worker(repository: Repository, store: DurableStore, plugins: Plugins) -> Worker:
    return Worker(repository, store, plugins)


PREPARE = """
import os
def place(name):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path
def write(name):
    with open(place(name), 'w') as file:
        file.write('x')
def link(name, target):
    os.symlink(target, place(name))
"""
"""Functions for code that writes what a guard of tools does not see."""


def sessions_of(deliveries: list[Delivery]) -> list[str]:
    """Return the default branches of deliveries."""
    return [f"amplifier/{each.session_id}" for each in deliveries]


async def test_a_session_works_in_its_worktree_and_its_commit_is_merged(
    repository: Repository, worker: Worker, home: Path
) -> None:
    [delivery] = await worker.handle("write new.txt hello")
    assert delivery.state == "done", delivery.reason
    assert repository.read("new.txt") == "hello\n"
    assert (repository.branches, repository.is_clean()) == (["main"], True)
    assert list((home / "worktrees").iterdir()) == []
    merge = repository.git("log", "-1", "--format=%P|%s|%(trailers:key=Amplifier-Session,valueonly)")
    assert merge.count(" ") >= 1
    log = repository.git("log", "--format=%an <%ae> %s", "HEAD^2", "-1")
    assert log == "amplifier <amplifier@localhost> Wrote new.txt"
    record = await worker.store.get(str(delivery.session_id))
    assert record.project == str(repository.project)
    assert record.metadata["worktree"]["branch"] == f"amplifier/{delivery.session_id}"
    [end] = await worker.ends()
    assert (end["branch"], end["merged"], end["conflicts"]) == (f"amplifier/{delivery.session_id}", True, [])
    assert end["commit"] == repository.git("rev-parse", "HEAD^2")


async def test_parallel_sessions_on_one_file_lose_nothing(repository: Repository, worker: Worker) -> None:
    repository.write("list.txt", "".join(f"line {number}\n" for number in range(60)))
    repository.commit()
    edit = (
        "run import pathlib\npath = pathlib.Path(folder, 'list.txt')\n"
        "path.write_text(path.read_text().replace('line {0}\\n', 'line {0}: done\\n'))"
    )
    deliveries = await worker.handle(*(edit.format(10 * number) for number in range(6)), pool_size=3)
    assert {each.state for each in deliveries} == {"done"}
    assert [line for line in repository.read("list.txt").splitlines() if line.endswith("done")] == [
        f"line {10 * number}: done" for number in range(6)
    ]
    assert (repository.branches, repository.is_clean()) == (["main"], True)
    assert all(end["merged"] for end in await worker.ends())


async def test_a_conflict_leaves_the_branch_and_the_project_untouched(
    repository: Repository, worker: Worker, home: Path
) -> None:
    worker.hold.touch()
    async with worker.run(worktree={"branch": "issue-{data.id}", "finish": "merge"}) as up:
        await up.manager.fire("coder", {"id": 7, "task": "hold a.txt mine"})
        await worker.wait_for(lambda: "mine\n" in [each.read_text() for each in home.glob("worktrees/*/a.txt")])
        repository.write("a.txt", "yours\n")
        head = repository.commit()
        worker.hold.unlink()
        await worker.drain(up)
    [end] = await worker.ends()
    assert (end["branch"], end["conflicts"], end["merged"]) == ("issue-7", ["a.txt"], False)
    assert (repository.branches, repository.git("rev-parse", "HEAD")) == (["issue-7", "main"], head)
    assert (repository.is_clean(), repository.read("a.txt")) == (True, "yours\n")
    assert repository.show("issue-7", "a.txt") == "mine"
    assert end["commit"] == repository.git("rev-parse", "issue-7")
    [told] = [each.facts["worktree"] for each in worker.activities if each.kind == "completed"]
    assert told == "left branch issue-7: conflicts in a.txt"


@pytest.mark.parametrize("checks_out", ["an older branch", "a newer branch"])
async def test_a_merge_brings_the_work_of_the_session_and_nothing_else_of_the_branch_it_began_on(
    repository: Repository, worker: Worker, home: Path, checks_out: str
) -> None:
    repository.git("branch", "release")
    repository.write("unreleased.txt", "secret\n")
    base = repository.commit("unreleased")
    worker.hold.touch()
    async with worker.run(worktree={"branch": "issue-7", "finish": "merge"}) as up:
        await up.manager.fire("coder", {"task": "hold b.txt mine"})
        await worker.wait_for(lambda: list(home.glob("worktrees/*/b.txt")))
        if checks_out == "a newer branch":
            repository.git("branch", "--force", "release")
        repository.git("checkout", "--quiet", "release")
        head = repository.git("rev-parse", "HEAD")
        worker.hold.unlink()
        await worker.drain(up)
    [told] = [each.facts["worktree"] for each in worker.activities if each.kind == "completed"]
    if checks_out == "a newer branch":
        assert (told, repository.read("b.txt"), repository.branches) == (
            "merged issue-7",
            "mine\n",
            ["main", "release"],
        )
    else:
        assert (repository.git("rev-parse", "HEAD"), repository.is_clean()) == (head, True)
        began = f"does not have the commit {base[:12]} that the work began with"
        assert told == f"left branch issue-7: the branch release, checked out in the project, {began}"
        assert repository.show("issue-7", "b.txt") == "mine"


@pytest.mark.parametrize("rewrites", ["amend", "rebase"])
async def test_a_branch_that_was_rewritten_meanwhile_gets_the_work_and_not_what_it_has_dropped(
    repository: Repository, worker: Worker, home: Path, rewrites: str
) -> None:
    repository.git("branch", "upstream")
    repository.write("dropped.txt", "oops\n")
    repository.commit("with a mistake")
    worker.hold.touch()
    async with worker.run(worktree={"branch": "issue-7", "finish": "merge"}) as up:
        await up.manager.fire("coder", {"task": "hold b.txt mine", "title": "Task 7"})
        await worker.wait_for(lambda: list(home.glob("worktrees/*/b.txt")))
        repository.git("rm", "--quiet", "dropped.txt")
        repository.write("c.txt", "kept\n")
        repository.git("add", "--all")
        if rewrites == "amend":
            repository.git("commit", "--quiet", "--amend", "-m", "without it")
        else:
            repository.git("commit", "--quiet", "-m", "without it")
            repository.git("rebase", "--quiet", "--onto", "upstream", "HEAD~2", "main")
            repository.git("reset", "--quiet", "--soft", "upstream")
            repository.git("commit", "--quiet", "-m", "squashed")
        worker.hold.unlink()
        await worker.drain(up)
    [told] = [each.facts["worktree"] for each in worker.activities if each.kind == "completed"]
    assert (told, repository.read("b.txt"), repository.read("c.txt")) == ("merged issue-7", "mine\n", "kept\n")
    assert "with a mistake" not in repository.git("log", "--format=%s", "main")
    assert (repository.branches, repository.is_clean()) == (["main", "upstream"], True)


def test_the_work_that_a_rewritten_branch_has_got_before_a_kill_is_not_brought_twice(repository: Repository) -> None:
    repository.write("dropped.txt", "oops\n")
    base = repository.commit("with a mistake")
    repository.git("checkout", "--quiet", "-b", "issue-7")
    repository.write("b.txt", "mine\n")
    work = repository.commit("Work")
    repository.git("checkout", "--quiet", "main")
    repository.git("commit", "--quiet", "--amend", "-m", "better")
    merge = Merge(Git(str(repository.top / ".git"), str(repository.top)), "issue-7", base, work, "Merge")
    announced: list[str] = []
    for _ in range(2):
        merge.make(announced.extend)
    assert announced == [str(repository.top / "b.txt")]
    assert repository.git("log", "--format=%s").splitlines() == ["Work", "better", "first"]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("write('.envrc')", "it changes files that no session may write: .envrc"),
        ("write('.github/workflows/a.yml')", "it changes files that no session may write: .github/workflows/a.yml"),
        ("write('tools/check')", "it changes files that no session may write: tools/check"),
        ("write('db/new.sql')", "it changes files that no session may write: db/new.sql"),
        ("os.remove(place('.editorconfig'))", "it changes files that no session may write: .editorconfig"),
        ("link('etc', '/etc')", "it has links to what no session may write: etc"),
        ("link('sub/up', '../..')", "it has links to what no session may write: sub/up"),
        ("link('up', 'sub/../../x')", "it has links to what no session may write: up"),
        ("link('hooks', '.git/hooks')", "it has links to what no session may write: hooks"),
    ],
)
async def test_what_no_session_may_write_is_not_merged(
    repository: Repository, worker: Worker, home: Path, made: str, told: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "settings.yaml").write_text("permissions: {deny: ['write_file(db/**)']}\n")
    repository.git("config", "core.hooksPath", "tools")
    repository.write(".editorconfig", "root = true\n")
    before = repository.commit("settings")
    await worker.handle(f"run {PREPARE}{made}; write('b.txt')")
    [end] = await worker.ends()
    assert (end["merged"], end["conflicts"], repository.git("rev-parse", "main")) == (False, [], before)
    assert repository.show(end["branch"], "b.txt") == "x"
    [record] = [each for each in await worker.store.sessions() if each.session_id == end["session_id"]]
    assert record.metadata["worktree"]["reason"] == f"{told}. Look at the branch, and merge it yourself"


async def test_what_the_person_lets_sessions_write_and_links_within_the_project_are_merged(
    repository: Repository, worker: Worker, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "settings.yaml").write_text("permissions: {allow: ['write_file(.github/**)']}\n")
    made = "write('.github/workflows/a.yml'); link('sub/a', '../a.txt'); link('again', 'sub/a')"
    await worker.handle(f"run {PREPARE}{made}")
    [end] = await worker.ends()
    assert (end["merged"], repository.read("again")) == (True, repository.read("a.txt"))
    assert repository.read(".github/workflows/a.yml") == "x"


@pytest.mark.parametrize(("denied", "merged"), [("write_file", True), ("write_file(**)", False), ("*(b*)", False)])
async def test_a_rule_about_a_whole_tool_refuses_no_merge(
    repository: Repository, worker: Worker, home: Path, denied: str, merged: bool
) -> None:
    home.mkdir(mode=0o700)
    (home / "settings.yaml").write_text(f"permissions: {{deny: ['{denied}']}}\n")
    await worker.handle(f"run {PREPARE}write('b.txt')")
    [end] = await worker.ends()
    assert end["merged"] is merged


@pytest.mark.parametrize("may_write", [None, lambda name: True])
def test_a_commit_of_a_submodule_is_merged(repository: Repository, may_write: MayWrite | None) -> None:
    base = repository.git("rev-parse", "HEAD")
    repository.git("checkout", "--quiet", "-b", "issue-7")
    repository.write("b.txt", "mine\n")
    (repository.project / "sub").mkdir()
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},sub")
    work = repository.commit("Work")
    repository.git("checkout", "--quiet", "main")
    announced: list[str] = []
    merge = Merge(Git(str(repository.top / ".git"), str(repository.top)), "issue-7", base, work, "Merge", may_write)
    merge.make(announced.extend)
    assert announced == [str(repository.top / "b.txt")]
    assert repository.git("ls-tree", "main", "sub").startswith("160000")


def test_an_object_that_git_lacks_is_named(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "issue-7")
    repository.write("b.txt", "mine\n")
    work = repository.commit("Work")
    repository.git("checkout", "--quiet", "main")
    blob = repository.git("rev-parse", f"{work}:b.txt")
    (repository.top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    merge = Merge(
        Git(str(repository.top / ".git"), str(repository.top)),
        "issue-7",
        repository.git("rev-parse", "main"),
        work,
        "Merge",
    )
    with pytest.raises(GitError, match=f"{blob} is missing"):
        merge.make(dict)


async def test_a_branch_that_is_checked_out_in_the_middle_of_a_merge_gets_nothing_of_another(
    repository: Repository, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("branch", "release")
    head = repository.git("rev-parse", "release")
    repository.write("unreleased.txt", "secret\n")
    repository.commit("unreleased")
    real, folder = require("git"), tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *merge-tree*) {real} checkout --quiet release;; esac\nexec {real} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    await worker.handle("write b.txt hello", worktree={"branch": "issue-7", "finish": "merge"})
    assert (repository.git("rev-parse", "release"), repository.is_clean()) == (head, True)
    assert repository.show("issue-7", "b.txt") == "hello"
    [end] = await worker.ends()
    assert (end["branch"], end["merged"]) == ("issue-7", False)


async def test_the_branch_stays_where_that_is_the_end(repository: Repository, worker: Worker) -> None:
    before = repository.git("rev-parse", "HEAD")
    deliveries = await worker.handle("write b.txt hello", worktree="branch")
    [branch] = sessions_of(deliveries)
    assert repository.branches == [branch, "main"]
    assert repository.show(branch, "b.txt") == "hello"
    assert (repository.git("rev-parse", "HEAD"), repository.is_clean()) == (before, True)
    [end] = await worker.ends()
    assert (end["branch"], end["merged"]) == (branch, False)


async def test_without_a_change_there_is_neither_commit_nor_branch(repository: Repository, worker: Worker) -> None:
    before = repository.git("rev-parse", "HEAD")
    await worker.handle("look around")
    assert (repository.branches, repository.git("rev-parse", "HEAD")) == (["main"], before)
    assert repository.is_clean()
    [end] = await worker.ends()
    assert (end["branch"], end["commit"], end["merged"], end["conflicts"]) == (None, None, False, [])


@pytest.mark.parametrize("worktree", ["branch", "merge"])
async def test_where_there_is_no_repository_sessions_work_in_the_project(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins, worktree: str
) -> None:
    require("git")
    worker = Worker(Repository(tmp_path / "project", tmp_path / "project"), store, plugins)
    [delivery] = await worker.handle("write b.txt hello", worktree=worktree)
    assert delivery.state == "done", delivery.reason
    assert worker.repository.read("b.txt") == "hello\n"
    [told] = [each.facts["text"] for each in worker.activities if each.kind == "unversioned"]
    assert told == f"it is in no git repository: its sessions work in {worker.repository.project} itself"
    [end] = await worker.ends()
    assert "branch" not in end


async def test_before_the_first_commit_sessions_work_in_the_project(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins
) -> None:
    require("git")
    repository = Repository(tmp_path / "project", tmp_path / "project")
    repository.git("init", "--quiet", "-b", "main")
    worker = Worker(repository, store, plugins)
    [delivery] = await worker.handle("write b.txt hello")
    assert delivery.state == "done", delivery.reason
    assert (repository.read("b.txt"), repository.branches) == ("hello\n", [])


async def test_a_detached_head_gets_branches_and_no_merges(repository: Repository, worker: Worker) -> None:
    repository.git("checkout", "--quiet", "--detach")
    deliveries = await worker.handle("write b.txt hello")
    [branch] = sessions_of(deliveries)
    [end] = await worker.ends()
    assert (end["branch"], end["merged"]) == (branch, False)
    assert repository.show(branch, "b.txt") == "hello"
    [told] = [each.facts["worktree"] for each in worker.activities if each.kind == "completed"]
    assert told == f"left branch {branch}: no branch is checked out in the project"


async def test_a_project_in_a_subfolder_keeps_its_place(
    repository: Repository, store: DurableStore, plugins: Plugins, home: Path
) -> None:
    inner = Repository(repository.top, repository.top / "services" / "api")
    inner.write("main.txt", "start\n")
    inner.commit()
    worker = Worker(inner, store, plugins)
    code = "run import pathlib; pathlib.Path(folder, 'where.txt').write_text(folder)"
    [delivery] = await worker.handle(code)
    assert delivery.state == "done", delivery.reason
    folder = home.resolve() / "worktrees" / str(delivery.session_id) / "services" / "api"
    assert inner.read("where.txt") == str(folder)
    assert (await store.get(str(delivery.session_id))).project == str(inner.project)


async def test_uncommitted_changes_of_the_person_are_never_overwritten(repository: Repository, worker: Worker) -> None:
    repository.write("a.txt", "precious\n")
    repository.write("b.txt", "new and precious\n")
    await worker.handle("write a.txt mine", "write b.txt mine", "write c.txt mine")
    assert [(end["merged"], end["conflicts"]) for end in await worker.ends()] == [
        (False, ["a.txt"]),
        (False, ["b.txt"]),
        (True, []),
    ]
    assert [repository.read(name) for name in ("a.txt", "b.txt", "c.txt")] == [
        "precious\n",
        "new and precious\n",
        "mine\n",
    ]
    assert len(repository.branches) == 3
    assert repository.git("status", "--porcelain").split("\n") == ["M a.txt", "?? b.txt"]


@pytest.mark.parametrize(
    ("template", "taken", "branch"),
    [
        ("issue-{data.id}", ["issue-1"], "issue-1-2"),
        ("issue-{data.id}", ["issue-1", "Issue-1-2"], "issue-1-3"),
        ("work/{data.id}", ["work"], "work-1"),
        ("work", ["work/1"], "work-2"),
        ("{data.title}", [], "Task-1"),
        ("../.. {data.none}~^:?*[\\ .lock/.x/", [], "lock/x"),
        ("HEAD", [], "amplifier/HEAD"),
        ("main", [], "main-2"),
    ],
)
async def test_a_branch_gets_a_valid_name_of_its_own(
    repository: Repository, worker: Worker, template: str, taken: list[str], branch: str
) -> None:
    for each in taken:
        repository.git("branch", each)
    [delivery] = await worker.handle("write b.txt hello", worktree={"branch": template})
    assert delivery.state == "done", delivery.reason
    assert [end["branch"] for end in await worker.ends()] == [branch]
    assert set(repository.branches) == {*taken, "main", branch}


async def test_sessions_below_a_worker_belong_to_the_project_and_work_in_its_worktree(
    repository: Repository, worker: Worker
) -> None:
    delegate = {"tool": "delegate", "input": {"agent": "self", "instruction": "write"}}
    write = {"tool": "write_file", "input": {"file_path": "b.txt", "content": "below"}}
    rules = [
        {"when": {"user": "^delegate"}, "call": delegate},
        {"when": {"user": "^write"}, "call": write},
        {"when": {"tool": "write_file"}, "say": "Wrote it"},
        {"when": {"tool": "delegate"}, "say": "It wrote"},
    ]
    for runner in (None, "subprocess"):
        tools = [{"module": "tool-delegate"}]
        *_, delivery = await worker.handle("delegate it", tools=tools, model={"rules": rules}, runner=runner)
        assert delivery.state == "done", delivery.reason
        [below] = await worker.store.sessions(parent_id=str(delivery.session_id))
        assert below.project == str(repository.project)
        assert {event.project for event in await worker.store.events(limit=100)} == {str(repository.project)}
        assert repository.read("b.txt") == "below"
        repository.git("rm", "--quiet", "b.txt")
        repository.git("commit", "--quiet", "-m", "without it")
