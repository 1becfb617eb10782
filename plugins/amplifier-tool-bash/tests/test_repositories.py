"""Git that only reads runs no program of a repository unasked: each way is tried with the real git."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from amplifier_sandbox.repositories import runs_programs_to_read
from amplifier_tool_bash.commands.decoding import describe_command
from amplifier_tool_bash.commands.parsing import parse
from amplifier_tool_bash.commands.reading import find_read_paths
from tests.programs import require

READINGS = (
    "git status", "git diff", "git diff --stat HEAD~1", "git log -p", "git log --stat --oneline", "git show",
    "git show HEAD:f", "git blame f", "git grep x", "git describe --always --dirty", "git ls-files -m",
    "git branch -vv", "git remote -v", "git shortlog HEAD", "git stash list",
    "git cat-file -p HEAD:f", "git rev-list --all", "git tag",
    "git ls-tree -r HEAD", "git rev-parse HEAD", "git merge-base HEAD HEAD~1",
)  # fmt: skip
PLANTED = {
    "fsmonitor": "git config core.fsmonitor {run}",
    "a filter": "echo '* filter=x' >.gitattributes; git config filter.x.clean {run}",
    "a filter that stays": "echo '* filter=x' >.git/info/attributes; git config filter.x.process {run}",
    "textconv": "echo '* diff=x' >.gitattributes; git config diff.x.textconv {run}",
    "a driver of diffs": "echo '* diff=x' >.gitattributes; git config diff.x.command {run}",
    "diff.external": "git config diff.external {run}",
    "a hook": "cp {program} .git/hooks/post-index-change",
    "a hook elsewhere": "mkdir h; cp {program} h/post-index-change; git config core.hooksPath h",
    "settings that are included": "printf '[core]\\n\\tfsmonitor = {run}\\n' >c; git config include.path ../c",
    "settings of a worktree": (
        "git config extensions.worktreeConfig true; printf '[core]\\n\\tfsmonitor = {run}\\n' >.git/config.worktree"
    ),
    "a common folder": "cp -r .git c; git -C c config core.fsmonitor {run}; echo ../c >.git/commondir",
    "a pointer": "mv .git g; git --git-dir=g config core.fsmonitor {run}; echo 'gitdir: g' >.git",
    "a pointer with a blank": (
        "cp -r .git 'g '; mv .git g; git --git-dir='g ' config core.fsmonitor {run}; echo 'gitdir: g ' >.git"
    ),
    "a bare repository": "cp -r .git/. .; rm -r .git; git config core.bare false; git config core.fsmonitor {run};"
    " git config core.worktree $PWD",
    "a submodule": (
        "git init -q s; git -C s commit -q --allow-empty -m s; git add s 2>/dev/null; git commit -qm s; touch s/f;"
        "git -C s config core.fsmonitor {run}"
    ),
    "a line that only looks like a section": (
        "printf '[diff \"x\"]\\n# \\r[color]\\n\\ttextconv = {run}\\n' >>.git/config; echo '* diff=x' >.gitattributes"
    ),
    "a damaged repository below": (
        "git config core.fsmonitor {run}; mkdir s; cp -r .git s/.git; git -C s config --unset core.fsmonitor;"
        "echo >s/.git/HEAD; mv f s; git add -A; git commit -qm s; echo y >>s/f"
    ),
}  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits and a changed file."""
    require("git")
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "a")
        monkeypatch.setenv(f"{name}_EMAIL", "a@b")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "r"
    shell(
        f"git init -q {folder}; cd {folder}; touch same;"
        "for n in 1 2; do echo $n >>f; git add .; git commit -qm $n; done",
        tmp_path,
    )
    (tmp_path / "run").write_text(f"#!/bin/sh\necho x >>{tmp_path}/ran\ncat $1 2>/dev/null\n")
    (tmp_path / "run").chmod(0o755)
    return folder


def shell(script: str, folder: Path) -> None:
    subprocess.run(
        ["bash", "-c", script], cwd=folder, check=True, capture_output=True, env={**os.environ, "CDPATH": ""}
    )


def ask(command: str, folder: Path, where: str = ".") -> set[str]:
    """Return the forms of a call's commands."""
    accesses = describe_command(command, str(folder), where, is_confined=True)
    return {access.form for access in accesses if access.kind == "command"}


def ran(readings: tuple[str, ...], folder: Path) -> list[str]:
    """Run commands; return those that ran a program of the repository."""
    trace = folder.parent / "ran"
    found = []
    for time, command in enumerate(readings, 1):
        for file in folder.rglob("f"):
            file.write_text(f"{command}\n")
        for file in (*folder.rglob("f"), *folder.rglob("same")):
            os.utime(file, (time, time))  # git looks at its content again, and writes its index where that is the same
        where = folder / "s" if (folder / "s" / "f").exists() and not (folder / "f").exists() else folder
        subprocess.run(shlex.split(command), cwd=where, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if trace.exists():
            trace.unlink()
            found.append(command)
    return found


def test_every_command_is_one_that_only_reads() -> None:
    assert all(find_read_paths(parse(command)[0].words) is not None for command in READINGS)


@pytest.mark.parametrize("way", PLANTED)
def test_git_is_asked_where_a_repository_names_a_program(way: str, repository: Path) -> None:
    program = repository.parent / "run"
    shell(PLANTED[way].format(run=program, program=program), repository)
    (repository.parent / "ran").unlink(missing_ok=True)
    assert ran(READINGS, repository)  # the way works
    where = "s" if way == "a damaged repository below" else "."
    assert ask("git status", repository, where) == {"decoded"}
    assert ask("ls", repository, where) == {"harmless"}


def test_git_needs_no_question_where_a_repository_names_none(repository: Path) -> None:
    (repository / "deep").mkdir()
    shell("git remote add o https://example.com; git config core.hooksPath .husky; git checkout -qb b", repository)
    assert [ask(command, repository) for command in READINGS] == [{"harmless"}] * len(READINGS)
    assert ask("cd deep && git status | head -1", repository) == {"harmless"}
    assert ask("git status", repository.parent) == {"harmless"}  # no repository


def test_git_of_a_linked_worktree_obeys_the_settings_of_its_repository(repository: Path) -> None:
    shell("git worktree add -q ../w", repository)
    worktree = repository.parent / "w"
    assert ask("git log", worktree) == {"harmless"}
    shell("git config diff.external /x", repository)
    assert ask("git log", worktree) == {"decoded"}


def test_settings_that_reading_does_not_use_run_nothing(repository: Path) -> None:
    keys = ["core.editor", "core.pager", "core.sshCommand", "pager.log", "pager.status", "pager.diff", "alias.status",
            "alias.log", "credential.helper", "sequence.editor", "core.whitespace", "color.pager", "diff.tool",
            "difftool.x.cmd", "mergetool.x.cmd", "gc.pruneExpire", "commit.template", "lfs.url", "user.signingKey",
            "rerere.enabled", "maintenance.repo", "http.proxy", "url.x.insteadOf", "remote.o.url"]  # fmt: skip
    for key in keys:
        subprocess.run(["git", "-C", str(repository), "config", key, str(repository.parent / "run")], check=True)
    assert not runs_programs_to_read(str(repository), str(repository))
    assert ran(READINGS, repository) == []


@pytest.mark.parametrize(
    "command",
    ["touch x && git status", "git status; make", "git diff >d", "cd deep; git status", "git log | sh -c make"],
)
def test_git_is_asked_beside_what_may_plant_a_repository(command: str, repository: Path) -> None:
    assert ask(command, repository) >= {"decoded"}
    accesses = describe_command(command, str(repository), is_confined=True)
    assert any(access.form in ("decoded", "opaque") and access.value.startswith("git") for access in accesses)


@pytest.mark.parametrize("version", ["4", "2"])
def test_an_index_in_an_unknown_form_is_asked(version: str, repository: Path) -> None:
    shell(f"git update-index --index-version {version}", repository)
    assert ask("git status", repository) == ({"decoded"} if version == "4" else {"harmless"})
    (repository / ".git" / "index").write_bytes(b"DIRC")
    assert ask("git status", repository) == {"decoded"}


def test_long_names_and_links_of_an_index_are_read(repository: Path) -> None:
    deep = repository / "/".join(["d" * 200] * 6) / "e"
    long = Path("/".join(["l" * 200] * 18))
    shell(f"mkdir -p {deep.parent.relative_to(repository)} && cd {deep.parent} && echo >e && ln -s e l", repository)
    shell(
        f"git add -AN; git add -A; git update-index --add --cacheinfo 100644,$(git hash-object f),{long}/{'z' * 500}",
        repository,
    )
    assert ask("git status", repository) == {"harmless"}
    shell("git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),zz", repository)
    assert ask("git status", repository) == {"decoded"}
