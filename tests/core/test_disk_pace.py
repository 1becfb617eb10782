"""Tell a quick disk from one that is slow now and then."""

from __future__ import annotations

from amplifier_core.disk_pace import ENOUGH, QUICK, DiskPace


def test_a_disk_is_quick_until_it_was_slow() -> None:
    pace = DiskPace()
    assert pace.is_quick
    pace.note(QUICK)
    assert pace.is_quick
    pace.note(2 * QUICK)
    assert not pace.is_quick


def test_it_is_quick_again_after_enough_quick_writes_in_a_row() -> None:
    pace = DiskPace()
    pace.note(3.0)
    for _ in range(ENOUGH - 1):
        pace.note(QUICK / 10)
    assert not pace.is_quick
    pace.note(3.0)
    for written in range(ENOUGH):
        assert not pace.is_quick, written
        pace.note(QUICK / 10)
    assert pace.is_quick
