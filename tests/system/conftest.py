"""The library under which faults of system calls are tried."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .faults import SHIM


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that lets a chosen system call fail, or kills the process at it."""
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("faults of system calls need gcc and Linux")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "shim.so"), str(folder / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    return folder / "shim.so"
