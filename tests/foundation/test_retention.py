"""Which sessions may be forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amplifier_core import SessionRecord
from amplifier_foundation.retention import age, disposable

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def aged(days: int, **fields: Any) -> SessionRecord:
    return SessionRecord(f"s{days}", updated=NOW - timedelta(days=days), **{"status": "completed", **fields})


def chosen(*records: SessionRecord, **rules: Any) -> list[str]:
    return [record.session_id for record in disposable(records, **{"before": None, **rules})]


@pytest.mark.parametrize(
    ("text", "hours"), [("90m", 1.5), ("36h", 36), ("30d", 720), ("8w", 1344), (" 1d ", 24), ("3600s", 1)]
)
def test_an_age_is_a_number_and_a_unit(text: str, hours: float) -> None:
    assert age(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "30 d", "1y", "٣d", "9999999d"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30d"):
        age(text)


def test_the_oldest_go_first_and_the_newest_stay() -> None:
    records = [aged(3), aged(1), aged(2)]
    assert chosen(*records) == ["s3", "s2", "s1"]
    assert chosen(*records, keep=2) == ["s3"]
    assert chosen(*records, keep=5) == []
    assert chosen(*records, before=NOW - timedelta(days=1)) == ["s3", "s2"]
    assert chosen(*records, before=NOW, keep=1) == ["s3", "s2"]


def test_what_runs_or_is_needed_stays() -> None:
    assert chosen(aged(3, status="running"), aged(2), aged(1), needed={"s2"}) == ["s1"]
