"""Look at a server's messages on their way to the SDK: drop what nobody reads, and take odd entries out of lists.

The SDK makes a task for each notification, so a flood of them would hold up the answers behind it. It validates a list
as a whole, so one odd entry would take the others away.
"""

from __future__ import annotations

import time
from typing import Any

from mcp_types import JSONRPCNotification, JSONRPCResponse
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from .listing import MOST_RESOURCES, plain

UNREAD = ("notifications/message", "notifications/resources/list_changed", "notifications/resources/updated")
"""The methods of notifications that nobody here reads."""
PROGRESS = "notifications/progress"
PROGRESS_EVERY = 0.1
"""Seconds between two such notifications of one call that are read; the last one always is."""
MOST_TOKENS = 1000
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
        self._told: dict[int | str, float] = {}
        """When a call's progress was last read."""

    def keeps(self, message: Any) -> bool:
        """Return whether a message goes on to the SDK; odd entries have left its lists."""
        if isinstance(message, JSONRPCNotification):
            if message.method == PROGRESS:
                return self._is_due(message.params or {})
            return message.method not in UNREAD
        if isinstance(message, JSONRPCResponse) and self.version:
            for name in LISTS.keys() & message.result.keys():
                if isinstance(message.result[name], list):
                    self._clean(message.result, name)
        return True

    def _is_due(self, params: dict[str, Any]) -> bool:
        token, now = params.get("progressToken"), time.monotonic()
        if not isinstance(token, int | str):
            return False
        is_last = params.get("progress") == params.get("total")
        if now - self._told.get(token, -PROGRESS_EVERY) < PROGRESS_EVERY and not is_last:
            return False
        if len(self._told) >= MOST_TOKENS:
            self._told.clear()
        self._told[token] = now
        return True

    def _clean(self, result: dict[str, Any], name: str) -> None:
        """Take the entries that the protocol does not know out of a list."""
        method, kind = LISTS[name]
        if _find_problem(method, self.version, result, name) is None:
            return
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
