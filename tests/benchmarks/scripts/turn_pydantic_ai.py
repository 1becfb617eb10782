"""One turn with one tool call in pydantic-ai."""

from __future__ import annotations

from functools import partial

from answering import answer, seconds_of
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool once, then answer."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(str(last.content))])
    return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2}, "call_1")])


agent = Agent(FunctionModel(model))


@agent.tool_plain
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def turn() -> None:
    """Ask once."""
    result = await agent.run("one and two")
    assert float(result.output) == 3


answer(turn=partial(seconds_of, turn))
