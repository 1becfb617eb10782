"""The data folder of a running process: away and back, or lost."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_foundation.background import data_folder
from amplifier_foundation.background.data_folder import watching_data_folder
from amplifier_foundation.paths import make_private
from tests.dead_mounts import fuse_mount, needs_fuse


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(data_folder, "LOOK_EVERY", 0.001)
    make_private(tmp_path / "home" / "locks")
    return tmp_path / "home"


async def test_a_folder_that_is_away_is_not_made_again_and_used_on_when_it_is_back(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost = asyncio.Event()
    async with watching_data_folder(lambda error: lost.set()) as folder:
        home.rename(tmp_path / "away")
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            folder.check()
        with pytest.raises(StoreUnavailable, match="is gone, while this process uses it"):
            make_private(home / "run")
        assert not home.exists()
        while "is gone" not in caplog.text:
            await asyncio.sleep(0.001)
        (tmp_path / "away").rename(home)
        while "is back" not in caplog.text:
            await asyncio.sleep(0.001)
        folder.check()
        assert not lost.is_set()


@pytest.mark.parametrize("how", ["away", "removed", "replaced"])
async def test_a_folder_that_does_not_come_back_is_lost(
    how: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "away":
        monkeypatch.setattr(data_folder, "AWAY", 0.01)
    lost = asyncio.Event()
    async with watching_data_folder(lambda error: lost.set()):
        if how == "removed":
            shutil.rmtree(home)
        else:
            home.rename(tmp_path / "away")
        if how == "replaced":
            home.mkdir()
        await asyncio.wait_for(lost.wait(), 60)
    make_private(home)  # nothing uses it any more


@needs_fuse
@pytest.mark.parametrize("is_mounted_again", [True, False])
async def test_a_folder_on_a_dead_mount_is_waited_for_and_lost_in_the_end(
    is_mounted_again: bool, home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: asyncio.Future[StoreUnavailable] = asyncio.get_running_loop().create_future()
    with fuse_mount(home) as kill:
        async with watching_data_folder(lost.set_result) as folder:
            kill()
            with pytest.raises(StoreUnavailable, match=r"the data folder cannot be reached \(Transport endpoint"):
                folder.check()
            while "cannot be reached (Transport endpoint is not connected). Nothing is accepted" not in caplog.text:
                await asyncio.sleep(0.001)
            assert not lost.done()
            monkeypatch.setattr(data_folder, "AWAY", 0.0)
            with fuse_mount(home) if is_mounted_again else nullcontext():  # its files are others than those in use
                await asyncio.wait_for(lost, 60)
