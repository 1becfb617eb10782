"""Export the functions for transcripts and for sessions in folders, under the names of published programs.

Transcripts are counted, cut and repaired in `sessions.transcripts` and `sessions.diagnosis`; folders are read, forked
and found in `sessions.session_folders`. `fork_stored` forks the sessions of any store, and copies nothing.
"""

from __future__ import annotations

from .sessions.diagnosis import (
    DiagnosisResult,
    IncompleteTurn,
    diagnose_transcript,
    repair_transcript,
    rewind_transcript,
)
from .sessions.forks import fork_stored
from .sessions.session_folders import (
    EVENTS_FILENAME,
    METADATA_FILENAME,
    TRANSCRIPT_FILENAME,
    ForkResult,
    backup,
    find_sessions,
    fork_session,
    fork_session_in_memory,
    get_fork_preview,
    get_session_lineage,
    list_session_forks,
    load_metadata,
    load_transcript,
    load_transcript_with_lines,
    read_jsonl,
    resolve_session,
    session_info,
    write_jsonl,
    write_metadata,
    write_transcript,
)
from .sessions.transcripts import (
    add_synthetic_tool_results,
    count_turns,
    find_orphaned_tool_calls,
    get_turn_boundaries,
    get_turn_summary,
    is_real_user_message,
    slice_to_turn,
)
from .sessions.working_dir import WORKING_DIR_CAPABILITY, get_working_dir, set_working_dir

__all__ = [
    "EVENTS_FILENAME",
    "METADATA_FILENAME",
    "TRANSCRIPT_FILENAME",
    "WORKING_DIR_CAPABILITY",
    "DiagnosisResult",
    "ForkResult",
    "IncompleteTurn",
    "add_synthetic_tool_results",
    "backup",
    "count_turns",
    "diagnose_transcript",
    "find_orphaned_tool_calls",
    "find_sessions",
    "fork_session",
    "fork_session_in_memory",
    "fork_stored",
    "get_fork_preview",
    "get_session_lineage",
    "get_turn_boundaries",
    "get_turn_summary",
    "get_working_dir",
    "is_real_user_message",
    "list_session_forks",
    "load_metadata",
    "load_transcript",
    "load_transcript_with_lines",
    "read_jsonl",
    "repair_transcript",
    "resolve_session",
    "rewind_transcript",
    "session_info",
    "set_working_dir",
    "slice_to_turn",
    "write_jsonl",
    "write_metadata",
    "write_transcript",
]
