"""One turn with one tool call in openai-agents."""

from __future__ import annotations

from functools import partial
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from answering import answer, seconds_of
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class InstantModel(Model):
    """Calls the tool once, then answers."""

    async def get_response(self, system_instructions: str | None, input: Any, *_: Any, **__: Any) -> ModelResponse:
        last = input if isinstance(input, str) else input[-1]
        called = isinstance(last, dict) and last.get("type") == "function_call_output"
        output = said(last["output"]) if called else CALL
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


CALL = ResponseFunctionToolCall(type="function_call", call_id="call_1", name="add", arguments='{"a": 1, "b": 2}')


def said(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="message", type="message", role="assistant", status="completed", content=[content])


@function_tool
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


set_tracing_disabled(True)
agent = Agent(name="bench", model=InstantModel(), tools=[add])


async def turn() -> None:
    """Ask once."""
    result = await Runner.run(agent, "one and two")
    assert float(result.final_output) == 3


answer(turn=partial(seconds_of, turn))
