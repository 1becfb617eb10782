"""Show the tool calls that wait for a person, and take the answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.errors import AmplifierError
from amplifier_core.permissions.gate import SESSION
from amplifier_foundation.background.keys import run_of
from amplifier_foundation.operations.acting import Actor
from amplifier_foundation.operations.approvals import answer_approval, find_approval, read_approvals
from amplifier_foundation.operations.running import status_elsewhere, wake

from ..pages import Act, Badge, Page, Reply, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_foundation.background.approvals import Approval, Scope

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "approvals.html"
ANSWERED = 50
"""Answers shown, the newest first."""
SCOPES: tuple[Scope, ...] = ("once", "session", "always")


class InvalidAnswer(AmplifierError, ValueError):
    """A form has an answer that nobody offers."""


async def approvals(desk: Desk, place: Place) -> Page:
    """Return what waits, the oldest first, and what was answered."""
    known = await read_approvals(desk.store, finished=True)
    waiting = [_show(each) for each in known if each.state == "pending"]
    others = [each for each in known if each.state != "pending"]
    answered = sorted(others, key=lambda each: each.decided or each.expires, reverse=True)[:ANSWERED]
    parts = {
        "waiting": render_block(TEMPLATE, "waiting", {"waiting": waiting, "read_only": desk.read_only}),
        "answered": render_block(TEMPLATE, "answered", {"answered": [_show(each) for each in answered]}),
    }
    return Page("Approvals", TEMPLATE, parts)


async def count_waiting(desk: Desk) -> int:
    """Return the number of calls that wait."""
    return sum(each.state == "pending" for each in await read_approvals(desk.store))


def _show(approval: Approval) -> dict[str, Any]:
    """Return an approval with what its page shows of it."""
    arguments = approval.arguments.items()
    return {
        "it": approval,
        "run": run_of(approval),
        "arguments": {
            name: value if isinstance(value, str) else json.dumps(value, indent=2) for name, value in arguments
        },
        "is_for_session": any(option.startswith(SESSION) for option in approval.options),
    }


async def approve(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Let a call run, in the scope of the pressed button."""
    scope = form.get("scope", "once")
    if scope not in SCOPES:
        raise InvalidAnswer(f"'{scope}' is no scope: choose {', '.join(SCOPES)}")
    return await _answer(desk, place, "approved", scope, "")


async def deny(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Refuse a call; its model is told the reason."""
    return await _answer(desk, place, "denied", "once", form.get("reason", "").strip())


async def _answer(desk: Desk, place: Place, state: Literal["approved", "denied"], scope: Scope, reason: str) -> Reply:
    approval = await find_approval(desk.store, place.variables["approval_id"])
    actor = Actor(desk.person, "dashboard")
    decided = await answer_approval(desk.store, actor, approval, state, scope, reason)
    runs = await asyncio.to_thread(wake, decided.project, decided.queue)
    runs = runs or await status_elsewhere(desk.store, decided.project, decided.queue) != ""
    rule = f" Added to permissions.allow of your settings: {decided.rule}." if scope == "always" else ""
    return Reply(f"{decided.tool} is {state}. Its session {describe_next(decided, runs=runs)}.{rule}")


def describe_next(decided: Approval, *, runs: bool) -> str:
    """Return when the session of an answer goes on; `runs` is whether a process runs its background session."""
    if run := run_of(decided):
        return f"goes on with: amplifier flow resume {run}"
    return "goes on as soon as its background session runs" if runs else "goes on at the next: amplifier up"


VIEWS = [
    View("/approvals", approvals, label="Approvals", key="a", badge=Badge(count_waiting, "waiting", in_title=True)),
]
ACTS = [Act("/approvals/{approval_id}/approve", approve), Act("/approvals/{approval_id}/deny", deny)]
