"""Write a line of JSON for each question and answer."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

LONGEST = 2000
"""Characters of a question in a line."""


class Audit:
    """The lines of one session; a file that cannot be written is reported once."""

    def __init__(self, file: str | None, session_id: str) -> None:
        home = os.environ.get("AMPLIFIER_HOME") or "~/.amplifier"
        self._file = Path(file or f"{home}/audit/approvals.jsonl").expanduser()
        self._session_id = session_id
        self._is_reported = False

    async def write(self, event: str, data: dict[str, Any]) -> None:
        """Handle an event about a question."""
        line = {
            "timestamp": datetime.now(UTC).isoformat(),
            "session_id": self._session_id,
            "event": event,
            "tool": data.get("tool_name"),
            "question": _redact(str(data.get("prompt") or ""))[:LONGEST],
            "reason": _redact(str(data.get("reason") or ""))[:LONGEST],
        }
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _close_to_others(descriptor)  # it may be there already
                os.write(descriptor, json.dumps(line, default=str).encode() + b"\n")
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._is_reported:
                self._is_reported = True
                logger.warning("hooks-approval: the audit %s cannot be written: %s", self._file, error)


def _close_to_others(descriptor: int) -> None:
    try:
        from amplifier_core.utils.private_files import close_to_others
    except ModuleNotFoundError:  # another kernel has none
        return
    close_to_others(descriptor)


def _redact(text: str) -> str:
    try:
        from amplifier_core.utils.secrets import redact_text
    except ModuleNotFoundError:  # another kernel has none
        return text
    return redact_text(text)
