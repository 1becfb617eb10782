"""Show states: each with a sign, a colour and a word."""

from __future__ import annotations

from markupsafe import Markup

SIGNS = {
    # of background sessions, the worst first
    "failed": ("✗", "bad"),
    "degraded": ("!", "wait"),
    "unknown": ("?", "wait"),
    "stopping": ("◌", "wait"),
    "starting": ("◌", "busy"),
    "running": ("●", "good"),
    "paused": ("‖", "wait"),
    "stopped": ("■", "soft"),
    "not running": ("○", "soft"),
    # of deliveries
    "pending": ("◔", "wait"),
    "claimed": ("▶", "busy"),
    "done": ("✓", "good"),
    "dead": ("✗", "bad"),
    "refused": ("⊘", "soft"),
    "skipped": ("⊘", "soft"),
    # of sessions
    "completed": ("✓", "good"),
    "cancelled": ("⊘", "soft"),
    "interrupted": ("!", "wait"),
    "idle": ("○", "soft"),
    # of the tasks of a workflow
    "waiting": ("?", "wait"),
    "retried": ("↻", "wait"),
    "chosen": ("✓", "soft"),
    # of hosts
    "present": ("●", "good"),
    "draining": ("◌", "wait"),
    "unseen": ("!", "bad"),
}
WORDS = {"pending": "waiting", "claimed": "at work"}
"""What people call a state, where the store has another word."""
RANK = {name: rank for rank, name in enumerate(SIGNS)}


def show_state(name: str) -> Markup:
    """Return a state as an element."""
    sign, colour = SIGNS.get(name, ("?", "soft"))
    return Markup('<span class="state {0}"><span aria-hidden="true">{1}</span> {2}</span>').format(
        colour, sign, WORDS.get(name, name)
    )
