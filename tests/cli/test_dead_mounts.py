"""The data folder is on a mount whose server is killed: a running `up` says so, and ends when it is asked to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from amplifier_foundation.cli import exits
from tests.dead_mounts import needs_fuse
from tests.programs import require

pytestmark = [needs_fuse, pytest.mark.slow]


@pytest.mark.parametrize("is_mounted_again", [True, False])
def test_an_up_whose_data_folder_is_lost_ends(background: Path, tmp_path: Path, is_mounted_again: bool) -> None:
    real, home = tmp_path / "real", tmp_path / "mounted"
    real.mkdir()
    home.mkdir()
    mount = [require("bindfs"), "-f", str(real), str(home)]
    server = subprocess.Popen(mount)
    try:
        while not home.is_mount():
            if server.poll() is not None:
                pytest.skip("this system mounts nothing here")
        up = subprocess.Popen(
            [sys.executable, "-m", "amplifier_foundation", "up"],
            env={**os.environ, "AMPLIFIER_HOME": str(home), "AMPLIFIER_TRUST": "1"},
            cwd=background.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert up.stdout is not None
        said = _read_until("Watching", up.stdout)
        server.kill()
        server.wait()
        said += _read_until("Nothing is accepted until it is back", up.stdout)
        if is_mounted_again:
            subprocess.run(["umount", "--lazy", home], check=True)
            server = subprocess.Popen(mount)  # other files than those in use
        else:
            up.send_signal(signal.SIGTERM)
        said += up.communicate(timeout=60)[0]
    finally:
        server.kill()
        server.wait()
        subprocess.run(["umount", "--lazy", home], check=False, stderr=subprocess.DEVNULL)
    assert f"{home} cannot be reached (Transport endpoint is not connected)" in said
    assert up.returncode == (exits.TRY_AGAIN if is_mounted_again else exits.TERMINATED)
    assert "Traceback" not in said


def _read_until(wanted: str, lines: IO[str]) -> str:
    said = ""
    for line in lines:
        said += line
        if wanted in line:
            return said
    raise AssertionError(f"it ended: {said}")
