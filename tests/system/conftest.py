"""Offer the library under which faults of system calls are tried, and a short list of certificates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import certifi
import pytest

from tests.programs import require

from .faults import SHIM


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that lets a chosen system call fail, or kills the process at it."""
    if sys.platform != "linux":
        pytest.skip("faults of system calls need Linux")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    command = [require("gcc"), "-shared", "-fPIC", "-O1", "-o", str(folder / "shim.so"), str(folder / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    return folder / "shim.so"


@pytest.fixture
def one_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust one certificate: to read all of them takes a client longer than a schedule."""
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
    (tmp_path / "one.pem").write_text(first + end)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
