"""The pages of the documentation: a reader does what each one says, from top to bottom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import Reader, blocks_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("amplifier_*/docs/*.md"))
STAND_INS = {
    r"^pip install (--upgrade )?'.*": "true",  # the reader's environment has it
}
MOST_LINES = 135
OWN_LINES = 40
"""Lines that somebody writes for a package with a trigger: its code and its test."""

per_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@per_page
def test_a_page_works_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path / "project", STAND_INS, installs_quickly=page.stem != "trigger") as reader:
        reader.read(page)
    for package in reader.folder.glob("amplifier-*/pyproject.toml"):
        lint = [sys.executable, "-m", "ruff", "check", "--quiet", "--no-cache", str(package.parent)]
        assert subprocess.run(lint, capture_output=True, text=True, check=False).stdout == ""


def test_the_readme_leads_from_an_empty_folder_to_a_published_trigger_of_few_lines() -> None:
    """The walk itself is that of the page, with pip: see above."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [page] = [ROOT / link for link in re.findall(r"\]\((\S+\.md)\)", readme) if link.endswith("/trigger.md")]
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    own = [block.text for block in blocks if block.path is not None and block.path.endswith(".py")]
    assert len([line for text in own for line in text.splitlines() if line.strip()]) <= OWN_LINES
    typed = [command for block in blocks if block.kind == "console" for command, _ in block.commands]
    steps = ("amplifier plugin new", "pytest", "pip wheel", "python -m venv", "../other/bin/pip install dist/")
    for step, later in zip(steps, (*steps[1:], "../other/bin/amplifier up"), strict=True):
        places = [next(n for n, each in enumerate(typed) if each.startswith(name)) for name in (step, later)]
        assert places == sorted(places), step


@per_page
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@per_page
def test_a_page_is_linked_from_a_readme(page: Path) -> None:
    readmes = [ROOT / "README.md", page.parents[1] / "README.md"]
    linked = {
        (readme.parent / link).resolve()
        for readme in readmes
        for link in re.findall(r"\]\((\S+\.md)\)", readme.read_text("utf-8"))
    }
    assert page in linked


@per_page
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve()
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, link
