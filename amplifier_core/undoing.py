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

Step: TypeAlias = "tuple[Callable[..., object], tuple[Any, ...]]"
"""The call that takes something back."""


class MountSteps:
    """The steps of one mount, until its end."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps: list[Step] | None = []
        """None after the end of the mount: its tasks may live on."""

    def end(self) -> list[Step]:
        """Return the steps; nothing is noted any more."""
        steps, self.steps = self.steps or [], None
        return steps


current_mount: ContextVar[MountSteps | None] = ContextVar("mount", default=None)


def note_step(undo: Callable[..., object], *arguments: Any) -> None:
    """Note a step of the mount that this is part of, if of any."""
    mount = current_mount.get()
    if mount is not None and mount.steps is not None:
        mount.steps.append((undo, arguments))


def set_value(values: dict[str, Any], key: str, value: Any) -> None:
    """Set `values[key]`, as a step of the mount that this is part of."""
    if current_mount.get() is not None:  # asked here, too: to describe a step takes longer than to set the value
        note_step(_set_back, values, key, value, values.get(key, _NOTHING))
    values[key] = value


def drop_value(values: dict[str, Any], key: str) -> None:
    """Delete `values[key]`, as `set_value` sets it; an absent one is ignored."""
    if key in values:
        note_step(values.setdefault, key, values.pop(key))


def take_back(steps: list[Step]) -> None:
    """Undo the steps of a mount that failed, the last one first."""
    for undo, arguments in reversed(steps):
        undo(*arguments)


def find_replaced(steps: list[Step], values: dict[str, Any]) -> dict[str, bool]:
    """Return the keys of `values` that a mount has set, and whether it has replaced another value."""
    return {each[1]: each[3] is not _NOTHING for undo, each in steps if undo is _set_back and each[0] is values}


_NOTHING = object()


def _set_back(values: dict[str, Any], key: str, value: Any, before: Any) -> None:
    if values.get(key) is value:
        if before is _NOTHING:
            del values[key]
        else:
            values[key] = before
