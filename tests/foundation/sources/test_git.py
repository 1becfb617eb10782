"""Git repositories, fetched from real ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from amplifier_core.errors import BundleLoadError
from amplifier_foundation.settings import write_setting
from amplifier_foundation.sources import SourceCache, SourceNotFound, SourceRefused

from .conftest import GitLog, Repository, Server, left_in

FETCH = """
import sys
from amplifier_foundation.sources import SourceCache
print(SourceCache(sys.argv[1]).fetch(sys.argv[2]), flush=True)
"""


def alive_in(group: int) -> list[int]:
    """Return the processes of a process group that have not ended."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, pgid, state in rows if int(pgid) == group and not state.startswith("Z")]


def wait_until_ended(group: int) -> None:
    """Wait for the processes of a group: a killed one ends a little after the signal."""
    deadline = monotonic() + 30
    while running := alive_in(group):
        assert monotonic() < deadline, f"still running: {running}"
        sleep(0.01)


def test_a_repository_is_its_files_without_its_history(cache: SourceCache, repository: Repository) -> None:
    path = cache.fetch(repository.uri)
    assert path.parent == cache.folder
    assert sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) == [
        "behaviors/deep/y.yaml",
        "behaviors/x.yaml",
        "bundle.md",
    ]
    assert cache.status(repository.uri).commit == repository.git("rev-parse", "HEAD")


def test_branches_tags_commits_and_other_refs_can_be_named(cache: SourceCache, repository: Repository) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("-c", "tag.gpgSign=false", "tag", "--annotate", "v1", "--message", "one")
    repository.git("switch", "--quiet", "--create", "feature/x")
    second = repository.commit({"bundle.md": "two"})
    repository.git("update-ref", "refs/pull/7/head", second)
    repository.git("switch", "--quiet", "main")
    third = repository.commit({"bundle.md": "three"})
    named = {
        "": third,
        "@main": third,
        "@v1": first,
        "@feature/x": second,
        "@refs/pull/7/head": second,
        f"@{first}": first,
    }
    for ref in named:
        cache.fetch(repository.uri + ref)
    assert {ref: cache.status(repository.uri + ref).commit for ref in named} == named
    assert cache.fetch(f"{repository.uri}@{first.upper()}") == cache.get(f"{repository.uri}@{first}")
    assert (cache.fetch(f"{repository.uri}@{first}") / "bundle.md").read_text() == "one"


def test_nothing_of_a_repository_or_of_git_s_templates_is_run(
    cache: SourceCache, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = tmp_path / "template" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f"[init]\ntemplateDir={hook.parents[1]}\n[core]\nhooksPath={hook.parent}\n[submodule]\nrecurse=true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    module = Repository(tmp_path / "module")
    module.commit({"a": "a"})
    (repository.folder / ".gitmodules").write_text(f'[submodule "sub"]\npath = sub\nurl = {module.folder}\n')
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{module.git('rev-parse', 'HEAD')},sub")
    repository.git("add", ".gitmodules")
    repository.git("commit", "--quiet", "--message", "a submodule")
    (tmp_path / "hooked").unlink(missing_ok=True)  # by the commits of this test
    path = cache.fetch(repository.uri)
    assert not (tmp_path / "hooked").exists()
    assert list((path / "sub").iterdir()) == []


def test_a_fetch_from_within_a_git_hook_does_not_touch_the_repository_of_the_hook(
    cache: SourceCache, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Repository(tmp_path / "own")
    head = own.commit({"mine": "mine"})
    monkeypatch.setenv("GIT_DIR", str(own.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(own.folder))
    monkeypatch.setenv("GIT_INDEX_FILE", str(own.folder / ".git" / "index"))
    assert (cache.fetch(repository.uri) / "bundle.md").read_text() == "one"
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name)
    assert (own.git("rev-parse", "HEAD"), own.git("status", "--porcelain")) == (head, "")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("git+https://host", r"names no repository. Write git\+https://host/org/repo"),
        ("git+https:///org/repo", "names no repository"),
        ("git+file://other/repo", r"names no repository. Write git\+file:///folder/org/repo"),
        ("git+ext://sh -c id", r"cannot be fetched by git. Write git\+https://host/org/repo@branch"),
        ("git://host/repo", "cannot be fetched by git"),
        ("git+git@host:org/repo", "cannot be fetched by git"),
        (
            "git+file:///repo@--upload-pack=id",
            "'--upload-pack=id' is not a branch, tag or commit. Name one after the @",
        ),
        ("git+file:///repo@main:refs/heads/x", "is not a branch, tag or commit"),
        ("git+file:///repo@+main", "is not a branch, tag or commit"),
        ("git+file:///repo@a b", "is not a branch, tag or commit"),
        ("git+file:///re\npo", r"file:///re�po: has characters not allowed in an address"),
    ],
)
def test_what_git_must_not_be_asked_for_is_refused(cache: SourceCache, git_log: GitLog, uri: str, message: str) -> None:
    with pytest.raises(SourceRefused, match=message):
        cache.fetch(uri)
    assert (git_log.calls, left_in(cache.folder)) == ([], [])


@pytest.mark.parametrize(
    ("suffix", "said", "remedy"),
    [
        ("@nowhere", "couldn't find remote ref nowhere", r"See what it has with: git ls-remote file:///"),
        ("@" + "0" * 40, "not our ref 0000", "See what it has with: git ls-remote"),
        ("@0123456789ab", "couldn't find remote ref", "Write all 40 characters of a commit, or a branch or tag"),
        ("-missing", "does not appear to be a git repository", "Check the address. If it is private: Sign in"),
    ],
)
def test_what_does_not_exist_is_told_in_git_s_words_with_a_remedy(
    cache: SourceCache, repository: Repository, suffix: str, said: str, remedy: str
) -> None:
    with pytest.raises(SourceNotFound) as caught:
        cache.fetch(repository.uri + suffix)
    message = str(caught.value)
    assert message.startswith(f"{repository.uri}{suffix}: git says: fatal: ")
    assert "\n" not in message
    assert said in message
    assert remedy in message
    assert list(cache.folder.iterdir()) == []


def test_a_missing_git_is_told_with_how_to_install_it(
    cache: SourceCache, repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceNotFound, match="git is not installed. Install it: apt-get install git"):
        cache.fetch(repository.uri)
    assert list(cache.folder.iterdir()) == []


def test_a_server_of_plain_files_gives_branches_and_commits_too(
    cache: SourceCache, repository: Repository, serve: Callable[..., Server]
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.commit({"bundle.md": "two"})
    uri = f"git+http://{serve(repository.folder.parent).address}/repo/.git"
    assert (cache.fetch(f"{uri}@main") / "bundle.md").read_text() == "two"
    assert (cache.fetch(f"{uri}@{first}") / "bundle.md").read_text() == "one"
    with pytest.raises(SourceNotFound, match="unable to read tree|not a tree"):
        cache.fetch(f"{uri}@{'0' * 39}1")


def test_a_server_that_asks_for_a_password_is_not_answered_and_the_user_told(
    cache: SourceCache,
    repository: Repository,
    serve: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    private = tmp_path / "web" / "private"
    private.mkdir(parents=True)
    repository.folder.rename(private / "repo")
    server = serve(tmp_path / "web")
    asking = tmp_path / "ask"
    asking.write_text(f"#!/bin/sh\necho asked | tee -a {tmp_path}/asked\n")
    asking.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[core]\naskPass={asking}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    for name in ("GIT_ASKPASS", "SSH_ASKPASS"):
        monkeypatch.setenv(name, str(asking))
    uri = f"git+http://{server.address}/private/repo/.git"
    with pytest.raises(SourceNotFound) as caught:
        cache.fetch(uri)
    assert "could not read Username" in str(caught.value)
    assert f"Sign in with git first, so that this works: git ls-remote http://{server.address}/private" in str(
        caught.value
    )
    assert {signed for _, signed in server.asked} == {None}
    assert not (tmp_path / "asked").exists()


def test_who_signs_in_by_the_address_is_let_in_and_the_password_is_nowhere(
    cache: SourceCache, repository: Repository, serve: Callable[..., Server], tmp_path: Path, git_log: GitLog
) -> None:
    private = tmp_path / "web" / "private"
    private.mkdir(parents=True)
    repository.folder.rename(private / "repo")
    address = serve(tmp_path / "web").address
    uri = f"git+http://ada:pass%20word@{address}/private/repo/.git"
    assert (cache.fetch(uri) / "bundle.md").read_text() == "one"
    assert cache.status(uri).uri == f"git+http://***@{address}/private/repo/.git"
    with pytest.raises(SourceNotFound) as caught:
        cache.fetch(uri.replace("ada", "bob") + "@other")
    written = [path.read_text() for path in cache.folder.rglob("*") if path.is_file()]
    for text in [str(caught.value), *git_log.calls, *written, *map(str, cache.folder.rglob("*"))]:
        assert "pass%20word" not in text
        assert "pass word" not in text
    assert "Authentication failed" in str(caught.value)
    assert cache.get(uri.replace("ada:pass%20word@", "")) == cache.get(uri)


SSH = """#!/bin/sh
echo "$0 $*" >> "$SSH_LOG"
for command; do :; done
exec sh -c "$command"
"""


@pytest.fixture
def ssh_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ssh was called with; it runs on this machine what it should run on another."""
    for name in ("bin/ssh", "own/ssh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SSH)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SSH_LOG", str(tmp_path / "ssh.log"))
    for name in ("GIT_SSH", "GIT_SSH_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "ssh.log"


def test_ssh_is_told_to_ask_nothing(cache: SourceCache, repository: Repository, ssh_log: Path) -> None:
    path = cache.fetch(f"git+ssh://git@host:2222{repository.folder}@main")
    assert (path / "bundle.md").read_text() == "one"
    [call] = ssh_log.read_text().splitlines()
    assert "-o BatchMode=yes" in call
    assert "-p 2222 git@host git-upload-pack" in call


def test_an_ssh_of_the_user_s_own_is_used_as_it_is(
    cache: SourceCache, repository: Repository, ssh_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[core]\nsshCommand={tmp_path}/own/ssh -i key\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    cache.fetch(f"git+ssh://git@host{repository.folder}")
    monkeypatch.setenv("GIT_SSH_COMMAND", f"{tmp_path}/own/ssh -i other")
    cache.fetch(f"git+ssh://git@host{repository.folder}", refresh=True)
    own, other = ssh_log.read_text().splitlines()
    assert own.startswith(f"{tmp_path}/own/ssh -i key")
    assert other.startswith(f"{tmp_path}/own/ssh -i other")


def test_a_server_that_never_answers_is_given_up_and_nothing_runs_on(
    silent: socket.socket, tmp_path: Path, git_log: GitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_FETCH_TIMEOUT", "2")
    cache = SourceCache(tmp_path / "cache")
    with pytest.raises(SourceNotFound, match=r"was not fetched within 2 s\. Try again, or give it more seconds: "):
        cache.fetch(f"git+http://127.0.0.1:{silent.getsockname()[1]}/repo")
    connection, _ = silent.accept()  # so git did ask
    connection.close()
    wait_until_ended(git_log.last_process())
    assert list(cache.folder.iterdir()) == []


def test_what_git_started_ends_with_it(
    repository: Repository, tmp_path: Path, git_log: GitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = tmp_path / "starting" / "git"
    starting.parent.mkdir()
    starting.write_text(f'#!/bin/sh\necho "$$" >> {tmp_path}/git.log\nsleep 300 &\nsleep 300 >/dev/null 2>&1 &\nwait\n')
    starting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{starting.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SourceNotFound, match="not fetched within 1 s"):
        SourceCache(tmp_path / "cache", timeout=1).fetch(repository.uri)
    wait_until_ended(git_log.last_process())


def test_a_repository_that_says_without_end_is_given_up_in_bounded_memory(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talker = tmp_path / "talker" / "git"
    talker.parent.mkdir()
    talker.write_text("#!/bin/sh\nexec yes some words\n")
    talker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{talker.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SourceNotFound, match="not fetched within 0.3 s"):
        SourceCache(tmp_path / "cache", timeout=0.3).fetch(repository.uri)


@pytest.mark.parametrize("written", ["soon", "0", "-1", "nan", "inf"])
def test_a_time_limit_that_is_none_is_refused(
    cache: SourceCache, repository: Repository, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("AMPLIFIER_FETCH_TIMEOUT", written)
    with pytest.raises(BundleLoadError, match=r"^AMPLIFIER_FETCH_TIMEOUT: error\[AMP30[23]\] fetch\.timeout: must be "):
        cache.fetch(repository.uri)


def test_the_settings_say_how_long_a_fetch_may_take_and_the_environment_overrules_them(
    silent: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_setting("project", "fetch.timeout", 0.2)
    cache, uri = SourceCache(tmp_path / "cache"), f"git+http://127.0.0.1:{silent.getsockname()[1]}/repo"
    with pytest.raises(SourceNotFound, match=r"within 0\.2 s\. .* amplifier config set fetch\.timeout 600"):
        cache.fetch(uri)
    monkeypatch.setenv("AMPLIFIER_FETCH_TIMEOUT", "0.1")
    with pytest.raises(SourceNotFound, match=r"within 0\.1 s"):
        cache.fetch(uri)


def test_after_a_killed_fetch_the_next_one_succeeds_and_tidies_up(
    cache: SourceCache, repository: Repository, silent: socket.socket, serve: Callable[..., Server], git_log: GitLog
) -> None:
    port = silent.getsockname()[1]
    uri = f"git+http://127.0.0.1:{port}/repo/.git"
    with subprocess.Popen([sys.executable, "-c", FETCH, str(cache.folder), uri], stdout=subprocess.PIPE) as fetching:
        connection, _ = silent.accept()
        fetching.kill()
    assert [name for name in left_in(cache.folder) if ".tmp-" in name]
    os.killpg(git_log.last_process(), signal.SIGKILL)
    connection.close()
    silent.close()
    serve(repository.folder.parent, port)
    assert (cache.fetch(uri) / "bundle.md").read_text() == "one"
    assert len(left_in(cache.folder)) == 2


def test_an_orphaned_git_does_not_disturb_the_next_fetch(
    cache: SourceCache, repository: Repository, silent: socket.socket, git_log: GitLog
) -> None:
    uri = f"git+http://127.0.0.1:{silent.getsockname()[1]}/repo/.git"
    with subprocess.Popen([sys.executable, "-c", FETCH, str(cache.folder), uri], stdout=subprocess.PIPE) as fetching:
        connection, _ = silent.accept()
        fetching.kill()
    orphan = git_log.last_process()
    assert alive_in(orphan)
    with pytest.raises(SourceNotFound, match="not fetched within 0.3 s"):
        SourceCache(cache.folder, timeout=0.3).fetch(uri)
    os.killpg(orphan, signal.SIGKILL)
    connection.close()
    assert list(cache.folder.iterdir()) == []
