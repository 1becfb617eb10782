"""Fresh environments with what `pip install` would put there, made without network and in a second.

The wheels are built and installed for real. What they require of others is linked from the environment that runs the
tests: exactly that, and what it requires in turn, so that a dependency nobody declared is missed here too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pip
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
PIP_OF_OTHERS = (str(Path(pip.__file__).parent / "__pip-runner__.py"), "--quiet", "--disable-pip-version-check")
"""The same pip, as `pip --python` begins it in another environment; this spares the process before that."""
BUILD = """
import os, sys
from hatchling.build import build_wheel
for project in sys.argv[2:]:
    os.chdir(project)
    build_wheel(sys.argv[1])
"""
PATIENCE = 300.0
"""Seconds that one run of a program may take."""


class Wheels:
    """A folder of wheels, found by the name of their distribution."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, *projects: Path) -> None:
        """Build the wheel of each project folder."""
        options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(self.folder))
        _run([*PIP, "wheel", *options, *map(str, projects)])

    def build_in_one_process(self, *projects: Path) -> None:
        """Build the wheel of each project folder by its backend, as pip does."""
        _run([sys.executable, "-c", BUILD, str(self.folder), *map(str, projects)])

    def __getitem__(self, name: str) -> Path:
        return next(path for path in self.folder.glob("*.whl") if parse_wheel_filename(path.name)[0] == name)

    def required_by(self, name: str, extra: str = "") -> list[str]:
        """Return the names that a wheel requires, here and now, with one extra or without extras."""
        with ZipFile(self[name]) as wheel:
            metadata = next(entry for entry in wheel.namelist() if entry.endswith(".dist-info/METADATA"))
            headers = HeaderParser().parsestr(wheel.read(metadata).decode())
        return _applying(headers.get_all("Requires-Dist") or [], extra)


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment of its own, and a data folder that nobody else uses."""

    folder: Path
    home: Path
    wheels: Wheels

    def install(self, *names: str) -> None:
        """Install distributions of ours and those they are built on, and link what they require of others."""
        ours = {*names, *(each for name in names for each in self.wheels.required_by(name) if _is_ours(each))}
        required = {each for name in ours for each in self.wheels.required_by(name) if not _is_ours(each)}
        for name in _closure(required - {"amplifier"}):
            self._link(name)
        wheels = [str(self.wheels[name]) for name in sorted(ours)]
        self._run_pip("install", "--no-deps", "--no-index", *wheels)

    def install_standard(self) -> None:
        """Install `amplifier[standard]` as pip resolves it, from the wheels alone; link what it requires of others."""
        names = {"amplifier", *self.wheels.required_by("amplifier", "standard")}
        ours = {each for name in names if _is_ours(name) for each in self.wheels.required_by(name)} | names
        required = {each for name in {"amplifier", *filter(_is_ours, ours)} for each in self.wheels.required_by(name)}
        for name in _closure({each for each in required if not _is_ours(each) and each != "amplifier"}):
            self._link(name)
        self._run_pip("install", "--no-index", "--find-links", str(self.wheels.folder), "amplifier[standard]")

    def check(self) -> None:
        """Fail when something that an installed distribution requires is missing, or too old."""
        self._run_pip("check")

    def uninstall(self, name: str) -> None:
        """Uninstall one distribution of ours."""
        self._run_pip("uninstall", "--yes", name)

    def python(self, code: str) -> None:
        """Run statements in a Python process of this environment; fail when they do."""
        _run([str(self._python), "-c", code])

    def amplifier(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the program as a process of its own and return how it ended."""
        return subprocess.run(
            [str(self.folder / "bin" / "amplifier"), *arguments],
            cwd=cwd or self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "AMPLIFIER_HOME": str(self.home / "data"),
                "AMPLIFIER_TRUST": "1",
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def _run_pip(self, *arguments: str) -> None:
        _run([str(self._python), *PIP_OF_OTHERS, *arguments])

    @property
    def _python(self) -> Path:
        return self.folder / "bin" / "python"

    def _link(self, name: str) -> None:
        dist = distribution(name)
        packages = self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        for top in {file.parts[0] for file in dist.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(dist.locate_file(top))))


def _is_ours(name: str) -> bool:
    return name.startswith("amplifier-")


def _closure(names: set[str]) -> set[str]:
    """Return `names` and everything that they require."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_applying(distribution(name).requires or []))
    return found


def _applying(lines: list[str], extra: str = "") -> list[str]:
    requirements = [Requirement(line) for line in lines]
    return [
        canonicalize_name(requirement.name)
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    ]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """The wheels of the root and of every plugin, built from a copy of the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", "tests")
    for name in ("amplifier_core", "amplifier_foundation", "plugins"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    wheels = Wheels(tmp_path_factory.mktemp("wheels"))
    wheels.build(copy)
    wheels.build_in_one_process(*sorted(copy.glob("plugins/*")))
    return wheels


@pytest.fixture(scope="session")
def with_root(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the root alone, to be copied."""
    folder = tmp_path_factory.mktemp("root") / "environment"
    venv.create(folder, symlinks=True, with_pip=False)
    Environment(folder, folder, wheels).install("amplifier")
    return folder


@pytest.fixture
def environment(with_root: Path, wheels: Wheels, tmp_path: Path) -> Environment:
    """A fresh environment with the root alone."""
    folder, home = tmp_path / "environment", tmp_path / "home"
    shutil.copytree(with_root, folder, symlinks=True)
    program = folder / "bin" / "amplifier"
    program.write_text(program.read_text().replace(str(with_root), str(folder)))
    home.mkdir()
    return Environment(folder, home, wheels)
