"""Packages as others write them, from the public pages alone: built, installed by themselves, and at work."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.pages import Reader
from tests.public_names import public_modules

pytestmark = pytest.mark.slow

OURS = ("amplifier_core", "amplifier_foundation")
HERE = Path(__file__).parent
PACKAGES = sorted(path.parent for path in HERE.glob("amplifier-*/pyproject.toml"))

per_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)


def imports_of(package: Path) -> Iterator[tuple[str, str]]:
    """Yield the names that a package imports from ours, with their modules."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS):
                yield from ((str(node.module), alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                assert not [alias.name for alias in node.names if alias.name.startswith(OURS)]


@per_package
def test_a_package_imports_public_names_alone(package: Path) -> None:
    imported = list(imports_of(package))
    assert imported
    for module, name in imported:
        assert module in public_modules(), module
        listed = getattr(import_module(module), "__all__", None)
        assert name in listed if listed is not None else not name.startswith("_"), (module, name)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path / "project") as reader:
        yield reader


def install(reader: Reader, package: str) -> None:
    """Build a wheel, install it alone into the reader's environment, and run the package's own tests with it."""
    copy = reader.folder.parent / "source"
    shutil.copytree(HERE / package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    reader.type(f"pip wheel --no-deps --no-build-isolation --wheel-dir {copy.parent} {copy}")
    [wheel] = copy.parent.glob("*.whl")
    reader.type(f"pip install --no-deps {wheel}")
    reader.type(f"amplifier plugin check {package}")
    shutil.rmtree(copy / package.replace("-", "_"))
    assert " passed" in reader.type(f"cd {copy} && pytest -q -p no:cacheprovider; cd {reader.folder}")


WATCHER = """---
bundle: {name: watcher}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
background_sessions:
  - name: reviewer
    triggers: [{module: trigger-git-branch, config: {branch: trunk}}]
    instruction_template: Review {commit} of {branch}.
---
"""


def test_a_branch_that_moves_wakes_a_session(reader: Reader) -> None:
    install(reader, "amplifier-trigger-git-branch")
    reader.write("bundle.md", WATCHER)
    reader.type("git init --quiet --initial-branch trunk && git commit --quiet --allow-empty -m one")
    reader.type("amplifier trust --yes")
    assert "You said" not in reader.type("amplifier up --once")
    reader.type("git commit --quiet --allow-empty -m two")
    commit = reader.type("git rev-parse HEAD").strip()
    assert f"You said: Review {commit} of trunk." in reader.type("amplifier up --once")
    reader.write("bundle.md", WATCHER.replace("branch: trunk", "brunch: trunk"))
    told = reader.type("amplifier bundle validate", check=False)
    assert "bundle.md:6:54: error" in told
    assert "unknown key; did you mean 'branch'?" in told


LIBRARIAN = """---
bundle: {name: librarian}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {tool: vector_search, output: '"text": "(?P<best>[^"]+)"'}, say: "I found: {best}"}
        - {when: {user: '(?P<question>.*)'}, call: {tool: vector_search, input: {query: "{question}", limit: 1}}}
tools: [{module: tool-vector-search, config: {files: "notes/*.md"}}]
---
"""


def test_a_search_is_answered_in_a_session(reader: Reader) -> None:
    install(reader, "amplifier-tool-vector-search")
    reader.write("bundle.md", LIBRARIAN)
    reader.write("notes/house.md", "The door squeaks.\n\nThe heating is set to nineteen degrees.\n")
    reader.write("other.md", "Heating degrees, heating degrees.\n")
    reader.type("amplifier trust --yes")
    answer = reader.type("amplifier -q run 'How many degrees does the heater have?'")
    assert answer.strip() == "I found: The heating is set to nineteen degrees."


def test_the_packages_are_not_installed_here() -> None:
    names = {package.name.replace("-", "_") for package in PACKAGES}
    assert names & {path.name for entry in sys.path for path in Path(entry).glob("amplifier_*")} == set()
