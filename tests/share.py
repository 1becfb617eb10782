"""Run a share of the tests, with the option `--share`: some cases of each test, and some tests of each slow file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the option."""
    about = "run so many cases of each test, and tests of each slow file: the first; 1 leaves out what is long"
    parser.addoption("--share", type=int, help=about)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make no test of the cases that are left out: to make all of them takes a third of the time to find the tests."""
    yield
    share = metafunc.config.getoption("share")
    if share is not None:
        del metafunc._calls[share:]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other tests out."""
    share = config.getoption("share")
    if share is None:
        return
    begun, kept, left_out = Counter[object](), [], []
    for item in items:
        test, _, _ = item.nodeid.partition("[")
        groups = [test] if item.get_closest_marker("slow") is None else [test, item.path]
        is_long = share == 1 and item.get_closest_marker("long") is not None
        (left_out if is_long or any(begun[group] >= share for group in groups) else kept).append(item)
        begun.update(groups)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
