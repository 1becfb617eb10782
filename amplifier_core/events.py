"""Name the events of a session, and define the event between sessions.

A hook is registered for one of these names and called inside its session. A `SessionEvent` crosses sessions: one
session emits it, it wakes others, and a store keeps it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping  # noqa: TC003 - no `TYPE_CHECKING` here: see `ALL_EVENTS`
from dataclasses import field
from typing import Any

from .frozen import frozen
from .late_fields import EventDraft, late_event_id, late_timestamp, new_event_id

SESSION_START = "session:start"
SESSION_END = "session:end"
SESSION_FORK = "session:fork"
SESSION_RESUME = "session:resume"
SESSION_COMPLETED = "session:completed"
SESSION_ERROR = "session:error"

PROMPT_SUBMIT = "prompt:submit"
PROMPT_COMPLETE = "prompt:complete"
PLAN_START = "plan:start"
PLAN_END = "plan:end"

PROVIDER_REQUEST = "provider:request"
PROVIDER_RESPONSE = "provider:response"
PROVIDER_RETRY = "provider:retry"
PROVIDER_ERROR = "provider:error"
PROVIDER_THROTTLE = "provider:throttle"
PROVIDER_TOOL_SEQUENCE_REPAIRED = "provider:tool_sequence_repaired"
PROVIDER_RESOLVE = "provider:resolve"
LLM_REQUEST = "llm:request"
LLM_RESPONSE = "llm:response"

CONTENT_BLOCK_START = "content_block:start"
CONTENT_BLOCK_DELTA = "content_block:delta"
CONTENT_BLOCK_END = "content_block:end"
THINKING_DELTA = "thinking:delta"
THINKING_FINAL = "thinking:final"

TOOL_PRE = "tool:pre"
TOOL_POST = "tool:post"
TOOL_ERROR = "tool:error"

CONTEXT_PRE_COMPACT = "context:pre_compact"
CONTEXT_POST_COMPACT = "context:post_compact"
CONTEXT_COMPACTION = "context:compaction"
CONTEXT_INCLUDE = "context:include"

ORCHESTRATOR_COMPLETE = "orchestrator:complete"
EXECUTION_START = "execution:start"
EXECUTION_END = "execution:end"
USER_NOTIFICATION = "user:notification"
ARTIFACT_WRITE = "artifact:write"
ARTIFACT_READ = "artifact:read"
POLICY_VIOLATION = "policy:violation"
APPROVAL_REQUIRED = "approval:required"
APPROVAL_GRANTED = "approval:granted"
APPROVAL_DENIED = "approval:denied"
CANCEL_REQUESTED = "cancel:requested"
CANCEL_COMPLETED = "cancel:completed"
MODULE_ON_SESSION_READY_FAILED = "module:on_session_ready_failed"
MODULE_LOAD_FAILED = "module:load_failed"

ALL_EVENTS: list[str] = [value for name, value in list(globals().items()) if name.isupper()]
"""Every event name above. Programs read them off this module too: nothing else in it has an upper-case name."""


@frozen
class SessionEvent(EventDraft):
    """One event between sessions.

    `cause` is the id of the event before it in the chain and `depth` the length of the chain (0: from outside).
    `sequence` is its place in the store's log, or in the router's log without a store; None until it has one. `project`
    is the working folder of its session (a real, absolute path), or `site:NAME` for an event of another site; None for
    an event that a program emits for everybody.
    """

    name: str
    data: Mapping[str, Any]
    source_session_id: str | None = None
    timestamp: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    event_id: str = field(default_factory=new_event_id)
    cause: str | None = None
    depth: int = 0
    sequence: int | None = None
    project: str | None = None


SessionEvent.timestamp = late_timestamp  # type: ignore[assignment]
SessionEvent.event_id = late_event_id  # type: ignore[assignment]
