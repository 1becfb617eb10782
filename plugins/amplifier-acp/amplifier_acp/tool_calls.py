"""Describe tool calls for an editor: a title, a kind, the files, a diff."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contents import make_text

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_TITLE, LONGEST_OUTPUT, LONGEST_RAW = 120, 32_000, 64_000
"""Characters."""
LARGEST_DIFF = 1024 * 1024
"""Bytes of a file whose old text is shown beside the new one."""
_KINDS = {
    "read_file": "read",
    "write_file": "edit",
    "edit_file": "edit",
    "edit_notebook": "edit",
    "glob": "search",
    "grep": "search",
    "bash": "execute",
    "bash_output": "execute",
    "bash_kill": "execute",
    "web_fetch": "fetch",
    "web_search": "search",
}
_MAIN = ("command", "file_path", "path", "pattern", "url", "agent", "query")
"""The argument in the title, by priority."""


def describe_call(call_id: str, name: str, arguments: Any, folder: str) -> dict[str, Any]:
    """Return a tool call before it runs."""
    from amplifier_core.utils.command_secrets import redact_values

    given = redact_values(arguments) if isinstance(arguments, dict) else {}
    kind = _KINDS.get(name, "other")
    told: dict[str, Any] = {"toolCallId": call_id, "title": _make_title(name, given), "kind": kind, "name": name}
    told["rawInput"] = _bound(given)
    if path := _find_path(given, folder):
        line = given.get("offset")
        place = {"path": path, "line": line} if isinstance(line, int) and line >= 0 else {"path": path}
        told["locations"] = [place]
    return told


def describe_result(output: Any, *, is_ok: bool, diff: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a call came to, as the rest of a `tool_call_update`."""
    from amplifier_core.utils.secrets import redact_all, redact_text

    text = redact_text(show_output(output))[:LONGEST_OUTPUT]
    content = [{"type": "content", "content": make_text(text)}] if text and (diff is None or not is_ok) else []
    if diff is not None and is_ok:
        content = [diff]
    status = "completed" if is_ok else "failed"
    return {"status": status, "content": content, "rawOutput": _bound(redact_all({"output": output})["output"])}


def make_diff(name: str, arguments: Any, folder: str) -> dict[str, Any] | None:
    """Return the change of a file that a call is about to make; None: it makes none, or a large one."""
    if not isinstance(arguments, dict) or name not in ("write_file", "edit_file"):
        return None
    path = _find_path(arguments, folder)
    if not path or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return None  # the tool will refuse it
    if name == "edit_file":
        old, new = arguments.get("old_string"), arguments.get("new_string")
    else:
        old, new = _read_old(Path(path)), arguments.get("content")
    if not isinstance(new, str) or len(new) > LARGEST_DIFF:
        return None
    from amplifier_core.utils.secrets import redact_text

    told = {"type": "diff", "path": path, "newText": redact_text(new)}
    return {**told, "oldText": redact_text(old)} if isinstance(old, str) else told


def show_output(output: Any) -> str:
    """Return the output of a call as text for people."""
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        for name in ("output", "content", "message", "text"):
            if isinstance(output.get(name), str):
                return str(output[name])
    return json.dumps(output, ensure_ascii=False, default=str, indent=2)


def _make_title(name: str, given: Mapping[str, Any]) -> str:
    main = next((given[key] for key in _MAIN if isinstance(given.get(key), str)), "")
    shown = " ".join(f"{name} {main}".split())
    return shown if len(shown) <= LONGEST_TITLE else shown[: LONGEST_TITLE - 1] + "…"


def _find_path(given: Mapping[str, Any], folder: str) -> str:
    path = given.get("file_path") or given.get("path")
    return os.path.normpath(Path(folder, path)) if isinstance(path, str) and "\0" not in path else ""


def _read_old(path: Path) -> str | None:
    try:
        if path.is_file() and path.stat().st_size <= LARGEST_DIFF:
            return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    return None


def _bound(value: Any) -> Any:
    """Return a value for `rawInput` and `rawOutput`; a large one as the beginning of its JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return json.loads(text) if len(text) <= LONGEST_RAW else text[:LONGEST_RAW] + "…"
