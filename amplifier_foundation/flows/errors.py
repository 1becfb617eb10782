"""Name what can go wrong in a workflow."""

from __future__ import annotations

from typing import Any

from amplifier_core.errors import AmplifierError

FORK_SOURCE_NOT_FOUND = "TASK_FORK_SOURCE_NOT_FOUND"
FORK_CYCLE = "TASK_FORK_CYCLE"
FORK_SESSION_UNAVAILABLE = "TASK_FORK_SESSION_UNAVAILABLE"
FORK_SOURCE_NOT_COMPLETE = "TASK_FORK_SOURCE_NOT_COMPLETE"
DEPENDENCY_NOT_FOUND = "TASK_DEPENDENCY_NOT_FOUND"
CYCLE = "TASK_CYCLE"
INVALID = "TASK_INVALID"
OUTPUT_INVALID = "TASK_OUTPUT_INVALID"
TIMEOUT = "TASK_TIMEOUT"
FAILED = "TASK_FAILED"
LOOP_EXHAUSTED = "LOOP_EXHAUSTED"
DENIED = "TASK_DENIED"
CANCELLED = "RUN_CANCELLED"
CHANGED = "WORKFLOW_CHANGED"


class FlowError(AmplifierError, ValueError):
    """A workflow cannot run, or one of its tasks has failed.

    `code` is one of this module, `task` the task at fault, `source` the one that it forks. `is_retryable` says whether
    another attempt may help, `text` is the condition, the path or the name at fault. For the run it `is_final`: the
    task has had its attempts.
    """

    is_final = True

    def __init__(
        self, code: str, message: str, task: str = "", source: str = "", *, is_retryable: bool = False, text: str = ""
    ) -> None:
        self.code, self.task, self.source, self.is_retryable, self.text = code, task, source, is_retryable, text
        where = f"task '{task}': " if task else ""
        super().__init__(f"{code}: {where}{message}")
        self.reason = message

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        told = {"code": self.code, "message": self.reason, "task": self.task, "source": self.source}
        return {name: value for name, value in told.items() if value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FlowError:
        """Read the output of `to_dict`."""
        return cls(data.get("code", FAILED), data.get("message", ""), data.get("task", ""), data.get("source", ""))


class UnknownWorkflow(FlowError, LookupError):
    """A bundle has no workflow of this name, or none at all."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID, message)
