"""Take back what a module has mounted and registered when its mount fails: a module is there as a whole, or not.

A step belongs to the mount that it is part of, also within tasks of that mount. So a server that an earlier module has
begun, and that lists its tools meanwhile, loses none of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

Step: TypeAlias = "tuple[str, Callable[..., object] | None, tuple[Any, ...]]"
"""Where something was mounted or registered (a mount point, `capabilities`, …), and the call that takes it back."""


class MountSteps:
    """The steps of one mount, until its end; they are noted without a call: each session notes a few."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps: list[Step] | None = []
        """None after the end of the mount: its tasks may live on."""

    def end(self) -> list[Step]:
        """Return the steps; nothing is noted any more."""
        steps, self.steps = self.steps or [], None
        return steps


current_mount: ContextVar[MountSteps | None] = ContextVar("mount", default=None)


def note_step(place: str, undo: Callable[..., object] | None = None, *values: Any) -> None:
    """Note a step of the mount that this is part of, if of any."""
    mount = current_mount.get()
    if mount is not None and mount.steps is not None:
        mount.steps.append((place, undo, values))


def set_value(place: str, values: dict[str, Any], key: str, value: Any) -> None:
    """Set `values[key]`, as a step of the mount that this is part of."""
    mount = current_mount.get()
    if mount is not None and mount.steps is not None:
        mount.steps.append((place, _set_back, (values, key, value, values.get(key, _NOTHING))))
    values[key] = value


def take_back(steps: list[Step]) -> None:
    """Undo the steps of a mount that failed, the last one first."""
    for _, undo, values in reversed(steps):
        if undo is not None:
            undo(*values)


def find_values(steps: list[Step], place: str) -> dict[str, bool]:
    """Return the keys that a mount has set at a place, and whether it has replaced another value."""
    return {values[1]: values[3] is not _NOTHING for at, _, values in steps if at == place and len(values) == _SET}


_NOTHING, _SET = object(), 4


def _set_back(values: dict[str, Any], key: str, value: Any, before: Any) -> None:
    if values.get(key) is value:
        if before is _NOTHING:
            del values[key]
        else:
            values[key] = before
