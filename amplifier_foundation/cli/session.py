"""`amplifier session`: everything one may do with what is stored; each command is a module of its own."""

from __future__ import annotations

import click

from . import Verbs

_VERBS = {
    "delete": ("sessions.deleting:delete", "Forget sessions; their forks keep what they share."),
    "diff": ("sessions.comparing:diff", "Show where two sessions part."),
    "export": ("sessions.export:export", "Write a session as JSON lines or Markdown."),
    "fork": ("sessions.forking:fork", "Fork a session: now, at a turn, or at a message."),
    "list": ("sessions.listing:list_", "List sessions, the last changed first."),
    "prune": ("sessions.deleting:prune", "Forget sessions that are old."),
    "rename": ("sessions.changing:rename", "Give a session another name."),
    "repair": ("sessions.changing:repair", "Find what is wrong with a session, and mend it."),
    "resume": ("sessions.resuming:resume", "Take one more turn of a session."),
    "show": ("sessions.listing:show", "Show one session, and what was said."),
    "tree": ("sessions.tree:tree", "Draw who made whom, and what woke what."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def session() -> None:
    """List, read, fork and look after sessions."""
