"""Look at the events of one session before anybody else does, and hide what is not to be seen."""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.events import ALL_EVENTS, PROMPT_SUBMIT, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_core.models import HookResult

from .config import NAME
from .finding import Finder
from .secret_texts import HIDDEN, hide_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

    from .config import RedactionConfig

logger = logging.getLogger(__name__)

FIRST = -20_000
"""Before logs, which look at -10,000."""
AFTER_LOGS = -9_999
FAILED = "[REDACTED: it could not be looked at]"
TOKEN = "redaction"
"""The key of an event's data with the number of what is put back after the logs."""
COUNT = "redaction.entries"
"""The capability with the number of entries of this module in the session."""
_MOST_KEPT = 1000
_numbers = count(1)
_USED = {TOOL_PRE: "tool_input", TOOL_POST: "result", TOOL_ERROR: "error", PROMPT_SUBMIT: "prompt"}
"""What the session goes on with of the data of an event."""
_SCOPES = {TOOL_POST: "tool_results", TOOL_ERROR: "tool_results", PROMPT_SUBMIT: "prompts"}
_STRUCTURE = frozenset(
    {
        "session_id",
        "parent_id",
        "parent",
        "timestamp",
        "event",
        "lvl",
        "level",
        "ts",
        "seq",
        "turn_id",
        "span_id",
        "parent_span_id",
        "request_id",
        "type",
        "status",
        "tool_name",
        "tool_call_id",
        "parallel_group_id",
        "idempotency_key",
        "provider",
        "model",
        "orchestrator",
        "iteration",
        "block_index",
        "total_blocks",
        "path",
        "paths",
        "file_path",
        "folder",
        "cwd",
    }
)
"""Keys of events that programs compare."""


class _Kept(NamedTuple):
    """What an event had, what it has instead, and the number of what another entry keeps of it."""

    value: Any
    hidden: Any
    token: str | None


class Hiding:
    """Hides in the events of one session. What cannot be looked at is hidden as a whole."""

    def __init__(self, coordinator: ModuleCoordinator, config: RedactionConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self._finder = Finder(config.patterns, config.kinds)
        self._allowed = frozenset(config.allowlist)
        self._registrations: list[Callable[[], None]] = []
        self._kept: dict[str, _Kept] = {}
        self._others: int = coordinator.get_capability(COUNT) or 0
        """The entries that were mounted before; a child has its parent's and its own one."""
        coordinator.register_capability(COUNT, self._others + 1)

    def listen(self) -> None:
        """Begin to look at the events of the scopes."""
        scopes = self._config.scopes
        for event in dict.fromkeys([*ALL_EVENTS, *_USED]):
            is_wanted = "events" in scopes or _SCOPES.get(event) in scopes
            if not is_wanted or event in self._config.skip_events:
                continue
            self._register(event, self._hide, FIRST - self._others)  # what is hidden last is put back first
            if event in _USED and _SCOPES.get(event) not in scopes:
                self._register(event, self._put_back, AFTER_LOGS)

    def _register(self, event: str, handler: Callable[..., Any], priority: int) -> None:
        register = self._coordinator.hooks.register
        self._registrations.append(register(event, handler, priority=priority, name=NAME))

    def close(self) -> None:
        """Stop looking."""
        while self._registrations:
            self._registrations.pop()()
        self._kept.clear()

    async def _hide(self, event: str, data: dict[str, Any]) -> HookResult | None:
        hides_all, used = "events" in self._config.scopes, _USED.get(event)
        chosen = {key: value for key, value in data.items() if (key not in _STRUCTURE if hides_all else key == used)}
        try:
            hidden = {key: self._look_at(value, key) for key, value in chosen.items()}
        except Exception as error:
            logger.error("%s: an event %s could not be looked at: %s", NAME, event, type(error).__name__)
            hidden = dict.fromkeys(chosen, FAILED)
        changed = {key: value for key, value in hidden.items() if value is not data[key] and value != data[key]}
        if not changed:
            return None
        if used in changed and _SCOPES.get(event) not in self._config.scopes:
            changed[TOKEN] = self._keep(_Kept(data[used], changed[used], data.get(TOKEN)))
        return HookResult(action="modify", data={**data, **changed})

    def _keep(self, value: _Kept) -> str:
        """Keep what is put back after the logs; return its number."""
        if len(self._kept) >= _MOST_KEPT:  # a handler between has refused their events
            del self._kept[next(iter(self._kept))]
        token = str(next(_numbers))
        self._kept[token] = value
        return token

    async def _put_back(self, event: str, data: dict[str, Any]) -> HookResult | None:
        """Put back what the session goes on with: only the logs were not to see it.

        What another entry has hidden for the session, too, stays hidden.
        """
        kept = self._kept.pop(str(data.get(TOKEN)), None)
        if kept is None:
            return None
        used, whole = _USED[event], {key: value for key, value in data.items() if key != TOKEN}
        if whole[used] == kept.hidden:
            whole[used] = kept.value
        if kept.token is not None:
            whole[TOKEN] = kept.token
        return HookResult(action="modify", data=whole)

    def _look_at(self, value: Any, path: str) -> Any:
        """Return a value without what is hidden; the value itself where nothing was found."""
        if path in self._allowed:
            return value
        if hasattr(value, "model_dump"):
            dumped = value.model_dump()
            seen = self._look_at(dumped, path)
            return value if seen == dumped else type(value).model_validate(seen)
        hidden = hide_secrets(value) if self._config.hides_secrets else value
        if self._finder or self._allowed or self._config.replacement != HIDDEN:
            hidden = self._walk(hidden, value, path)
        return hidden

    def _walk(self, value: Any, before: Any, path: str) -> Any:
        """Return a value after a look for patterns; `before` is what it was at an allowed path."""
        if path in self._allowed:
            return before
        if isinstance(value, dict):
            known = before if isinstance(before, dict) else {}
            return {key: self._walk(each, known.get(key, each), f"{path}.{key}") for key, each in value.items()}
        if isinstance(value, list | tuple):
            known_list = before if isinstance(before, list | tuple) and len(before) == len(value) else value
            return [self._walk(each, known_list[index], f"{path}.{index}") for index, each in enumerate(value)]
        return self._rewrite(value) if isinstance(value, str) else value

    def _rewrite(self, text: str) -> str:
        if self._config.replacement != HIDDEN:
            text = text.replace(HIDDEN, self._config.replacement.replace("{name}", "secret"))
        return self._finder.replace(text, self._name) if self._finder else text

    def _name(self, name: str, found: str) -> str:
        return found if found in self._allowed else self._config.replacement.replace("{name}", name)
