"""Durations, as numbers and as people write them."""

from __future__ import annotations

import pytest

from amplifier_core.durations import seconds_of


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *((0, 0), (1.5, 1.5), ("15m", 900), ("1h30m", 5400), ("500ms", 0.5), ("2w", 1_209_600), ("1.5h", 5400)),
        *(
            ("90 min", 5400),
            ("1 day", 86_400),
            ("1 h 30 m", 5400),
            ("2 weeks 1 hour", 1_213_200),
            (" 5 mins 3secs ", 303),
        ),
    ],
)
def test_a_duration_is_seconds(value: object, seconds: float) -> None:
    assert seconds_of(value) == seconds
    assert seconds_of(seconds_of(value)) == seconds


@pytest.mark.parametrize(
    "value",
    [
        -1,
        1e300,
        float("inf"),
        float("nan"),
        10**400,
        -(10**400),
        f"{10**300}s",
        f"{10**400}d",
        True,
        None,
        "",
        "m",
        "1 x",
        "1 month",
        "1  day",
        "day",
        "٣d",
    ],
)
def test_what_is_no_duration_is_refused_however_it_is_written(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds_of(value)
