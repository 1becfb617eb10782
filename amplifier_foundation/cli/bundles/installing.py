"""Run `amplifier bundle install`."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import BundleError

from ...cli import exits
from ...operations.loading import find_left_out_here, known_bundles
from ..app import confirm, json_option, plugins_of, read_bundle_at, read_settings_here, yes_option
from ..completing import complete_bundles
from ..output import plural, print_json
from ..running.terminal import tell

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins

    from ...bundle.installing import Missing


@click.command(epilog="Example: amplifier bundle install --dry-run")
@click.argument("bundle", required=False, shell_complete=complete_bundles)
@yes_option
@click.option("--dry-run", is_flag=True, help="Print the commands, and run none.")
@json_option
@click.pass_context
def install(ctx: click.Context, bundle: str | None, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Install the missing packages of BUNDLE (default: bundle.md here) into the Python of this program.

    Included bundles, agents, and the local bundles of background sessions count too. The commands are printed first and
    run after you confirm. A module comes from the `source` in the bundle, else from the `package` named there; the
    project's own modules need neither. The name of a package is never guessed.
    """
    from ...bundle.installing import pip_command
    from ...sources import redact_uris

    missing = find_missing(bundle, plugins_of(ctx))
    packages = dict.fromkeys(each.requirement for each in missing if each.requirement)  # one may hold several modules
    commands = {package: redact_uris(shlex.join(pip_command(package))) for package in packages}
    if not as_json:
        if not missing:
            click.echo("Nothing is missing.")
        for each in missing:
            in_bundle = "; name its package beside it: 'package: NAME'"
            remedy = "; no package of the project has it" if each.kind == "storage" else in_bundle
            hint = "" if each.requirement else each.suggestion or remedy
            click.echo(f"{each.place}: {each.kind} '{each.name}' is not installed{hint}", err=True)
        for command in commands.values():
            click.echo(command)
    failed = ""
    wanted = bool(packages) and not dry_run and confirm(f"Install {plural(len(packages), 'package')}?", yes=yes)
    if wanted:
        failed = next(filter(None, map(_install, packages)), "")
    unknown = [each.name for each in missing if not each.requirement]
    if unknown and not failed and not dry_run:
        failed = f"no package is known for {', '.join(unknown)}"
    if as_json:
        listed = [
            {
                "kind": each.kind,
                "name": each.name,
                "place": str(each.place),
                "command": commands.get(each.requirement, ""),
                "suggestion": each.suggestion,
            }
            for each in missing
        ]
        print_json("bundle.install/1", {"missing": listed, "installed": wanted and not failed})
    if failed:
        click.echo(f"amplifier: {failed}", err=True)
        ctx.exit(exits.FAILED)


def find_missing(path: str | None, plugins: Plugins) -> list[Missing]:
    """Return the missing packages of a bundle, of the local bundles below it, and of the settings.

    Raises `BundleError`, and the errors of `read_settings_here`.
    """
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.hookspecs import GROUP

    from ...bundle.check import local_workers, names_of_modules
    from ...bundle.installing import Missing, missing_from
    from ...bundle.load import read_bundle
    from ...bundle.packages import requirement_of, suggest
    from ...documents.positions import Place

    settings = read_settings_here()
    bundles, names = [read_bundle_at(path, plugins, settings)], known_bundles(plugins, settings)
    for name, source in local_workers(bundles[0]):
        try:
            leave_out = find_left_out_here(source, plugins, names)
            bundles.append(read_bundle(source, registry=names, leave_out=leave_out))
        except BundleError as error:  # `validate` shows all of it
            tell(f"background session '{name}' is left out: {error}")
    triggers = {*plugins.triggers, *(row.name for row in plugins.rows)}  # a disabled one is installed
    missing = missing_from(bundles, modules=names_of_modules(), triggers=triggers)
    chosen = settings.get("storage")
    storage = chosen if isinstance(chosen, str) else str(chosen["name"])
    if storage not in plugins.storages and not find_entry_points(GROUP, storage):  # a disabled one is installed
        wanted = requirement_of(storage)
        suggestion = "" if wanted else suggest("storage", storage, plugins.storages)
        missing.append(Missing("storage", storage, Place("settings", path="storage"), wanted, suggestion))
    return missing


def _install(requirement: str) -> str:
    """Install a package; return the last line of pip's output, '' on success."""
    import os
    from urllib.parse import urlsplit

    from amplifier_core.network import NetworkMisconfigured, read_proxies

    from ...bundle.installing import pip_command

    try:
        index = urlsplit(os.environ.get("PIP_INDEX_URL") or "https://pypi.org")
        read_proxies().find(index.scheme, index.hostname or "")  # pip would tell a part of a password
    except NetworkMisconfigured as error:
        return str(error)
    last = "pip failed without output"
    with subprocess.Popen(
        pip_command(requirement),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            click.echo(line, err=True, nl=False)
            last = line.strip() or last
    return last if process.returncode else ""
