"""Mount the tools of a module with `sandbox: true`: its code runs in a process in a sandbox, and nowhere else.

The process serves all calls of one session. A process that has ended, or that would be confined in another way now, is
replaced before the next call. It is not trusted: what it tells is checked, and is never more than plain data.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import pickle
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from amplifier_core.entry_points import find_entry_points
from amplifier_core.events import ALL_EVENTS, ARTIFACT_READ, ARTIFACT_WRITE
from amplifier_core.loader import GROUP
from amplifier_core.models import ToolResult
from amplifier_core.mounting import MOUNT_TIME_LIMIT
from amplifier_core.permissions import Access, Call, what_obeys
from amplifier_core.permissions.calls import INSIDE, Kind
from amplifier_core.permissions.hidden import replace_unprintable
from amplifier_core.permissions.policy import Layer
from amplifier_core.plugins import load_plugins

from ..bundle.packages import NO_SANDBOX
from .limits import ProcessLimits
from .sandboxed_process import SandboxedProcess, ToolProcessEnded
from .tool_host import CODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.loader import ModuleLoader, MountFunction

    from ..hookspecs import SandboxFactory

logger = logging.getLogger(__name__)

LONGEST_DESCRIPTION, LONGEST_LINE, MOST_LINES = 50_000, 2_000, 1_000
"""Characters of a tool's description, or of its schema; characters of a line for the log, and lines."""
MOST_TOOLS = 200
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_KINDS = {f"{kind}{end}" for kind in get_args(Kind) for end in ("", INSIDE)}
_KEPT = {event.partition(":")[0] for event in ALL_EVENTS} | {"bundle", "delegate"}
"""The beginnings of events that the program itself emits."""


def make_mount(loader: ModuleLoader, module_id: str, config: dict[str, Any], source: Any) -> MountFunction:
    """Return an async function to mount the tools of a module on a coordinator."""

    async def mount(coordinator: ModuleCoordinator) -> Any:
        module = SandboxedModule(loader, module_id, config, source, coordinator)
        await module.mount()
        return module.close

    return mount


class SandboxedModule:
    """One module in its sandbox."""

    def __init__(
        self, loader: ModuleLoader, module_id: str, config: dict[str, Any], source: Any, coordinator: ModuleCoordinator
    ) -> None:
        self.name = module_id
        self._loader = loader
        self._config = config
        self._source = source
        self._coordinator = coordinator
        self._folder = os.path.realpath(coordinator.get_capability("session.working_dir") or ".")
        self._limits = ProcessLimits.of(coordinator.config)
        self._told: list[Any] = []
        self._tools: dict[str, SandboxedTool] = {}
        self._process: SandboxedProcess | None = None
        self._replacing = asyncio.Lock()
        self._living: set[SandboxedProcess] = set()
        self._lines = 0
        self._is_closed = False

    async def mount(self) -> None:
        """Start the process, and mount its tools. Raises `ValueError` with the remedy, and errors of the module."""
        for entry in () if self._source else find_entry_points(GROUP, self.name):
            entry.check()  # the process in the sandbox does not see the settings
        process = self._process = await self._begin()
        mounted = self._coordinator.get("tools")
        if taken := [name for name in self._tools if name in mounted]:
            await self._end(process)
            raise ValueError(f"another module has mounted a tool '{taken[0]}' already")
        for tool in self._tools.values():
            await self._coordinator.mount("tools", tool, tool.name)

    async def execute(self, tool: str, input: Any) -> Any:
        """Return the result of a call. Raises the tool's own error, and `ToolProcessEnded`."""
        ask = self._coordinator.get_capability("tool.call")
        process = await self._take_process()
        try:
            answer = await process.execute(tool, input, ask() if ask is not None else None, self._pack_gate())
        finally:
            try:
                said = await self._look_again(process)
            finally:
                process.calls -= 1
                if process.is_retired and not process.calls:
                    await self._end(process)
        return _read_answer(self.name, answer, said)

    async def preview(self, tool: str, input: Any) -> str:
        """Return what a call would change, in the words of its tool."""
        process = await self._take_process()
        try:
            return await process.preview(tool, input, self._pack_gate())
        finally:
            process.calls -= 1
            if process.is_retired and not process.calls:
                await self._end(process)

    async def close(self) -> None:
        """End all processes, also one that begins."""
        self._is_closed = True
        for process in self._living - {self._process}:
            if not process.calls:
                process.kill()
        async with self._replacing:
            for process in list(self._living):
                await self._end(process)

    async def _take_process(self) -> SandboxedProcess:
        """Return the process for one more call: the last one, or a new one."""
        async with self._replacing:
            if self._is_closed:
                raise ToolProcessEnded(self.name, "has ended with its session")
            process = self._process
            if process is None or not process.is_running or not await asyncio.to_thread(process.sandbox.is_current):
                self._process = None
                if process is not None:
                    process.is_retired = True
                    if not process.calls:
                        await self._end(process)
                process = self._process = await self._begin_again()
            process.calls += 1
            return process

    async def _begin_again(self) -> SandboxedProcess:
        """Return a new process. Raises `ToolProcessEnded` when that takes longer than a mount may."""
        seconds = self._coordinator.config.get("session", {}).get("mount_timeout") or MOUNT_TIME_LIMIT
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._begin()
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolProcessEnded(self.name, f"took longer than {seconds:g} s to begin again") from None

    async def _begin(self) -> SandboxedProcess:
        """Return a new process that has mounted the module; it tells the same tools each time."""
        path = await self._loader.find_path(self.name, self._source, self._coordinator)  # the guard looks at it, too
        code = await asyncio.to_thread(os.path.realpath, path) if path is not None else None
        # Without its name: a tool that is called like a provider gets no kept key.
        config = await self._loader.complete_config("", None, self._config, self._coordinator)
        sandbox = (await self._find_factory())(self._folder, self._is_released, self._is_read_only)
        process = SandboxedProcess(self.name, sandbox, self._limits, self._serve)
        self._living.add(process)
        try:
            await process.start(self._folder, [code] if code is not None else [])
            if self._is_closed:
                raise ToolProcessEnded(self.name, "has ended with its session")
            told = await process.call(
                "mount",
                module=self.name,
                path=code,
                config=config,
                limits=asdict(self._limits),
                folder=self._coordinator.get_capability("session.working_dir"),
                session_id=self._coordinator.session_id,
                parent_id=self._coordinator.parent_id,
                gate=self._pack_gate(),
                undo=self._coordinator.get_capability("session.undo") is not None,
            )
            tools = {tool.name: tool for tool in _read_tools(self, told)}
            if told != (self._told or told):
                raise ToolProcessEnded(self.name, "tells other tools than at the beginning of the session")
        except BaseException:
            process.kill()
            await self._end(process)
            raise
        if not self._told:
            self._told, self._tools = told, tools
        return process

    async def _end(self, process: SandboxedProcess) -> None:
        if process in self._living:
            self._living.discard(process)
            try:
                await process.close()
            finally:
                await self._look_again(process)

    async def _look_again(self, process: SandboxedProcess) -> list[str]:
        """Make harmless what is new in the folder; return what there is to say about it."""
        new = await asyncio.to_thread(process.sandbox.look_again)
        said = [_make_printable(each[:LONGEST_LINE]) for each in new[:MOST_LINES]]
        for each in said:
            logger.warning("%s: %s", self.name, each)
        return said

    async def _find_factory(self) -> SandboxFactory:
        session = self._coordinator.session
        plugins = session.plugins if session is not None else None
        if plugins is None:
            plugins = await asyncio.to_thread(load_plugins)
        try:
            offered = plugins.registry_of("sandbox")
        except KeyError:  # plugins of a program without the hooks of the foundation
            offered = (await asyncio.to_thread(load_plugins)).registry_of("sandbox")
        names = list(offered)
        if not names:
            raise ValueError(NO_SANDBOX)
        if len(names) > 1:
            raise ValueError(f"several sandboxes are installed: {', '.join(names)}; uninstall all but one")
        factory: SandboxFactory = offered.get(names[0])
        return factory

    def _is_released(self, kind: str, path: str) -> bool:
        """Return whether the person's own rules about one of the tools let it read or write a guarded file."""
        gate = self._coordinator.permissions
        if gate is None:
            return False
        access = Access("read", path) if kind == "read" else Access("write", path, reader=what_obeys(path) or "git")
        return any(gate.policy.decide(Call(name, (access,), {})).effect == "allow" for name in list(self._tools))

    def _is_read_only(self) -> bool:
        """Return whether a layer has the mode `read-only`, and no rule that lets one of the tools do more."""
        gate = self._coordinator.permissions
        return gate is not None and any(
            layer.mode == "read-only"
            and not any(rule.effect == "allow" and rule.names(name) for rule in layer.rules for name in self._tools)
            for layer in gate.policy.layers
        )

    def _pack_gate(self) -> str:
        """Return the rules of the session's gate as they are now, for the process: it may trust this one."""
        gate = self._coordinator.permissions
        if gate is None:
            return ""
        layers = [Layer(each.source, each.rules, each.mode, is_own=each.is_own) for each in gate.policy.layers]
        packed = pickle.dumps((layers, gate.folder, gate.grants, gate.refusal, gate.untrusted, gate.acts))
        return base64.b64encode(packed).decode()

    async def _serve(self, name: str, arguments: dict[str, Any]) -> Any:
        """Do one call of the process. Raises `LookupError` for an unknown one."""
        if name == "emit":
            return await self._emit(**arguments)
        if name == "log":
            return self._log(**arguments)
        if name == "keep":
            return await self._keep(**arguments)
        raise LookupError(f"a module in a sandbox cannot ask for '{name}'")

    async def _keep(self, path: Any, after: Any) -> None:
        """Keep what a file of the working folder holds, before a tool changes it."""
        if not isinstance(after, str) or not re.fullmatch("[0-9a-f]{64}", after):
            raise ValueError("the digest of a change is no SHA-256")
        if not await asyncio.to_thread(self._is_inside, path):
            raise PermissionError(f"a module in a sandbox cannot keep {path!r:.200}")
        real = await asyncio.to_thread(os.path.realpath, path)
        await self._coordinator.get_capability("session.undo").keep(real, after)

    async def _emit(self, event: str, data: dict[str, Any]) -> dict[str, Any]:
        """Tell the hooks of an event of the module."""
        if event in (ARTIFACT_READ, ARTIFACT_WRITE):
            is_own = await asyncio.to_thread(self._is_inside, data.get("path"))
        else:
            is_own = event.partition(":")[0] not in _KEPT
        if not is_own:
            raise PermissionError(f"a module in a sandbox cannot emit '{event}' about {data.get('path')!r:.200}")
        own = {name: value for name, value in data.items() if name not in ("session_id", "parent_id")}
        result = await self._coordinator.hooks.emit(event, own)  # the hooks add who it is
        return {"action": result.action, "reason": result.reason}

    def _is_inside(self, path: Any) -> bool:
        """Return whether a path leads to a place in the working folder."""
        if not isinstance(path, str) or "\0" in path:
            return False
        whole = os.path.realpath(Path(self._folder, path))
        return whole.startswith(f"{self._folder}/")

    def _log(self, level: int, text: str) -> None:
        from amplifier_core.utils.secrets import redact_text

        self._lines += 1
        if self._lines <= MOST_LINES:
            line = " ".join(redact_text(str(text)[:LONGEST_LINE]).split())
            logger.log(min(int(level), logging.ERROR), "%s: %s", self.name, line)


class SandboxedTool:
    """A tool that runs in the process of its module."""

    def __init__(self, module: SandboxedModule, told: Mapping[str, Any]) -> None:
        self.name: str = told["name"]
        self.description: str = told["description"]
        self.input_schema: dict[str, Any] | None = told.get("input_schema")
        self.effects: str | None = told.get("effects")
        self.untrusted_results: bool = told["untrusted_results"]
        accesses = told.get("accesses")
        self.accesses = self._describe if accesses == CODE else accesses
        self._module = module

    async def execute(self, input: dict[str, Any]) -> Any:
        """Run a call in the process."""
        return await self._module.execute(self.name, input)

    def _describe(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return what a call reaches by the names of its arguments, and a command to ask about: its code may say less.

        Code of the sandbox is never asked in the process of the session; a person is.
        """
        folder = self._module._folder
        return [*Call.of(self.name, arguments, folder).accesses, Access("command", self.name, form="opaque")]


class PreviewingTool(SandboxedTool):
    """A tool in a sandbox that says what a call would change."""

    async def preview(self, input: dict[str, Any]) -> str:
        """Ask the process."""
        return await self._module.preview(self.name, input)


def _read_tools(module: SandboxedModule, told: Any) -> Iterable[SandboxedTool]:
    """Yield the tools that a process tells of. Raises `ToolProcessEnded` for anything else than tools."""
    seen: set[str] = set()
    for each in told if isinstance(told, list) and len(told) <= MOST_TOOLS else [None]:
        if not isinstance(each, dict) or (problem := _find_problem(each)):
            raise ToolProcessEnded(module.name, f"tells of tools that are none: {problem if each else 'no list'}")
        if each["name"] in seen:
            raise ToolProcessEnded(module.name, f"tells of two tools '{each['name']}'")
        seen.add(each["name"])
        yield (PreviewingTool if each.get("previews") else SandboxedTool)(module, each)


def _find_problem(told: dict[str, Any]) -> str:
    """Return what is wrong with the description of a tool."""
    name, accesses = told.get("name"), told.get("accesses")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"its name is {name!r:.200}"
    if not isinstance(told.get("description"), str) or len(told["description"]) > LONGEST_DESCRIPTION:
        return f"the description of '{name}' is no text, or too long"
    if not isinstance(told.get("input_schema"), dict | None):
        return f"the input schema of '{name}' is no mapping"
    if len(json.dumps(told.get("input_schema"))) > LONGEST_DESCRIPTION:
        return f"the input schema of '{name}' is too long"
    if not (
        accesses in (None, CODE) or (isinstance(accesses, dict) and all(each in _KINDS for each in accesses.values()))
    ):
        return f"the accesses of '{name}' are unknown: {accesses!r:.200}"
    said = told.get("untrusted_results"), told.get("previews", False)
    if not isinstance(told.get("effects"), str | None) or not all(isinstance(each, bool) for each in said):
        return f"what '{name}' declares is unknown"
    return ""


def _make_printable(text: str) -> str:
    """Return a text with names of files in it, without control characters, and so that it can be written."""
    return replace_unprintable(text, lambda each: repr(each)[1:-1])


def _read_answer(module: str, answer: Any, said: list[str]) -> Any:
    """Return the result in an answer of the process, with a dict's `warnings` of what is new."""
    if isinstance(answer, dict) and answer.keys() == {"value"}:
        return answer["value"]
    try:
        result = ToolResult.model_validate(answer["result"])
    except (ValueError, TypeError, KeyError):
        raise ToolProcessEnded(module, "gave an answer that is no result of a tool") from None
    if said and isinstance(result.output, dict):
        result.output.setdefault("warnings", said)
    return result
