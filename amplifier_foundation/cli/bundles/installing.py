"""`amplifier bundle install`."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import BundleError

from .. import exits
from ..app import confirmed, json_option, plugins_of, settings_here, yes_option
from ..output import plural, print_json
from .loading import bundle_as_it_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_core.plugins import Plugins

    from ...bundles.installing import Missing
    from ...bundles.model import Bundle


@click.command()
@click.argument("bundle", required=False)
@yes_option
@click.option("--dry-run", is_flag=True, help="Print the commands, and run none.")
@json_option
@click.pass_context
def install(ctx: click.Context, bundle: str | None, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Install what BUNDLE (default: bundle.md here) names and is not here, where this program runs.

    The bundles that it includes, its agents, and the local bundles of its background sessions count too. The commands
    are printed first, and run when you say so. A source of the bundle is what provides a module, else the index.
    """
    missing = _missing(bundle, plugins_of(ctx))
    if not as_json:
        _print(missing)
    failed = ""
    wanted = bool(missing) and not dry_run and confirmed(f"Install {plural(len(missing), 'package')}?", yes=yes)
    if wanted:
        failed = _install(missing)
    if as_json:
        done = wanted and not failed
        print_json("bundle.install/1", {"missing": [_as_json(each) for each in missing], "installed": done})
    if failed:
        click.echo(f"amplifier: {failed}", err=True)
        ctx.exit(exits.FAILED)


def _missing(path: str | None, plugins: Plugins) -> list[Missing]:
    from ...bundles.check import names_of_modules
    from ...bundles.installing import Missing, missing_from
    from ...bundles.positions import Place

    settings = settings_here()
    bundle = bundle_as_it_runs(path, plugins, settings)
    bundles = [bundle, *_workers(bundle)]
    missing = missing_from(bundles, modules=names_of_modules(), triggers=set(plugins.triggers))
    storage = str(settings.get("storage"))
    if storage not in plugins.storages:
        missing.append(Missing("storage", storage, Place("settings", path="storage"), (f"amplifier-{storage}",)))
    return missing


def _workers(bundle: Bundle) -> Iterator[Bundle]:
    """Yield the local bundles of the background sessions; one that is broken is a matter of `validate`."""
    from ...bundles.check import local_workers
    from ...bundles.load import read_bundle

    for name, source in local_workers(bundle):
        try:
            yield read_bundle(source)
        except BundleError as error:
            click.echo(f"background session '{name}' is left out: {error}", err=True)


def _print(missing: Sequence[Missing]) -> None:
    if not missing:
        click.echo("Nothing is missing.")
    for each in missing:
        click.echo(f"{each.place}: {each.kind} '{each.name}' is not installed", err=True)
    for each in _once_each(missing):
        click.echo(_shown(each))


def _once_each(missing: Sequence[Missing]) -> list[Missing]:
    """Return one of each package: a repository may hold several modules."""
    return list({each.requirements: each for each in missing}.values())


def _shown(missing: Missing) -> str:
    from ...bundles.installing import pip_command
    from ...sources import shown

    return " || ".join(shown(shlex.join(pip_command(requirement))) for requirement in missing.requirements)


def _as_json(missing: Missing) -> dict[str, Any]:
    about = {"kind": missing.kind, "name": missing.name, "place": str(missing.place)}
    return {**about, "command": _shown(missing)}


def _install(missing: Sequence[Missing]) -> str:
    """Run pip for each package; return the last line of the first that failed, or nothing."""
    from ...bundles.installing import pip_command

    for each in _once_each(missing):
        said = ""
        for requirement in each.requirements:
            said = _run(pip_command(requirement))
            if not said:
                break
        if said:
            return said
    return ""


def _run(command: Sequence[str]) -> str:
    """Run a command and show what it says on stderr; return its last line when it fails."""
    last = "pip failed and said nothing"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as process:
        for line in process.stdout or ():
            click.echo(line, err=True, nl=False)
            last = line.strip() or last
    return last if process.returncode else ""
