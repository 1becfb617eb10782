"""Run the first test alone of each file of slow ones, with the option `--share`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the option."""
    parser.addoption("--share", action="store_true", help="of each file of slow tests, run the first one alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other slow tests out."""
    if not config.getoption("share"):
        return
    begun, kept, left_out = set(), [], []
    for item in items:
        is_left_out = item.path in begun and item.get_closest_marker("slow") is not None
        (left_out if is_left_out else kept).append(item)
        begun.add(item.path)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
