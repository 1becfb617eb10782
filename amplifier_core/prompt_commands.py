"""Collect the slash commands that the modules of a session offer to people.

A module contributes to the channel `prompt.commands`. Its callback returns a list of `PromptCommand`, at once, from
what it knows now: it is called before each prompt. A person types `/NAME ARGUMENT`, and the text that `expand` makes
of the argument is the prompt of a turn.
"""

from __future__ import annotations

import asyncio
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from .errors import CommandFailed, CommandMissing
from .permissions.hidden import replace_unprintable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from .coordinator import Contribution, ModuleCoordinator

CHANNEL = "prompt.commands"
"""The channel of contributions."""
NAME = r"[A-Za-z][A-Za-z0-9_:.-]*"
"""The pattern of a name."""
LONGEST_NAME, LONGEST_TEXT, MOST = 128, 1_024, 1_000
"""Characters of a name, and of a description or a hint; commands of a session."""
WITHIN = 2.0
"""Seconds for all contributors together."""


class _Named(TypedDict):
    name: str
    expand: Callable[[str], Awaitable[str]]


class PromptCommand(_Named, total=False):
    """A command as a module offers it.

    `name` matches `NAME`, without the slash. One that ends with a colon, as `mcp:docs:`, stands for all names that
    begin so and are not offered by themselves: its argument begins with the rest of the name. `expand` makes the prompt
    of a turn from what the person typed after the name; an error that it raises is shown to the person, and there is
    no turn. `hint` shows the argument, such as `[FILE]`; without it, the command takes any argument all the same.
    """

    description: str
    hint: str


class OfferedCommand(NamedTuple):
    """A command of a session; `source` is the module that offers it."""

    name: str
    description: str
    hint: str
    source: str
    expand: Callable[[str], Awaitable[str]]


class PromptCommands(NamedTuple):
    """The commands of a session by name, why others are left out, and the modules that do not say what they offer."""

    offered: dict[str, OfferedCommand]
    problems: list[str]
    missing: Mapping[str, str] = MappingProxyType({})
    """Why the commands of a module are missing, by module."""

    def find(self, prompt: str) -> tuple[OfferedCommand, str] | None:
        """Return the command that a prompt names, and its argument; None where no module offers it.

        Raises `CommandMissing` where it may be a command of a module that does not say what it offers.
        """
        if (parts := split_command(prompt)) is None:
            return None
        name, argument = parts
        if name in self.offered:
            return self.offered[name], argument
        above = [each for each in self.offered if each.endswith(":") and name.startswith(each)]
        if above:
            longest = max(above, key=len)
            return self.offered[longest]._replace(name=name), f"{name.removeprefix(longest)} {argument}".strip()
        for source, reason in self.missing.items():
            raise CommandMissing(name, source, reason)
        return None


def split_command(prompt: str) -> tuple[str, str] | None:
    """Return the name and the argument of a prompt such as `/review FILE`; None for another prompt."""
    found = re.match(rf"/({NAME})(?:\s+|\Z)", prompt)
    return (found[1], prompt[found.end() :].strip()) if found else None


async def collect_commands(coordinator: ModuleCoordinator, reserved: Collection[str] = ()) -> PromptCommands:
    """Return what the modules of a session offer now; names of `reserved` commands are not available to them.

    Of two commands with one name the first one counts. A contributor that fails, or does not answer within two seconds,
    is among the problems, like a command without a name.
    """
    missing: dict[str, str] = {}
    found = PromptCommands({}, [], missing)
    contributors = list(coordinator.channels.get(CHANNEL, ()))
    if not contributors:
        return found
    answers = await asyncio.gather(*map(_ask, contributors))
    for contributor, answer in zip(contributors, answers, strict=True):
        source = contributor["name"]
        if isinstance(answer, str):
            missing[source] = answer
            found.problems.append(f"the commands of {source} are missing: {answer}")
            continue
        for each in answer:
            if problem := _add(each, source, reserved, found.offered):
                found.problems.append(problem)
    return found


async def _ask(contributor: Contribution) -> list[Any] | str:
    """Return what a contributor offers, or why it does not."""
    try:
        async with asyncio.timeout(WITHIN):
            offered = contributor["callback"]()
            if hasattr(offered, "__await__"):
                offered = await offered
    except TimeoutError:
        return f"it did not answer within {WITHIN:g} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if offered is None or isinstance(offered, list | tuple):
        return list(offered or ())
    return f"it offers {type(offered).__name__}, and not a list"


def _add(each: Any, source: str, reserved: Collection[str], offered: dict[str, OfferedCommand]) -> str:
    """Add a command to those that are `offered`; return why it cannot be added."""
    name = each.get("name") if isinstance(each, dict) else None
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not re.fullmatch(NAME, name):
        return f"{source} offers a command without a usable name: {str(name)[:LONGEST_NAME]!r}"
    if not callable(each.get("expand")):
        return f"/{name} of {source} has no function 'expand'"
    if name in reserved:
        return f"/{name} of {source} is left out: the name is that of a built-in command"
    if name in offered:
        return f"/{name} of {source} is left out: {offered[name].source} has a command of that name"
    if len(offered) >= MOST:
        return f"/{name} of {source} is left out: a session has {MOST} commands at most"
    offered[name] = OfferedCommand(
        name, _to_line(each.get("description")), _to_line(each.get("hint")), source, each["expand"]
    )
    return ""


def _to_line(text: Any) -> str:
    """Return a text of a module as one line that steers no terminal."""
    shown = replace_unprintable(str(text or "")[: 4 * LONGEST_TEXT], lambda sign: " ")
    return " ".join(shown.split())[:LONGEST_TEXT]


async def expand_command(command: OfferedCommand, argument: str) -> str:
    """Return the prompt that a command makes of an argument. Raises `CommandFailed`."""
    try:
        text = await command.expand(argument)
    except Exception as error:
        raise CommandFailed(command.name, command.source, str(error) or type(error).__name__) from error
    if not isinstance(text, str) or not text.strip():
        raise CommandFailed(command.name, command.source, "it gives no prompt")
    return text
