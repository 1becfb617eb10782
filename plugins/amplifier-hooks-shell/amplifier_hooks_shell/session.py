"""Run the commands of one session at its events, and carry out what they answer."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from amplifier_core.models import HookResult

from .answers import Answer, merge, read_answer
from .config import GUARDS, NAME
from .describing import describe
from .names import CLAUDE_NAMES, match_tool
from .running import Ran, make_environment, run_command
from .scripts import Scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

    from .config import Command, ShellConfig

    Handler: TypeAlias = Callable[[str, dict[str, Any]], Any]

logger = logging.getLogger(__name__)

PRIORITY = -100
"""After logs, and before other guards: they look at what a command changed."""
WISHES = "hooks_shell"
"""Begins the key of a call's data with what commands of one entry want besides a change of its input."""
STOP = "turn:stop"


class SessionHooks:
    """The commands of one session."""

    def __init__(self, coordinator: ModuleCoordinator, config: ShellConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self._folder = str(coordinator.get_capability("session.working_dir") or Path.cwd())
        self._scripts = Scripts(self._folder)
        self._stop_event = "SubagentStop" if self._is_agent() else "Stop"
        self._registrations: list[Callable[[], None]] = []
        self._notifying: set[asyncio.Task[None]] = set()
        self._stop_reason = ""
        self._stop_blocks = 0
        self._first_context: list[str] = []
        self._wishes = f"{WISHES}_{id(self)}"

    def listen(self) -> None:
        """Listen to the events that have commands."""
        for matchers in self._config.hooks.values():
            for each in matchers:
                for command in each.hooks:
                    self._scripts.remember(command.command, self._find_folders(command))
        for event, handlers in self._choose_events().items():
            if self._config.hooks.get(event):
                for name, handler in handlers:
                    self._register(name, handler)
        if self._config.hooks:
            self._register("prompt:submit", self._begin_turn)
            self._register("provider:request", self._before_request)

    def _choose_events(self) -> dict[str, tuple[tuple[str, Handler], ...]]:
        """Return the events of this session with what to listen to."""
        is_agent = self._stop_event == "SubagentStop"
        events: dict[str, tuple[tuple[str, Handler], ...]] = {
            "PreToolUse": (("tool:pre", self._before_tool), ("tool:pre", self._carry_out_wishes)),
            "PostToolUse": (("tool:post", self._after_tool),),
            "PreCompact": (("context:pre_compact", self._before_compaction),),
            "Notification": (("user:notification", self._notify), ("approval:required", self._notify)),
            self._stop_event: ((STOP, self._at_stop), ("orchestrator:complete", self._after_stop)),
        }
        if not is_agent or getattr(self._coordinator.session, "is_resumed", False):  # a person may talk to it now
            events["UserPromptSubmit"] = (("prompt:submit", self._at_prompt),)
        if not is_agent:
            events["SessionStart"] = (("session:start", self._at_start), ("session:resume", self._at_start))
            events["SessionEnd"] = (("session:end", self._at_end),)
        return events

    def _is_agent(self) -> bool:
        """Return whether the session has its commands from another one that began it; forks have their own.

        A session that a trigger began is nobody's agent.
        """
        entries = [each for each in self._coordinator.config.get("hooks") or () if isinstance(each, dict)]
        inherits = any(each.get("module") == NAME and each.get("inherited") for each in entries)
        return inherits and not self._coordinator.get_capability("session.background")

    def _register(self, event: str, handler: Handler) -> None:
        register = self._coordinator.hooks.register
        self._registrations.append(register(event, handler, priority=PRIORITY, name=NAME))

    async def close(self) -> None:
        """Stop listening, and end the notifications that run."""
        while self._registrations:
            self._registrations.pop()()
        for task in self._notifying:
            task.cancel()
        await asyncio.gather(*self._notifying, return_exceptions=True)

    # the events

    async def _before_tool(self, event: str, data: dict[str, Any]) -> HookResult | None:
        answer = await self._ask_about_tool("PreToolUse", data)
        if answer is None:
            return None
        if answer.deny or answer.stop:
            return HookResult(action="deny", reason=answer.deny or answer.stop)
        changes: dict[str, Any] = {}
        if answer.input is not None:
            changes["tool_input"] = answer.input
        if answer.ask or answer.context:
            changes[self._wishes] = {"ask": answer.ask, "context": "\n\n".join(answer.context)}
        return HookResult(action="modify", data={**data, **changes}) if changes else None

    async def _carry_out_wishes(self, event: str, data: dict[str, Any]) -> HookResult | None:
        """Ask, or tell the model, what `_before_tool` could not say besides its change."""
        wishes = data.get(self._wishes)
        if not isinstance(wishes, dict):
            return None
        if wishes["ask"]:
            call = f"{data.get('tool_name')}({json.dumps(data.get('tool_input'), default=str)})"
            return HookResult(
                action="ask_user",
                reason=wishes["ask"],
                approval_prompt=f"{call}: {_in_one_line(wishes['ask'])}",
                approval_options=["Allow once", "Deny"],
                approval_default="deny",
            )
        return _inject(wishes["context"])

    async def _after_tool(self, event: str, data: dict[str, Any]) -> HookResult | None:
        answer = await self._ask_about_tool("PostToolUse", data)
        return _inject("\n\n".join(answer.context)) if answer is not None and answer.context else None

    async def _at_prompt(self, event: str, data: dict[str, Any]) -> HookResult | None:
        answer = await self._run("UserPromptSubmit", {"prompt": data.get("prompt", "")})
        if answer.deny or answer.stop:
            return HookResult(action="deny", reason=answer.deny or answer.stop)
        return _inject("\n\n".join(answer.context)) if answer.context else None

    async def _begin_turn(self, event: str, data: dict[str, Any]) -> HookResult | None:
        if not data.get("is_steering"):
            self._stop_reason, self._stop_blocks = "", 0
        context, self._first_context = self._first_context, []
        return _inject("\n\n".join(context)) if context else None

    async def _before_request(self, event: str, data: dict[str, Any]) -> HookResult | None:
        """End the turn that a command has stopped."""
        if not self._stop_reason:
            return None
        return HookResult(action="deny", reason=self._stop_reason, data={**data, "finish_reason": "hook"})

    async def _at_stop(self, event: str, data: dict[str, Any]) -> HookResult | None:
        answer = await self._run_stop()
        if not answer.deny or self._stop_reason:
            return None
        if self._stop_blocks >= self._config.max_stop_blocks:
            self._show(f"the turn ends here: {self._stop_event} has sent it on {self._stop_blocks} times", "warning")
            return None
        self._stop_blocks += 1
        return HookResult(action="deny", reason=answer.deny)

    async def _after_stop(self, event: str, data: dict[str, Any]) -> None:
        """Run the commands at the end of a turn whose loop does not ask; it cannot be sent on."""
        if getattr(self._coordinator.get("orchestrator"), "asks_to_stop", False) or data.get("status") != "success":
            return
        if (await self._run_stop()).deny:
            self._show(f"the loop of this session cannot be sent on by {self._stop_event}", "warning")

    async def _run_stop(self) -> Answer:
        return await self._run(self._stop_event, {"stop_hook_active": self._stop_blocks > 0})

    async def _before_compaction(self, event: str, data: dict[str, Any]) -> None:
        await self._run("PreCompact", {"trigger": "auto", "custom_instructions": ""})

    async def _at_start(self, event: str, data: dict[str, Any]) -> None:
        source = "resume" if event == "session:resume" else "startup"
        self._first_context = (await self._run("SessionStart", {"source": source}, source)).context

    async def _at_end(self, event: str, data: dict[str, Any]) -> None:
        await self._run("SessionEnd", {"reason": str(data.get("status") or "other")})

    async def _notify(self, event: str, data: dict[str, Any]) -> None:
        """Run the commands beside the session: a question does not wait for them."""
        message = str(data.get("prompt") or data.get("message") or "")
        kind = "permission_prompt" if event == "approval:required" else "notification"
        task = asyncio.create_task(self._run_notification({"message": message, "notification_type": kind}, kind))
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _run_notification(self, about: dict[str, Any], kind: str) -> None:
        await self._run("Notification", about, kind)

    # the commands

    async def _ask_about_tool(self, event: str, data: dict[str, Any]) -> Answer | None:
        """Return the answer of the commands for a tool; None when no pattern fits it."""
        tool = str(data.get("tool_name"))
        about = {"tool_input": data.get("tool_input"), "tool_use_id": data.get("tool_call_id")}
        if "result" in data:
            about["tool_response"] = data["result"]
        by_name: dict[str, list[Command]] = {}
        for matcher in self._config.hooks[event]:
            if (name := match_tool(matcher.matcher, tool)) is not None:
                known = by_name.setdefault(name, [])
                known += [each for each in matcher.hooks if each not in known]
        if not by_name:
            return None
        alias = CLAUDE_NAMES.get(tool, tool)
        runs = [
            (command, {"tool_name": name, "tool_alias": alias, **about})
            for name, commands in by_name.items()
            for command in commands
        ]
        return await self._run_all(event, runs)

    async def _run(self, event: str, about: dict[str, Any], matched: str = "") -> Answer:
        commands: list[Command] = []
        for matcher in self._config.hooks.get(event, ()):
            if not matched or match_tool(matcher.matcher, matched):
                commands += [each for each in matcher.hooks if each not in commands]
        return await self._run_all(event, [(command, about) for command in commands])

    async def _run_all(self, event: str, runs: list[tuple[Command, dict[str, Any]]]) -> Answer:
        """Run commands at the same time, show what is for the person, and return what they want together."""
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(self._run_one(event, command, about)) for command, about in runs]
        answer = merge(task.result() for task in started)
        for text in answer.shown:
            self._show(text, "info")
        for text in answer.failures:
            self._show(text, "warning")
        self._stop_reason = self._stop_reason or answer.stop
        return answer

    async def _run_one(self, event: str, command: Command, about: dict[str, Any]) -> Answer:
        denies = event in GUARDS and (command.on_error or self._config.on_error) == "deny"
        try:
            ran = await self._execute(event, command, about)
        except Exception as error:
            ran = Ran(-1, problem=f"cannot be asked: {error}")
        return read_answer(event, _shorten(command.command), _redact(ran), denies=denies)

    async def _execute(self, event: str, command: Command, about: dict[str, Any]) -> Ran:
        """Run a command. Raises `TooLongError`."""
        given = describe(event, about, self._facts())
        folders = self._find_folders(command)
        if changed := self._scripts.find_changed(command.command, folders):
            text = f"was not run: {changed} has changed since the session began. Begin a new session"
            return Ran(-1, problem=text)
        environment = make_environment(folders, self._config.pass_environment)
        return await run_command(
            command.command, given, folder=self._folder, environment=environment, seconds=command.timeout
        )

    def _find_folders(self, command: Command) -> dict[str, str]:
        """Return the variables of a command for the folders of the session and of the command's bundle."""
        folders = dict.fromkeys(("AMPLIFIER_PROJECT_DIR", "CLAUDE_PROJECT_DIR"), self._folder)
        if command.bundle_dir is not None:
            folders |= dict.fromkeys(("AMPLIFIER_BUNDLE_DIR", "CLAUDE_PLUGIN_ROOT"), command.bundle_dir)
        return folders

    def _facts(self) -> dict[str, Any]:
        facts = {"session_id": str(self._coordinator.session_id or ""), "cwd": self._folder}
        if self._coordinator.parent_id:
            facts["parent_id"] = str(self._coordinator.parent_id)
        return facts

    def _show(self, text: str, level: Any) -> None:
        """Show a text to the person, or log it."""
        display = self._coordinator.display_system
        if display is None:
            logger.log(logging.WARNING if level == "warning" else logging.INFO, "%s: %s", NAME, text)
        else:
            display.show_message(text, level, source=f"hook:{NAME}")


def _inject(text: str) -> HookResult:
    return HookResult(action="inject_context", context_injection=text, context_injection_role="user")


def _redact(ran: Ran) -> Ran:
    """Hide the secrets in what a command said about itself."""
    try:
        from amplifier_core.utils.secrets import redact_text
    except ModuleNotFoundError:  # another kernel has none
        return ran
    return ran._replace(stderr=redact_text(ran.stderr), problem=redact_text(ran.problem))


def _shorten(command: str) -> str:
    line = _in_one_line(_redact(Ran(0, stderr=command)).stderr)
    return repr(line if len(line) <= 80 else f"{line[:79]}…")


def _in_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
