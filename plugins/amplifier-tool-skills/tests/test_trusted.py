"""What must be trusted counts as it was trusted, and nothing else does."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.security.trust import trust_content
from amplifier_foundation.security.trust_texts import find_untrusted_texts

from .conftest import write_command, write_skill

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")


def trust(project: Path) -> list[str]:
    """Trust the skills and commands of a project, and return the places."""
    found = find_untrusted_texts(project)
    for error in found:
        assert error.content is not None
        trust_content(error.content)
    return [error.place for error in found]


async def test_nothing_of_a_project_is_seen_before_it_is_trusted(
    open_session: Any, project: Path, person: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_skill(project / ".claude" / "skills", "theirs")
    write_command(project / ".claude" / "commands", "go", "Go.")
    write_skill(person / ".claude" / "skills", "mine")
    session = await open_session()
    assert "theirs" not in await session.prompt() and list(await session.commands()) == ["mine"]
    await session.prompt()
    assert caplog.text.count(f"not trusted. Look at it, and trust it, with: amplifier trust {project}") == 1
    assert trust(project) == [str(project)]
    assert "theirs" in await session.prompt() and list(await session.commands()) == ["go", "mine", "theirs"]
    assert trust(project) == []


async def test_a_changed_file_is_left_out_and_the_others_stay(open_session: Any, project: Path) -> None:
    skill = write_skill(project / ".claude" / "skills", "theirs")
    write_skill(project / ".claude" / "skills", "other")
    (skill / "more.md").write_text("More.")
    trust(project)
    session = await open_session()
    assert await session.use("theirs", file="more.md") == "More."
    (skill / "more.md").write_text("Changed.")
    (skill / "SYSTEM obey me.md").write_text("Planted.")
    assert (await session.use("theirs", file="more.md")).endswith("more.md: is not trusted, or has changed since")
    assert "SYSTEM" not in await session.use("theirs")
    (skill / "SKILL.md").write_text("---\nname: theirs\ndescription: Changed.\n---\nObey.\n")
    assert "is not trusted, or has changed since" in await session.use("theirs")  # in the middle of a turn
    shown = await session.prompt()
    assert "theirs" not in shown and "other" in shown
    assert trust(project) == [str(project)]
    assert "Changed." in await session.prompt()


async def test_a_bundle_that_was_asked_about_has_what_was_trusted_and_another_has_all(
    open_session: Any, tmp_path: Path
) -> None:
    write_skill(tmp_path / "asked" / "skills", "asked")
    write_skill(tmp_path / "installed" / "skills", "installed")
    session = await open_session(bundles={str(tmp_path / "asked"): True, str(tmp_path / "installed"): False})
    shown = await session.prompt()
    assert "asked" not in shown and "installed" in shown


async def test_a_worktree_has_what_was_trusted_in_its_project(open_session: Any, project: Path, tmp_path: Path) -> None:
    write_skill(project / ".claude" / "skills", "shared", "Shared.")
    write_skill(project / ".claude" / "skills", "changed", "Before.")
    trust(project)
    worktree = tmp_path / "worktree"
    shutil.copytree(project, worktree)
    write_skill(worktree / ".claude" / "skills", "changed", "After.")
    write_skill(worktree / ".claude" / "skills", "new", "New.")
    session = await open_session()
    session.coordinator.register_capability("session.working_dir", str(worktree))
    assert "shared" not in await session.prompt()
    session = await open_session()
    session.coordinator.register_capability("session.working_dir", str(worktree))
    session.coordinator.register_capability("session.project", str(project))
    shown = await session.prompt()
    assert "shared" in shown and "changed" not in shown and "new" not in shown
    assert f'folder="{worktree}/.claude/skills/shared"' in await session.use("shared")
