"""Run forks of a session for its calls, by the capability `session.spawn` of the program.

A fork is a session made from this one: it shares the history up to the last message before the call, and is not told of
the call. A call ends when all of its forks have ended. A fork that fails costs itself alone; a cancelled call cancels
its forks, and waits until each is stored.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_core import ModuleCoordinator, ToolResult
    from amplifier_core.permissions import Access

    Capability = Callable[..., Awaitable[Any]]

MAX_ATTEMPTS, MAX_PARALLEL, MAX_DEPTH = 8, 4, 1
LONGEST = 20_000
"""Characters of a fork's answer in a result, and of an instruction."""
SELF = "self"
ATTEMPT = "attempt"
"""The member of a fork's metadata: `call`, the id of the call that made it, and `number`, its place in the call."""
DEPTH = "self_delegation_depth"
"""The capability with the number of sessions above that were made of their own kind."""
DECISION = "decision"
"""The note about a fork after a choice: `kept` or `dropped`."""

_COSTS = ("cost", "cost_usd", "usage")
_FIELDS = ("attempts", "instruction", "n", "keep")
_DESCRIPTION = (
    "Try something in forks of this session, side by side, and read what came of each. A fork knows all of this "
    "conversation up to now, follows its instruction, and answers; its own steps stay out of this conversation. Give "
    "attempts, one instruction for each fork, or one instruction and n. All forks work in the same folder as you, at "
    "the same time: what one writes, you and the others see. Let each write to files of its own. Then say which fork "
    "you go on with, by keep and its session_id; that drops the others of its call. Their files are not undone."
)


class ForkError(Exception):
    """A call fails; the text says why, and the remedy. Programs compare `type`."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        super().__init__(message)


class ForkTool:
    """Tries instructions in forks of the session; a failed call is a result with an error, never an exception."""

    name = "fork"

    def __init__(
        self,
        coordinator: ModuleCoordinator,
        max_attempts: int = MAX_ATTEMPTS,
        max_parallel: int = MAX_PARALLEL,
        max_depth: int = MAX_DEPTH,
        timeout: float | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._most = max_attempts
        self._parallel = max_parallel
        self._max_depth = max_depth
        self._timeout = timeout
        self.description = _DESCRIPTION
        self.input_schema = {
            "type": "object",
            "properties": {
                "attempts": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": max_attempts,
                    "description": "What each fork is to do, and to answer with.",
                },
                "instruction": {"type": "string", "description": "What all forks are to do, in place of attempts."},
                "n": {"type": "integer", "minimum": 1, "maximum": max_attempts, "description": "So many forks; 1."},
                "keep": {"type": "string", "description": "The session_id of the fork that you go on with, alone."},
            },
            "additionalProperties": False,
        }

    def accesses(self, arguments: Mapping[str, Any]) -> list[Access]:
        """Return the agent that a call runs, for rules such as `fork(self)`. A choice reaches nothing."""
        from amplifier_core.permissions import Access

        chooses = bool(arguments.get("keep"))
        return [Access("read", ".", form="harmless") if chooses else Access("bundle", SELF)]

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Run the forks of a call, or choose one; the `error` of a failed call has a `message` and a `type`."""
        from amplifier_core.models import ToolResult

        try:
            given = self._read_input(input)
            if isinstance(given, str):
                return ToolResult(output=await self._keep(given))
            attempts = await self._try(given)
        except ForkError as error:
            return ToolResult(success=False, error={"message": str(error), "type": error.type})
        if any(attempt["status"] == "completed" for attempt in attempts):
            return ToolResult(output={"attempts": attempts})
        failure = {"message": f"no fork has an answer: {attempts[0].get('error', '')}", "type": "ForksFailed"}
        return ToolResult(success=False, output={"attempts": attempts, "error": failure["message"]}, error=failure)

    def _read_input(self, given: Any) -> list[str] | str:
        """Return the instructions, or the id of the fork to keep. Raises `ForkError`."""
        if not isinstance(given, dict):
            raise _invalid(f"the input must be an object, not {type(given).__name__}")
        fields = {name: value for name, value in given.items() if value not in (None, "", [])}
        unknown = next((name for name in fields if name not in _FIELDS), None)
        if unknown is not None:
            raise _invalid(f"unknown field '{unknown}'; known are {', '.join(_FIELDS)}")
        keep = fields.get("keep")
        if keep is not None:
            if len(fields) > 1 or not isinstance(keep, str):
                raise _invalid("'keep' stands alone, and is the session_id of a fork")
            return keep
        instructions, number = fields.get("attempts"), fields.get("n", 1)
        if (instructions is None) == ("instruction" not in fields) or (instructions is not None and "n" in fields):
            raise _invalid("give either 'attempts', or an 'instruction' and perhaps 'n'")
        if type(number) is not int or not 1 <= number <= self._most:
            raise _invalid(f"'n' must be a number from 1 to {self._most}, not {number!r:.40}")
        return self._check_instructions([fields["instruction"]] * number if instructions is None else instructions)

    def _check_instructions(self, given: Any) -> list[str]:
        if not isinstance(given, list) or not all(isinstance(each, str) and each.strip() for each in given):
            raise _invalid("an instruction must be a text that is not empty")
        if len(given) > self._most:
            raise _invalid(f"at most {self._most} attempts in one call, not {len(given)}")
        if any(len(each) > LONGEST for each in given):
            raise _invalid(f"an instruction has at most {LONGEST:,} characters")
        return given

    async def _try(self, instructions: list[str]) -> list[dict[str, Any]]:
        """Run the forks, and return what came of each, in order. Raises `ForkError`."""
        spawn = self._coordinator.get_capability("session.spawn")
        taken = _list_parameters(spawn) if spawn is not None else frozenset()
        if "context_depth" not in taken:
            raise ForkError("Unavailable", "this program cannot fork a running session; do the task here")
        depth = self._coordinator.get_capability(DEPTH)
        depth = depth if isinstance(depth, int) else 0
        if depth >= self._max_depth:
            message = f"this session is a fork itself, and max_depth is {self._max_depth}; do the task here"
            raise ForkError("TooDeep", message)
        room, call, total = asyncio.Semaphore(self._parallel), self._describe_call(), len(instructions)

        async def attempt(number: int, instruction: str) -> dict[str, Any]:
            asked = {
                "agent_name": SELF,
                "instruction": f"You work in fork {number} of {total} of this session. {instruction}",
                "parent_session": getattr(self._coordinator, "session", None),
                "context_depth": "all",
                "context_scope": "full",
                "self_delegation_depth": depth + 1,
                "session_metadata": {ATTEMPT: {"call": call.get("tool_call_id"), "number": number}},
                **({"timeout": self._timeout} if self._timeout is not None else {}),
            }
            key = call.get("idempotency_key")
            if "again" in taken and key:
                asked |= {"sub_session_id": f"fork-{key}-{number}", "again": True}
            async with room:
                return {"attempt": number, **await _run(spawn, {k: v for k, v in asked.items() if k in taken})}

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(attempt(number, each)) for number, each in enumerate(instructions, 1)]
        return [task.result() for task in tasks]

    def _describe_call(self) -> Mapping[str, Any]:
        describe = self._coordinator.get_capability("tool.call")
        return (describe() if describe is not None else None) or {}

    async def _keep(self, session_id: str) -> dict[str, Any]:
        """Note a choice among the forks of one call. Raises `ForkError`."""
        list_children, annotate = map(self._coordinator.get_capability, ("session.children", "session.annotate"))
        if list_children is None or annotate is None:
            raise ForkError("Unavailable", "this program keeps no notes about forks; simply go on with its answer")
        forks = {each["session_id"]: each["metadata"].get(ATTEMPT) for each in await list_children()}
        chosen = forks.get(session_id)
        if not isinstance(chosen, dict):
            message = f"'{session_id:.100}' is no fork that this session made; give the session_id of one"
            raise ForkError("UnknownFork", message)
        others = [
            each
            for each, made in forks.items()
            if each != session_id and isinstance(made, dict) and made.get("call") == chosen.get("call")
        ]
        for each in others:
            await annotate(each, DECISION, "dropped")
        await annotate(session_id, DECISION, "kept")
        return {"kept": session_id, "dropped": others}


async def _run(spawn: Capability, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what came of one fork; its failure is the `error`."""
    try:
        answer = await spawn(**asked)
    except Exception as error:
        session_id = getattr(error, "session_id", None) if type(error).__name__ == "SpawnTimeout" else None
        known = {"session_id": session_id or asked["sub_session_id"]} if "sub_session_id" in asked else {}
        refused = type(error).__name__ in ("SpawnRefused", "ForkRefused")
        cause = f"{type(error).__name__}: {error}"[:LONGEST]
        return {**({} if refused else known), "status": "refused" if refused else "failed", "error": cause}
    metadata = answer.get("metadata") or {}
    text = str(answer.get("output") or "")
    return {
        "session_id": answer.get("session_id"),
        "status": answer.get("status") or "completed",
        "answer": text if len(text) <= LONGEST else f"{text[:LONGEST]}\n(cut; it has {len(text):,} characters)",
        "turn_count": answer.get("turn_count") or 0,
        **{name: metadata[name] for name in _COSTS if metadata.get(name) not in (None, {})},
    }


def _list_parameters(capability: Capability) -> frozenset[str]:
    """Return the names of a capability's declared parameters."""
    try:
        return frozenset(inspect.signature(capability).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _invalid(message: str) -> ForkError:
    return ForkError("InvalidInput", message)
