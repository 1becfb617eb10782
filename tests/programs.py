"""Find programs that some tests run, and install packages that are no part of the environment."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

NPM = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
PIP = ("--quiet", "--disable-pip-version-check", "--no-deps")


def require(program: str) -> str:
    """Return the path of a program. Skips the test where it is missing, and fails it there where `CI` is set."""
    path = shutil.which(program)
    if path is None:
        miss(f"{program} is not installed")
    return path


def miss(what: str) -> NoReturn:
    """Skip the test that misses something; fail it where `CI` is set, which has everything."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


def install_from_npm(cache: pytest.Cache | None, name: str, packages: Path) -> Path:
    """Return a folder with the packages of a `package.json`, installed once."""
    folder = _folder(cache, name, packages)
    shutil.copy(packages, folder / "package.json")
    return _install_once([require("npm"), "install", *NPM], folder)


def install_from_pypi(cache: pytest.Cache | None, name: str, packages: Path) -> Path:
    """Return a folder with the packages that a file names, a line each, installed once beside those of the tests."""
    folder = _folder(cache, name, packages)
    pip = [sys.executable, "-m", "pip", "install", *PIP, "--target", str(folder)]
    return _install_once([*pip, *packages.read_text().split()], folder)


def make_environment(folder: Path) -> str:
    """Return the Python of a new environment in a folder, which imports what the tests import."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(
        "\n".join(each for each in map(os.path.realpath, sys.path) if Path(each).is_dir())
    )
    return str(folder / "bin" / "python")


def _folder(cache: pytest.Cache | None, name: str, packages: Path) -> Path:
    """Return the folder of packages in the cache, another one for other packages."""
    assert cache is not None
    return cache.mkdir(f"{name}-{sha256(packages.read_bytes()).hexdigest()[:12]}")


def _install_once(command: Sequence[str], folder: Path) -> Path:
    """Install by a command in a folder, unless that is done; processes of tests wait for the one that does it."""
    installed = folder / "installed"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                miss(f"{command[0]} cannot install {folder.name}: {done.stderr[-500:]}")
            installed.touch()
    return folder
