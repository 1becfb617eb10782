"""Run a store for the checks of another process: `python -m amplifier_core.testing.store_process`.

The first line on stdin is `{"factory": "module:function", "config": {…}}`. Each further line is a command, and gets one
line on stdout when it is done: `{"result": …}` or `{"error": NAME, "message": …}`.

    {"call": "append", "arguments": ["id", […]], "named": {"at": 0}, "fence": null}      a method of the store
    {"run": "module:function", "arguments": [], "named": {}, "fence": null}              async def function(store, …)

With `fence`, a delivery, the store is `fenced` by it. The process ends with its stdin.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

from .. import errors
from .wire_values import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


def find_function(name: str) -> Any:
    """Return the object with this name, `module:function`."""
    module, _, function = name.partition(":")
    found: Any = import_module(module)
    for part in function.split("."):
        found = getattr(found, part)
    return found


async def serve(commands: TextIO, answers: TextIO) -> None:
    """Open the store of the first line, and execute the commands one after another until the lines end.

    A command that runs then is cancelled: nobody waits for it.
    """
    first = commands.readline()
    if not first:
        return
    opening = read_json(first)
    try:
        store = find_function(opening["factory"])(opening["config"])
    except Exception as error:
        print(_describe_error(error), file=answers, flush=True)
        return
    print(write_json({"result": os.getpid()}), file=answers, flush=True)
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None

    def read() -> None:
        for line in commands:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(serving.cancel)  # whatever it does

    Thread(target=read, daemon=True).start()
    try:
        while True:
            print(await execute_command(store, read_json(await lines.get())), file=answers, flush=True)
    finally:
        await store.close()


async def execute_command(store: Any, command: Mapping[str, Any]) -> str:
    """Execute one command; return the line that answers it."""
    try:
        return write_json({"result": await _execute(store, command)})
    except Exception as error:
        return _describe_error(error)


async def _execute(store: Any, command: Mapping[str, Any]) -> object:
    if command["fence"] is not None:
        store = store.fenced(command["fence"])
    if "run" in command:
        return await find_function(command["run"])(store, *command["arguments"], **command["named"])
    result = getattr(store, command["call"])(*command["arguments"], **command["named"])
    return await result if inspect.isawaitable(result) else result


def _describe_error(error: Exception) -> str:
    """Write an error as the nearest class that the other process knows."""
    if not isinstance(error, errors.AmplifierError):
        traceback.print_exception(error)
    known = (kind.__name__ for kind in type(error).__mro__ if kind in _KNOWN)
    return write_json({"error": next(known), "message": str(error) or type(error).__name__})


_KNOWN = {each for module in (builtins, errors) for each in vars(module).values() if isinstance(each, type)}


def main() -> None:
    """Serve stdin; what the store prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with suppress(asyncio.CancelledError):
        asyncio.run(serve(sys.stdin, answers))


if __name__ == "__main__":
    main()
