"""The slash commands that modules offer to people."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.errors import CommandFailed, CommandMissing
from amplifier_core.prompt_commands import CHANNEL, MOST, collect_commands, expand_command, split_command

if TYPE_CHECKING:
    from amplifier_core.prompt_commands import PromptCommand


async def echo(argument: str) -> str:
    return f"said {argument}"


def command(name: str, **more: Any) -> PromptCommand:
    return {"name": name, "expand": echo, **more}  # type: ignore[typeddict-item]


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator(session_id="s")


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("/review", ("review", "")),
        ("/review  a b \n", ("review", "a b")),
        ("/git:push.now-1_x\nnow", ("git:push.now-1_x", "now")),
        ("/etc/passwd", None),
        ("/", None),
        ("/1", None),
        (" /review", None),
        ("review", None),
        ("/review! now", None),
    ],
)
def test_a_prompt_is_a_command_by_its_first_word(prompt: str, parts: tuple[str, str] | None) -> None:
    assert split_command(prompt) == parts


async def test_plain_and_async_callbacks_offer_commands_in_their_order(coordinator: ModuleCoordinator) -> None:
    async def later() -> list[PromptCommand]:
        return [command("b", hint="[FILE]")]

    coordinator.register_contributor(CHANNEL, "tool-a", lambda: [command("a", description="An \x1b[2J\n echo ")])
    coordinator.register_contributor(CHANNEL, "tool-b", later)
    coordinator.register_contributor(CHANNEL, "tool-c", lambda: None)
    found = await collect_commands(coordinator)
    assert found.problems == []
    assert [(each.name, each.description, each.hint, each.source) for each in found.offered.values()] == [
        ("a", "An [2J echo", "", "tool-a"),
        ("b", "", "[FILE]", "tool-b"),
    ]
    assert await expand_command(found.offered["a"], "x") == "said x"


async def test_a_name_of_a_built_in_command_or_of_an_earlier_one_is_reported(coordinator: ModuleCoordinator) -> None:
    coordinator.register_contributor(CHANNEL, "tool-a", lambda: [command("help"), command("x")])
    coordinator.register_contributor(CHANNEL, "tool-b", lambda: [command("x"), command("y")])
    found = await collect_commands(coordinator, {"help"})
    assert {name: each.source for name, each in found.offered.items()} == {"x": "tool-a", "y": "tool-b"}
    assert found.problems == [
        "/help of tool-a is left out: the name is that of a built-in command",
        "/x of tool-b is left out: tool-a has a command of that name",
    ]


async def test_a_broken_contributor_costs_its_own_commands_alone(coordinator: ModuleCoordinator) -> None:
    async def hang() -> list[PromptCommand]:
        await asyncio.Event().wait()
        return []

    def fail() -> list[PromptCommand]:
        raise RuntimeError("no")

    coordinator.register_contributor(CHANNEL, "hangs", hang)
    coordinator.register_contributor(CHANNEL, "fails", fail)
    coordinator.register_contributor(CHANNEL, "tells", lambda: "review")
    coordinator.register_contributor(CHANNEL, "mixed", lambda: ["x", command(""), {"name": "y"}, command("z")])
    found = await collect_commands(coordinator)
    assert [*found.offered] == ["z"]
    assert found.problems == [
        "the commands of hangs are missing: it did not answer within 2 s",
        "the commands of fails are missing: RuntimeError: no",
        "the commands of tells are missing: it offers str, and not a list",
        "mixed offers a command without a usable name: 'None'",
        "mixed offers a command without a usable name: ''",
        "/y of mixed has no function 'expand'",
    ]


async def test_a_name_with_a_colon_at_its_end_stands_for_all_below_it(coordinator: ModuleCoordinator) -> None:
    names = ["mcp:", "mcp:docs:", "mcp:docs:sum"]
    coordinator.register_contributor(CHANNEL, "tool-a", lambda: [command(each) for each in names])
    found = await collect_commands(coordinator)

    async def say(prompt: str) -> tuple[str, str]:
        command, argument = found.find(prompt) or pytest.fail(f"{prompt} is no command")
        return command.name, await expand_command(command, argument)

    assert await say("/mcp:docs:sum  a b") == ("mcp:docs:sum", "said a b")
    assert await say("/mcp:docs:list  a b") == ("mcp:docs:list", "said list a b")
    assert await say("/mcp:docs: list") == ("mcp:docs:", "said list")
    assert await say("/mcp:other:list") == ("mcp:other:list", "said other:list")
    assert found.find("/mcpx") is found.find("/etc/passwd") is found.find("mcp:docs:sum") is None


async def test_an_unknown_command_is_an_error_where_a_module_does_not_say_its_own(
    coordinator: ModuleCoordinator,
) -> None:
    coordinator.register_contributor(CHANNEL, "tells", lambda: [command("x")])
    assert (await collect_commands(coordinator)).find("/y now") is None
    coordinator.register_contributor(CHANNEL, "fails", lambda: 1 // 0)
    found = await collect_commands(coordinator)
    assert found.find("/x") is not None and found.find("/etc/passwd") is None
    with pytest.raises(CommandMissing, match="^no command /y is known, and the commands of fails are missing: ZeroDiv"):
        found.find("/y now")


async def test_a_session_has_a_thousand_commands_at_most(coordinator: ModuleCoordinator) -> None:
    coordinator.register_contributor(CHANNEL, "many", lambda: [command(f"c{each}") for each in range(MOST + 1)])
    found = await collect_commands(coordinator)
    assert (len(found.offered), len(found.problems)) == (MOST, 1)


@pytest.mark.parametrize(("answer", "reason"), [(ValueError("no file"), "no file"), (" ", "it gives no prompt")])
async def test_a_command_that_makes_no_prompt_says_why(
    coordinator: ModuleCoordinator, answer: Any, reason: str
) -> None:
    async def expand(argument: str) -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    coordinator.register_contributor(CHANNEL, "tool-x", lambda: [{"name": "x", "expand": expand}])
    found = await collect_commands(coordinator)
    with pytest.raises(CommandFailed, match=f"^/x of tool-x failed: {reason}$"):
        await expand_command(found.offered["x"], "")
