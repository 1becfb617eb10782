"""Add servers to settings, and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from amplifier_foundation.cli.app import json_option
from amplifier_foundation.cli.numbers import NumberRange
from amplifier_foundation.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_foundation.settings import Scope

scope_option = click.option(
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    default="user",
    show_default=True,
    help="Whose settings: yours, the project's, or yours for this project.",
)


@click.command(
    epilog="Example: amplifier mcp add docs --env 'DOCS_TOKEN=${DOCS_TOKEN}' -- npx -y @acme/docs-mcp",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("name")
@click.argument("target", nargs=-1, required=True, metavar="URL | -- COMMAND [ARGUMENT]...", type=click.UNPROCESSED)
@click.option("-e", "--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of its environment.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header of each request.")
@click.option("--cwd", metavar="FOLDER", help="The folder to run the command in.")
@click.option("--timeout", type=NumberRange(0, min_open=True), metavar="SECONDS", help="The limit of one call.")
@click.option("--trusted", is_flag=True, help="Its results are no text of strangers, and its tools are not asked for.")
@scope_option
@json_option
def add(
    name: str,
    target: Sequence[str],
    variables: Sequence[str],
    headers: Sequence[str],
    cwd: str | None,
    timeout: float | None,
    trusted: bool,
    scope: Scope,
    as_json: bool,
) -> None:
    """Add the MCP server NAME: a command, or the address of a streamable HTTP server.

    Write ${TOKEN} in place of a secret: it is read from the environment, or from the keys of `amplifier auth`.
    """
    from amplifier_foundation.documents.positions import show_file
    from amplifier_foundation.security.session_mark import refuse_in_session
    from amplifier_foundation.security.trust import changing_settings
    from amplifier_foundation.settings import write_setting

    from .. import check_config
    from ..config import NAME

    refuse_in_session("mcp add")
    if trusted and scope != "user":
        raise click.UsageError("--trusted is for your own settings: leave out --scope")
    is_remote = len(target) == 1 and target[0].startswith(("http://", "https://"))
    if (variables or cwd) if is_remote else headers:
        raise click.UsageError("--env and --cwd are for a command, --header is for an address")
    given: dict[str, Any] = {"url": target[0]} if is_remote else {"command": target[0], "args": list(target[1:])}
    given |= {"env": _split(variables, "=", "--env"), "headers": _split(headers, ":", "--header")}
    given |= {"cwd": cwd, "timeout": timeout, "trusted": trusted}
    server = {key: value for key, value in given.items() if value}
    try:
        problems = check_config({"servers": {name: server}})
    except ValueError as error:
        problems = [str(error)]
    if problems:
        raise click.UsageError(problems[0])
    _refuse_secrets(server)
    with changing_settings():
        file = write_setting(scope, ("overrides", NAME, "config", "servers", name), server)
    if as_json:
        print_json("mcp.add/1", {"name": name, "file": str(file), "server": server})
    else:
        click.echo(f"{show_file(file)}: {name} is added. Try it: amplifier mcp test {name}")


@click.command(epilog="Example: amplifier mcp remove docs")
@click.argument("name")
@scope_option
@json_option
def remove(name: str, scope: Scope, as_json: bool) -> None:
    """Remove the MCP server NAME from the settings."""
    from amplifier_foundation.documents.positions import show_file
    from amplifier_foundation.security.session_mark import refuse_in_session
    from amplifier_foundation.security.trust import changing_settings
    from amplifier_foundation.settings import unset_setting

    from ..config import NAME

    refuse_in_session("mcp remove")
    with changing_settings():
        file = unset_setting(scope, ("overrides", NAME, "config", "servers", name))
    if as_json:
        print_json("mcp.remove/1", {"name": name, "file": str(file)})
    else:
        click.echo(f"{show_file(file)}: {name} is removed")


def _split(pairs: Sequence[str], sign: str, option: str) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, given, value = pair.partition(sign)
        if not given or not name.strip():
            raise click.UsageError(f"{option} is NAME{sign}VALUE, not '{pair}'")
        found[name.strip()] = value.strip()
    return found


def _refuse_secrets(server: dict[str, Any]) -> None:
    """Raise `click.UsageError` for a secret: settings are plain files."""
    from amplifier_core.utils.secrets import redact_text
    from amplifier_foundation.documents.positions import Positions
    from amplifier_foundation.documents.secrets import find_secrets

    from ..servers import find_texts

    if find_secrets(server, Positions("VALUE")) or any(redact_text(each) != each for each in find_texts(server)):
        raise click.UsageError(
            "a secret is written here, and settings are plain files. Keep it with: amplifier auth login TOKEN; and "
            "write '${TOKEN}' in its place, in single quotes"
        )
