"""Turn changes into events, each with a key by which a store knows it again."""

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


def make_event(
    change: Change,
    scope: Scope,
    context: TriggerContext,
    source: str,
    generation: int,
    state_changes: Mapping[str, Any],
) -> TriggerEvent:
    """Return the event of one change. A restart from the state before it makes the same key, a later change another."""
    data = _describe(change, scope)
    return TriggerEvent(
        TriggerType.FILE_CHANGE,
        source,
        timestamp=context.clock.now(),
        data=data,
        file_path=data["path"],
        change_type=change.kind,
        dedupe_key=f"{context.name} {generation} {_content(change)} {data['path']}",
        state_changes=state_changes,
    )


def make_batch_event(
    changes: Sequence[Change],
    scope: Scope,
    context: TriggerContext,
    source: str,
    generation: int,
    state_changes: Mapping[str, Any],
) -> TriggerEvent:
    """Return one event that lists many changes, and names the nearest folder above them all."""
    described = [_describe(change, scope) for change in changes]
    kinds = {change.kind for change in changes}
    kind = kinds.pop() if len(kinds) == 1 else "modified"
    folders = [posixpath.dirname(change.path) for change in changes]
    common = changes[0].path if len(changes) == 1 else posixpath.commonpath(folders)
    absolute = scope.absolute(common)
    data = {"path": scope.show(common), "change": kind, "absolute": absolute, "src_path": absolute}
    contents = "\n".join(f"{_content(change)} {each['path']}" for change, each in zip(changes, described, strict=True))
    return TriggerEvent(
        TriggerType.FILE_CHANGE,
        source,
        timestamp=context.clock.now(),
        data={**data, "changes": described},
        file_path=data["path"],
        change_type=kind,
        dedupe_key=f"{context.name} {generation} {sha256(contents.encode()).hexdigest()[:16]}",
        state_changes=state_changes,
    )


def _describe(change: Change, scope: Scope) -> dict[str, str]:
    path, absolute = scope.show(change.path), scope.absolute(change.path)
    described = {"path": path, "change": change.kind, "absolute": absolute, "src_path": absolute}
    if (uri := scope.uri_of_escaped(change.path)) is not None:
        described["uri"] = uri
    if change.moved_from is not None:
        described["moved_from"] = scope.show(change.moved_from)
    return described


def _content(change: Change) -> str:
    return change.fingerprint.content.hex() if change.fingerprint else "deleted"
