"""`up` runs for `MINUTES` while disks fill, folders go, ports are taken and bundles change: everything is handled.

`make soak MINUTES=60` is the whole campaign; the usual run lasts some seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.programs import require

from .killing import PROGRAM
from .soaking import FULL_DISK, Soak, check_level

MINUTES = float(os.environ.get("MINUTES", "0"))
SEED = os.environ.get("SEED", "20261122")


@pytest.fixture
def full_disk(tmp_path: Path) -> Path:
    """A library under which the disk is full while a file exists."""
    if sys.platform != "linux":
        pytest.skip("a full disk needs Linux")
    source, library = tmp_path / "full.c", tmp_path / "full.so"
    source.write_text(FULL_DISK)
    subprocess.run([require("gcc"), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


async def test_everything_is_handled_whatever_happens_around_it(tmp_path: Path, full_disk: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    soak = Soak(
        folder,
        full_disk,
        SEED,
        files=5_000 if MINUTES else 500,
        rate=20.0 if MINUTES else 5.0,
        pace=1.0 if MINUTES else 0.05,
    )
    try:
        await soak.run(MINUTES * 60)
        await soak.finish()
        count = await soak.check()
        for samples in soak.samples if MINUTES else ():  # a short run is a start, and grows
            check_level(samples)
    finally:
        soak.end()
    sys.stderr.write(f"{count} deliveries; {dict(Counter(soak.interruptions))}\n")
    check_log(soak)


def check_log(soak: Soak) -> None:
    """Assert that `amplifier logs` tells of the interruptions."""
    command = [*PROGRAM, "logs", "-n", "1000000"]
    environment = {name: text for name, text in soak.environment.items() if name != "LD_PRELOAD"}
    log = subprocess.run(command, cwd=soak.folder, env=environment, capture_output=True, text=True, check=True).stdout
    for told in ("disk", "spool", "port", "bundle"):
        assert told in log, f"no line of `amplifier logs` tells of: {told}"
