"""Ask the plugins before a session begins with another one's history, and tell them after.

Every fork goes through here: of a live session, of a stored one, and of a spawn with a shared history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .hook_data import ForkRequest, ForkResult

if TYPE_CHECKING:
    from types import TracebackType

    from .plugins import Plugins


class ask_to_fork:  # used as a function, in `async with`: a generator would double the cost of a fork
    """Make a fork of `source_id` in the block: its first `at` messages become the beginning of `session_id`.

    Raises `ForkRefused` before the block when a plugin refuses. A block that raises made no fork.
    """

    __slots__ = ("_fork", "_plugins")

    def __init__(self, plugins: Plugins | None, source_id: str, session_id: str, at: int) -> None:
        self._plugins = plugins
        self._fork = (source_id, session_id, at)

    async def __aenter__(self) -> None:
        if self._plugins is not None:
            await self._plugins.before_fork(ForkRequest(*self._fork))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._plugins is not None:
            await self._plugins.after_fork(ForkResult(*self._fork))
