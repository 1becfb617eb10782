"""Changes as events: what they carry, and the keys by which they are known again after a restart."""

from __future__ import annotations

import posixpath
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerEvent, TriggerType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.triggers import TriggerContext

    from .manifest import Change
    from .scope import Scope


def event_of(
    change: Change, scope: Scope, context: TriggerContext, source: str, generation: int, state: Mapping[str, Any] | None
) -> TriggerEvent:
    """Return the event of one change; its key is found again from the state before it, and never used for a later."""
    data = _described(change, scope)
    return TriggerEvent(
        TriggerType.FILE_CHANGE,
        source,
        timestamp=context.clock.now(),
        data=data,
        file_path=data["path"],
        change_type=change.kind,
        dedupe_key=f"{context.name} {generation} {_content(change)} {data['path']}",
        state=state,
    )


def event_of_all(
    changes: Sequence[Change],
    scope: Scope,
    context: TriggerContext,
    source: str,
    generation: int,
    state: Mapping[str, Any],
) -> TriggerEvent:
    """Return the one event of many changes: it names the nearest folder that holds them all, and lists them."""
    described = [_described(change, scope) for change in changes]
    kinds = {change.kind for change in changes}
    whole = {"path": scope.shown(_common(changes)), "change": kinds.pop() if len(kinds) == 1 else "modified"}
    contents = "\n".join(f"{_content(change)} {each['path']}" for change, each in zip(changes, described, strict=True))
    return TriggerEvent(
        TriggerType.FILE_CHANGE,
        source,
        timestamp=context.clock.now(),
        data={**whole, "absolute": scope.absolute(_common(changes)), "changes": described},
        file_path=whole["path"],
        change_type=whole["change"],
        dedupe_key=f"{context.name} {generation} {sha256(contents.encode()).hexdigest()[:16]}",
        state=state,
    )


def _described(change: Change, scope: Scope) -> dict[str, str]:
    moved = {} if change.moved_from is None else {"moved_from": scope.shown(change.moved_from)}
    path, absolute = scope.shown(change.path), scope.absolute(change.path)
    return {"path": path, "change": change.kind, "absolute": absolute, **moved}


def _content(change: Change) -> str:
    return change.fingerprint.content.hex() if change.fingerprint else "deleted"


def _common(changes: Sequence[Change]) -> str:
    if len(changes) == 1:
        return changes[0].path
    return posixpath.commonpath([posixpath.dirname(change.path) for change in changes])
