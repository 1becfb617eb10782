"""Read where a fork is wanted: the protocol leaves that to `_meta`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.storage import SessionRecord

_MESSAGE = re.compile(r"m([1-9][0-9]{0,8})(?:\.[0-9]+)?")


class Wanted(NamedTuple):
    """The point of a fork, inclusive; without a turn and a message it is now."""

    turn: int | None = None
    message: int | None = None
    message_id: str = ""
    is_ephemeral: bool = False


def read_fork(meta: Mapping[str, Any] | None, source: SessionRecord) -> Wanted:
    """Return what `_meta` says of a fork: `{"amplifier": {"fork": {"messageId" or "turn", "ephemeral"}}}`.

    `{"jetbrains": {"air": {"fork": {"version": 1, "messageId"}}}}` is understood, too. Raises `RpcError`.
    """
    own = _dig(meta, "amplifier", "fork")
    theirs = _dig(meta, "jetbrains", "air", "fork")
    if theirs and theirs.get("version") != 1:
        raise RpcError(INVALID_PARAMS, "_meta.jetbrains.air.fork.version: only 1 is known")
    message_id, turn = own.get("messageId", theirs.get("messageId")), own.get("turn")
    is_ephemeral = own.get("ephemeral", False) is True
    if message_id is not None:
        found = _MESSAGE.fullmatch(message_id) if isinstance(message_id, str) else None
        if found is None or int(found[1]) > source.message_count:
            text = f"there is no message {message_id!r} in session '{source.session_id}'"
            raise RpcError(INVALID_PARAMS, text, {"messageId": message_id})
        return Wanted(message=int(found[1]), message_id=message_id, is_ephemeral=is_ephemeral)
    if turn is not None and (isinstance(turn, bool) or not isinstance(turn, int)):
        raise RpcError(INVALID_PARAMS, "_meta.amplifier.fork.turn: must be a number")
    return Wanted(turn=turn, is_ephemeral=is_ephemeral)


def without_lost_bundle(source: SessionRecord) -> SessionRecord:
    """Return a source whose fork takes the bundle of its own folder, if that of the source went with its folder."""
    is_lost = not os.path.isdir(source.project) and os.path.isabs(source.bundle_source)  # noqa: PTH112, PTH117 - any text
    return replace(source, bundle_source="") if is_lost and not os.path.exists(source.bundle_source) else source  # noqa: PTH110


def _dig(meta: Any, *names: str) -> dict[str, Any]:
    """Return the object at a path of names; {} where there is none, or something else."""
    for name in names:
        meta = meta.get(name) if isinstance(meta, dict) else None
    return meta if isinstance(meta, dict) else {}
