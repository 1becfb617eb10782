"""Add a command to *amplifier*: `amplifier example`."""

from __future__ import annotations

import click


@click.command(epilog="Example: amplifier example Ann")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str, as_json: bool) -> None:
    """Greet NAME."""
    if as_json:
        import json

        click.echo(json.dumps({"greeting": f"Hello, {name}!"}))
        return
    click.echo(f"Hello, {name}!")
