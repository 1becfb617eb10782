"""Run `amplifier mcp`: the MCP servers of a person and a project."""

from __future__ import annotations

from importlib import import_module

import click

from amplifier_foundation.cli import Verbs

VERBS = {
    "add": ("commands.adding:add", "Add a server to your settings, or to those of the project."),
    "list": ("commands.listing:list_", "List the servers, where each comes from, and whether it may run."),
    "login": ("commands.logging_in:login", "Log in to a remote server with a browser."),
    "remove": ("commands.adding:remove", "Remove a server from the settings."),
    "serve": ("serving.command:serve", "Offer bundles and background sessions to other agents."),
    "test": ("commands.testing:test", "Start a server, and list what it offers."),
}
"""The verbs: the module of each within this package, its command, and its line in the help."""


class McpVerbs(Verbs):
    """Imports a verb of this package when it is used."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the verb `cmd_name`; None: there is none."""
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        return command


@click.group(cls=McpVerbs, lazy=VERBS)
def mcp() -> None:
    """Use MCP servers, and be one. A bundle with `tool-mcp` among its tools offers theirs to its sessions."""
