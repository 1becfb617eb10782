"""Run the first tests alone of each file of slow ones, with the option `--share`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the option."""
    parser.addoption("--share", type=int, help="of each file of slow tests, run so many alone: the first ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other slow tests out."""
    share = config.getoption("share")
    if share is None:
        return
    begun, kept, left_out = Counter[object](), [], []
    for item in items:
        is_left_out = begun[item.path] >= share and item.get_closest_marker("slow") is not None
        (left_out if is_left_out else kept).append(item)
        begun[item.path] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
