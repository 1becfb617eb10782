"""Offer the kernel: contracts, hooks, sessions and lineage. Mechanism, no policy.

Two doors lead in. *Modules* are mounted into one session by name: an entry point in the group `amplifier.modules` names
an `async def mount(coordinator, config)`. Providers, tools, orchestrators, contexts and hooks are modules; a module for
the published `amplifier-core` mounts here unchanged. *Plugins* extend the process: an entry point in the group
`amplifier` names an object with `@hookimpl` functions. Plugins register triggers, storages and runners, and refuse or
observe forks, spawns and trigger events (`amplifier_core.hookspecs`).

Every name below is imported at its first use: `import amplifier_core` costs nothing else.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # true for type checkers; to import typing would be half of this module's cost
if TYPE_CHECKING:
    from .approval import ApprovalSystem, ApprovalTimeoutError
    from .cancellation import CancellationState, CancellationToken
    from .clock import Clock, SystemClock
    from .content_models import (
        ContentBlock,
        ContentBlockType,
        TextContent,
        ThinkingContent,
        ToolCallContent,
        ToolResultContent,
    )
    from .coordinator import ModuleCoordinator
    from .display import DisplaySystem
    from .documents import Document, DocumentChange, DocumentMatch, DocumentSearch, DocumentStore
    from .errors import (
        AmplifierError,
        AnswerUnfinished,
        BudgetExceeded,
        BundleDependencyError,
        BundleError,
        BundleLoadError,
        BundleNotFoundError,
        BundleValidationError,
        CommandFailed,
        CommandMissing,
        DeliveryConflict,
        DeliveryNotFound,
        DocumentConflict,
        ForkRefused,
        InvalidSessionId,
        LimitReached,
        NameTaken,
        NoProviderMounted,
        PluginError,
        PluginLoadFailed,
        PluginRefused,
        SessionConflict,
        SessionError,
        SessionExists,
        SessionNotFound,
        SessionProcessEnded,
        SpawnRefused,
        SpawnTimeout,
        StaleEpoch,
        StoreDamaged,
        StoreError,
        StoreUnavailable,
        TriggerConfigError,
        TriggerError,
        UnknownName,
    )
    from .events import SessionEvent
    from .hook_data import ForkRequest, ForkResult, Runner, RunResult, SessionBuilder, SpawnOutcome, SpawnRequest
    from .hooks import HookRegistry
    from .hookspecs import hookimpl, hookspec
    from .ids import new_session_id, validate_session_id
    from .interfaces import (
        ApprovalProvider,
        ApprovalRequest,
        ApprovalResponse,
        ContextManager,
        HookHandler,
        Orchestrator,
        Provider,
        Tool,
    )
    from .llm_errors import (
        AbortError,
        AccessDeniedError,
        AuthenticationError,
        ConfigurationError,
        ContentFilterError,
        ContextLengthError,
        InvalidRequestError,
        InvalidToolCallError,
        LLMError,
        LLMTimeoutError,
        NetworkError,
        NotFoundError,
        ProviderUnavailableError,
        QuotaExceededError,
        RateLimitError,
        StreamError,
    )
    from .loader import ModuleLoader, ModuleValidationError
    from .message_models import (
        ChatRequest,
        ChatResponse,
        Degradation,
        ImageBlock,
        Message,
        ReasoningBlock,
        RedactedThinkingBlock,
        ResponseFormat,
        ResponseFormatJson,
        ResponseFormatJsonSchema,
        ResponseFormatText,
        TextBlock,
        ThinkingBlock,
        ToolCall,
        ToolCallBlock,
        ToolResultBlock,
        ToolSpec,
        Usage,
    )
    from .models import (
        ConfigField,
        ContextInjection,
        HookResult,
        ModelInfo,
        ModuleInfo,
        Pricing,
        ProviderInfo,
        SessionStatus,
        ToolResult,
    )
    from .plugins import PluginRow, Plugins, load_plugins
    from .polling import PollingTrigger
    from .session import AmplifierSession
    from .storage import (
        Admission,
        Delivery,
        DeliveryCounts,
        DurableStore,
        Inbox,
        SessionRecord,
        SessionStorage,
        SessionStore,
    )
    from .testing import (
        EventRecorder,
        MockContextManager,
        MockCoordinator,
        MockTool,
        ScriptedOrchestrator,
        create_test_coordinator,
        wait_for,
    )
    from .transcript import Transcript
    from .triggers import (
        EventSource,
        JudgingSource,
        ScheduledSource,
        TriggerContext,
        TriggerEvent,
        TriggerSource,
        TriggerType,
        Upcoming,
    )
    from .utils.retry import RetryConfig, classify_error_message, retry_with_backoff

__version__ = "0.1.0"

RUST_AVAILABLE = False
"""Read by modules; this kernel is Python."""
DISTRIBUTION = "amplifier"
"""The distribution of this package; another distribution uses the same import name."""

_HOMES = {
    "approval": "ApprovalSystem ApprovalTimeoutError",
    "cancellation": "CancellationState CancellationToken",
    "clock": "Clock SystemClock",
    "content_models": "ContentBlock ContentBlockType TextContent ThinkingContent ToolCallContent ToolResultContent",
    "coordinator": "ModuleCoordinator",
    "display": "DisplaySystem",
    "documents": "Document DocumentChange DocumentMatch DocumentSearch DocumentStore",
    "errors": (
        "AmplifierError AnswerUnfinished BudgetExceeded BundleDependencyError BundleError BundleLoadError "
        "BundleNotFoundError BundleValidationError CommandFailed CommandMissing DeliveryConflict DeliveryNotFound "
        "DocumentConflict ForkRefused InvalidSessionId LimitReached NameTaken NoProviderMounted PluginError "
        "PluginLoadFailed PluginRefused SessionConflict SessionError SessionExists SessionNotFound SessionProcessEnded "
        "SpawnRefused SpawnTimeout StaleEpoch StoreDamaged StoreError StoreUnavailable TriggerConfigError TriggerError "
        "UnknownName"
    ),
    "events": "SessionEvent",
    "hooks": "HookRegistry",
    "hookspecs": "hookimpl hookspec",
    "ids": "new_session_id validate_session_id",
    "interfaces": (
        "ApprovalProvider ApprovalRequest ApprovalResponse ContextManager HookHandler Orchestrator Provider Tool"
    ),
    "llm_errors": (
        "AbortError AccessDeniedError AuthenticationError ConfigurationError ContentFilterError "
        "ContextLengthError InvalidRequestError InvalidToolCallError LLMError LLMTimeoutError NetworkError "
        "NotFoundError ProviderUnavailableError QuotaExceededError RateLimitError StreamError"
    ),
    "loader": "ModuleLoader ModuleValidationError",
    "message_models": (
        "ChatRequest ChatResponse Degradation ImageBlock Message ReasoningBlock RedactedThinkingBlock ResponseFormat "
        "ResponseFormatJson ResponseFormatJsonSchema ResponseFormatText TextBlock ThinkingBlock ToolCall "
        "ToolCallBlock ToolResultBlock ToolSpec Usage"
    ),
    "models": (
        "ConfigField ContextInjection HookResult ModelInfo ModuleInfo Pricing ProviderInfo SessionStatus ToolResult"
    ),
    "hook_data": "ForkRequest ForkResult RunResult Runner SessionBuilder SpawnOutcome SpawnRequest",
    "plugins": "PluginRow Plugins load_plugins",
    "polling": "PollingTrigger",
    "session": "AmplifierSession",
    "storage": "Admission Delivery DurableStore Inbox SessionRecord SessionStorage SessionStore DeliveryCounts",
    "testing": (
        "EventRecorder MockContextManager MockCoordinator MockTool ScriptedOrchestrator "
        "create_test_coordinator wait_for"
    ),
    "transcript": "Transcript",
    "triggers": "EventSource JudgingSource ScheduledSource TriggerContext TriggerEvent TriggerSource TriggerType "
    "Upcoming",
    "utils.retry": "RetryConfig classify_error_message retry_with_backoff",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AbortError",
    "AccessDeniedError",
    "Admission",
    "AmplifierError",
    "AmplifierSession",
    "AnswerUnfinished",
    "ApprovalProvider",
    "ApprovalRequest",
    "ApprovalResponse",
    "ApprovalSystem",
    "ApprovalTimeoutError",
    "AuthenticationError",
    "BudgetExceeded",
    "BundleDependencyError",
    "BundleError",
    "BundleLoadError",
    "BundleNotFoundError",
    "BundleValidationError",
    "CancellationState",
    "CancellationToken",
    "ChatRequest",
    "ChatResponse",
    "Clock",
    "CommandFailed",
    "CommandMissing",
    "ConfigField",
    "ConfigurationError",
    "ContentBlock",
    "ContentBlockType",
    "ContentFilterError",
    "ContextInjection",
    "ContextLengthError",
    "ContextManager",
    "Degradation",
    "Delivery",
    "DeliveryConflict",
    "DeliveryCounts",
    "DeliveryNotFound",
    "DisplaySystem",
    "Document",
    "DocumentChange",
    "DocumentConflict",
    "DocumentMatch",
    "DocumentSearch",
    "DocumentStore",
    "DurableStore",
    "EventRecorder",
    "EventSource",
    "ForkRefused",
    "ForkRequest",
    "ForkResult",
    "HookHandler",
    "HookRegistry",
    "HookResult",
    "ImageBlock",
    "Inbox",
    "InvalidRequestError",
    "InvalidSessionId",
    "InvalidToolCallError",
    "JudgingSource",
    "LLMError",
    "LLMTimeoutError",
    "LimitReached",
    "Message",
    "MockContextManager",
    "MockCoordinator",
    "MockTool",
    "ModelInfo",
    "ModuleCoordinator",
    "ModuleInfo",
    "ModuleLoader",
    "ModuleValidationError",
    "NameTaken",
    "NetworkError",
    "NoProviderMounted",
    "NotFoundError",
    "Orchestrator",
    "PluginError",
    "PluginLoadFailed",
    "PluginRefused",
    "PluginRow",
    "Plugins",
    "PollingTrigger",
    "Pricing",
    "Provider",
    "ProviderInfo",
    "ProviderUnavailableError",
    "QuotaExceededError",
    "RateLimitError",
    "ReasoningBlock",
    "RedactedThinkingBlock",
    "ResponseFormat",
    "ResponseFormatJson",
    "ResponseFormatJsonSchema",
    "ResponseFormatText",
    "RetryConfig",
    "RunResult",
    "Runner",
    "ScheduledSource",
    "ScriptedOrchestrator",
    "SessionBuilder",
    "SessionConflict",
    "SessionError",
    "SessionEvent",
    "SessionExists",
    "SessionNotFound",
    "SessionProcessEnded",
    "SessionRecord",
    "SessionStatus",
    "SessionStorage",
    "SessionStore",
    "SpawnOutcome",
    "SpawnRefused",
    "SpawnRequest",
    "SpawnTimeout",
    "StaleEpoch",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "StreamError",
    "SystemClock",
    "TextBlock",
    "TextContent",
    "ThinkingBlock",
    "ThinkingContent",
    "Tool",
    "ToolCall",
    "ToolCallBlock",
    "ToolCallContent",
    "ToolResult",
    "ToolResultBlock",
    "ToolResultContent",
    "ToolSpec",
    "Transcript",
    "TriggerConfigError",
    "TriggerContext",
    "TriggerError",
    "TriggerEvent",
    "TriggerSource",
    "TriggerType",
    "UnknownName",
    "Upcoming",
    "Usage",
    "classify_error_message",
    "create_test_coordinator",
    "hookimpl",
    "hookspec",
    "load_plugins",
    "new_session_id",
    "retry_with_backoff",
    "validate_session_id",
    "wait_for",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'amplifier_core' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
