"""Match the names of tools with those that commands for Claude Code know."""

from __future__ import annotations

import re

CLAUDE_NAMES = {
    "bash": "Bash",
    "bash_output": "BashOutput",
    "bash_kill": "KillShell",
    "read_file": "Read",
    "write_file": "Write",
    "edit_file": "Edit",
    "edit_notebook": "NotebookEdit",
    "glob": "Glob",
    "grep": "Grep",
    "delegate": "Task",
    "task": "Task",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "todo": "TodoWrite",
}
"""The names of the same tools there."""
LONGEST = 128
"""Characters of a name that is compared; a longer one is no tool's, and every pattern fits it."""


def match_tool(pattern: str, tool: str) -> str | None:
    """Return the name by which a pattern knows a tool: its own, or that of Claude Code; None: it is not meant."""
    if pattern in ("", "*") or len(tool) > LONGEST:
        return tool
    for name in (tool, CLAUDE_NAMES.get(tool, tool)):
        if re.fullmatch(pattern, name):
            return name
    return None
