"""What a child takes over: of its parent's mount plan, and of its parent's history."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from amplifier_core.transcript import Message, Transcript

from ..bundles.merge import merge_module_lists
from ..history import is_user_turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.session import AmplifierSession

_PLAIN = (str, int, float, bool, type(None))

Inherit = bool | list[str]
"""All, none, or the modules of these names."""
Depth = Literal["none", "recent", "all"]
Scope = Literal["conversation", "agents", "full"]


class Beginning(NamedTuple):
    """The history that a child begins with, and how many turns that is."""

    history: Transcript
    turns: int


def child_config(
    own: Mapping[str, Any], parent: Mapping[str, Any], *, providers: bool, tools: Inherit, hooks: Inherit
) -> dict[str, Any]:
    """Return the child's mount plan: a deep copy of its own, with what it takes from its parent."""
    config: dict[str, Any] = _copied(dict(own))
    session = dict(config.get("session") or {})
    for key, value in (parent.get("session") or {}).items():
        if key not in session:
            session[key] = _copied(value)
    config["session"] = session
    if providers and not config.get("providers"):
        config["providers"] = _copied(list(parent.get("providers") or ()))
    for section, wanted in (("tools", tools), ("hooks", hooks)):
        taken = _copied(_chosen(parent.get(section) or (), wanted))
        if taken:
            config[section] = merge_module_lists(taken, config.get(section) or [])
    return config


def _copied(value: Any) -> Any:
    """Return a deep copy; of plain data, which mount plans are, it costs a fraction of `deepcopy`."""
    kind = value.__class__
    if kind is dict:
        return {key: _copied(each) for key, each in value.items()}
    if kind is list:
        return [_copied(each) for each in value]
    return value if kind in _PLAIN else deepcopy(value)


def _chosen(entries: Sequence[Mapping[str, Any]], wanted: Inherit) -> list[dict[str, Any]]:
    if isinstance(wanted, bool):
        return [dict(entry) for entry in entries] if wanted else []
    return [dict(entry) for entry in entries if entry.get("module") in wanted]


async def inherited(session: AmplifierSession, depth: Depth, scope: Scope, turns: int) -> Beginning:
    """Return the beginning of the history of a child of `session`; see `Inheritance.take`."""
    from .family import Family

    if depth == "none":
        return Beginning(Transcript(), 0)
    history = await session.history()
    inheritance = Family.of(session).inheritance if history is session.transcript else Inheritance()
    return inheritance.take(history, depth, scope, turns)


class Inheritance:
    """What the children of one session take over of its history.

    Each message is looked at once, however many children there are: what a child takes over costs what was said since
    the last one was made. Tool calls are taken over with their results, or not at all, and no continuation ids are.
    """

    def __init__(self) -> None:
        self._views: dict[Scope, _View] = {}

    def take(self, history: Transcript, depth: Depth, scope: Scope = "conversation", turns: int = 5) -> Beginning:
        """Return the beginning of a child's history: `turns` turns (`recent`), all of them, or nothing.

        `conversation` keeps what was said, `agents` also what delegated sessions answered, `full` every tool result. A
        `full` history of `all` turns is a fork.
        """
        if depth == "none" or (depth == "recent" and turns <= 0):
            return Beginning(Transcript(), 0)
        view = self._views.get(scope)
        if view is None or not view.follows(history):
            view = self._views[scope] = _View(history, scope)
        view.catch_up()
        return view.all() if depth == "all" else view.recent(turns)


class _View:
    """The part of one history that a scope keeps, and where turns begin in it."""

    def __init__(self, history: Transcript, scope: Scope) -> None:
        self._history = history
        self._scope = scope
        self._seen = 0
        self._kept = history if scope == "full" else Transcript()
        self._starts: list[int] = []
        self._delegated: set[str] = set()
        self._settled = 0

    def follows(self, history: Transcript) -> bool:
        return history is self._history and len(history) >= self._seen

    def catch_up(self) -> None:
        settled = self._history.settled()
        for message in self._history.fork(settled).since(self._seen):
            self._look_at(message)
        self._seen = max(self._seen, settled)
        self._settled = settled if self._scope == "full" else len(self._kept)

    def _look_at(self, message: Message) -> None:
        position = self._seen if self._scope == "full" else len(self._kept)
        kept: Message | None = message
        if self._scope != "full":
            if self._scope == "agents":
                self._delegated |= _delegations(message)
            kept = _without_calls(message, self._delegated)
            if kept is not None:
                self._kept.append(kept)
        if kept is not None and is_user_turn(kept):
            self._starts.append(position)
        self._seen += 1

    def all(self) -> Beginning:
        return Beginning(self._kept.fork(self._settled), len(self._starts))

    def recent(self, turns: int) -> Beginning:
        start = self._starts[-turns] if len(self._starts) > turns else 0
        history = Transcript(self._kept.fork(self._settled).since(start))
        return Beginning(history, min(turns, len(self._starts)))


def _delegations(message: Message) -> set[str]:
    calls = message.get("tool_calls") or ()
    return {call["id"] for call in calls if "delegate" in str(call.get("tool") or "")}


def _without_calls(message: Message, kept: set[str]) -> Message | None:
    """Return the message with the calls of `kept` alone, or None when nothing is left of it."""
    if message.get("role") == "tool":
        return message if message.get("tool_call_id") in kept else None
    calls = message.get("tool_calls")
    if not calls:
        return message if message.get("role") in ("user", "assistant") else None
    content = message.get("content")
    if isinstance(content, list):
        content = [block for block in content if block.get("type") != "tool_call" or block.get("id") in kept]
    remaining = [call for call in calls if call["id"] in kept]
    if not content and not remaining:
        return None
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": content, **({"tool_calls": remaining} if remaining else {})}
