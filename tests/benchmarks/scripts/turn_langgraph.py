"""One turn with one tool call in langgraph: a graph of a model and its tools, as its guides build it."""

from __future__ import annotations

from functools import partial

from answering import answer, seconds_of
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Call the tool once, then answer."""
    last = state["messages"][-1]
    if last.type != "human":
        return {"messages": [AIMessage(content=str(last.content))]}
    call = {"id": "call_1", "name": "add", "args": {"a": 1, "b": 2}}
    return {"messages": [AIMessage(content="", tool_calls=[call])]}


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tools", ToolNode([add]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()


async def turn() -> None:
    """Ask once."""
    state = await graph.ainvoke({"messages": [HumanMessage(content="one and two")]})
    assert float(state["messages"][-1].content) == 3


answer(turn=partial(seconds_of, turn))
