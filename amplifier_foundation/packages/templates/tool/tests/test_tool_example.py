from amplifier_core.testing import check_tool
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests

from amplifier_tool_example import ExampleTool


class TestStructure(ToolStructuralTests):
    """The structure of every tool."""


class TestBehavior(ToolBehaviorTests):
    """The behaviour of every tool."""


async def test_it_keeps_the_contract_of_a_tool() -> None:
    result = await check_tool(ExampleTool(), {"text": "two words"})
    assert result.output == {"words": 2}
