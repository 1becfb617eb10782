"""Inherit from the parent session: parts of its mount plan and of its history."""

from __future__ import annotations

import marshal
from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from amplifier_core.transcript import Message, Transcript

from ..bundle.capability_layers import INHERITED
from ..bundle.merge import merge_module_lists
from ..bundle.sections import FIELD_SPELLING
from ..documents.dicts import at_path
from ..documents.problems import require_choice
from ..sessions.history import is_user_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core.session import AmplifierSession

GUARDS = ("hooks-approval", "hooks-redaction", "hooks-shell")
"""The hooks of which a child has its parent's entry and its own one: two of them only tighten each other."""
_TREE = (
    2  # a format of `marshal` in which equal plans are equal bytes: a later one writes repeated values as references
)
_PLAIN = (str, int, float, bool, type(None))

Inherit = bool | list[str]
"""All, none, or the modules of these names."""
Depth = Literal["none", "recent", "all"]
Scope = Literal["conversation", "agents", "full"]
_DEPTHS, _SCOPES = get_args(Depth), get_args(Scope)


class Beginning(NamedTuple):
    """The history at the beginning of a child, and the number of its turns."""

    history: Transcript
    turns: int


def child_config(
    own: Mapping[str, Any], parent: Mapping[str, Any], *, providers: bool, tools: Inherit, hooks: Inherit
) -> dict[str, Any]:
    """Return the child's mount plan: a deep copy of its own, with the inherited parts of its parent's.

    An inherited hook stays as it is, with its parent's code. It may be a guard: the child's own entry of that module is
    left out, or mounted besides if the module is one of `GUARDS`. Raises `TypeError` for a name without its list.
    """
    given: tuple[tuple[str, object], ...] = (("inherit_tools", tools), ("inherit_hooks", hooks))
    for name, wanted in given:
        if isinstance(wanted, str):
            raise TypeError(f"{name}: must be True, False or a list of modules, such as [{wanted!r}]")
    inherited = (
        parent.get("session"),
        parent.get("providers") if providers else None,
        parent.get("tools") if tools else None,
        parent.get("hooks") if hooks else None,
    )
    try:
        parts = marshal.dumps((dict(own), *inherited, tools, hooks), _TREE)
    except ValueError:  # a value of another kind than JSON has
        return _merge_plans(dict(own), *inherited, tools, hooks)
    plan: dict[str, Any] = marshal.loads(_merge_written(parts))
    return plan


@lru_cache(maxsize=64)
def _merge_written(parts: bytes) -> bytes:
    """Do as `_merge_plans`, once for the same parts: to write and read a plan takes a tenth of merging it."""
    return marshal.dumps(_merge_plans(*marshal.loads(parts)), _TREE)


def _merge_plans(
    own: Mapping[str, Any],
    session: Mapping[str, Any] | None,
    providers: Sequence[Any] | None,
    tools: Sequence[Mapping[str, Any]] | None,
    hooks: Sequence[Mapping[str, Any]] | None,
    wanted_tools: Inherit,
    wanted_hooks: Inherit,
) -> dict[str, Any]:
    config: dict[str, Any] = _copy_deep(own)
    config["session"] = dict(config.get("session") or {})
    for key, value in (session or {}).items():
        if key not in config["session"] and key != "budget":  # a session has a budget of its own, or none
            config["session"][key] = _copy_deep(value)
    orchestrator = at_path(config, FIELD_SPELLING[:-1])
    if isinstance(orchestrator, dict):  # its parent runs them
        orchestrator.pop(FIELD_SPELLING[-1], None)
    if providers is not None and not config.get("providers"):
        config["providers"] = _copy_deep(list(providers))
    if taken := _choose(tools, wanted_tools):
        config["tools"] = merge_module_lists(taken, config.get("tools") or [])
    if taken := _choose(hooks, wanted_hooks):
        config["hooks"] = [*({**entry, INHERITED: True} for entry in taken), *_own_hooks(config, taken)]
    return config


def _choose(entries: Sequence[Mapping[str, Any]] | None, wanted: Inherit) -> list[dict[str, Any]]:
    """Return copies of the entries of the wanted modules."""
    chosen = [each for each in entries or () if wanted is True or (wanted and each.get("module") in wanted)]
    copies: list[dict[str, Any]] = _copy_deep(chosen)
    return copies


def _own_hooks(own: Mapping[str, Any], inherited: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the child's own hooks that are mounted besides the inherited ones."""
    for entry in own.get("hooks") or ():
        same = [each for each in inherited if each.get("module") == entry.get("module")]
        if not same:
            yield entry
        elif entry.get("module") in GUARDS and all(each.get("config") != entry.get("config") for each in same):
            yield {**entry, "instance_id": f"own-{len(same)}"}


def _copy_deep(value: Any) -> Any:
    """Return a deep copy. For plain data, as in mount plans, it costs a fraction of `deepcopy`."""
    kind = value.__class__
    if kind is dict:
        return {key: _copy_deep(each) for key, each in value.items()}
    if kind is list:
        return [_copy_deep(each) for each in value]
    return value if kind in _PLAIN else deepcopy(value)


async def inherit_history(session: AmplifierSession, depth: Depth, scope: Scope, turns: int) -> Beginning:
    """Return the beginning of the history for a child of `session`; see `Inheritance.take`. Raises `ValueError`."""
    require_choice("context_depth", depth, _DEPTHS)
    require_choice("context_scope", scope, _SCOPES)
    if depth == "none":
        return Beginning(Transcript(), 0)
    from .family import Family

    history = await session.history()
    inheritance = Family.of(session).inheritance if history is session.transcript else Inheritance()
    return inheritance.take(history, depth, scope, turns)


class Inheritance:
    """The inherited history for the children of one session.

    Each message is looked at once for all children: the cost of a child is that of the messages since the last child.
    Tool calls are inherited with their results or not at all, and continuation ids never.
    """

    def __init__(self) -> None:
        self._views: dict[Scope, _View] = {}

    def take(self, history: Transcript, depth: Depth, scope: Scope = "conversation", turns: int = 5) -> Beginning:
        """Return the beginning of a child's history: `turns` turns (`recent`), all of them, or nothing.

        `conversation` keeps texts, `agents` the results of delegated sessions too, `full` every tool result. A `full`
        history of `all` turns is a fork.
        """
        if depth == "none" or (depth == "recent" and turns <= 0):
            return Beginning(Transcript(), 0)
        view = self._views.get(scope)
        if view is None or not view.follows(history):
            view = self._views[scope] = _View(history, scope)
        view.catch_up()
        return view.all() if depth == "all" else view.recent(turns)


class _View:
    """The part of one history in a scope, with the first messages of its turns."""

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
        settled = self._history.settled_length()
        for message in self._history.fork(settled).since(self._seen):
            self._look_at(message)
        self._seen = max(self._seen, settled)
        self._settled = settled if self._scope == "full" else len(self._kept)

    def _look_at(self, message: Message) -> None:
        position = self._seen if self._scope == "full" else len(self._kept)
        kept: Message | None = message
        if self._scope != "full":
            if self._scope == "agents":
                calls = message.get("tool_calls") or ()
                self._delegated |= {call["id"] for call in calls if "delegate" in str(call.get("tool") or "")}
            kept = _keep_calls(message, self._delegated)
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


def _keep_calls(message: Message, kept: set[str]) -> Message | None:
    """Return the message with the calls of `kept` alone, None for an empty one."""
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
