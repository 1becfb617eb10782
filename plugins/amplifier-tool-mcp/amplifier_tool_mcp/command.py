"""Run `amplifier mcp`."""

from __future__ import annotations

import click

from .serving.command import serve


@click.group()
def mcp() -> None:
    """Use the tools of MCP servers, and offer agents as such tools."""


mcp.add_command(serve)
