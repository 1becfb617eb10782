"""A turn more, and a fork, of a thread that langgraph keeps in SQLite."""

from __future__ import annotations

import sqlite3
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from answering import answer, seconds_of
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

NUMBERS = count()


def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Answer at once."""
    return {"messages": [AIMessage("y" * 1000)]}


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_edge(START, "model")


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def asked(graph: Any, messages: int) -> dict[str, Any]:
    """Fill a thread, and return the questions about it."""
    name = f"thread-{messages}"
    history: list[AnyMessage] = [HumanMessage("x" * 200) for _ in range(messages)]
    graph.update_state(thread(name), {"messages": history})

    async def turn() -> None:
        graph.invoke({"messages": [HumanMessage("x" * 1000)]}, thread(name))

    async def fork() -> None:
        state = graph.get_state(thread(name))
        graph.update_state(thread(f"{name}-{next(NUMBERS)}"), {"messages": state.values["messages"]})

    return {f"turn_{messages}": lambda: seconds_of(turn, 2), f"fork_{messages}": lambda: seconds_of(fork, 2)}


with TemporaryDirectory(prefix="amplifier-bench-") as folder:
    connection = sqlite3.connect(Path(folder) / "store.db", check_same_thread=False)
    saving = builder.compile(checkpointer=SqliteSaver(connection))
    answer(**asked(saving, 10), **asked(saving, 10_000))
    connection.close()
