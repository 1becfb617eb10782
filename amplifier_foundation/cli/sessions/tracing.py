"""Run `amplifier session show --trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...documents.safe_text import plain
from ..app import find_session, storage_plugins, use_store
from ..output import print_json, print_table

if TYPE_CHECKING:
    from ...sessions.trace import Span, Sum, Trace
    from ...sessions.usage import Usage

WORDS = {"turn": "turns", "model": "model", "tool": "tool", "session": "children"}
"""The kinds of spans, as the tables name them."""


async def show_trace(ctx: click.Context, prefix: str, *, as_json: bool) -> None:
    """Print the trace of the session whose id begins with `prefix`."""
    from ...sessions.trace import trace_session

    async with use_store(storage_plugins(ctx)) as store:
        record = await find_session(store, prefix)
        own = await store.read(record.session_id, record.fork_at or 0)
        made = await store.sessions(parent_id=record.session_id)
    trace = trace_session(record, own, [each for each in made if each.fork_of is None])
    if as_json:
        print_json("session.trace/1", {"session_id": record.session_id, **trace.to_dict()})
    else:
        _print_trace(trace)


def _print_trace(trace: Trace) -> None:
    rest = trace.rest()
    rows = [_sum_row(each) for each in trace.sums()]
    rows += [("rest of the turns", "", _seconds(rest), "", "", "")] if rest is not None else []
    headings = ("WHERE", "COUNT", "TIME", "TOKENS IN", "TOKENS OUT", "COST")
    print_table(headings, rows, empty="It has no turns of its own.")
    slowest = trace.slowest()
    if slowest:
        click.echo()
        print_table(("SLOWEST", "MESSAGE", "TIME", "COST"), [_call_row(span) for span in slowest], empty="")
    for note in trace.notes():
        click.echo(f"note: {note}", err=True)


def _sum_row(each: Sum) -> tuple[str, ...]:
    from ...sessions.costs import format_cost

    where = plain(f"{WORDS[each.kind]} {each.name}".strip())
    seconds = "-" if each.untimed == each.count else _seconds(each.seconds)
    some = " + ?" if 0 < each.untimed < each.count else ""
    return where, str(each.count), f"{seconds}{some}", *_tokens(each.usage), format_cost(each.usage) or "-"


def _call_row(span: Span) -> tuple[str, ...]:
    from ...sessions.costs import format_cost

    bound = "≤ " if span.is_bound else ""
    cost = (format_cost(span.usage) if span.usage else "") or "-"
    return plain(f"{span.kind} {span.name}"), f"m{span.message}", f"{bound}{_seconds(span.seconds)}", cost


def _tokens(usage: Usage) -> tuple[str, str]:
    return (f"{usage.input_tokens:,}", f"{usage.output_tokens:,}") if usage.requests else ("-", "-")


def _seconds(seconds: float | None) -> str:
    from ...sessions.costs import format_duration

    return "-" if seconds is None else format_duration(seconds)
