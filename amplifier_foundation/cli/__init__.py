"""The command line: noun, then verb; every command is imported when it is invoked.

Listing the commands imports none of them, no plugin and no event loop. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import io
import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError

from . import exits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMAND_GROUP = "amplifier.commands"

_COMMANDS = {
    "bundle": ("bundle:bundle", "Make, check, read and install bundles."),
    "config": ("config:config", "See and change settings."),
    "demo": ("demo:demo", "Watch the whole loop on a folder it makes: no key, no network."),
    "logs": ("logs:logs", "See what happened to background sessions."),
    "plugin": ("plugin:plugin", "See what is installed."),
    "ps": ("ps:ps", "See the background sessions that run, and what waits."),
    "run": ("running.command:run", "Run one turn of a session, or converse with it."),
    "service": ("service:service", "Have the system run background sessions."),
    "session": ("session:session", "List, read and fork sessions."),
    "stop": ("stop:stop", "Stop a background session, or all of them."),
    "trigger": ("trigger:trigger", "See triggers, and fire by hand."),
    "up": ("up:up", "Run what a bundle declares in the background."),
    "why": ("why:why", "Tell what led to an event or a session, and what came of it."),
}


class LazyGroup(click.Group):
    """A group whose commands are named here and imported on use; plugins add theirs by entry point."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted({*super().list_commands(ctx), *self._lazy, *_plugin_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command `cmd_name`, or answer None."""
        if cmd_name in self._lazy:
            module, _, attribute = self._lazy[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(f".{module}", __name__), attribute)
            return command
        entry = _plugin_commands().get(cmd_name)
        return entry.load() if entry is not None else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one."""
        rows = [
            (name, self._lazy[name][1] if name in self._lazy else _offered_by(name)) for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` name; an unknown one is answered with the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(error.message + hint, ctx) from error


class Verbs(LazyGroup):
    """The verbs of one noun: what plugins add are commands, not verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb `cmd_name`, or answer None."""
        return super().get_command(ctx, cmd_name) if cmd_name in self._lazy else None


@cache
def _plugin_commands() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=COMMAND_GROUP)}


def _offered_by(name: str) -> str:
    dist = _plugin_commands()[name].dist
    return f"(from {dist.name})" if dist else ""


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--safe-mode", is_flag=True, help="Load no plugin.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but results and errors.")
@click.version_option(package_name="amplifier", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, safe_mode: bool, debug: bool, quiet: bool) -> None:
    """Run AI-agent sessions, on request and in the background."""
    ctx.obj = {"safe_mode": safe_mode, "debug": debug, "quiet": quiet}
    _set_up_logging(debug=debug, quiet=quiet)


def _set_up_logging(*, debug: bool, quiet: bool) -> None:
    import logging

    level = logging.DEBUG if debug else logging.ERROR if quiet else logging.WARNING
    logging.basicConfig(level=level, format="amplifier: %(levelname)s: %(message)s", stream=sys.stderr, force=True)
    for noisy in ("asyncio", "watchdog", "fsevents"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    import signal

    signal.signal(signal.SIGINT, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character shows `?`, and no error
    sys.exit(invoke(args))


def invoke(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an error is one line on stderr."""
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        outcome = cli.main(args=arguments, prog_name="amplifier", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return exits.USAGE
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return exits.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except Exception as error:
        return _failed(error, debug="--debug" in arguments)
    return outcome if isinstance(outcome, int) else exits.OK


def _failed(error: Exception, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    elif isinstance(error, AmplifierError):
        _say(str(error))
    else:
        _say(f"{type(error).__name__}: {error} (run again with --debug for the traceback)")
    return exits.exit_code(error)


def _say(text: str) -> None:
    click.echo(f"amplifier: {text}", err=True)
