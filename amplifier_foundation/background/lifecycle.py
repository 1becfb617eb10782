"""Keep what people ask of a background session: to run, to pause, to be stopped.

The wish is stored beside the states of its triggers, so it holds over restarts and edits of the bundle.

    running ──pause──▶ paused ──resume──▶ running      triggers on, queue off
    running, paused ──stop──▶ stopped ──start──▶ running      both off; webhooks answer 503
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

Wish = Literal["running", "paused", "stopped"]

_KEY = "lifecycle"


def _key(queue: str) -> str:
    return f"{queue}#{_KEY}"


async def read_wish(store: DurableStore, project: str, queue: str) -> Wish | None:
    """Return the last wish, None before the first."""
    wish = (await store.trigger_state(project, _key(queue))).get(_KEY)
    return cast("Wish", wish) if wish in get_args(Wish) else None


async def save_wish(store: DurableStore, project: str, queue: str, wish: Wish) -> None:
    """Store a wish, durable on return."""
    await store.save_trigger_state(project, _key(queue), {_KEY: wish})
