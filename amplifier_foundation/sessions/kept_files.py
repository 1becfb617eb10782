"""Delete what the data folder holds of deleted sessions beside the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .file_changes import forget_changes
from .session_folders import forget_logs

if TYPE_CHECKING:
    from collections.abc import Sequence


def forget_files(session_ids: Sequence[str]) -> None:
    """Delete the contents that are kept for an undo, and the logs."""
    forget_changes(session_ids)
    forget_logs(session_ids)
