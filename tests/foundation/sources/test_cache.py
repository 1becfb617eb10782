"""What is kept, when it is fetched again, and what is left when a fetch goes wrong."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from selectors import DefaultSelector, SelectorKey
from threading import Event
from typing import TextIO

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_foundation.paths import data_home
from amplifier_foundation.sources import SourceCache, SourceNotFound, SourceRefused, default_cache, git
from amplifier_foundation.sources.entries import Entry
from amplifier_foundation.sources.limits import Deadline

from .conftest import GitLog, Repository, Server, Write, left_in

FETCH = """
import sys
from amplifier_foundation.sources import SourceCache
print(SourceCache(sys.argv[1]).fetch(sys.argv[2]), flush=True)
"""


def fetching(cache: SourceCache, uri: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, str(cache.folder), uri],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_all_subdirectories_of_one_ref_are_one_fetch(
    cache: SourceCache, repository: Repository, git_log: GitLog
) -> None:
    root = cache.fetch(f"{repository.uri}@main")
    assert cache.fetch(f"{repository.uri}@main#subdirectory=behaviors/x.yaml") == root / "behaviors" / "x.yaml"
    assert cache.get(f"{repository.uri}@main#subdirectory=behaviors/deep") == root / "behaviors" / "deep"
    assert git_log.fetches == 1
    assert cache.fetch(repository.uri) != root  # the default branch may become another
    assert git_log.fetches == 2


def test_what_is_kept_says_where_it_is_from(cache: SourceCache, repository: Repository) -> None:
    uri, before = f"{repository.uri}@main", datetime.now(UTC) - timedelta(seconds=1)
    assert (cache.get(uri), cache.entries()) == (None, [])
    assert cache.status(uri) == replace(
        cache.status(uri), uri=uri, cached=False, commit=None, fetched_at=None, path=None
    )
    path = cache.fetch(uri)
    [entry] = cache.entries()
    assert entry == cache.status(uri)
    assert (entry.uri, entry.cached, entry.pinned, entry.path) == (uri, True, False, path)
    assert entry.commit == repository.git("rev-parse", "HEAD")
    assert entry.fetched_at is not None
    assert before <= entry.fetched_at <= datetime.now(UTC)
    facts = json.loads((cache.folder / f"{path.name}.json").read_text())
    assert (facts["ref"], facts["size"]) == ("main", len("one" + "x" + "y"))
    assert path.name.startswith("repo-")
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_the_folder_of_a_source_holds_no_character_that_a_shell_or_a_path_minds(
    cache: SourceCache, repository: Repository
) -> None:
    odd = repository.folder.with_name("ré po;$(x)")
    repository.folder.rename(odd)
    assert cache.fetch(f"git+file://{odd}").name.startswith("r-po-x-")


def test_what_git_says_last_is_read_also_when_it_ends_before_anybody_looks(
    cache: SourceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(DefaultSelector):
        looks = 0

        def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
            self.looks += 1
            if self.looks > 1:
                return super().select(timeout)
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            return []

    monkeypatch.setattr(git, "DefaultSelector", Late)
    with pytest.raises(SourceNotFound, match="does not appear to be a git repository"):
        cache.fetch(f"git+file://{tmp_path / 'gone'}")


def test_a_start_without_a_network_uses_what_is_kept(
    cache: SourceCache, repository: Repository, serve: Callable[..., Server]
) -> None:
    server = serve(repository.folder.parent)
    uri = f"git+http://{server.address}/repo/.git"
    path = cache.fetch(uri)
    server.server_close()
    assert cache.fetch(uri) == cache.get(uri) == path
    with pytest.raises(SourceNotFound, match="Failed to connect .* Check the address and the network"):
        cache.fetch(f"{uri}@other")
    with pytest.raises(SourceNotFound, match="Failed to connect"):
        cache.fetch(uri, refresh=True)
    assert (path / "bundle.md").read_text() == "one"
    assert cache.status(uri).commit is not None


def test_a_branch_that_moved_is_fetched_again_only_when_asked_for(
    cache: SourceCache, repository: Repository, git_log: GitLog
) -> None:
    uri = f"{repository.uri}@main"
    path = cache.fetch(uri)
    moved = repository.commit({"bundle.md": "two", "behaviors/x.yaml": "x"})
    repository.git("rm", "--quiet", "behaviors/x.yaml")
    moved = repository.commit({"new.md": "new"})
    assert (cache.fetch(uri) / "bundle.md").read_text() == "one"
    assert git_log.fetches == 1
    assert cache.fetch(uri, refresh=True) == path
    assert (path / "bundle.md").read_text() == "two"
    assert not (path / "behaviors" / "x.yaml").exists()
    assert (cache.status(uri).commit, git_log.fetches) == (moved, 2)
    assert len(left_in(cache.folder)) == 2


def test_a_branch_that_did_not_move_keeps_the_files_that_sessions_have_open(
    cache: SourceCache, repository: Repository
) -> None:
    path = cache.fetch(repository.uri)
    before = path.stat().st_ino
    assert cache.fetch(repository.uri, refresh=True).stat().st_ino == before


def test_a_commit_is_never_fetched_again(cache: SourceCache, repository: Repository, git_log: GitLog) -> None:
    uri = f"{repository.uri}@{repository.git('rev-parse', 'HEAD')}"
    path = cache.fetch(uri)
    repository.commit({"bundle.md": "two"})
    assert cache.fetch(uri, refresh=True) == cache.fetch(uri) == path
    assert (path / "bundle.md").read_text() == "one"
    assert git_log.fetches == 1
    assert cache.status(uri).pinned
    assert cache.entries()[0].pinned


def test_when_a_refresh_fails_the_old_one_stays(cache: SourceCache, repository: Repository) -> None:
    path = cache.fetch(f"{repository.uri}@main")
    before = cache.entries()
    repository.git("branch", "--move", "gone")
    with pytest.raises(SourceNotFound, match="couldn't find remote ref main"):
        cache.fetch(f"{repository.uri}@main", refresh=True)
    assert (path / "bundle.md").read_text() == "one"
    assert cache.entries() == before
    assert len(left_in(cache.folder)) == 2


def test_two_processes_at_once_are_one_fetch(
    cache: SourceCache, repository: Repository, git_log: GitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = tmp_path / "held" / "git"
    held.parent.mkdir()
    held.write_text(
        f'#!/bin/sh\ncase " $* " in *" fetch "*) read -r _ < "{gate}";; esac\nexec "{tmp_path}/bin/git" "$@"\n'
    )
    held.chmod(0o755)
    monkeypatch.setenv("PATH", f"{held.parent}{os.pathsep}{os.environ['PATH']}")
    with fetching(cache, repository.uri) as one, fetching(cache, repository.uri) as two:
        with gate.open("w") as opened:  # waits for the git that waits for it
            assert git_log.fetches == 0
            opened.write("go on\n")
        answers = [one.communicate(timeout=120), two.communicate(timeout=30)]
    assert answers == [(f"{cache.get(repository.uri)}\n", "")] * 2
    assert git_log.fetches == 1


def test_threads_at_once_are_one_fetch(cache: SourceCache, repository: Repository, git_log: GitLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: cache.fetch(repository.uri), range(8)))
    assert paths == {cache.get(repository.uri)}
    assert git_log.fetches == 1


def test_threads_that_refresh_and_read_at_once_always_find_whole_files(
    cache: SourceCache, repository: Repository
) -> None:
    cache.fetch(repository.uri)
    done = Event()

    def read() -> int:
        found = 0
        while not done.is_set() or not found:
            assert cache.get(repository.uri) is not None
            assert cache.get(f"{repository.uri}#subdirectory=bundle.md") is not None
            found += 1
        return found

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for number in range(5):
            repository.commit({"bundle.md": f"version {number}"})
            cache.fetch(repository.uri, refresh=True)
        done.set()
        assert all(reader.result() for reader in readers)


def test_who_waits_too_long_for_another_s_fetch_is_told(cache: SourceCache, repository: Repository) -> None:
    path = cache.fetch(repository.uri)
    held = subprocess.Popen(
        [sys.executable, "-c", "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.flock(f,fcntl.LOCK_EX); "
         "print('held',flush=True); sys.stdin.read()", str(path) + ".lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        with pytest.raises(SourceNotFound, match="not fetched within 0.2 s"):
            SourceCache(cache.folder, timeout=0.2).fetch(repository.uri, refresh=True)
        assert cache.fetch(repository.uri) == path
        held.kill()


def test_who_waited_for_a_lock_that_was_removed_waits_for_the_one_that_took_its_place(tmp_path: Path) -> None:
    entry = Entry(tmp_path, "repo-0123456789abcdef")
    path = tmp_path / f"{entry.name}.lock"
    seen: list[str] = []

    def hold() -> TextIO:
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    held = hold()

    class Waiting(Deadline):
        def step(self) -> float:
            nonlocal held
            seen.append("waits")
            if len(seen) == 1:
                path.unlink()
                held, old = hold(), held
                old.close()
            else:
                held.close()
            return 0.0

    with entry.lock(Waiting(30)):
        seen.append("has it")
    assert seen == ["waits", "waits", "has it"]


def test_a_fetch_that_is_stopped_ends_at_once_and_leaves_nothing(cache: SourceCache, repository: Repository) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(SourceNotFound, match="the fetch was stopped. Start it again"):
        cache.fetch(repository.uri, stop=stop)
    assert list(cache.folder.iterdir()) == []


@pytest.mark.parametrize("killed", ["before the new files came", "before the facts were written", "while tidying up"])
def test_who_was_killed_while_files_were_exchanged_leaves_the_old_or_the_new_ones(
    cache: SourceCache, repository: Repository, git_log: GitLog, killed: str
) -> None:
    path = cache.fetch(repository.uri)
    old = path.with_name(f"{path.name}.was")
    path.rename(old)
    if killed != "before the new files came":
        path.mkdir()
        (path / "bundle.md").write_text("two")
    (cache.folder / f"{path.name}.tmp-0123" / "content").mkdir(parents=True)
    assert cache.get(f"{repository.uri}#subdirectory=bundle.md") == path / "bundle.md"
    assert (path / "bundle.md").read_text() == ("one" if killed == "before the new files came" else "two")
    assert [name for name in left_in(cache.folder) if ".was" in name or ".tmp-" in name] == []
    assert (cache.status(repository.uri).commit is None) == (killed != "before the new files came")
    assert git_log.fetches == 1


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"uri": 1}', '{"uri":"a","ref":"","commit":null,"fetched_at":3,"size":1}']
)
def test_files_whose_facts_are_lost_or_damaged_are_used_all_the_same(
    cache: SourceCache, repository: Repository, damage: str
) -> None:
    path = cache.fetch(repository.uri)
    (cache.folder / f"{path.name}.json").write_text(damage)
    assert cache.fetch(repository.uri) == path
    [entry] = cache.entries()
    assert (entry.uri, entry.cached, entry.commit, entry.path) == (path.name, True, None, path)
    cache.fetch(repository.uri, refresh=True)
    assert cache.status(repository.uri).commit == repository.git("rev-parse", "HEAD")


def test_clearing_removes_everything(cache: SourceCache, repository: Repository) -> None:
    cache.clear()
    cache.fetch(repository.uri)
    cache.fetch(f"{repository.uri}@main")
    begun = "repo-0123456789abcdef"  # by somebody who was killed
    (cache.folder / f"{begun}.lock").touch()
    (cache.folder / f"{begun}.tmp-01" / "content").mkdir(parents=True)
    assert len(cache.entries()) == 2
    cache.clear()
    assert (cache.entries(), list(cache.folder.iterdir())) == ([], [])
    assert cache.fetch(repository.uri).is_dir()


@pytest.mark.parametrize(
    "subdirectory", ["..", "../..", "/etc", "a/../../..", "behaviors/../../x", "escape", "escape/etc", "a%00b", "loop"]
)
def test_no_subdirectory_leads_out_of_its_source(cache: SourceCache, repository: Repository, subdirectory: str) -> None:
    (repository.folder / "escape").symlink_to("/")
    (repository.folder / "loop").symlink_to("loop")
    repository.commit({})
    with pytest.raises(SourceRefused, match="its subdirectory leads out of the source"):
        cache.fetch(f"{repository.uri}#subdirectory={subdirectory}")


def test_a_symlink_within_its_source_is_followed(cache: SourceCache, repository: Repository) -> None:
    (repository.folder / "link").symlink_to("behaviors/deep")
    repository.commit({})
    path = cache.fetch(f"{repository.uri}#subdirectory=link/y.yaml")
    assert path.read_text() == "y"


def test_a_subdirectory_that_is_not_there_is_told(cache: SourceCache, repository: Repository, git_log: GitLog) -> None:
    uri = f"{repository.uri}#subdirectory=behaviours"
    for _ in range(2):
        with pytest.raises(SourceNotFound, match="#subdirectory=behaviours: it has no such file or folder"):
            cache.fetch(uri)
    assert git_log.fetches == 1


@pytest.mark.parametrize("uri", ["/folder", "./folder", "file:///folder", "name", "name:path", "ftp://host/x", ""])
def test_what_is_not_fetched_is_refused(cache: SourceCache, uri: str) -> None:
    with pytest.raises(SourceRefused, match=r"cannot be fetched. Use git\+https://"):
        cache.fetch(uri)


# the disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("kind", ["git", "zip", "file"])
def test_a_full_disk_is_told_and_nothing_half_stays(
    small_disk: Path, kind: str, repository: Repository, write_zip: Write, serve: Callable[..., Server], tmp_path: Path
) -> None:
    noise = os.urandom(2 * 1024**2)
    if kind == "git":
        repository.commit({"noise": noise})
        uri = repository.uri
    elif kind == "zip":
        uri = f"zip+file://{write_zip({'noise': noise})}"
    else:
        (tmp_path / "noise.md").write_bytes(noise)
        uri = f"http://{serve(tmp_path).address}/noise.md"
    cache = SourceCache(small_disk / "cache")
    with pytest.raises(StoreUnavailable, match=r"small/cache: .*(N|n)o space left on device.*Free some space"):
        cache.fetch(uri)
    assert list(cache.folder.iterdir()) == []


def test_a_limit_on_file_sizes_is_told_and_nothing_half_stays(
    cache: SourceCache, serve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "bundle.md").write_bytes(b"x" * 100_000)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n{FETCH}"
    uri = f"http://{serve(tmp_path).address}/bundle.md"
    done = subprocess.run(
        [sys.executable, "-c", code, str(cache.folder), uri], capture_output=True, text=True, check=False
    )
    assert f"{cache.folder}: fetched sources cannot be kept here (File too large)" in done.stderr
    assert list(cache.folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"file/cache: cannot be used \(Not a directory\).*set AMPLIFIER_HOME"):
        SourceCache(tmp_path / "file" / "cache").fetch(repository.uri)


def test_the_default_cache_is_in_the_data_folder() -> None:
    assert default_cache().folder == data_home() / "cache" / "sources"
