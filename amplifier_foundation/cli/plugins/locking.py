"""Run `amplifier plugin lock`."""

from __future__ import annotations

from pathlib import Path

import click

from .. import exits
from ..app import json_option, project_here
from ..output import print_json


@click.command(epilog="Example: amplifier plugin lock")
@click.option("--check", "checks", is_flag=True, help="Change nothing; fail when a package is not as pinned.")
@json_option
def lock(checks: bool, as_json: bool) -> int:
    """Pin the installed packages of plugins for this project: names, versions and hashes, in .amplifier/plugins.lock.

    From then on a package that changed, or was not pinned, is not loaded in this project.
    """
    from ...packages.listing import list_packages
    from ...packages.lock import write_lock
    from ...security.session_mark import refuse_in_session
    from ...settings.places import FOLDER, project_folder

    path = (project_folder() or Path(project_here())) / FOLDER / "plugins.lock"
    if checks:
        refused = [row for row in list_packages() if row.status == "refused"]
        if as_json:
            print_json("plugin.lock/1", {"path": str(path), "refused": {row.name: row.error for row in refused}})
        else:
            for row in refused:
                click.echo(f"{row.name} of {row.dist} {row.version}: {row.error}")
        return exits.CONFLICT if refused else exits.OK
    refuse_in_session("plugin lock")
    changes = write_lock(path)
    if as_json:
        print_json("plugin.lock/1", {"path": str(path), **changes})
        return exits.OK
    click.echo(path)
    for what, names in changes.items():
        if names and what != "same":
            click.echo(f"{what}: {', '.join(names)}", err=True)
    return exits.OK
