from pathlib import Path
from typing import Any

import pytest
from amplifier_core.testing import check_tool
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests

from amplifier_tool_vector_search import VectorSearchTool, check_config

NOTES = "# Garden\n\nWater the tomatoes every evening.\n\nThe shed needs new paint.\n"


class TestStructure(ToolStructuralTests):
    """The structure of every tool."""


class TestBehavior(ToolBehaviorTests):
    """The behaviour of every tool."""


@pytest.fixture
def tool(tmp_path: Path) -> VectorSearchTool:
    (tmp_path / "garden.md").write_text(NOTES)
    (tmp_path / "kitchen.md").write_text("Bake the bread for forty minutes.\n")
    return VectorSearchTool(tmp_path)


async def test_it_keeps_the_contract_of_a_tool(tool: VectorSearchTool) -> None:
    result = await check_tool(tool, {"query": "When do I water a tomato?", "limit": 1})
    [found] = result.output["passages"]
    assert (found["file"], found["line"], found["text"]) == ("garden.md", 3, "Water the tomatoes every evening.")


async def test_other_forms_of_a_word_are_found_and_the_best_is_first(tool: VectorSearchTool) -> None:
    result = await tool.execute({"query": "painting sheds"})
    assert [each["text"] for each in result.output["passages"]][0] == "The shed needs new paint."
    assert (await tool.execute({"query": "zzz"})).output == {"passages": [], "count": 0}


@pytest.mark.parametrize("input", [{}, {"query": ""}, {"query": "x", "limit": 0}, {"query": "x", "limit": "2"}])
async def test_a_wrong_argument_is_a_failed_result(tool: VectorSearchTool, input: dict[str, Any]) -> None:
    result = await tool.execute(input)
    assert not result.success
    assert result.error


@pytest.mark.parametrize("config", [{"file": "*.md"}, {"files": "../*.md"}, {"files": "/etc/*"}, {"files": 3}])
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tool-vector-search: file"):
        check_config(config)
