"""Run `amplifier session export`."""

from __future__ import annotations

from pathlib import Path

import click

from ...operations.sessions import session_facts, with_ids
from ..app import json_option
from ..completing import complete_sessions
from ..loops import run_reading
from ..output import plural, print_json
from .reading import read_session

output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, readable by you alone.",
)


@click.command(epilog="Example: amplifier session export last --format markdown -o talk.md")
@click.argument("session_id", metavar="ID", shell_complete=complete_sessions)
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "markdown"]), default="jsonl", show_default=True, help="Format."
)
@output_option
@json_option
@click.pass_context
@run_reading
async def export(ctx: click.Context, session_id: str, kind: str, output: Path | None, as_json: bool) -> None:
    """Write a session to stdout or a file.

    JSON lines: one line for the session, then one for each message; 'session import' takes these. --json: one document.
    """
    from ...documents.safe_text import plain
    from ...sessions import exporting

    record, messages, _ = await read_session(ctx, session_id)
    if as_json and output is None:
        print_json("session.export/1", {**session_facts(record), "messages": with_ids(messages)})
        return
    lines = list(
        exporting.json_lines(record, messages) if kind == "jsonl" else map(plain, exporting.markdown(record, messages))
    )
    if output is None:
        for line in lines:
            click.echo(line)
        return
    write_private(output, "".join(f"{line}\n" for line in lines))
    if as_json:
        print_json("session.export/1", {"session_id": record.session_id, "path": str(output), "format": kind})
    else:
        click.echo(f"{output}: {plural(len(messages), 'message')} of {record.session_id}", err=True)


def write_private(path: Path, text: str) -> None:
    """Write a file readable by its owner alone, an existing one too; pipes and devices stay as they are.

    A file that stays open to others, as one of another user, is warned of. Raises `click.UsageError` when it cannot be
    written.
    """
    import os

    from amplifier_core.utils.private_files import close_to_others

    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            is_private = close_to_others(file.fileno())  # before anything is in it
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
    if not is_private:
        remedy = "Write into a private folder to keep it to yourself"
        click.echo(f"amplifier: {path} stays open to others: its mode cannot be changed. {remedy}", err=True)
