"""The pages of the documentation: a reader does what each one says, from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import Reader

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("amplifier_*/docs/*.md"))
STAND_INS = {
    r"^pip install (--upgrade )?'.*": "true",  # the reader's environment has it
}
MOST_LINES = 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_works_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path / "project", STAND_INS) as reader:
        reader.read(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
