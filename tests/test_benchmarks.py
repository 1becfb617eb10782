"""The measuring itself: what is judged, repeated, recorded and compared."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.benchmarks import __main__ as program
from tests.benchmarks import hooks
from tests.benchmarks.background import STEPS
from tests.benchmarks.environment import ROOT
from tests.benchmarks.measure import FLAT, LINEAR, Figure, Row, curve, in_turns
from tests.benchmarks.record import read_record, write_record
from tests.benchmarks.table import cells

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path


def row(*ours: float, limit: float = 1.0, at_most: float | None = 2.0, what: str = "work / by hand") -> Row:
    return Row(what, Figure(ours), limit, at_most_ratio=at_most)


def _power(exponent: float) -> Row:
    return Row("r", 1.0, 1.0, 0.1, values=(exponent,), is_exponent=True)


def test_a_ratio_is_the_median_of_the_rounds_beside_each_other_and_not_of_the_medians() -> None:
    ours, limit = Figure([10.0, 20.0, 90.0]), Figure([5.0, 10.0, 30.0])
    assert Row("work / by hand", ours, limit).values == (2.0, 2.0, 3.0)
    assert Row("work / by hand", ours, limit).ratio == 2.0


def test_a_row_is_judged_by_all_of_its_likely_medians() -> None:
    assert row(1.0, 1.1, 1.2).verdict == "ok"
    assert row(2.1, 2.2, 2.3).verdict == "MISSED"
    assert row(1.0, 1.1, 2.3).verdict == "undecided"
    assert row(1.0, 9.0, at_most=None).verdict == ""
    assert row(*([1.0] * 14), 9.0).verdict == "ok"  # one bad round of fifteen decides nothing


def test_figures_are_subtracted_round_by_round_and_never_below_nothing() -> None:
    assert (Figure([3.0, 5.0]) - Figure([1.0, 6.0])).rounds == (2.0, 0.0)


def test_a_curve_is_judged_by_its_exponent() -> None:
    sizes = (10, 100, 1_000, 10_000)
    linear = curve("forks", [(size, Figure([size * 2e-6, size * 3e-6])) for size in sizes], at_most=LINEAR)
    square = curve("forks", [(size, Figure([size**2 * 1e-9])) for size in sizes], at_most=LINEAR)
    flat = curve("forks", [(size, Figure([0.5])) for size in sizes], at_most=FLAT)
    assert linear.ratio == pytest.approx(1.0)
    assert square.ratio == pytest.approx(2.0)
    assert flat.ratio == pytest.approx(0.0, abs=1e-9)
    assert [each.verdict for each in (linear, square, flat)] == ["ok", "MISSED", "ok"]
    assert cells(square)[0::3][:3] == ("forks, 10 → 10,000", "n^2.00", "")


async def test_samples_are_taken_in_turns() -> None:
    taken: list[str] = []

    def sample(name: str, seconds: float) -> object:
        async def take() -> float:
            taken.append(name)
            return seconds

        return take

    first, second = await in_turns(sample("a", 1.0), sample("b", 2.0), rounds=2)  # type: ignore[arg-type]
    assert "".join(taken) == "ab" + "ba" + "ab"
    assert (first.rounds, second.rounds) == ((1.0, 1.0), (2.0, 2.0))


def parts(*rounds: Sequence[Row]) -> tuple[list[int], object]:
    """Return a part that gives other rows each time it is measured, and how often it was."""
    times = [0]

    async def part() -> AsyncIterator[Row]:
        times[0] += 1
        for each in rounds[min(times[0], len(rounds)) - 1]:
            yield each

    return times, part


def test_a_part_that_is_not_decided_is_measured_again_and_pooled() -> None:
    noisy, quiet = row(1.0, 1.0, 2.5), row(*([1.0] * 9))
    times, part = parts([noisy], [quiet])
    [found] = asyncio.run(program.measure(part))  # type: ignore[arg-type]
    assert times == [2]
    assert found.values == (*noisy.values, *quiet.values)
    assert found.verdict == "ok"


def test_a_part_that_misses_is_measured_once_more() -> None:
    times, part = parts([row(3.0, 3.1)])
    [found] = asyncio.run(program.measure(part))  # type: ignore[arg-type]
    assert (times, found.verdict) == ([2], "MISSED")


def test_a_part_that_stays_undecided_says_so_after_three_tries() -> None:
    times, part = parts([row(1.0, 3.0)])
    [found] = asyncio.run(program.measure(part))  # type: ignore[arg-type]
    assert (times, found.verdict) == ([3], "undecided")


@pytest.fixture
def area(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    rows: list[Row] = []
    monkeypatch.setattr(program, "measure_area", lambda name: rows if name == "hooks" else [])
    return rows


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(program.main, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_a_row_that_misses_ends_the_run_with_1_and_is_named(area: list[Row]) -> None:
    area.append(row(3.0, 3.1, 3.2))
    code, out, err = run("hooks")
    assert code == 1
    assert "MISSED" in out
    assert "1 missed what is allowed:\n  hooks: work / by hand\n" in err


def test_an_undecided_row_is_named_and_ends_nothing(area: list[Row]) -> None:
    area.append(row(1.0, 3.0))
    code, _, err = run("hooks")
    assert (code, err) == (0, "1 could not be decided in 3 tries:\n  hooks: work / by hand\n")


def test_a_row_that_got_slower_than_the_record_is_named(area: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "earlier.json"
    area.append(row(1.0, 1.05, 1.1))
    assert run("hooks", "--json", str(path))[0] == 0
    area[0] = row(1.3, 1.35, 1.4)
    code, out, err = run("hooks", "--against", str(path))
    assert (code, err) == (1, "1 slower than in the last release:\n  hooks: work / by hand\n")
    assert "1.05x  slower" in out
    area[0] = row(1.0, 1.35, 1.4)
    assert run("hooks", "--against", str(path))[0] == 0, "the spreads overlap"


@pytest.mark.parametrize(
    ("now", "before", "is_slower"),
    [
        (Row("r", 1.2, 1.0, 2.0), Row("r", 1.0, 1.0, 2.0), True),
        (Row("r", 1.05, 1.0, 2.0), Row("r", 1.0, 1.0, 2.0), False),
        (Row("r", 1.2, 1.0), Row("r", 1.0, 1.0), False),  # it only informs
        (_power(0.07), _power(-0.01), True),
        (_power(0.02), _power(-0.01), False),
        (_power(-0.17), _power(-0.17), False),
    ],
)
def test_a_row_is_slower_by_more_than_what_two_runs_differ_by(now: Row, before: Row, is_slower: bool) -> None:
    assert now.is_slower_than(before) == is_slower


def test_a_part_that_fails_is_named_and_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> AsyncIterator[Row]:
        raise OSError("no such server")
        yield

    async def sound() -> AsyncIterator[Row]:
        yield row(1.0)

    monkeypatch.setattr(hooks, "PARTS", (broken, sound), raising=False)
    code, out, err = run("hooks")
    assert code == 1
    assert "work / by hand" in out
    assert "OSError: no such server" in err
    assert "1 could not be measured:\n  hooks: broken\n" in err


def test_runs_of_a_record_are_pooled(tmp_path: Path) -> None:
    for number, each in enumerate((row(1.0, 1.2), row(1.4))):
        write_record(tmp_path / f"{number}.json", {"hooks: work": each})
    record = read_record(tmp_path / "0.json", tmp_path / "1.json")
    assert record["hooks: work"].values == (1.0, 1.2, 1.4)
    assert json.loads((tmp_path / "0.json").read_text())["lines"]["hooks: work"]["verdict"] == "ok"


def test_an_unknown_area_is_answered_with_the_known_ones() -> None:
    code, _, err = run("hoks")
    assert code == 2
    assert "'hoks' is not one of 'hooks'" in err


def test_the_readme_of_the_store_names_the_measured_steps_of_a_delivery() -> None:
    readme = (ROOT / "plugins" / "amplifier-storage-sqlite" / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| step | µs | share |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert tuple(name for name, *_ in rows) == STEPS
    whole = sum(int(microseconds) for _, microseconds, *_ in rows)
    for _, microseconds, share, _ in rows:
        assert int(share.removesuffix(" %")) == pytest.approx(100 * int(microseconds) / whole, abs=1)
