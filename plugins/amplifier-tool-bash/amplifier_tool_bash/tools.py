"""Make the tools for a session."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.events import TOOL_PRE
from amplifier_core.models import ToolResult
from amplifier_core.permissions import Access, Call, what_obeys
from amplifier_sandbox.choosing import NoSandbox, find_sandbox, require_sandbox
from amplifier_sandbox.contracts import Run, holds_home
from amplifier_sandbox.protection import Guarded, find_guarded, hold_new_repositories, why_unguarded

from .background import Background
from .client_terminal import TERMINAL, TERMINALS, TerminalCommand
from .commands.decoding import describe_command
from .failures import BashError, InvalidInput
from .limits import find_limit, find_own_python, make_limits, make_shell
from .output import Output
from .running import Command
from .schemas import DESCRIPTIONS, check, make_schemas

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from amplifier_core import ModuleCoordinator
    from amplifier_sandbox.contracts import Launch, Sandbox

    from .config import BashConfig

    Action = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

OUTPUT = "bash:output"
"""The event with the output of a running command: `text`, and the `tool_call_id`."""
UNSANDBOXED = "bash-unsandboxed"
"""The tool of the rule by which the person allows commands without a sandbox, or, with its kind, in a weaker one."""


class BashTool:
    """One tool; a failed call is a result with an error, never an exception."""

    def __init__(self, name: str, schema: dict[str, Any], action: Action) -> None:
        self.name = name
        self.description = DESCRIPTIONS[name]
        self.input_schema = schema
        self._action = action

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Run the call; the `error` of a failed one has a `message` and a `type`."""
        try:
            output = await self._action(check(self.input_schema, input))
        except BashError as failure:
            return ToolResult(success=False, error={"message": str(failure), "type": failure.type})
        except OSError as cause:
            message = f"the command did not start: {cause.strerror or cause}"
            return ToolResult(success=False, error={"message": message, "type": type(cause).__name__})
        error = output.pop("failure", None)
        if error is None:
            return ToolResult(output=output)
        return ToolResult(success=False, output={**output, "error": error["message"]}, error=error)


class RunTool(BashTool):
    """The tool `bash`: it says what each call reaches."""

    def __init__(self, schema: dict[str, Any], shell: Shell) -> None:
        super().__init__("bash", schema, shell.run)
        self._shell = shell

    def accesses(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return what a call reaches, for the permissions of the session."""
        return self._shell.describe(arguments)


def make_tools(config: BashConfig, coordinator: ModuleCoordinator) -> list[BashTool]:
    """Return the tools of a session; its end stops what they run."""
    shell, schemas = Shell(config, coordinator), make_schemas(config)
    coordinator.register_cleanup(shell.close)
    if config.sandbox != "off":
        shell.stop_trying = coordinator.hooks.register(TOOL_PRE, shell.try_sandbox, name="tool-bash")
    return [
        RunTool(schemas["bash"], shell),
        BashTool("bash_output", schemas["bash_output"], shell.read_output),
        BashTool("bash_kill", schemas["bash_kill"], shell.kill),
    ]


class Shell:
    """The actions of the tools, on checked input."""

    def __init__(self, config: BashConfig, coordinator: ModuleCoordinator) -> None:
        self._config = config
        self._coordinator = coordinator
        self._folder = os.path.realpath(config.working_dir)
        self._background = Background(config.max_background)
        self._limits = make_limits(config.limits)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._running: list[Guarded] = []
        """What was guarded when each command in the background began."""
        self._told: set[str] = set()
        self.stop_trying: Callable[[], None] = lambda: None
        """Ends the calls of `try_sandbox`."""

    async def try_sandbox(self, event: str, data: dict[str, Any]) -> None:
        """Try the sandbox before the first command is decided about: whether one that only reads is harmless."""
        if data.get("tool_name") == "bash":
            with suppress(NoSandbox, OSError):  # the call itself fails by that
                await asyncio.to_thread(require_sandbox, self._config.sandbox)
            self.stop_trying()

    def describe(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return what a call of `bash` reaches; nothing for one that does not fit the schema, and is refused so."""
        command, where = arguments.get("command"), arguments.get("cwd", ".")
        if not isinstance(command, str) or not isinstance(where, str):
            return []
        try:
            inside = os.path.relpath(self._find_where(where), self._folder)
        except InvalidInput as error:
            return [Access("command", where, str(error), "opaque")]
        closed = self._find_closed()
        accesses = describe_command(command, self._folder, where, is_confined=self._is_confined(), closed=closed)
        if inside != ".":
            accesses.append(Access("read", inside, form="harmless"))
        return [*accesses, Access("host", "*")] if arguments.get("network") else accesses

    async def run(self, given: dict[str, Any]) -> dict[str, Any]:
        """Run a command to its end, or start it in the background."""
        where = self._find_where(given["cwd"])
        _check_text(given["command"])
        if given["background"]:
            self._background.require_place()
        sandbox = await asyncio.to_thread(self._require_sandbox)
        meanwhile = [] if sandbox.kind == "off" else await asyncio.to_thread(self._look_at_running)
        guarded = await asyncio.to_thread(self._find_guarded)
        run = Run(
            make_shell(self._limits, given["command"]),
            self._folder,
            where,
            bool(given.get("network")),
            self._config.pass_environment,
            self._config.readable,
            guarded,
            self._find_scratch(sandbox),
        )
        launch = await asyncio.to_thread(sandbox.launch, run)
        output = Output(self._config.max_output_chars)
        command = await self._start(launch, where, output)
        if given["background"]:
            waiting = self._finish_later(command, output, sandbox, guarded)
            facts: dict[str, Any] = {"id": self._background.start(waiting, output), "status": "running"}
        else:
            facts = await self._finish(command, output, given["timeout"], sandbox, guarded)
            facts = {"output": output.take(), **facts}
        said = [*meanwhile, *facts.get("warnings", ())]
        return {**facts, "warnings": said} if said else facts

    async def _start(self, launch: Launch, where: str, output: Output) -> Command | TerminalCommand:
        """Start a command: in a terminal of the editor where there is one, else here."""
        terminals = self._coordinator.get_capability(TERMINALS)
        if terminals is None:
            return await Command.start(launch, where, output, self._make_listener())
        command = await TerminalCommand.start(terminals, launch, where, output, self._config.max_output_chars)
        call = self._find_call()
        try:
            await self._coordinator.hooks.emit(TERMINAL, {"tool_call_id": call, "terminal_id": command.terminal})
        except BaseException:  # the call is cancelled while a hook waits
            await command.finish(0, self._config.grace)
            raise
        return command

    async def read_output(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the new output of a command in the background."""
        return self._background.read(given["id"])

    async def kill(self, given: dict[str, Any]) -> dict[str, Any]:
        """End a command in the background."""
        return await self._background.kill(given["id"])

    async def close(self) -> None:
        """End all commands, and delete the temporary files."""
        await self._background.close()
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.cleanup)

    async def _finish_later(
        self, command: Command | TerminalCommand, output: Output, sandbox: Sandbox, guarded: Guarded
    ) -> dict[str, Any]:
        """Wait for the end of a command in the background, and return the facts about it."""
        self._running.append(guarded)
        try:
            return await self._finish(command, output, None, sandbox, guarded)
        finally:
            self._running.remove(guarded)

    async def _finish(
        self,
        command: Command | TerminalCommand,
        output: Output,
        seconds: float | None,
        sandbox: Sandbox,
        guarded: Guarded,
    ) -> dict[str, Any]:
        """Wait for the end of a command, and return the facts about it."""
        try:
            in_time = await command.finish(seconds, self._config.grace)
        finally:
            said = [] if sandbox.kind == "off" else await asyncio.to_thread(self._look_again, guarded)
        facts: dict[str, Any] = {"exit_code": command.code, "status": "ended" if in_time else "timed out"}
        if not in_time:
            message = f"ended after {seconds:g} s; give a longer timeout, or run it in the background"
            facts["failure"] = {"message": message, "type": "TimeoutError"}
        if (limit := find_limit(self._config.limits, command.code, output.last)) is not None:
            facts["limit"] = limit
        said += find_own_python(guarded, output.last)
        return {**facts, "warnings": said} if said else facts

    def _find_guarded(self) -> Guarded:
        guarded = find_guarded(self._folder, self._is_released)
        if problem := why_unguarded(self._folder, guarded):
            raise BashError("SecondName", problem)
        return guarded

    def _look_again(self, before: Guarded) -> list[str]:
        return hold_new_repositories(self._folder, before, find_guarded(self._folder, self._is_released, before))

    def _look_at_running(self) -> list[str]:
        """Make harmless what is new since commands in the background began; return what was not yet said of it."""
        said = [each for before in list(self._running) for each in self._look_again(before)]
        new = [each for each in dict.fromkeys(said) if each not in self._told]
        self._told.update(new)
        return new

    def _find_where(self, given: str) -> str:
        """Return the folder of a command. Raises `InvalidInput` for one outside of the working folder."""
        whole = os.path.realpath(Path(self._folder, given)) if "\0" not in given else ""
        if whole != self._folder and not whole.startswith(f"{self._folder}/"):
            raise InvalidInput(f"{given!r} is outside of the working folder; name a folder inside of it")
        if not Path(whole).is_dir():
            raise InvalidInput(f"{given!r} is not a folder of the working folder")
        return whole

    def _find_scratch(self, sandbox: Sandbox) -> str:
        """Return the folder for temporary files; bubblewrap has one of its own."""
        if sandbox.kind in ("bubblewrap", "off"):
            return "/tmp"
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="amplifier-bash-")
        return os.path.realpath(self._scratch.name)

    def _is_confined(self) -> bool:
        """Return whether the next command runs in a sandbox in which a command that only reads is harmless."""
        try:
            return find_sandbox(self._config.sandbox).confines
        except NoSandbox:
            return False

    def _require_sandbox(self) -> Sandbox:
        wanted = self._config.sandbox
        if wanted == "off" and not self._may_use(wanted):
            raise BashError(
                "NoSandbox",
                f"`sandbox: off` needs a rule in your own settings (permissions: {{allow: [{UNSANDBOXED}]}}); "
                "nobody else may say so",
            )
        if wanted != "off" and holds_home(self._folder):
            raise BashError(
                "NoSandbox", f"the working folder {self._folder} holds your home; work in a folder of its own"
            )
        expected = self._is_confined()
        try:
            sandbox = require_sandbox(wanted)
        except NoSandbox as error:
            raise BashError(
                "NoSandbox", f"{error}. Or allow commands without one: see `sandbox` in the README"
            ) from None
        if wanted not in ("auto", "off") and (best := require_sandbox()).kind != wanted and not self._may_use(wanted):
            raise BashError(
                "NoSandbox",
                f"`sandbox: {wanted}` holds less than {best.kind}, which runs here: leave it out, or allow it in your "
                f'own settings (permissions: {{allow: ["{UNSANDBOXED}({wanted})"]}}); nobody else may say so',
            )
        if expected and not sandbox.confines:
            raise BashError("NoSandbox", "the sandbox does not hold here; call again, and you are asked first")
        return sandbox

    def _may_use(self, kind: str) -> bool:
        """Return whether a rule of the person's own settings allows a weaker sandbox or none, and none refuses it."""
        gate = self._coordinator.permissions
        if gate is None:
            return False
        own = [rule for layer in gate.policy.layers if layer.is_own for rule in layer.rules]
        access = Access("other", kind)
        is_named = any(rule.effect == "allow" and rule.tool == UNSANDBOXED and rule.fits(access) for rule in own)
        return is_named and gate.policy.decide(Call(UNSANDBOXED, (access,), {})).effect == "allow"

    def _is_released(self, kind: str, path: str) -> bool:
        """Return whether the person's own rules let commands read or write a guarded file."""
        gate = self._coordinator.permissions
        if gate is None:
            return False
        access = Access("read", path) if kind == "read" else Access("write", path, reader=what_obeys(path) or "git")
        return gate.policy.decide(Call("bash", (access,), {})).effect == "allow"

    def _find_closed(self) -> list[str]:
        """Return the patterns of rules that refuse or ask for paths.

        One of `bash` alone may be about commands: it is about paths without a blank, and with `/`, `.` or `**`.
        """
        gate = self._coordinator.permissions
        rules = [rule for layer in gate.policy.layers for rule in layer.rules] if gate is not None else []
        refusing = [rule for rule in rules if rule.effect != "allow" and rule.pattern]
        paths = [rule.pattern or "" for rule in refusing if rule.names("read_file")]
        either = [rule.pattern or "" for rule in refusing if rule.names("bash")]
        return [*paths, *(each for each in either if re.search(r"[/.]|\*\*", each) and not re.search(r"\s", each))]

    def _make_listener(self) -> Callable[[str], Awaitable[None]] | None:
        """Return what is told of a command's output; None when nobody listens."""
        hooks = getattr(self._coordinator, "hooks", None)
        if hooks is None or not hooks.has_handlers(OUTPUT):
            return None
        return partial(_emit, hooks, self._find_call(), [self._config.max_output_chars])

    def _find_call(self) -> str | None:
        """Return the id of the running call."""
        ask = self._coordinator.get_capability("tool.call")
        call = ask() if ask is not None else None
        return (call or {}).get("tool_call_id")


def _check_text(command: str) -> None:
    """Raise `InvalidInput` for a command that no process can get as an argument."""
    if "\0" in command or any("\ud800" <= sign <= "\udfff" for sign in command):
        raise InvalidInput("'command' has a NUL, or half of a surrogate pair; no shell can get it")


async def _emit(hooks: Any, call_id: str | None, left: list[int], text: str) -> None:
    """Tell the hooks of output, as long as there are characters left for them."""
    shown = text[: left[0]]
    left[0] -= len(shown)
    if shown:
        await hooks.emit(OUTPUT, {"tool_call_id": call_id, "text": shown})
