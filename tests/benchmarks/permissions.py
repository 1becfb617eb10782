"""Measure the check of a tool call with 50 rules, and with 5 to 5,000."""

from __future__ import annotations

import fnmatch
import re
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from amplifier_core.permissions import Call, Policy, parse_permissions

from .measure import LINEAR, Row, called, curve, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from .measure import Sample

AT_MOST = 0.5  # goal: times the patterns of the same rules, compared one after the other
CALLS = 2_000
PATTERNS = {
    "allow": [f"src{number}/**" for number in range(25)],
    "deny": [f"src*/private{number}/*.py" for number in range(25)],
}
PATH = "src24/some/longer/path/of/a/file.py"
SIZES = 5, 50, 500, 5_000


async def checks() -> AsyncIterator[Row]:
    """Decide about one call again and again: the decision alone, and with the look at the call's path."""
    decide = _policy(PATTERNS)
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        arguments = {"path": PATH, "content": "x"}
        call = Call.of("write_file", arguments, folder)
        by_hand = _by_hand(PATTERNS)
        if decide(call) != "allow" or by_hand(PATH) != "allow":
            raise AssertionError("the rules do not decide")
        decided, whole, limit = await in_turns(
            called(partial(decide, call), CALLS),
            called(lambda: decide(Call.of("write_file", arguments, folder)), CALLS),
            called(partial(by_hand, PATH), CALLS),
            rounds=31,
        )
    what = "permission check, 50 rules"
    yield Row(f"{what} / their patterns compared by hand", decided, limit, at_most_ratio=AT_MOST)
    yield Row("  with the look at the path of the call", whole)


async def growth() -> AsyncIterator[Row]:
    """Decide by more and more rules.

    A rule is found by the text that its values begin with. Those without one (`**/x`) are compared one after the other,
    so a decision grows with their number.
    """
    folders = [{"allow": ["src24/**"], "deny": [f"lib{each}/*.py" for each in range(size - 1)]} for size in SIZES]
    found = await in_turns(*(_deciding(patterns, 200) for patterns in folders), rounds=11)
    yield curve("permission check, by rules about folders", list(zip(SIZES, found, strict=True)))
    anywhere = [
        {"allow": ["src24/**"], "deny": [f"**/private{each}/*.py" for each in range(size - 1)]} for size in SIZES
    ]
    found = await in_turns(*(_deciding(patterns, 20) for patterns in anywhere), rounds=11)
    yield curve("permission check, by rules without a folder", list(zip(SIZES, found, strict=True)), at_most=LINEAR)


PARTS = (checks, growth)


def _policy(patterns: Mapping[str, list[str]]) -> Callable[[Call], str]:
    rules = {effect: [f"write_file({each})" for each in listed] for effect, listed in patterns.items()}
    policy = Policy([parse_permissions(rules, "user settings", is_own=True)])
    return lambda call: policy.decide(call).effect


def _deciding(patterns: Mapping[str, list[str]], calls: int) -> Sample:
    call = Call.of("write_file", {"path": PATH}, "/work")
    return called(partial(_policy(patterns), call), calls)


def _by_hand(patterns: Mapping[str, list[str]]) -> Callable[[str], str]:
    """Return the plain way: the patterns as regular expressions, those that refuse first, until one fits."""
    compiled = [
        (effect, re.compile(fnmatch.translate(each)).match) for effect in ("deny", "allow") for each in patterns[effect]
    ]

    def decide(path: str) -> str:
        return next((effect for effect, fit in compiled if fit(path)), "ask")

    return decide
