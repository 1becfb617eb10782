"""Be the process of one sandboxed module: mount it, tell of its tools, and run their calls.

The module's coordinator is a stand-in. Its events go to the hooks of the session, and its gate has the rules of the
session's; nothing else of the session is here.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import pickle
import socket
import sys
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.hooks import HookRegistry
from amplifier_core.loader import ModuleLoader
from amplifier_core.models import HookResult, ToolResult
from amplifier_core.permissions import PermissionGate, Policy
from amplifier_core.raised import describe_at, find_place

from .limits import ProcessLimits
from .link import Link, LinkClosed

if TYPE_CHECKING:
    from collections.abc import Callable

CODE = "code"
"""What is told of a tool whose `accesses` is a function."""
_call: ContextVar[dict[str, Any] | None] = ContextVar("call", default=None)


def begin_module(own: str) -> None:
    """Serve one module over the socket `own`, a number, until the session ends or is gone; then end this process."""
    asyncio.run(_Host().run(socket.socket(fileno=int(own))))
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


class _Host:
    """The module of this process."""

    def __init__(self) -> None:
        self._running: dict[int, asyncio.Task[Any]] = {}
        self._coordinator: _Coordinator | None = None
        self._ending = asyncio.Event()

    async def run(self, own: socket.socket) -> None:
        own.setblocking(False)
        async with Link(own, self._serve) as self._link:
            logging.getLogger().addHandler(_Logs(self._link))
            async with asyncio.TaskGroup() as tasks:
                waits = [tasks.create_task(self._link.wait_gone()), tasks.create_task(self._ending.wait())]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for each in (*waits, *self._running.values()):
                    each.cancel()
            if self._running:
                await asyncio.wait(self._running.values())
            if self._coordinator is not None:
                await self._coordinator.cleanup()

    async def _serve(self, name: str, arguments: dict[str, Any]) -> Any:
        calls: dict[str, Callable[..., Any]]
        calls = {
            "mount": self._mount,
            "execute": self._execute,
            "preview": self._preview,
            "cancel": self._cancel,
            "end": self._end,
        }
        return await calls[name](**arguments)

    async def _mount(
        self, module: str, path: str | None, config: dict[str, Any], limits: dict[str, Any], **about: Any
    ) -> list[dict[str, Any]]:
        """Mount the module; return what there is to know of each of its tools."""
        ProcessLimits(**limits).set()
        coordinator = self._coordinator = _Coordinator(self._link, about["session_id"], about["parent_id"])
        coordinator.register_capability("session.working_dir", about["folder"])
        coordinator.register_capability("tool.call", _call.get)
        if about["undo"]:
            coordinator.register_capability("session.undo", _Undo(self._link))
        coordinator.take_gate(about["gate"])
        coordinator.mount_points["module-source-resolver"] = _Place(path)
        loader = ModuleLoader()
        coordinator.register_cleanup(await (await loader.load(module, config, path, coordinator))(coordinator))  # type: ignore[arg-type]  # None is ignored
        for _, ready in loader.get_on_session_ready_queue():
            await ready(coordinator)
        coordinator.is_mounted = True
        return [_describe(name, tool) for name, tool in coordinator.get("tools").items()]

    async def _execute(self, number: int, tool: str, input: Any, call: Any, gate: str | None) -> dict[str, Any]:
        assert self._coordinator is not None  # it is mounted before its tools are known
        task = asyncio.current_task()
        assert task is not None  # the link has one for each call
        self._running[number] = task
        _call.set(call)
        try:
            self._coordinator.take_gate(gate)
            return _write_result(await self._coordinator.get("tools", tool).execute(input))
        except asyncio.CancelledError:
            raise RuntimeError("the call was cancelled") from None
        except Exception:
            raise
        except BaseException as error:  # such as SystemExit: this process has other calls
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        finally:
            del self._running[number]

    async def _preview(self, tool: str, input: Any, gate: str | None) -> str:
        """Return what a call would change."""
        assert self._coordinator is not None  # it is mounted before its tools are known
        self._coordinator.take_gate(gate)
        return str(await self._coordinator.get("tools", tool).preview(input))

    async def _cancel(self, number: int) -> None:
        if number in self._running:
            self._running[number].cancel()

    async def _end(self) -> None:
        self._ending.set()


class _Undo:
    """Has the session's process keep what a file holds before a change."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def keep(self, path: str, after: str | None, before: bytes | None = None) -> None:
        """Keep a file of the working folder as it is on disk."""
        await self._link.call("keep", path=path, after=after)


class _Place:
    """The resolver of a module at a known path."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def lacks(self, module_id: str) -> bool:
        """Return whether the module is an installed one."""
        return self._path is None

    def resolve(self, module_id: str = "", source_hint: Any = None, profile_hint: Any = None) -> Any:
        """Return this, as the source of the module; as a source, return its path."""
        return self if module_id else Path(str(self._path))


class _Hooks(HookRegistry):
    """The hooks of the session, for events of the module alone."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def register(self, event: str, handler: Any, priority: int = 0, name: str | None = None) -> NoReturn:
        """Refuse: a handler may be a guard."""
        raise ValueError("a module in a sandbox cannot register hooks; leave out 'sandbox: true', or those hooks")

    def has_handlers(self, event: str) -> bool:
        """Return True: the session knows its handlers."""
        return True

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Tell the hooks of the session; return its `action` and `reason`."""
        try:
            answer = await self._link.call("emit", event=event, data=data)
        except LinkClosed:
            answer = {}
        return HookResult(data=data, **answer)


class _Coordinator(ModuleCoordinator):
    """The coordinator of the module: tools alone can be mounted."""

    def __init__(self, link: Link, session_id: str, parent_id: str | None) -> None:
        super().__init__(session_id=session_id, parent_id=parent_id)
        self.hooks = self.mount_points["hooks"] = _Hooks(link)
        self.is_mounted = False

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        """Mount a tool under a new name. Raises `ValueError` for anything else."""
        if mount_point != "tools" or self.is_mounted:
            raise ValueError(f"a module in a sandbox cannot mount {mount_point} now; it mounts tools when it begins")
        name = name or module.name
        if name in self.get("tools"):
            raise ValueError(f"the module mounts two tools '{name}'")
        await super().mount(mount_point, module, name)

    def register_contributor(self, channel: str, name: str, callback: Any) -> NoReturn:
        """Refuse: nobody would collect what it contributes."""
        raise ValueError(f"a module in a sandbox cannot contribute to '{channel}'; leave out 'sandbox: true'")

    def take_gate(self, packed: str | None) -> None:
        """Have the rules of the session's gate as they are now; None: as before, "": no gate."""
        if not packed:
            self.permissions = None if packed == "" else self.permissions
            return
        layers, folder, grants, refusal, untrusted, acts = pickle.loads(base64.b64decode(packed))
        self.permissions = PermissionGate(Policy(layers), folder, grants)
        self.permissions.refusal, self.permissions.untrusted, self.permissions.acts = refusal, untrusted, acts


def _describe(name: str, tool: Any) -> dict[str, Any]:
    """Return what there is to know of a tool. Raises `RuntimeError` with its name, its class and the place."""
    try:
        return _ask(name, tool)
    except Exception as error:
        said = describe_at(error, find_place(error, tool))
        raise RuntimeError(f"the tool '{name}' ({type(tool).__qualname__}) cannot be described: {said}") from error


def _ask(name: str, tool: Any) -> dict[str, Any]:
    accesses, config = getattr(tool, "accesses", None), getattr(tool, "config", None)
    effects = config.get("effects") if isinstance(config, dict) else None
    return {
        "name": name,
        "description": tool.description,
        "input_schema": getattr(tool, "input_schema", None),
        "accesses": CODE if callable(accesses) else accesses,
        "effects": getattr(tool, "effects", None) or effects,
        "previews": callable(getattr(tool, "preview", None)),
        "untrusted_results": getattr(tool, "untrusted_results", False) is True,
    }


def _write_result(value: Any) -> dict[str, Any]:
    """Return a tool's result, or its plain value, for JSON; other values become what a model would read."""
    from pydantic_core import to_jsonable_python

    is_result = isinstance(value, ToolResult)
    plain = value.model_dump() if is_result else value
    written = to_jsonable_python(plain, fallback=str, bytes_mode="base64", inf_nan_mode="strings")
    return {"result" if is_result else "value": written}


class _Logs(logging.Handler):
    """Hands warnings and errors over to the log of the session's process."""

    def __init__(self, link: Link) -> None:
        super().__init__(logging.WARNING)
        self._link = link
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, from any thread."""
        tell = partial(self._link.tell, "log", level=record.levelno, text=record.getMessage())
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(tell)
