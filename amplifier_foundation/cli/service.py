"""`amplifier service`: `amplifier up` as a service of this user, which systemd or launchd starts and watches."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from amplifier_core.errors import AmplifierError

from . import exits
from .app import (
    bundle_at,
    chosen_bundle,
    confirmed,
    json_option,
    plugins_of,
    refuse_what_cannot_run,
    run_async,
    settings_here,
)
from .output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..service.units import Service

PATIENCE = 240.0
"""Seconds that the service manager may take to start or stop it."""


class NotInstalled(AmplifierError, LookupError):
    """There is no service."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no service is installed ({path}). Install one with: amplifier service install BUNDLE")


class ServiceFailed(AmplifierError, RuntimeError):
    """The service manager refused; the message says what it said, and what to type."""


class System(NamedTuple):
    """The service manager of this system: where its file is, and what to tell it."""

    file: Path
    program: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    reload: tuple[tuple[str, ...], ...]
    """What is told when the file is gone."""
    state: tuple[str, ...]
    """Answers with the code 0 while it runs."""

    @property
    def is_here(self) -> bool:
        """Whether its program can be called."""
        return shutil.which(self.program) is not None


def _system() -> System:
    from ..service.units import LABEL, UNIT, launchd_folder, systemd_folder

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
    """Have the system run background sessions: install, uninstall, status."""


@service.command()
@click.argument("bundles", nargs=-1, metavar="BUNDLE...")
@click.option("--print", "only_print", is_flag=True, help="Print what would be written, and do nothing else.")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@click.pass_context
def install(ctx: click.Context, bundles: tuple[str, ...], only_print: bool, yes: bool) -> None:
    """Have the system run `amplifier up BUNDLE...` now, and whenever this user logs in.

    Secrets are not written to the unit: it reads NAME=value lines from the file `environment` of the data folder.
    """
    from ..paths import make_private

    wanted = run_async(_service(ctx, bundles))
    text, system = _text(wanted), _system()
    if only_print:
        click.echo(text, nl=False)
        return
    click.echo(f"This {'replaces' if system.file.exists() else 'writes'} {system.file}", err=True)
    if system.is_here:
        click.echo("and runs:", err=True)
        _list(system.start)
    if not confirmed("Do it?", yes=yes):
        ctx.exit(exits.CANCELLED)
    make_private(wanted.home)  # which the service could not make: it may write nowhere else
    _write(system.file, text)
    _told(system, system.start)
    if sys.platform != "darwin":
        click.echo("To have it run while you are not logged in: loginctl enable-linger", err=True)
        click.echo(f"Secrets for it, as NAME=value lines, go to (chmod 600): {wanted.environment_file}", err=True)


@service.command()
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@click.pass_context
def uninstall(ctx: click.Context, yes: bool) -> None:
    """Stop the service and remove it; what is stored stays."""
    system = _system()
    if not system.file.exists():
        raise NotInstalled(system.file)
    click.echo(f"This removes {system.file}", err=True)
    if not confirmed("Do it?", yes=yes):
        ctx.exit(exits.CANCELLED)
    try:
        if system.is_here:
            _told(system, system.stop)
    finally:
        system.file.unlink(missing_ok=True)
    _told(system, system.reload)


@service.command()
@json_option
def status(as_json: bool) -> None:
    """Say whether the service is installed and runs, and which process runs background sessions."""
    from ..lock import running_owner

    system, owner = _system(), running_owner()
    installed = system.file.exists()
    runs = installed and system.is_here and _run(system.state).returncode == 0
    if as_json:
        pid = owner.get("pid") if owner else None
        print_json("service.status/1", {"file": str(system.file), "installed": installed, "active": runs, "pid": pid})
        return
    click.echo(f"file      {system.file}{'' if installed else ' (not installed)'}")
    click.echo(f"service   {'active' if runs else 'not active' if system.is_here else f'{system.program} is not here'}")
    click.echo(f"process   {owner['pid']} since {owner['since']}" if owner else "process   none")


async def _service(ctx: click.Context, paths: Sequence[str]) -> Service:
    """Return what is to run, when all of it can; bundles that are files by their absolute path."""
    import os

    from amplifier_core.errors import BundleValidationError

    from ..paths import data_home, project_of
    from ..service.units import Service

    plugins, settings = plugins_of(ctx), settings_here()
    chosen = [chosen_bundle(path, settings) for path in paths or (None,)]
    bundles = [await bundle_at(path, plugins) for path in chosen]
    for bundle in bundles:
        refuse_what_cannot_run(bundle, plugins)
        if not bundle.background_sessions:
            raise BundleValidationError(f"{bundle.source_path or bundle.name}: declares no background_sessions")
    return Service(
        tuple(map(_from_anywhere, chosen)),
        tuple(project_of(bundle.base_path) for bundle in bundles),
        data_home().absolute(),
        bool(os.environ.get("AMPLIFIER_HOME")),
    )


def _from_anywhere(bundle: str) -> str:
    """Return a file by its absolute path; a URL or a registered name stays what it is."""
    path = Path(bundle).expanduser()
    return str(path.resolve()) if path.exists() else bundle


def _text(wanted: Service) -> str:
    from ..service.units import launchd_plist, systemd_unit

    try:
        return launchd_plist(wanted) if sys.platform == "darwin" else systemd_unit(wanted)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _write(file: Path, text: str) -> None:
    from ..files import write_whole

    try:
        write_whole(file, text)
    except OSError as error:
        raise ServiceFailed(f"{file} cannot be written: {error.strerror}. Print it instead, with: --print") from error
    click.echo(f"{file} is written", err=True)


def _list(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        click.echo(f"  {' '.join(command)}", err=True)


def _told(system: System, commands: Sequence[Sequence[str]]) -> None:
    """Tell the service manager; where it is not here, say what to type where it is. Raises `ServiceFailed`."""
    if not system.is_here:
        click.echo(f"{system.program} is not here. Where it is, type:", err=True)
        _list(commands)
        return
    for number, command in enumerate(commands):
        done = _run(command)
        if done.returncode:
            left = "\n".join(f"  {' '.join(each)}" for each in commands[number:])
            said = done.stderr.strip() or f"it ended with {done.returncode}"
            raise ServiceFailed(f"{' '.join(command)}: {said}\nMend that, then type:\n{left}")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(list(command), 1, "", str(error))
