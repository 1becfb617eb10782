"""`amplifier session rename` and `repair`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..app import json_option, opened_store, plugins_of, run_async, session_by_prefix
from ..output import plural, print_json
from .facts import facts

if TYPE_CHECKING:
    from amplifier_core.storage import Finding, SessionRecord

LONGEST_NAME = 128


@click.command()
@click.argument("session_id", metavar="ID")
@click.argument("name")
@json_option
@click.pass_context
def rename(ctx: click.Context, session_id: str, name: str, as_json: bool) -> None:
    """Give a session another NAME; its id stays."""
    record = run_async(_rename(ctx, session_id, checked_name(name)))
    if as_json:
        print_json("session.rename/1", facts(record))
    else:
        click.echo(f"{record.session_id}: {record.name}")


def checked_name(name: str) -> str:
    """Return a session's name without space around it. Raises `click.UsageError` for what cannot be one."""
    name = name.strip()
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise click.UsageError(f"a name is one line of 1 to {LONGEST_NAME} printable characters")
    return name


async def _rename(ctx: click.Context, prefix: str, name: str) -> SessionRecord:
    async with opened_store(plugins_of(ctx)) as store:
        session_id = (await session_by_prefix(store, prefix)).session_id
        await store.update(session_id, name=name)
        return await store.get(session_id)


@click.command()
@click.argument("session_id", metavar="ID")
@click.option("-y", "--yes", is_flag=True, help="Mend what is found.")
@json_option
@click.pass_context
def repair(ctx: click.Context, session_id: str, yes: bool, as_json: bool) -> None:
    """Say what is wrong with a session and what would be done about it; with --yes, do it."""
    found_id, findings = run_async(_repair(ctx, session_id, yes=yes))
    if as_json:
        found = [asdict(finding) for finding in findings]
        print_json("session.repair/1", {"session_id": found_id, "mended": yes and bool(found), "findings": found})
        return
    for finding in findings:
        click.echo(_line(finding))
    click.echo(_verdict(found_id, len(findings), mended=yes), err=True)


async def _repair(ctx: click.Context, prefix: str, *, yes: bool) -> tuple[str, list[Finding]]:
    from ...repairing import examine, mend

    async with opened_store(plugins_of(ctx)) as store:
        session_id = (await session_by_prefix(store, prefix)).session_id
        return session_id, await (mend(store, session_id) if yes else examine(store, session_id))


def _line(finding: Finding) -> str:
    place = "" if finding.position is None else f"m{finding.position + 1}"
    place = f"{place}: " if place and place not in finding.message.split() else ""
    return f"{place}{finding.message} ({finding.kind}); remedy: {finding.remedy}"


def _verdict(session_id: str, count: int, *, mended: bool) -> str:
    if not count:
        return f"{session_id}: nothing is wrong"
    if mended:
        return f"{session_id}: {plural(count, 'finding')} mended"
    return f"nothing was changed. Do it with: amplifier session repair {session_id} --yes"
