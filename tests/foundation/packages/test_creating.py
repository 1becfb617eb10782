"""The package of a new plugin: it passes its own tests, is typed, builds and installs, and is found by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.packages.checking import check_package
from amplifier_foundation.packages.creating import KINDS, FolderExists, PackageNameError, create_package

pytestmark = pytest.mark.slow

NAME = "heart-beat-of-thirty-character"
"""As long as a name may be."""
BUILD = """
import os, sys
from hatchling.build import build_wheel
for project in sys.argv[2:]:
    os.chdir(project)
    build_wheel(sys.argv[1])
"""
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-index")


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Run a program of this environment, and return its output; fail when it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new package of each kind, beside an environment with all of them."""
    folder = tmp_path_factory.mktemp("projects")
    for kind in KINDS:
        create_package(kind, NAME, folder / f"amplifier-{kind}-{NAME}")
    return folder


@pytest.fixture(scope="module")
def installed(projects: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the import path, with the wheels of all of them."""
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    run(sys.executable, "-c", BUILD, str(wheels), *map(str, sorted(projects.iterdir())), cwd=projects)
    run(*PIP, "--target", str(target), *map(str, wheels.glob("*.whl")), cwd=projects)
    return target


def test_each_package_passes_its_own_tests(projects: Path, installed: Path) -> None:
    settings = projects / f"amplifier-trigger-{NAME}" / "pyproject.toml"
    tests = [str(path) for path in sorted(projects.glob("*/tests"))]
    assert (
        len({(path / "pyproject.toml").read_text().partition("[tool.pytest")[2][:150] for path in projects.iterdir()})
        == 1
    )
    said = run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", str(settings)),
        *("--rootdir", str(projects), *tests),
        cwd=projects,
        PYTHONPATH=str(installed),
    )
    assert " passed" in said
    assert "skipped" not in said


def test_each_package_is_typed_and_formatted(projects: Path, installed: Path) -> None:
    packages = [str(path) for pattern in ("*/amplifier_*", "*/tests") for path in sorted(projects.glob(pattern))]
    cache = Path(".mypy_cache").absolute() / "packages"
    run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *packages, cwd=projects)
    run(sys.executable, "-m", "ruff", "check", ".", cwd=projects)
    run(sys.executable, "-m", "ruff", "format", "--check", ".", cwd=projects)


def test_each_package_is_installed_and_listed_by_its_name(installed: Path, home: Path, projects: Path) -> None:
    listed = run(
        *(sys.executable, "-m", "amplifier_foundation", "plugin", "list", "--json"),
        cwd=projects,
        PYTHONPATH=str(installed),
    )
    data = json.loads(listed)["data"]
    rows = {row["dist"]: row["name"] for part in data.values() for row in part}
    for kind in set(KINDS) - {"command"}:
        assert rows[f"amplifier-{kind}-{NAME}"] == f"{kind}-{NAME}"
    said = run(*(sys.executable, "-m", "amplifier_foundation", NAME, "Ann"), cwd=projects, PYTHONPATH=str(installed))
    assert said == "Hello, Ann!\n"


def test_each_package_keeps_its_contracts(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(check_package, [f"amplifier-{kind}-{NAME}" for kind in KINDS]))
    found = {each.name: [finding.text for finding in each.findings] for report in reports for each in report.entries}
    assert {name: findings for name, findings in found.items() if findings} == {}
    assert len(found) == len(KINDS)


@pytest.mark.parametrize(("kind", "most"), [("trigger", 20), ("storage", 40)])
def test_the_authors_own_lines_are_few(kind: str, most: int, projects: Path) -> None:
    source = (
        projects / f"amplifier-{kind}-{NAME}" / f"amplifier_{kind}_{NAME.replace('-', '_')}" / "__init__.py"
    ).read_text()
    own = [line for line in source[source.index("\nclass ") :].splitlines() if line.strip()]
    assert len(own) < most


def test_nothing_of_the_example_is_left_in_a_package(projects: Path) -> None:
    texts = {path: path.read_text() for path in projects.rglob("*") if path.is_file() and "cache" not in str(path)}
    assert {str(path) for path, text in texts.items() if "kind-" in text or "example" in text + path.name} == set()
    assert {path.name for path in projects.glob("*/.github/workflows/*")} == {"test.yml"}


BAD_NAMES = {
    "GitCommit": "git-commit",
    "git_commit": "git-commit",
    "2fast": "fast",
    "a--b": "a-b",
    "../up": "up",
    "überfall": "berfall",
    "": "git-commit",
    "x" * 31: "x" * 30,
}


@pytest.mark.parametrize(("name", "better"), BAD_NAMES.items())
def test_a_bad_name_is_refused_with_a_better_one(
    name: str, better: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["plugin", "new", "trigger", name]) == exits.USAGE
    said = capsys.readouterr().err
    assert f"'{name}' is no name of a package" in said
    assert said.endswith(f"Try: {better}\n")
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "name", "owner"),
    [
        ("trigger", "timer", "amplifier-trigger-timer 0.1.0"),
        ("tool", "amplifier-tool-bash", "amplifier-tool-bash 0.1.0"),
        ("command", "run", "amplifier itself"),
        ("command", "issue", "amplifier-tool-issue 0.1.0"),
    ],
)
def test_a_name_that_is_taken_is_refused_with_its_owner(kind: str, name: str, owner: str, project: Path) -> None:
    with pytest.raises(PackageNameError, match=f"is offered by {owner}. Choose another name, such as my-"):
        create_package(kind, name, None, {"run"})
    assert list(project.iterdir()) == []


def test_an_existing_folder_stays_as_it_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plugin", "new", "trigger", "x"]) == exits.OK
    assert capsys.readouterr().out == "amplifier-trigger-x\n"
    (project / "amplifier-trigger-x" / "README.md").write_text("mine")
    assert invoke(["plugin", "new", "trigger", "x"]) == exits.CONFLICT
    assert "Choose another name, or another folder with --to" in capsys.readouterr().err
    assert (project / "amplifier-trigger-x" / "README.md").read_text() == "mine"
    with pytest.raises(FolderExists):
        create_package("tool", "x", project / "amplifier-trigger-x")


def test_a_package_can_be_written_elsewhere_and_told_in_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plugin", "new", "hooks", "hooks-x", "--to", "deep/down", "--json"]) == exits.OK
    told = json.loads(capsys.readouterr().out)
    assert told["data"] == {"kind": "hooks", "dist": "amplifier-hooks-x", "path": "deep/down"}
    assert (project / "deep" / "down" / "amplifier_hooks_x" / "py.typed").is_file()
