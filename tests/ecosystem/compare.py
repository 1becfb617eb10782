"""What happened on two kernels, without what may differ."""

from __future__ import annotations

from itertools import groupby
from typing import Any

SIDE_BY_SIDE = ("tool:", "artifact:", "approval:")
"""Events of tools that run at once: their order is nobody's promise."""

TOLD_BY_OURS = {"cancel:requested"}
"""Events that the published kernel leaves to loops and applications."""

SAID_BY_OURS = {"session:end": {"status"}}
"""What our kernel says more, by event."""

Happened = dict[str, Any]


def differences(ours: Happened, theirs: Happened) -> list[str]:
    """Return what differs, one line each."""
    here, there = comparable(ours), comparable(theirs)
    return [
        f"{name}: {here.get(name)!r} here, {there.get(name)!r} there"
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]


def comparable(happened: Happened) -> Happened:
    """Return what must be alike: everything but times, ids, and the order of what runs side by side."""
    kept = {name: value for name, value in happened.items() if name not in ("log", "requests")}
    told = [each for each in happened["log"] if each["event"] not in TOLD_BY_OURS]
    fields = {f"data of {each['event']}": _fields(each) for each in told}
    requests = [_without_times(request) for request in happened.get("requests", ())]
    return {**kept, **fields, "events": in_order([each["event"] for each in told]), "requests": requests}


def in_order(events: list[str]) -> list[str]:
    """Return the events; those of tools that run at once are sorted."""
    runs = groupby(events, key=lambda event: event.startswith(SIDE_BY_SIDE))
    return [event for is_group, run in runs for event in (sorted(run) if is_group else run)]


def _fields(told: dict[str, Any]) -> list[str]:
    return sorted(set(told["data"]) - SAID_BY_OURS.get(told["event"], set()))


def _without_times(request: dict[str, Any]) -> dict[str, Any]:
    messages = [{key: value for key, value in each.items() if key != "metadata"} for each in request["messages"]]
    return {**request, "messages": messages}
