"""The policy: bundles, spawning, recording, events between sessions, background sessions and the command line.

Every name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # what type checkers take for true; importing typing would be half of this module's cost
if TYPE_CHECKING:
    from amplifier_core import (
        BundleDependencyError,
        BundleError,
        BundleLoadError,
        BundleNotFoundError,
        BundleValidationError,
        SessionEvent,
        SessionStorage,
        TriggerEvent,
        TriggerSource,
        TriggerType,
    )

    from .background.config import BackgroundSessionConfig, TriggerConfig
    from .background.lane import Activity
    from .background.manager import BackgroundSessionManager
    from .bundles.load import load_bundle
    from .bundles.merge import deep_merge, merge_module_lists
    from .bundles.model import Bundle, PreparedBundle
    from .bundles.registry import BundleRegistry, BundleState, UpdateInfo
    from .bundles.validator import BundleValidator, ValidationResult, validate_bundle, validate_bundle_or_raise
    from .conversation import Turn, converse
    from .dicts import get_nested, set_nested
    from .events import EventRouter, SessionEmitter, SubscriberLagged, Subscription
    from .files import parse_frontmatter, read_with_retry, read_yaml, write_with_backup, write_with_retry, write_yaml
    from .finding import construct_agent_path, construct_context_path, find_bundle_root, find_files
    from .forks import fork_stored
    from .lineage import Node, describe_event, forest
    from .mentions import (
        BaseMentionResolver,
        ContentDeduplicator,
        ContextFile,
        MentionResult,
        expand_mentions_in_instruction,
        load_mentions,
        parse_mentions,
    )
    from .preferences import (
        ModelResolutionResult,
        ProviderPreference,
        apply_provider_preferences,
        apply_provider_preferences_with_resolution,
        is_glob_pattern,
        resolve_model_pattern,
    )
    from .recording import SessionRecorder
    from .runners import InProcessRunner
    from .serialising import sanitize_for_json, sanitize_message
    from .sources import (
        DiskCache,
        ParsedURI,
        SimpleCache,
        SimpleSourceResolver,
        SourceHandlerProtocol,
        SourceResolverProtocol,
        SourceStatus,
        normalize_path,
        parse_uri,
    )
    from .spawn import SpawnHandle, SpawnResult, spawn_bundle
    from .stores import open_inbox, open_store
    from .sub_session_ids import generate_sub_session_id
    from .up import Up, brought_up
    from .usage import Usage, UsageMeter, bridge_child_cost, sum_cost_usd
    from .working_dir import WORKING_DIR_CAPABILITY, get_working_dir, set_working_dir

_HOMES = {
    ".background.config": "BackgroundSessionConfig TriggerConfig",
    ".background.lane": "Activity",
    ".background.manager": "BackgroundSessionManager",
    ".bundles.load": "load_bundle",
    ".bundles.merge": "deep_merge merge_module_lists",
    ".bundles.model": "Bundle PreparedBundle",
    ".bundles.registry": "BundleRegistry BundleState UpdateInfo",
    ".bundles.validator": "BundleValidator ValidationResult validate_bundle validate_bundle_or_raise",
    ".conversation": "Turn converse",
    ".dicts": "get_nested set_nested",
    ".events": "EventRouter SessionEmitter SubscriberLagged Subscription",
    ".files": "parse_frontmatter read_with_retry read_yaml write_with_backup write_with_retry write_yaml",
    ".finding": "construct_agent_path construct_context_path find_bundle_root find_files",
    ".forks": "fork_stored",
    ".lineage": "Node describe_event forest",
    ".mentions": (
        "BaseMentionResolver ContentDeduplicator ContextFile MentionResult expand_mentions_in_instruction "
        "load_mentions parse_mentions"
    ),
    ".preferences": (
        "ModelResolutionResult ProviderPreference apply_provider_preferences "
        "apply_provider_preferences_with_resolution is_glob_pattern resolve_model_pattern"
    ),
    ".recording": "SessionRecorder",
    ".runners": "InProcessRunner",
    ".serialising": "sanitize_for_json sanitize_message",
    ".sources": (
        "DiskCache ParsedURI SimpleCache SimpleSourceResolver SourceHandlerProtocol SourceResolverProtocol "
        "SourceStatus normalize_path parse_uri"
    ),
    ".spawn": "SpawnHandle SpawnResult spawn_bundle",
    ".stores": "open_inbox open_store",
    ".sub_session_ids": "generate_sub_session_id",
    ".up": "Up brought_up",
    ".usage": "Usage UsageMeter bridge_child_cost sum_cost_usd",
    ".working_dir": "WORKING_DIR_CAPABILITY get_working_dir set_working_dir",
    "amplifier_core": (
        "BundleDependencyError BundleError BundleLoadError BundleNotFoundError BundleValidationError SessionEvent "
        "SessionStorage TriggerEvent TriggerSource TriggerType"
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "WORKING_DIR_CAPABILITY",
    "Activity",
    "BackgroundSessionConfig",
    "BackgroundSessionManager",
    "BaseMentionResolver",
    "Bundle",
    "BundleDependencyError",
    "BundleError",
    "BundleLoadError",
    "BundleNotFoundError",
    "BundleRegistry",
    "BundleState",
    "BundleValidationError",
    "BundleValidator",
    "ContentDeduplicator",
    "ContextFile",
    "DiskCache",
    "EventRouter",
    "InProcessRunner",
    "MentionResult",
    "ModelResolutionResult",
    "Node",
    "ParsedURI",
    "PreparedBundle",
    "ProviderPreference",
    "SessionEmitter",
    "SessionEvent",
    "SessionRecorder",
    "SessionStorage",
    "SimpleCache",
    "SimpleSourceResolver",
    "SourceHandlerProtocol",
    "SourceResolverProtocol",
    "SourceStatus",
    "SpawnHandle",
    "SpawnResult",
    "SubscriberLagged",
    "Subscription",
    "TriggerConfig",
    "TriggerEvent",
    "TriggerSource",
    "TriggerType",
    "Turn",
    "Up",
    "UpdateInfo",
    "Usage",
    "UsageMeter",
    "ValidationResult",
    "apply_provider_preferences",
    "apply_provider_preferences_with_resolution",
    "bridge_child_cost",
    "brought_up",
    "construct_agent_path",
    "construct_context_path",
    "converse",
    "deep_merge",
    "describe_event",
    "expand_mentions_in_instruction",
    "find_bundle_root",
    "find_files",
    "forest",
    "fork_stored",
    "generate_sub_session_id",
    "get_nested",
    "get_working_dir",
    "is_glob_pattern",
    "load_bundle",
    "load_mentions",
    "merge_module_lists",
    "normalize_path",
    "open_inbox",
    "open_store",
    "parse_frontmatter",
    "parse_mentions",
    "parse_uri",
    "read_with_retry",
    "read_yaml",
    "resolve_model_pattern",
    "sanitize_for_json",
    "sanitize_message",
    "set_nested",
    "set_working_dir",
    "spawn_bundle",
    "sum_cost_usd",
    "validate_bundle",
    "validate_bundle_or_raise",
    "write_with_backup",
    "write_with_retry",
    "write_yaml",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'amplifier_foundation' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
