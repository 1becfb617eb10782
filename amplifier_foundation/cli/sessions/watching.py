"""Show a session, and then its running turn as it comes, for `amplifier session show --follow`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from ..app import find_session, storage_plugins, use_store
from ..loops import enter_loop
from ..running.terminal import tell
from .reading import print_session, read_last

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.storage import SessionRecord, SessionStore


async def show_following(ctx: click.Context, prefix: str, limit: int | None, *, as_lines: bool) -> None:
    """Print the last messages of a session (None: all), and what comes of its turn, until that has ended."""
    await enter_loop()
    from ...background.following import follow_session
    from ...sessions.presence import as_it_is

    async with use_store(storage_plugins(ctx)) as store:
        record = await find_session(store, prefix)
        async with aclosing(follow_session(record.session_id, record.project)) as facts:
            first = await anext(facts)
            record = as_it_is(await store.get(record.session_id))
            await (_print_lines if as_lines else _print_turn)(store, record, limit, facts, first)
        if first["type"] == "end" and record.status == "running":
            tell(f"amplifier: another program runs this session: look again with: amplifier session show {prefix}")


async def _print_lines(
    store: SessionStore,
    record: SessionRecord,
    limit: int | None,
    facts: AsyncIterator[Mapping[str, Any]],
    first: Mapping[str, Any],
) -> None:
    from ...documents.json_text import dump_json, redact_json
    from ...operations.sessions import with_ids

    for message in with_ids(*await read_last(store, record, limit)):
        click.echo(redact_json(dump_json({"type": "message", **message})))
    click.echo(dump_json(first))
    async for fact in facts:
        line = dump_json(fact)
        click.echo(line if fact.get("partial") else redact_json(line))


async def _print_turn(
    store: SessionStore,
    record: SessionRecord,
    limit: int | None,
    facts: AsyncIterator[Mapping[str, Any]],
    first: Mapping[str, Any],
) -> None:
    from ..running.showing import PersonView

    print_session(record, *await read_last(store, record, limit))
    if first["type"] == "end":
        return
    view, answer = PersonView(closing=False), ""
    view.begin(record.session_id)
    async for fact in facts:
        view(dict(fact))
        if fact["type"] == "text" and not fact.get("partial"):
            answer = str(fact["text"])
        if fact["type"] == "lagged":
            tell("amplifier: some of the text is left out here; the session has all of it")
    view.end({"output": answer, "error": None, "usage": {}, "session_id": record.session_id})
