"""Where the files of a bundle are."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_foundation.bundle.bundle_files import (
    construct_agent_path,
    construct_context_path,
    find_bundle_root,
    find_files,
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A bundle's folder, beside which is a secret."""
    (tmp_path / "secret.md").write_text("secret")
    folder = tmp_path / "bundle"
    for name in ("bundle.md", "b.md", "a.md", "agents/one.md", "agents/deep/two.md", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_an_agents_name_is_its_file(base: Path) -> None:
    assert construct_agent_path(base, "one") == base / "agents" / "one.md"
    assert construct_agent_path(base, "one.md") == base / "agents" / "one.md"
    assert construct_agent_path(base, "deep/two") == base / "agents" / "deep" / "two.md"
    assert construct_agent_path(base, "v1.2") == base / "agents" / "v1.2.md"


def test_a_context_file_keeps_its_suffix(base: Path) -> None:
    assert construct_context_path(base, "style") == base / "context" / "style.md"
    assert construct_context_path(base, "style.md") == base / "context" / "style.md"
    assert construct_context_path(base, "rules/data.json") == base / "context" / "rules" / "data.json"


@pytest.mark.parametrize("name", ["", "../../secret", "/etc/passwd", "deep/../../../x", "a\0b"])
def test_a_name_does_not_lead_out_of_the_bundle(base: Path, name: str) -> None:
    for construct in (construct_agent_path, construct_context_path):
        with pytest.raises(ValueError, match="leads out of|names no file"):
            construct(base, name)


def test_a_symlink_does_not_lead_out_either(base: Path) -> None:
    (base / "agents" / "spy.md").symlink_to(base.parent / "secret.md")
    with pytest.raises(ValueError, match="'spy' leads out of"):
        construct_agent_path(base, "spy")


def test_files_are_found_in_their_order_and_none_outside(base: Path) -> None:
    (base / "spy.md").symlink_to(base.parent / "secret.md")
    (base / "up").symlink_to(base.parent)
    (base / "again.md").symlink_to(base / "a.md")
    (base / "folder.md").mkdir()
    found = [str(path.relative_to(base)) for path in find_files(base)]
    assert found == ["a.md", "again.md", "agents/deep/two.md", "agents/one.md", "b.md", "bundle.md"]
    assert [path.name for path in find_files(base, "*.txt")] == ["notes.txt"]
    assert find_files(base, "../*.md") == []
    assert find_files(base, "up/*.md") == []
    assert find_files(base / "missing") == []


@pytest.mark.parametrize("pattern", ["/etc/*", ""])
def test_a_pattern_is_relative_to_the_folder(base: Path, pattern: str) -> None:
    with pytest.raises(ValueError, match="must be relative|Unacceptable pattern"):
        find_files(base, pattern)


def test_the_root_of_a_bundle_is_the_nearest_folder_with_its_file(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = base / "agents" / "deep"
    assert find_bundle_root(inner) == base
    assert find_bundle_root(inner / "two.md") == base
    (base / "agents" / "bundle.yml").write_text("bundle: {name: inner}")
    assert find_bundle_root(inner) == base / "agents"
    monkeypatch.chdir(base)
    assert find_bundle_root(Path()) == base
    assert find_bundle_root(Path("/")) is None
