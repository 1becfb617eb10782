"""Run `amplifier service`: `amplifier up` as a systemd or launchd service of this user."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from amplifier_core.errors import AmplifierError

from ..cli import exits
from .app import choose_bundle, confirm, json_option, load_bundle_at, plugins_of, read_settings_here, require_runnable
from .completing import complete_bundles
from .loops import run_async
from .output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..background.service.units import Service
    from ..bundle.model import Bundle

PATIENCE = 240.0
"""Seconds for the service manager to start or stop it."""


class NotInstalled(AmplifierError, LookupError):
    """There is no service."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no service is installed ({path}). Install one with: amplifier service install BUNDLE")


class ServiceFailed(AmplifierError, RuntimeError):
    """The service manager refused; the message has its answer and the commands to type."""


class System(NamedTuple):
    """The service manager of this system, its file and its commands."""

    file: Path
    program: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    reload: tuple[tuple[str, ...], ...]
    """The commands after the file is removed."""
    state: tuple[str, ...]
    """Exits with 0 while the service runs."""

    @property
    def is_here(self) -> bool:
        """Whether its program is installed."""
        return shutil.which(self.program) is not None


def _find_system() -> System:
    """Return the service manager of this system. Raises `ServiceFailed` for a user without a home."""
    try:
        return _system()
    except RuntimeError:
        why = "a service belongs to a user with a home folder, and HOME is not set"
        raise ServiceFailed(f"{why}. Set it, or run here: amplifier up") from None


def _system() -> System:
    from ..background.service.units import LABEL, UNIT, launchd_folder, systemd_folder

    if sys.platform == "darwin":
        file = launchd_folder() / f"{LABEL}.plist"
        start = (("launchctl", "unload", str(file)), ("launchctl", "load", "-w", str(file)))
        return System(file, "launchctl", start[1:], start[:1], (), ("launchctl", "list", LABEL))
    user = ("systemctl", "--user")
    return System(
        systemd_folder() / UNIT,
        user[0],
        start=((*user, "daemon-reload"), (*user, "enable", UNIT), (*user, "restart", UNIT)),
        stop=((*user, "disable", "--now", UNIT),),
        reload=((*user, "daemon-reload"),),
        state=(*user, "is-active", "--quiet", UNIT),
    )


@click.group()
def service() -> None:
    """Run background sessions as a system service: install, uninstall, status."""


@service.command(short_help="Write the service and start it.", epilog="Example: amplifier service install bundle.md")
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...", shell_complete=complete_bundles)
@click.option("--print", "only_print", is_flag=True, help="Print the file, and do nothing else.")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@click.pass_context
def install(ctx: click.Context, bundles: tuple[str, ...], only_print: bool, yes: bool) -> None:
    """Run `amplifier up BUNDLE...` as a service, now and whenever this user logs in.

    The file of the service holds no secrets: it reads NAME=value lines from the file `environment` of the data folder.
    """
    from ..background.service.units import launchd_plist, systemd_unit
    from ..documents.files import write_whole
    from ..paths import make_private

    wanted = run_async(_describe_service(ctx, bundles, runs=not only_print, trusts=yes))
    try:
        text = launchd_plist(wanted) if sys.platform == "darwin" else systemd_unit(wanted)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if only_print:
        click.echo(text, nl=False)
        return
    system = _find_system()
    click.echo(f"This {'replaces' if system.file.exists() else 'writes'} {system.file}", err=True)
    _tell_dropped(system.file, wanted.bundles)
    if system.is_here:
        click.echo("and runs:", err=True)
        _print_commands(system.start)
    if not confirm("Do it?", yes=yes):
        ctx.exit(exits.CANCELLED)
    make_private(wanted.home)  # the service itself may not create it
    try:
        write_whole(system.file, text)
    except OSError as error:
        advice = "Print it instead, with: --print"
        raise ServiceFailed(f"{system.file} cannot be written: {error.strerror}. {advice}") from error
    click.echo(f"{system.file} is written", err=True)
    _call(system, system.start)
    if sys.platform != "darwin":
        click.echo("To keep it running while you are logged out: loginctl enable-linger", err=True)
        click.echo(f"Put its secrets, as NAME=value lines, into (chmod 600): {wanted.environment_file}", err=True)


@service.command(epilog="Example: amplifier service uninstall")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@click.pass_context
def uninstall(ctx: click.Context, yes: bool) -> None:
    """Stop the service and remove it; the store stays."""
    system = _find_system()
    if not system.file.exists():
        raise NotInstalled(system.file)
    click.echo(f"This removes {system.file}", err=True)
    if not confirm("Do it?", yes=yes):
        ctx.exit(exits.CANCELLED)
    try:
        if system.is_here:
            _call(system, system.stop)
    finally:
        system.file.unlink(missing_ok=True)
    _call(system, system.reload)


@service.command(
    short_help="Show whether the service is installed and runs.", epilog="Example: amplifier service status"
)
@json_option
def status(as_json: bool) -> None:
    """Show whether the service is installed and running, and the process of background sessions."""
    from ..sessions.lock import running_owners

    system, owners = _find_system(), running_owners()
    installed = system.file.exists()
    runs = installed and system.is_here and _run(system.state).returncode == 0
    if as_json:
        pids = [owner.get("pid") for owner in owners]
        about = {"file": str(system.file), "installed": installed, "active": runs}
        print_json("service.status/1", {**about, "pid": next(iter(pids), None), "pids": pids})
        return
    click.echo(f"file      {system.file}{'' if installed else ' (not installed)'}")
    click.echo(
        f"service   {'active' if runs else 'not active' if system.is_here else f'{system.program} is not installed'}"
    )
    for owner in owners:
        click.echo(f"process   {owner['pid']} since {owner['since']}")
    if not owners:
        click.echo("process   none")


def _tell_dropped(file: Path, wanted: Sequence[str]) -> None:
    """Name the bundles that the present service runs, and the new one does not."""
    import shlex

    from ..background.service.units import bundles_of

    with suppress(OSError, UnicodeDecodeError):
        present = bundles_of(file.read_text(encoding="utf-8"))
        if dropped := [each for each in present if each not in wanted]:
            click.echo(f"The service stops running: {', '.join(dropped)}", err=True)
            everything = shlex.join((*dropped, *wanted))
            click.echo(f"It runs all of them with: amplifier service install {everything}", err=True)


async def _describe_service(ctx: click.Context, paths: Sequence[str], *, runs: bool, trusts: bool) -> Service:
    """Return the service to install, after checking its bundles; local bundles get absolute paths.

    A service has nobody to ask, so bundles that it `runs` must be trusted now.
    """
    import os

    from amplifier_core.errors import BundleValidationError

    from ..background.service.units import Service
    from ..paths import data_home, project_of
    from .trusting import Asking

    plugins = plugins_of(ctx)
    asking = Asking(plugins, trusts)
    if runs:
        await asking.settle_settings()
    settings = read_settings_here()
    chosen = [choose_bundle(path, settings) for path in paths or (None,)]
    bundles = [await load_bundle_at(path, plugins, asking=asking, runs=runs) for path in chosen]
    for bundle in bundles:
        require_runnable(bundle, plugins)
        if not bundle.background_sessions:
            raise BundleValidationError(f"{bundle.source_path or bundle.name}: declares no background_sessions")
    return Service(
        tuple(map(_absolute, chosen)),
        tuple(folder for bundle in bundles for folder in _find_written(bundle, project_of(bundle.base_path))),
        data_home().absolute(),
        bool(os.environ.get("AMPLIFIER_HOME")),
    )


def _find_written(bundle: Bundle, project: str) -> Iterator[str]:
    """Yield the folders that the sessions of a bundle write: its project and, for worktrees, the repository around."""
    from ..background.git import Checkout, find_checkout

    yield project
    if any(each.worktree is not None for each in bundle.background_sessions):
        checkout = find_checkout(project)
        if isinstance(checkout, Checkout):
            yield from (checkout.top, checkout.common)


def _absolute(bundle: str) -> str:
    """Return the absolute path of a local bundle; a URL or a registered name as it is."""
    path = Path(bundle).expanduser()
    return str(path.resolve()) if path.exists() else bundle


def _print_commands(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        click.echo(f"  {' '.join(command)}", err=True)


def _call(system: System, commands: Sequence[Sequence[str]]) -> None:
    """Call the service manager; print the commands when it is not installed. Raises `ServiceFailed`."""
    if not system.is_here:
        click.echo(f"{system.program} is not installed. On a system with it, type:", err=True)
        _print_commands(commands)
        return
    for number, command in enumerate(commands):
        done = _run(command)
        if done.returncode:
            left = "\n".join(f"  {' '.join(each)}" for each in commands[number:])
            said = done.stderr.strip() or f"it ended with {done.returncode}"
            raise ServiceFailed(f"{' '.join(command)}: {said}\nFix that, then type:\n{left}")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(list(command), 1, "", str(error))
