"""Waiting until a path is quiet."""

from __future__ import annotations

import pytest

from amplifier_trigger_file_watcher.debounce import Debounce


def test_a_path_is_due_when_it_was_quiet_for_the_period() -> None:
    debounce = Debounce(1, 10)
    debounce.note("a", 0)
    debounce.note("b", 0.2)
    debounce.note("a", 0.5)
    assert debounce.take_due(1.1) == []
    assert debounce.take_due(1.3) == ["b"]
    assert debounce.seconds_left(1.3) == pytest.approx(0.2)
    assert debounce.take_due(1.5) == ["a"]
    assert debounce.seconds_left(1.5) is None


def test_a_path_that_is_never_quiet_is_due_at_the_limit() -> None:
    debounce = Debounce(1, 3)
    for tenth in range(29):
        debounce.note("a", tenth / 10)
        assert debounce.take_due(tenth / 10) == []
    assert debounce.seconds_left(2.8) == pytest.approx(0.2)
    assert debounce.take_due(3) == ["a"]
    assert debounce.seconds_left(3) is None


def test_a_due_path_begins_anew() -> None:
    debounce = Debounce(1, 2)
    debounce.note("a", 0)
    assert debounce.take_due(1) == ["a"]
    debounce.note("a", 1.5)
    assert debounce.take_due(2) == []
    assert debounce.take_due(2.5) == ["a"]


def test_without_a_period_every_path_is_due_at_once() -> None:
    debounce = Debounce(0, 0)
    debounce.note("a", 5)
    debounce.note("b", 5)
    assert debounce.seconds_left(5) == 0
    assert debounce.take_due(5) == ["a", "b"]


@pytest.mark.parametrize("start", [0.1, 1e6 + 0.1, 123456.789])
def test_the_wait_is_never_too_short_by_a_rounding_error(start: float) -> None:
    debounce = Debounce(0.7, 7)
    debounce.note("a", start)
    wait = debounce.seconds_left(start)
    assert wait is not None
    assert debounce.take_due(start + wait) == ["a"]
