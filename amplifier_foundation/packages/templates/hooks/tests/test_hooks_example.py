from amplifier_core.testing import MockCoordinator, check_hooks
from amplifier_core.validation.behavioral import HookBehaviorTests
from amplifier_core.validation.structural import HookStructuralTests

from amplifier_hooks_example import mount


class TestStructure(HookStructuralTests):
    """The structure of every module of hooks."""


class TestBehavior(HookBehaviorTests):
    """The behaviour of every module of hooks."""


async def test_it_keeps_the_contract_of_hooks() -> None:
    await check_hooks(mount, {"deny": ["bash"]})


async def test_it_denies_a_named_tool() -> None:
    coordinator = MockCoordinator()
    await mount(coordinator, {"deny": ["bash"]})
    result = await coordinator.hooks.emit("tool:pre", {"tool_name": "bash"})
    assert (result.action, result.reason) == ("deny", "hooks-example denies bash")
