"""Make the prompt of a turn from a slash command of a module."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import CommandFailed
from amplifier_core.prompt_commands import collect_commands, expand_command

if TYPE_CHECKING:
    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.prompt_commands import OfferedCommand

Listen = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Has a function called for each Ctrl-C while a block runs."""


async def expand_prompt(coordinator: ModuleCoordinator, prompt: str, listen: Listen) -> str:
    """Return what a module's command makes of a prompt, or the prompt where no module offers it.

    Raises `CommandFailed`, also when Ctrl-C stops it, and `CommandMissing`.
    """
    found = (await collect_commands(coordinator)).find(prompt)
    return prompt if found is None else await expand(*found, listen)


async def expand(command: OfferedCommand, argument: str, listen: Listen) -> str:
    """Return the prompt that a command makes of an argument. Raises `CommandFailed`, also when Ctrl-C stops it."""
    limit = asyncio.timeout(None)

    def stop() -> None:
        with suppress(RuntimeError):  # a press that comes after its end
            limit.reschedule(0)

    try:
        async with limit:
            with listen(stop):
                return await expand_command(command, argument)
    except TimeoutError:
        raise CommandFailed(command.name, command.source, "it was stopped") from None
