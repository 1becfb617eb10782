"""Measure the check of a tool call with 50 rules: the decision alone, and with the look at the call's path."""

from __future__ import annotations

from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from amplifier_core.permissions import Call, Policy, parse_permissions

from .measure import Row, called, in_turns, timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

AT_MOST = 3e-6  # goal: seconds
CALLS = 2_000
RULES = {
    "allow": [f"write_file(src{number}/**)" for number in range(25)],
    "deny": [f"write_file(src*/private{number}/*.py)" for number in range(25)],
}


async def rows() -> AsyncIterator[Row]:
    """Decide about one call again and again."""
    policy = Policy([parse_permissions(RULES, "user settings", is_own=True)])
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        arguments = {"path": "src24/a/b.py", "content": "x"}
        call = Call.of("write_file", arguments, folder)
        if policy.decide(call).effect != "allow":
            raise AssertionError("the rules do not decide")
        decided, whole = await in_turns(
            called(partial(policy.decide, call), CALLS),
            called(lambda: policy.decide(Call.of("write_file", arguments, folder)), CALLS),
            rounds=31,
        )
    yield timed("permission check, 50 rules", decided, at_most=AT_MOST)
    yield Row("  with the look at the path of the call", whole)
