"""Offer `amplifier session`; each verb is imported when it is used."""

from __future__ import annotations

import click

from ...cli import Verbs

_VERBS = {
    "cancel": ("sessions.cancelling:cancel", "Cancel the running turn of a session."),
    "delete": ("sessions.deleting:delete", "Delete sessions; their forks keep the shared messages."),
    "diff": ("sessions.reading:diff", "Show where two sessions part."),
    "export": ("sessions.export:export", "Write a session as JSON lines or Markdown."),
    "fork": ("sessions.changing:fork", "Fork a session: now, at a turn, or at a message."),
    "import": ("sessions.importing:import_", "Import sessions of Claude Code, Codex and session folders."),
    "list": ("sessions.reading:list_", "List sessions, the last changed first."),
    "prune": ("sessions.deleting:prune", "Delete old sessions."),
    "record": ("sessions.replaying:record", "Run one turn, and record its model traffic."),
    "rename": ("sessions.changing:rename", "Rename a session."),
    "repair": ("sessions.changing:repair", "Find and repair faults in a stored session."),
    "replay": ("sessions.replaying:replay", "Play back a recording of a session, as a test."),
    "resume": ("sessions.resuming:resume", "Run one more turn of a session."),
    "show": ("sessions.reading:show", "Show a session and its messages."),
    "tree": ("sessions.tree:tree", "Show sessions below their parents, with forks and events."),
    "undo": ("sessions.undoing:undo", "Restore the files that a session has changed."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def session() -> None:
    """List, read, fork and delete sessions."""
