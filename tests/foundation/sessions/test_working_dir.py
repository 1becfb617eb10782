"""The folder that a session works in."""

from __future__ import annotations

from pathlib import Path

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_foundation.sessions.working_dir import WORKING_DIR_CAPABILITY, get_working_dir, set_working_dir


def test_the_folder_is_the_capability_or_the_default_or_the_current_one(project: Path, tmp_path: Path) -> None:
    coordinator = ModuleCoordinator()
    assert get_working_dir(coordinator) == project
    assert get_working_dir(coordinator, "elsewhere") == Path("elsewhere")
    set_working_dir(coordinator, tmp_path)
    assert get_working_dir(coordinator, "elsewhere") == tmp_path


def test_modules_are_told_an_absolute_path_as_text(project: Path) -> None:
    coordinator = ModuleCoordinator()
    set_working_dir(coordinator, "below")
    assert coordinator.get_capability(WORKING_DIR_CAPABILITY) == str(project / "below")
    set_working_dir(coordinator, "~")
    assert get_working_dir(coordinator) == Path.home()


async def test_a_session_finds_its_folder_before_its_modules_are_mounted(tmp_path: Path) -> None:
    from amplifier_foundation import Bundle, PreparedBundle

    bundle = Bundle.from_dict({"bundle": {"name": "x"}}, tmp_path)
    session = await PreparedBundle.of(bundle).create_session(session_cwd=tmp_path)
    assert get_working_dir(session.coordinator) == tmp_path
    await session.cleanup()
