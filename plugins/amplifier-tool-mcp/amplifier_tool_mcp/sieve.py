"""Look at a server's messages on their way to the SDK: drop what nobody reads, and take odd entries out of lists.

The SDK makes a task for each notification, so a flood of them would hold up the answers behind it. It validates a list
as a whole, so one odd entry would take the others away.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from mcp_types import JSONRPCNotification, JSONRPCResponse
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from .listing import MOST_RESOURCES, plain

CHANGED = ("notifications/tools/list_changed", "notifications/prompts/list_changed")
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
"""The answer to the request to hear of changed lists, which a connection makes once."""
PROGRESS = "notifications/progress"
PROGRESS_EVERY = 0.1
"""Seconds in which one such notification of a call is read, and one that is the last."""
MOST_PROGRESS = 50
"""Such notifications of all calls that are read in this time."""
LISTS = {
    "tools": ("tools/list", "tool"),
    "prompts": ("prompts/list", "prompt"),
    "resources": ("resources/list", "resource"),
    "resourceTemplates": ("resources/templates/list", "resource template"),
}
"""The methods whose results have lists, and what an entry is, by the lists' names."""


class Sieve:
    """Sifts the messages of one connection."""

    def __init__(self) -> None:
        self.version = ""
        """The protocol that is spoken; lists stay as they are until it is known."""
        self.left_out: list[str] = []
        """Why entries have left lists."""
        self.changed = asyncio.Event()
        """Set when the server says that its lists have changed."""
        self._is_acknowledged = False
        self._since = 0.0
        self._told: set[tuple[int | str, bool]] = set()
        """The calls whose progress was read since then, and whether it was the last."""

    def keeps(self, message: Any) -> bool:
        """Return whether a message goes on to the SDK; odd entries have left its lists."""
        if isinstance(message, JSONRPCNotification):
            if message.method == PROGRESS:
                return self._is_due(message.params or {})
            if message.method in CHANGED:
                self.changed.set()
            is_first = message.method == ACKNOWLEDGED and not self._is_acknowledged
            self._is_acknowledged |= is_first
            return is_first
        if isinstance(message, JSONRPCResponse) and self.version:
            for name in LISTS.keys() & message.result.keys():
                if isinstance(message.result[name], list):
                    self._clean(message.result, name)
        return True

    def _is_due(self, params: dict[str, Any]) -> bool:
        token, progress, now = params.get("progressToken"), params.get("progress"), time.monotonic()
        if not isinstance(token, int | str) or not isinstance(progress, int | float):
            return False
        if now - self._since >= PROGRESS_EVERY:
            self._since = now
            self._told.clear()
        said = (token, progress == params.get("total"))
        if said in self._told or len(self._told) >= MOST_PROGRESS:
            return False
        self._told.add(said)
        return True

    def _clean(self, result: dict[str, Any], name: str) -> None:
        """Take the entries that the protocol does not know out of a list."""
        method, kind = LISTS[name]
        if _find_problem(method, self.version, result, name) is None:
            return
        if _find_problem(method, self.version, {**result, name: []}, name) is not None:
            return  # no entry is at fault; the SDK tells what is
        kept = []
        for each in result[name][:MOST_RESOURCES]:
            problem = _find_problem(method, self.version, {**result, name: [each]}, name)
            if problem is None:
                kept.append(each)
            elif len(self.left_out) < MOST_RESOURCES:
                called = each.get("name") if isinstance(each, dict) else each
                self.left_out.append(f"its {kind} {plain(str(called), 100)!r} is left out: {problem}")
        result[name] = kept


def _find_problem(method: str, version: str, result: dict[str, Any], name: str) -> str | None:
    """Return what is wrong with a result, with its place in an entry."""
    try:
        parse_server_result(method, version, result)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = list(problem["loc"])
        if name in place:
            place = place[place.index(name) + 2 :]
        return ": ".join(filter(None, [".".join(map(str, place)), plain(problem["msg"], 200)]))
    except (KeyError, ValueError):  # a list that this version does not have
        pass
    return None
