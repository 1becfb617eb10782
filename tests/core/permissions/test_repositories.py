"""What the settings of a repository name is protected as its folder `.git` is."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from amplifier_core.permissions import Call, Policy, find_named_by_git, parse_permissions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository; the person's own settings are in `home`."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "top").mkdir()
    git(tmp_path / "top", "init", "-q")
    return tmp_path / "top"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def decide(folder: Path, path: str, tool: str = "write_file", **section: object) -> str:
    policy = Policy([parse_permissions(section, "user settings", is_own=True)])
    return policy.decide(Call.of(tool, {"path": path}, folder)).effect


def test_nothing_is_named_in_a_new_repository_or_without_one(top: Path, tmp_path: Path) -> None:
    assert list(find_named_by_git(str(top))) == []
    assert list(find_named_by_git(str(tmp_path))) == []


def test_the_hooks_that_a_repository_names_are_not_written(top: Path) -> None:
    git(top, "config", "core.hooksPath", "tools/hooks")
    decision = Policy().decide(Call.of("write_file", {"path": "tools/hooks/pre-commit"}, top))
    assert (decision.effect, decision.reason) == ("deny", "tools/hooks/pre-commit is protected: git obeys it")
    for path in ("tools/hooks", "tools/Hooks/x/y", f"{top}/tools/hooks/a", "x/../tools/hooks/a"):
        assert decide(top, path) == "deny", path
    for path in ("tools/hooks2/a", "tools/a", "hooks/a"):
        assert decide(top, path) == "allow", path
    assert decide(top, "tools/hooks/a", "read_file") == "allow"
    assert decide(top, "tools/hooks/a", allow=["write_file(tools/hooks/**)"]) == "allow"
    assert decide(top, "tools/hooks/a", allow=["write_file"]) == "deny"


@pytest.mark.parametrize(
    ("settings", "is_named"),
    [
        ("[core]\n\thooksPath = h\n", True),
        ("[CORE] HOOKSPATH=h # mine\n", True),
        ('[core]\nhooksPath = "h" ; mine\n', True),
        ("[core]\nhooksPath = \\\nh\n", True),
        ("[core]\nhooksPath = ./x/../h/\n", True),
        ("[core]\n# \u2028[user]\nhooksPath = h\n", True),
        ("[core]\r\nhooksPath = h\r\n", True),
        ("[user]\nhooksPath = h\n", False),
        ('[core "x"]\nname = a\n', False),
        ("# [core]\n#hooksPath = h\n", False),
        ("[core]\nhooksPath = ..\n", False),
        ("[core]\nhooksPath\n", False),
    ],
)
def test_settings_are_read_as_git_reads_them(top: Path, settings: str, is_named: bool) -> None:
    (top / ".git" / "config").write_bytes(settings.encode())
    assert decide(top, "h/pre-commit") == ("deny" if is_named else "allow")


def test_settings_of_the_person_and_included_ones_count(top: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / ".gitconfig").write_text("[core]\n\thooksPath = mine\n")
    (top / ".git" / "config").write_text('[includeIf "gitdir:/"]\n\tpath = ../shared\n')
    (top / "shared").write_text("[include]\n\tpath = more\n[core]\n\thooksPath = ours\n")
    (top / "more").write_text("[include]\n\tpath = more\n")
    named = ("mine/a", "ours/a", "shared", "more")
    assert [decide(top, path) for path in (*named, "other")] == ["deny"] * len(named) + ["allow"]


def test_repositories_below_and_above_a_folder_count(top: Path) -> None:
    (top / "sub").mkdir()
    git(top / "sub", "init", "-q")
    git(top, "config", "core.hooksPath", "sub/outer")
    git(top / "sub", "config", "core.hooksPath", "inner")
    for folder, above in ((top, "sub/"), (top / "sub", "")):
        assert [decide(folder, f"{above}{name}/x") for name in ("outer", "inner", "other")] == ["deny", "deny", "allow"]


def test_a_worktree_has_the_hooks_of_its_repository(top: Path, tmp_path: Path) -> None:
    git(top, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first")
    git(top, "config", "core.hooksPath", "h")
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert decide(tmp_path / "tree", "h/pre-commit") == "deny"
    assert decide(tmp_path / "tree", "other") == "allow"


def test_links_on_the_way_to_hooks_change_nothing(top: Path, tmp_path: Path) -> None:
    (top / "real").mkdir()
    (top / "link").symlink_to("real")
    (tmp_path / "alias").symlink_to(top)
    git(top, "config", "core.hooksPath", "link")
    for folder in (top, tmp_path / "alias"):
        assert [decide(folder, path) for path in ("link/a", "real/a", "b")] == ["deny", "deny", "allow"]


def test_hooks_behind_a_link_are_those_of_the_folder(top: Path) -> None:
    (top / ".git" / "hooks").rename(top / "hooks")
    (top / ".git" / "hooks").symlink_to("../hooks")
    assert [decide(top, path) for path in ("hooks/pre-commit", "b")] == ["deny", "allow"]
