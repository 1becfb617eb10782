"""What is kept of checked files: as many as are asked for, the oldest removed first."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_foundation.documents import kept
from amplifier_foundation.documents.kept import Check, Kept
from amplifier_foundation.paths import data_home


def test_the_oldest_entries_are_removed_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    data_home().mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(kept, "MOST", 10)
    monkeypatch.setattr(kept, "COUNT_AT", 1)
    check = Check("test", (Path(__file__),))
    for number in range(11):
        check.keep(f"/bundles/{number}", "about", {"n": number})
    found = [check.find(f"/bundles/{number}", "about") for number in range(11)]
    assert found[:3] == [None] * 3
    assert found[3:] == [Kept({"n": number}) for number in range(3, 11)]


def test_an_entry_that_a_crash_cut_is_none() -> None:
    data_home().mkdir(parents=True, exist_ok=True)
    check = Check("cut", (Path(__file__),))
    check.keep("/bundles/a", "about", {"n": 1})
    [entry] = (data_home() / kept.FOLDER / "cut").iterdir()
    text = entry.read_text(encoding="utf-8")
    for cut in ("", text[: len(text) // 2]):
        entry.write_text(cut, encoding="utf-8")
        assert check.find("/bundles/a", "about") is None
