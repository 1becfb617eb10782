"""Deprecated names: they work on, and say once what to use instead."""

from __future__ import annotations

import asyncio
import warnings
from inspect import iscoroutinefunction

import pytest

from amplifier_core import deprecation
from amplifier_core.deprecation import deprecated, warn_deprecated


@pytest.fixture(autouse=True)
def _nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecation, "_told", set())


@deprecated("new()", since="1.4", ends="1.6")
def old(value: int) -> int:
    """Return the value."""
    return value


@deprecated("new()", since="1.4", ends="1.6")
async def old_awaited(value: int) -> int:
    return value


@deprecated("New", since="1.4", ends="1.6")
class Old:
    def __init__(self, value: int) -> None:
        self.value = value


def test_the_first_call_warns_at_its_place_and_later_ones_are_silent() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"\.old is deprecated since 1\.4, and ends with 1\.6\. Use new\(\)$"
    ) as told:
        assert old(1) == 1
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert old(2) == 2
    assert (old.__name__, old.__doc__) == ("old", "Return the value.")


def test_an_awaited_function_stays_one() -> None:
    assert iscoroutinefunction(old_awaited)
    with pytest.warns(DeprecationWarning, match="old_awaited") as told:
        assert asyncio.run(old_awaited(1)) == 1
    assert "asyncio" in told[0].filename  # the loop called it: an `await` in a function is told with its own place


async def test_an_await_is_told_with_its_place() -> None:
    with pytest.warns(DeprecationWarning, match="old_awaited") as told:
        assert await old_awaited(1) == 1
    assert told[0].filename == __file__


def test_a_class_warns_when_it_is_called_and_stays_a_class() -> None:
    with pytest.warns(DeprecationWarning, match=r"\.Old is deprecated .* Use New$") as told:
        made = Old(3)
    assert (isinstance(made, Old), made.value, told[0].filename) == (True, 3, __file__)


def test_a_parameter_is_told_at_the_place_of_the_call() -> None:
    def call(*, size: int | None = None) -> None:
        if size is not None:
            warn_deprecated("call(size=)", "call(length=)", since="1.4", ends="1.6")

    with pytest.warns(DeprecationWarning, match=r"call\(size=\) is deprecated") as told:
        call(size=1)
    assert told[0].filename == __file__
