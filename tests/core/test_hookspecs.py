"""The one file of hooks: every name tells who calls it and what it may do."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pluggy
import pytest

from amplifier_core import hookspecs

if TYPE_CHECKING:
    from collections.abc import Callable

SPECS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("amplifier_")}
FIRST_WORDS = {"register": ("Offer ",), "before": ("Allow ", "Let "), "after": ("See ",)}


def moment(name: str) -> str:
    return name.removeprefix("amplifier_").partition("_")[0]


def every_spec(test: Callable[..., None]) -> Any:
    return pytest.mark.parametrize(("name", "spec"), SPECS.items(), ids=list(SPECS))(test)


def test_the_doors_are_those_that_pluggy_finds() -> None:
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    assert set(vars(manager.hook)) - {"_call_history"} == set(SPECS)
    functions = {name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction)}
    assert functions == set(SPECS)


@every_spec
def test_a_hook_s_name_says_who_calls_it(name: str, spec: Any) -> None:
    assert re.fullmatch(r"amplifier_(register|before|after)_[a-z]+", name)


@every_spec
def test_a_hook_s_first_sentence_begins_with_what_it_may_do(name: str, spec: Any) -> None:
    first = (inspect.getdoc(spec) or "").partition("\n")[0]
    assert first.startswith(FIRST_WORDS[moment(name)])
    assert first.endswith(".")


@every_spec
def test_moments_are_awaited_and_offers_are_not(name: str, spec: Any) -> None:
    assert inspect.iscoroutinefunction(spec) is (moment(name) in ("before", "after"))


@every_spec
def test_a_hook_takes_one_typed_argument_and_returns_nothing(name: str, spec: Any) -> None:
    signature = inspect.signature(spec)
    assert len(signature.parameters) == 1
    assert all(each.annotation is not inspect.Parameter.empty for each in signature.parameters.values())
    assert signature.return_annotation == "None"


@every_spec
def test_no_hook_has_a_first_result_or_a_history(name: str, spec: Any) -> None:
    options = spec.amplifier_spec
    assert (options["firstresult"], options["historic"]) == (False, False)


def test_every_moment_has_a_before_and_an_after() -> None:
    things = {when: {name.rpartition("_")[2] for name in SPECS if moment(name) == when} for when in ("before", "after")}
    assert things["before"] == things["after"] == {"fork", "spawn", "trigger"}


def test_a_refusal_is_named_where_it_is_allowed() -> None:
    for name, spec in SPECS.items():
        assert bool(re.search(r"raising `\w+`", spec.__doc__ or "")) is (moment(name) == "before"), name
