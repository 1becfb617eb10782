"""Run bundles: policy above the kernel, in rooms. Every name below is imported when it is first used.

Where things are; a room imports only rooms below it:

    cli/           the commands
    operations/    does what a person asks, for every surface, and records who asked
    background/    runs background sessions: triggers, queues, workers, the running process
    flows/         runs workflows: tasks of agents that fork each other's sessions
    isolation/     runs sessions in processes of their own
    spawning/      creates sessions for sessions: `spawn.py`, agents, limits
    security/      decides what may run, and what sessions may do: trust, permissions
    packages/      begins, checks, switches and pins packages of plugins
    transports/    carries events to sites with a store of their own, and back
    sessions/      stores sessions: forks, history, lineage, locks, usage
    bundle/        reads, checks and composes bundles
    mentions/      adds `@file` mentions to a prompt
    sources/       fetches bundles from git, archives and the web
    settings/      reads and writes settings
    documents/     reads YAML with positions, reports problems, finds secrets
    events/        carries events between sessions
    paths.py       finds the data folder
    first_process.py  runs the program as a child of process 1 of a container

Where to add something:

    a key of background sessions or triggers   bundle/background_config.py
    a section of a bundle                      bundle/schema.py
    a column of `ps` and `up`                  operations/columns.py
    a command                                  cli/__init__.py
    a verb of `session`, `trigger` or `bundle` cli/sessions/__init__.py
    a setting                                  settings/schema.py
    a hook                                     amplifier_core/hookspecs.py
    a store method                             amplifier_core/storage.py
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

    from .background.manager import BackgroundSessionManager
    from .background.state import Activity, BackgroundSessionState
    from .background.up import Up, run_background
    from .bundle.background_config import BackgroundSessionConfig, TriggerConfig
    from .bundle.bundle_files import construct_agent_path, construct_context_path, find_bundle_root, find_files
    from .bundle.load import load_bundle
    from .bundle.merge import merge_module_lists
    from .bundle.model import Bundle, PreparedBundle
    from .bundle.preferences import (
        ModelResolutionResult,
        ProviderPreference,
        apply_provider_preferences,
        apply_provider_preferences_with_resolution,
        is_glob_pattern,
        resolve_model_pattern,
    )
    from .bundle.registry import BundleRegistry, BundleState, UpdateInfo
    from .bundle.validator import BundleValidator, ValidationResult, validate_bundle, validate_bundle_or_raise
    from .documents.dicts import deep_merge, get_nested, set_nested
    from .documents.files import (
        parse_frontmatter,
        read_with_retry,
        read_yaml,
        write_with_backup,
        write_with_retry,
        write_yaml,
    )
    from .events import EventRouter, SessionEmitter, SubscriberLagged, Subscription
    from .mentions import (
        BaseMentionResolver,
        ContentDeduplicator,
        ContextFile,
        MentionResult,
        expand_mentions_in_instruction,
        load_mentions,
        parse_mentions,
    )
    from .sessions.forks import fork_stored
    from .sessions.kept_files import forget_files
    from .sessions.lineage import Node, describe_event, forest
    from .sessions.recording import SessionRecorder
    from .sessions.serialising import sanitize_for_json, sanitize_message
    from .sessions.storages import open_inbox, open_store
    from .sessions.sub_session_ids import generate_sub_session_id
    from .sessions.usage import Usage, UsageMeter, bridge_child_cost, sum_cost_usd
    from .sessions.working_dir import WORKING_DIR_CAPABILITY, get_working_dir, set_working_dir
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
    from .spawning.conversation import Turn, converse
    from .spawning.requests import execute_request
    from .spawning.runners import InProcessRunner
    from .subprocess_runner import SubprocessResult, configure_subprocess_limit, run_session_in_subprocess

_HOMES = {
    ".bundle.background_config": "BackgroundSessionConfig TriggerConfig",
    ".background.state": "Activity BackgroundSessionState",
    ".background.manager": "BackgroundSessionManager",
    ".bundle.load": "load_bundle",
    ".bundle.merge": "merge_module_lists",
    ".bundle.model": "Bundle PreparedBundle",
    ".bundle.registry": "BundleRegistry BundleState UpdateInfo",
    ".bundle.validator": "BundleValidator ValidationResult validate_bundle validate_bundle_or_raise",
    ".spawning.conversation": "Turn converse",
    ".documents.dicts": "deep_merge get_nested set_nested",
    ".events": "EventRouter SessionEmitter SubscriberLagged Subscription",
    ".documents.files": "parse_frontmatter read_with_retry read_yaml write_with_backup write_with_retry write_yaml",
    ".bundle.bundle_files": "construct_agent_path construct_context_path find_bundle_root find_files",
    ".sessions.forks": "fork_stored",
    ".sessions.kept_files": "forget_files",
    ".sessions.lineage": "Node describe_event forest",
    ".mentions": (
        "BaseMentionResolver ContentDeduplicator ContextFile MentionResult expand_mentions_in_instruction "
        "load_mentions parse_mentions"
    ),
    ".bundle.preferences": (
        "ModelResolutionResult ProviderPreference apply_provider_preferences "
        "apply_provider_preferences_with_resolution is_glob_pattern resolve_model_pattern"
    ),
    ".sessions.recording": "SessionRecorder",
    ".spawning.requests": "execute_request",
    ".spawning.runners": "InProcessRunner",
    ".subprocess_runner": "SubprocessResult configure_subprocess_limit run_session_in_subprocess",
    ".sessions.serialising": "sanitize_for_json sanitize_message",
    ".sources": (
        "DiskCache ParsedURI SimpleCache SimpleSourceResolver SourceHandlerProtocol SourceResolverProtocol "
        "SourceStatus normalize_path parse_uri"
    ),
    ".spawn": "SpawnHandle SpawnResult spawn_bundle",
    ".sessions.storages": "open_inbox open_store",
    ".sessions.sub_session_ids": "generate_sub_session_id",
    ".background.up": "Up run_background",
    ".sessions.usage": "Usage UsageMeter bridge_child_cost sum_cost_usd",
    ".sessions.working_dir": "WORKING_DIR_CAPABILITY get_working_dir set_working_dir",
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
    "BackgroundSessionState",
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
    "SubprocessResult",
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
    "configure_subprocess_limit",
    "construct_agent_path",
    "construct_context_path",
    "converse",
    "deep_merge",
    "describe_event",
    "execute_request",
    "expand_mentions_in_instruction",
    "find_bundle_root",
    "find_files",
    "forest",
    "forget_files",
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
    "run_background",
    "run_session_in_subprocess",
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
