"""Run the command line: noun, then verb.

The list of commands imports no command, no plugin and no event loop. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

import click

from amplifier_core.errors import AmplifierError, NameTaken, PluginError, PluginRefused

from ..cli import exits, streams
from .advice import with_advice
from .interrupting import end_now, interrupt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMAND_GROUP = "amplifier.commands"
COMPLETE = "_AMPLIFIER_COMPLETE"
"""The variable by which a shell asks for completions."""

_COMMANDS = {
    "approvals": ("approvals:approvals", "Answer the questions of background sessions."),
    "auth": ("auth:auth", "Keep, list and remove the keys of providers."),
    "bundle": ("bundles:bundle", "Create, check, read and install bundles."),
    "completion": ("completion:completion", "Print the completion script of a shell."),
    "config": ("config:config", "Show and change settings."),
    "cost": ("cost:cost", "Show the tokens and the cost of sessions."),
    "demo": ("demo:demo", "Try everything in a new folder: no key, no network."),
    "docs": ("docs:docs", "List and print the pages of the documentation."),
    "doctor": ("doctor:doctor", "Say what protects this machine, and what does not."),
    "flow": ("flow:flow", "Run workflows of a bundle, and look at their runs."),
    "host": ("host:host", "List, drain and adopt the hosts of a shared store."),
    "init": ("init:init", "Write a first bundle.md, with the provider found here."),
    "logs": ("logs:logs", "Show the events of background sessions."),
    "pause": ("lifecycle:pause", "Pause a background session: its events wait."),
    "permission": ("permission:permission", "Test and list the permissions of tool calls."),
    "plugin": ("plugins:plugin", "Write, check, list and pin plugins and modules."),
    "provider": ("provider:provider", "List and test providers, and list their models."),
    "ps": ("ps:ps", "List background sessions and their queues."),
    "restart": ("lifecycle:restart", "Stop a background session and start it anew."),
    "resume": ("lifecycle:resume", "Resume a paused background session."),
    "run": ("running.command:run", "Run one turn of a session, or hold a conversation."),
    "service": ("service:service", "Run background sessions as a system service."),
    "session": ("sessions:session", "List, read, fork and delete sessions."),
    "start": ("lifecycle:start", "Start a stopped background session."),
    "stop": ("stop:stop", "Stop a background session, or all of them."),
    "store": ("store:store", "Look at the store: its size, checks, backups and repairs."),
    "trigger": ("triggers:trigger", "List, test and fire triggers."),
    "trust": ("trust:trust", "Trust the code of a bundle and its project."),
    "untrust": ("trust:untrust", "Take trust back from a bundle and its project."),
    "up": ("up:up", "Run the background sessions of bundles."),
    "why": ("why:why", "Explain an event or a session: its causes and effects."),
    "worker": ("worker:worker", "Handle events that other hosts accept."),
}


ELSEWHERE = {
    "acp": "amplifier-acp",
    "dashboard": "amplifier-dashboard",
    "issue": "amplifier-tool-issue",
    "mcp": "amplifier-tool-mcp",
    "memory": "amplifier-tool-memory",
}
"""The commands of the project's other packages."""


class LazyGroup(click.Group):
    """A group with commands that are imported on use; plugins add theirs by entry point."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted({*super().list_commands(ctx), *self._lazy, *_plugin_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command `cmd_name`; None: there is none."""
        if cmd_name in self._lazy:
            module, _, attribute = self._lazy[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(f".{module}", __name__), attribute)
            return command
        entry, *others = _plugin_commands().get(cmd_name, [None])
        if entry is None:
            return super().get_command(ctx, cmd_name)
        try:
            if others:
                raise NameTaken("command", cmd_name, (str(entry.dist), str(others[0].dist)))
            found = entry.load()
        except (PluginRefused, NameTaken):
            if not ctx.resilient_parsing:  # completions: the other commands are completed
                raise
            return None
        except (Exception, SystemExit) as error:
            from amplifier_core.raised import describe_at, find_place  # rarely needed

            problem = describe_at(error, find_place(error))
        else:
            if isinstance(found, click.Command):
                return found
            problem = f"{entry.value} is no command of click"
        if ctx.resilient_parsing:  # completions: the other commands are completed
            return None
        raise PluginError(
            f"command '{cmd_name}' of {entry.dist} was not loaded: {problem}. Update or remove {entry.dist.name}"
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; none of them is imported."""
        names = self.list_commands(ctx)
        room = max(20, formatter.width - 6 - max(map(len, names)))
        texts = {name: text for name, (_, text) in self._lazy.items()}
        for name, (entry, *_) in _plugin_commands().items():
            texts.setdefault(name, _shorten(entry.summary or f"Offered by {entry.dist.name}.", room))
        with formatter.section("Commands"):
            formatter.write_dl([(name, texts[name]) for name in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command named by `args`; the error for an unknown name suggests the nearest."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            if ctx.parent is None and (package := ELSEWHERE.get(args[0])) is not None:
                raise click.UsageError(f"{error.message} Install it with: pip install {package}", ctx) from error
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(error.message + hint, ctx) from error
        if ctx.parent is None:
            last = rest[0] if isinstance(command, click.Group) and rest else name
            options = exits.READING.intersection(rest[: rest.index("--")] if "--" in rest else rest)
            streams.needs_stderr = name not in self._lazy and name not in ELSEWHERE
            streams.goes_on = not (streams.needs_stderr or options or last in exits.REPEATABLE)
        return name, command, rest


def _shorten(sentence: str, room: int) -> str:
    """Return a sentence, or the clauses at its beginning that fit into so many characters, else its first words."""
    if len(sentence) <= room:
        return sentence
    end = max(sentence.rfind(mark, 0, room) for mark in ":;,")
    return f"{sentence[:end]}." if end > 0 else f"{sentence[: room - 2].rpartition(' ')[0]} …"


class Verbs(LazyGroup):
    """The verbs of one noun; plugins add commands, not verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the verb `cmd_name`; None: there is none."""
        return super().get_command(ctx, cmd_name) if cmd_name in self._lazy else None


@cache
def _plugin_commands() -> dict[str, list[Any]]:
    """Return the entry points of commands by name; a name of several packages has several."""
    from amplifier_core.entry_points import find_entry_points

    _keep_entry_points()
    found: dict[str, list[Any]] = {}
    for entry in find_entry_points(COMMAND_GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def _keep_entry_points() -> None:
    """Have entry points found once, and kept for the next command."""
    from pathlib import Path

    from amplifier_core import entry_points

    from ..documents.kept import Check

    entry_points.keep_with(Check("entry-points", (Path(entry_points.__file__),)))


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--safe-mode", is_flag=True, help="Load no plugins.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.option(
    "--profile",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write where the time goes to FILE, as folded stacks.",
)
@click.version_option(package_name="amplifier", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, safe_mode: bool, debug: bool, quiet: bool, profile: str | None) -> None:
    """Run AI-agent sessions, on request and in the background."""
    if profile is not None:
        from .profiling import start_profile

        ctx.call_on_close(start_profile(profile))
    ctx.obj = {"safe_mode": safe_mode, "debug": debug, "quiet": quiet}
    import logging
    import warnings

    from amplifier_core import entry_points

    from .log_lines import FORMAT, PresentStderr, RedactingFormatter, is_for_people, log_warning, new_of_plugins

    level = logging.DEBUG if debug else logging.ERROR if quiet else logging.WARNING
    logging.basicConfig(level=level, stream=PresentStderr(), force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(RedactingFormatter(FORMAT))
        if not debug:
            handler.addFilter(is_for_people)
        handler.addFilter(new_of_plugins())
    for noisy in ("asyncio", "watchdog", "fsevents"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))
    ctx.call_on_close(partial(setattr, warnings, "showwarning", warnings.showwarning))
    warnings.showwarning = log_warning
    _keep_entry_points()
    ctx.call_on_close(partial(entry_points.keep_with, None))
    from ..packages.gate import close_gate

    close_gate()
    ctx.call_on_close(partial(entry_points.guard_with, None))


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    import signal

    signal.signal(signal.SIGINT, interrupt)
    if COMPLETE in os.environ:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - nothing may stand beside a line that is typed
    streams.wait_for_readers()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without a character shows `?`
    code = _write_out(invoke(args))
    if (unread := sys.modules.get("amplifier_foundation.cli.unread")) is not None:
        with suppress(KeyboardInterrupt):
            unread.wait_at_end()
    own_loops = sys.modules.get("amplifier_foundation.spawning.own_loops")
    loops = sys.modules.get("amplifier_foundation.cli.loops")
    preloading = sys.modules.get("amplifier_core.preloading")
    if (
        (own_loops is not None and own_loops.must_be_killed())
        or (loops is not None and loops.left_tasks)
        or (preloading is not None and preloading.is_importing())
    ):
        end_now(code)
    if loops is not None:
        loops.name_threads()
    sys.exit(code)


def invoke(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an error is one line on stderr."""
    arguments, stdout = list(sys.argv[1:] if args is None else args), sys.stdout
    try:
        outcome = cli.main(args=arguments, prog_name="amplifier", standalone_mode=False)
    except click.ClickException as error:
        if (cause := error.__cause__) is not None and (remedy := exits.find_remedy(cause)):
            _say(f"{error.format_message()}. {remedy}")
            return exits.exit_code(cause)
        error.show(shown := io.StringIO())
        if isinstance(error, click.NoSuchOption) and any(error.option_name in each.opts for each in cli.params):
            shown.write(f"It stands before the command: amplifier {error.option_name} {arguments[0]}\n")
        _print_error(shown.getvalue())
        return exits.USAGE
    except (KeyboardInterrupt, click.Abort) as error:
        if isinstance(error.__cause__, EOFError):  # of a module: click takes each for the end of what a person types
            return _report(error.__cause__, arguments)
        _say("interrupted")
        return exits.INTERRUPTED
    except SystemExit:
        if sys.stdout is stdout:
            raise
        sys.stdout = stdout  # click has replaced it: its reader is gone
        _discard(stdout)
        return exits.OK
    except BaseException as error:  # of any plugin: a panic of an extension in Rust is no `Exception`
        return _report(error, arguments)
    return outcome if isinstance(outcome, int) else exits.OK


def _report(error: BaseException, arguments: Sequence[str]) -> int:
    """Print the error at the end of a command, and return the exit code."""
    problem: BaseException = error
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:  # of a task beside others
        problem = problem.exceptions[0]
    if problem is streams.unread or (problem is streams.lost and "--debug" not in arguments):
        return exits.OK  # `_write_out` tells it
    if isinstance(problem, FileNotFoundError) and _has_lost_folder():
        _say("the current folder was deleted or moved. Change to another one: cd")
        return exits.NOT_FOUND
    if "--debug" in arguments:
        import traceback

        _print_error("".join(traceback.format_exception(error)))
    elif (told := exits.explain_system(problem)) is not None:
        _say(told)
    elif isinstance(problem, AmplifierError):
        _say(with_advice(problem))
    elif exits.is_of_provider(problem):
        from ..sessions.failures import describe_with_login

        _say(describe_with_login(problem))
    else:
        from ..documents.safe_text import plain_line
        from ..sessions.failures import describe_failure

        _say(f"{plain_line(describe_failure(problem))} (use --debug to see the traceback)")
    return exits.exit_code(problem)


def _write_out(code: int) -> int:
    """Write what waits for both streams, tell what is lost, and return the exit code."""
    streams.needs_stderr = False
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # ValueError: a tool has closed it
            with suppress(ValueError):
                _discard(stream)
    if (lost := streams.lost) is None:
        return code
    if code == exits.OK and not streams.goes_on:
        _say(f"the output cannot be written ({lost.strerror}). {exits.find_remedy(lost) or 'Try again'}")
        return exits.TRY_AGAIN
    done = "it is done, but " if code == exits.OK else ""
    _say(f"{done}a part of the output could not be written ({lost.strerror})")
    return code or exits.UNREPORTED


def _discard(stream: TextIO) -> None:
    """Write what waits for a stream, and all that comes, nowhere: else the interpreter's end fails, with code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _has_lost_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - `Path.cwd` is the same call
    except FileNotFoundError:
        return True
    return False


def _say(text: str) -> None:
    _print_error(f"amplifier: {text}\n")


def _print_error(text: str) -> None:
    from amplifier_core.utils.secrets import redact_text

    from ..documents.safe_text import plain

    with suppress(OSError):  # nobody reads it, or there is no room: the exit code stays
        click.echo(plain(redact_text(text)), err=True, nl=False)
