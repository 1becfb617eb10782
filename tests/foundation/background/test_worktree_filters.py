"""Filters of git in worktrees: the person's run, and none obeys what a session writes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from amplifier_foundation.background.git import Git

from .repositories import Repository, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore


@pytest.fixture
def repository(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository.make(tmp_path, monkeypatch)
    (tmp_path / "nobody").mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return made


@pytest.fixture
def worker(repository: Repository, store: DurableStore, plugins: Plugins) -> Worker:
    return Worker(repository, store, plugins)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of PATH outside of the project."""
    return tmp_path / "bin"


def write_program(path: Path, text: str) -> None:
    """Write a program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def set_own(repository: Repository, key: str, command: str) -> None:
    """Set a setting of the person."""
    repository.git("config", "--file", str(repository.top.parent / "nobody" / ".gitconfig"), key, command)


def clean(repository: Repository, text: str = "a key\n") -> str:
    """Return what the filter of the project makes of a text. Raises `GitError`."""
    repository.write(".gitattributes", "*.x filter=f\n")
    repository.write("a.x", text)
    git = Git(str(repository.top / ".git"), str(repository.top)).guard()
    git.run("add", "a.x")
    return git.run("cat-file", "blob", ":a.x")


@pytest.mark.slow
async def test_the_persons_filter_runs_and_one_that_a_session_could_write_does_not(
    repository: Repository, worker: Worker
) -> None:
    set_own(repository, "filter.shout.clean", "tr a-z A-Z")
    repository.write(".gitattributes", "*.loud filter=shout\n")
    repository.commit()
    await worker.handle("write b.loud hello")
    assert repository.show("HEAD", "b.loud") == "HELLO"
    repository.write("tools/clean.sh", "cat\n")
    repository.commit()
    set_own(repository, "filter.shout.clean", "sh -c 'sh tools/clean.sh'")
    *_, refused = await worker.handle("write c.loud hello")
    assert refused.state == "dead"
    assert "git's setting filter.shout.clean is 'sh -c 'sh tools/clean.sh'': 'sh' runs scripts" in str(refused.reason)


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'sh tools/x'",
        "${PWD}/tools/x",
        "cd tools && sh x",
        "sh<tools/x",
        "$(git rev-parse --show-toplevel)/tools/x",
        ". tools/x|cat",
        "tools/x",
        "./tools/x",
        "sh",
        "env sh tools/x",
        "A=b tools/x",
        "make -s strip",
        "npm run -s strip",
        "{top}/tools/x",
        "../..{top}/tools/x",
        "cat {top}/tools/x",
        "cat --file={top}/tools/x",
        "cat -f{top}/tools/x",
        "cat tools/x",
        'cat "a %f"',
        "cat\nsh tools/x",
        "python3 -c 1",
        "exec no-such-program",
        "if no-such-program",
    ],
)
def test_a_filter_that_could_obey_what_a_session_writes_fails_with_the_reason(
    repository: Repository, tmp_path: Path, command: str
) -> None:
    write_program(repository.top / "tools" / "x", f"touch {tmp_path}/mark; cat")
    repository.write("Makefile", f"strip:\n\t@touch {tmp_path}/mark; cat\n")
    set_own(repository, "filter.f.clean", command.replace("{top}", str(repository.top)))
    with pytest.raises(Exception, match=r"(?s)^git's setting filter\.f\.clean is '.*git config --global") as raised:
        clean(repository)
    assert getattr(raised.value, "is_final", False)
    assert not (tmp_path / "mark").exists()


def test_a_program_of_path_that_is_in_the_project_is_no_filter(
    repository: Repository, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(repository.top / "tools" / "x", "cat")
    (programs / "linked").symlink_to(repository.top / "tools" / "x")
    monkeypatch.setenv("PATH", str(repository.top / "tools"), prepend=":")
    for command in ("x", "linked"):
        set_own(repository, "filter.f.clean", command)
        with pytest.raises(Exception, match="is in the repository"):
            clean(repository)


def test_a_program_looks_for_its_files_outside_of_the_worktree(repository: Repository, programs: Path) -> None:
    write_program(programs / "shows", 'echo "$PWD $(git rev-parse --show-toplevel) $*"; cat')
    set_own(repository, "filter.f.clean", "shows --name=\"%f\" 's/a b/c/' -- %f")
    assert clean(repository).splitlines() == ["/ / --name=a.x s/a b/c/ -- a.x", "a key"]


def test_a_name_of_a_file_is_no_command(repository: Repository, tmp_path: Path) -> None:
    set_own(repository, "filter.f.clean", 'echo "%f"')
    name = "$(touch mark)';touch mark;'.x"
    repository.write(".gitattributes", "*.x filter=f\n")
    repository.write(name, "x")
    git = Git(str(repository.top / ".git"), str(repository.top)).guard()
    git.run("add", "--all")
    assert git.run("cat-file", "blob", f":{name}") == f"{name}\n"


def test_an_unused_filter_is_no_problem(repository: Repository) -> None:
    set_own(repository, "filter.other.clean", "sed s/a/b/ | sort")
    set_own(repository, "merge.other.driver", "sh tools/merge %O %A %B")
    set_own(repository, "filter.f.clean", "tr a-z A-Z")
    assert clean(repository) == "A KEY\n"


def test_the_usual_filters_of_a_repository_run_when_they_are_installed(repository: Repository, programs: Path) -> None:
    for name in ("git-lfs", "git-crypt", "nbstripout"):
        write_program(programs / name, f"echo {name} $*; cat")
    usual = {
        "git-lfs clean -- %f": "git-lfs clean -- a.x",
        '"git-crypt" clean --key-name=team': "git-crypt clean --key-name=team",
        f'"{programs}/git-crypt" clean': "git-crypt clean",
        "nbstripout": "nbstripout",
    }
    for command, said in usual.items():
        repository.git("config", "filter.f.clean", command)
        assert clean(repository, f"for {said}\n") == f"{said}\nfor {said}\n"


def test_a_python_of_the_repositorys_configuration_runs_only_beside_an_installed_nbstripout(
    repository: Repository, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = programs.parent / "venv" / "bin"
    write_program(tools / "python3", "echo $*; cat")
    write_program(tools / "nbstripout", "")
    repository.git("config", "filter.f.clean", f'"{tools}/python3" -m nbstripout')
    with pytest.raises(Exception, match="only the repository's own configuration has it"):
        clean(repository, "anybody's\n")
    (programs / "nbstripout").symlink_to(tools / "nbstripout")  # as pipx and uv install it
    assert clean(repository, "linked\n") == "-m nbstripout\nlinked\n"
    (programs / "nbstripout").unlink()
    monkeypatch.setattr(sys, "executable", str(tools / "python"))
    assert clean(repository, "own\n") == "-m nbstripout\nown\n"
    write_program(tools / "cat", "cat")
    repository.git("config", "filter.f.clean", f"{tools}/python3 -m cat")
    with pytest.raises(Exception, match="only the repository's own configuration has it"):
        clean(repository, "no filter\n")


def test_a_python_runs_where_a_manager_of_versions_has_its_script_for_nbstripout_in_path(
    repository: Repository, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims, tools = tmp_path / "pyenv" / "shims", tmp_path / "pyenv" / "versions" / "3.11.7" / "bin"
    write_program(tools / "python3.11", "echo $*; cat")
    write_program(tools / "nbstripout", "")
    monkeypatch.setenv("PATH", str(shims), prepend=os.pathsep)
    repository.git("config", "filter.f.clean", f'"{tools}/python3.11" -m nbstripout')
    refused = "only the repository's own configuration has it"
    with pytest.raises(Exception, match=refused):
        clean(repository, "not in PATH\n")
    write_program(shims / "nbstripout", 'exec pyenv exec nbstripout "$@"')
    assert clean(repository, "there\n") == "-m nbstripout\nthere\n"
    (tools / "nbstripout").unlink()
    with pytest.raises(Exception, match=refused):
        clean(repository, "not beside\n")
    write_program(tmp_path / "tools" / "python3.11", "echo $*; cat")
    write_program(tmp_path / "tools" / "nbstripout", "")
    (tools.parent / "link").symlink_to(tmp_path / "tools")
    for folder in (tmp_path / "tools", tools.parent / "link", f"{shims}/../../tools"):
        repository.git("config", "filter.f.clean", f"{folder}/python3.11 -m nbstripout")
        with pytest.raises(Exception, match=refused):
            clean(repository, f"in {folder}\n")


@pytest.mark.parametrize("missing", ["no-such-program -x", "/no/such/program"])
def test_an_optional_filter_without_its_program_leaves_a_file_as_it_is(repository: Repository, missing: str) -> None:
    set_own(repository, "filter.f.clean", missing)
    assert clean(repository) == "a key\n"
    set_own(repository, "filter.f.process", "no-such-program")
    assert clean(repository, "long\n") == "long\n"
    set_own(repository, "filter.f.required", "false")
    assert clean(repository, "other\n") == "other\n"
    set_own(repository, "filter.f.required", "true")
    with pytest.raises(Exception, match=r"there is no program '.*' in a folder of PATH"):
        clean(repository, "another\n")


def test_a_filter_that_came_with_a_repository_does_not_run(repository: Repository, tmp_path: Path) -> None:
    repository.git("config", "filter.f.clean", "tee mark")
    with pytest.raises(Exception, match=r"git config --global filter\.f\.clean 'tee mark'"):
        clean(repository)
    evil = tmp_path / "unpacked" / "git-crypt"
    write_program(evil, f"touch {tmp_path}/mark; cat")
    for command in (f"{evil} clean", f"{sys.executable} -m nbstripout", "git commit"):
        repository.git("config", "filter.f.clean", command)
        with pytest.raises(Exception, match="only the repository's own configuration has it"):
            clean(repository)
    assert not (tmp_path / "mark").exists()
    repository.git("config", "filter.f.clean", "tr a-z A-Z")
    set_own(repository, "filter.f.clean", "tr a-z A-Z")
    assert clean(repository) == "A KEY\n"


def test_git_lfs_runs_no_program_that_the_repository_names(repository: Repository, programs: Path) -> None:
    write_program(programs / "git-lfs", "cat")
    set_own(repository, "filter.f.clean", "git-lfs clean -- %f")
    repository.git("config", "lfs.https://example.org/x.access", "basic")
    repository.git("config", "lfs.repositoryformatversion", "0")
    for key in ("concurrenttransfers", "transfer.maxretries", "storage", "https://example.org/my-extension.sslverify"):
        repository.git("config", f"lfs.{key}", "8")
    assert clean(repository) == "a key\n"
    keys = [
        "lfs.extension.x.clean",
        "lfs.Extension.x.smudge",
        "lfs.standalonetransferagent",
        "lfs.customtransfer.x.path",
    ]
    for number, key in enumerate(
        [*keys, "lfs.https://example.org.standalonetransferagent", "x.lfs.CustomTransfer.x.path"]
    ):
        repository.git("config", key, "sh tools/x")
        with pytest.raises(Exception, match="git config --global") as raised:
            clean(repository, f"{number}\n")
        assert f"the repository's own configuration sets {key}, so it does not run" in str(raised.value)
        assert str(raised.value).endswith(f"set it for yourself: git config --global {key} 'sh tools/x'")
        set_own(repository, key, "sh tools/x")
        assert clean(repository, f"trusted {number}\n") == f"trusted {number}\n"
    repository.git("config", "x.y", "a\nlfs.extension.x.clean=sh tools/y")
    with pytest.raises(Exception, match=r"the repository's own configuration sets x\.y"):
        clean(repository, "a line of a value\n")


def test_a_smudge_filter_is_refused_before_the_session(repository: Repository, tmp_path: Path) -> None:
    repository.write(".gitattributes", "*.x filter=f\n")
    repository.write("a.x", "x")
    repository.commit()
    repository.git("config", "filter.f.smudge", "touch mark")
    git = Git(str(repository.top / ".git"), str(repository.top)).guard(str(tmp_path / "tree"))
    with pytest.raises(Exception, match=r"^git's setting filter\.f\.smudge"):
        git.run("worktree", "add", "--quiet", str(tmp_path / "tree"), "-b", "new")
