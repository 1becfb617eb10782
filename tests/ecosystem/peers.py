"""The published kernel, in an environment of its own: it has the import name of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-peers"
LISTED = ROOT / "tests" / "benchmarks" / "peers.txt"
KERNEL = "amplifier-core==2.0.2"


class NoEnvironment(Exception):
    """The published kernel cannot be installed here."""


def interpreter() -> Path:
    """Return an interpreter that has the published kernel; make its environment when there is none."""
    python = ENVIRONMENT / "bin" / "python"
    if not _has_kernel(python):
        _run(sys.executable, "-m", "venv", str(ENVIRONMENT))
        wanted = ["-r", str(LISTED)] if LISTED.is_file() else [KERNEL]
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
    return python


def _has_kernel(python: Path) -> bool:
    name, _, version = KERNEL.partition("==")
    asked = f"from importlib.metadata import version; assert version({name!r}) == {version!r}"
    return python.exists() and subprocess.run([python, "-c", asked], capture_output=True, check=False).returncode == 0


def install_ours(plugins: list[Path], folder: Path) -> None:
    """Install plugins of ours into a folder for `sys.path`, without what they depend on."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([*pip, "install", *options, *map(str, plugins)], check=True)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        raise NoEnvironment(f"{' '.join(command[:4])}: {' '.join(last)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(str(error)) from error
