"""Run `amplifier plugin disable` and `enable`: durable settings of the user."""

from __future__ import annotations

from contextlib import suppress

import click

from ..app import json_option
from ..output import print_json
from .listing import marks_folder


@click.command(epilog="Example: amplifier plugin disable hooks-logging")
@click.argument("name")
@json_option
def disable(name: str, as_json: bool) -> None:
    """Never load the plugin or module NAME, or all of the package NAME, in any project, until it is enabled."""
    from ...packages.checking import find_package
    from ...packages.gate import PROGRAM

    entries = [entry for _, entry in find_package(name)]
    names = [entry.name for entry in entries if entry.name == name] or [entry.name for entry in entries]
    if entries[0].dist.name == PROGRAM:
        raise click.UsageError(f"'{name}' is a part of the program, and cannot be disabled")
    _change(names, as_json, is_disabled=True)


@click.command(epilog="Example: amplifier plugin enable hooks-logging")
@click.argument("name")
@json_option
def enable(name: str, as_json: bool) -> None:
    """Load the plugin or module NAME, or all of the package NAME, again; also one that took too long to load."""
    from amplifier_core.errors import UnknownName

    from ...packages.checking import find_package

    names = [name]
    with suppress(UnknownName):  # it was uninstalled
        entries = [entry for _, entry in find_package(name)]
        names = [entry.name for entry in entries if entry.name == name] or [entry.name for entry in entries]
    _change(names, as_json, is_disabled=False)


def _change(names: list[str], as_json: bool, *, is_disabled: bool) -> None:
    """Write the setting, and tell the names that are disabled now."""
    from amplifier_core.plugin_marks import slow_mark

    from ...security.session_mark import refuse_in_session
    from ...security.trust import changing_settings
    from ...sessions.lock import running_owners
    from ...settings.writing import change_list

    verb = "disable" if is_disabled else "enable"
    refuse_in_session(f"plugin {verb}")
    names = list(dict.fromkeys(names))  # a module and a plugin of one package may share a name
    with changing_settings():
        before, after = change_list(
            *("user", "disabled_plugins"),
            lambda now: sorted({*map(str, now), *names} if is_disabled else {*map(str, now)} - {*names}),
        )
    if not is_disabled and (folder := marks_folder()) is not None:
        for name in names:
            slow_mark(folder, name).unlink(missing_ok=True)
    if as_json:
        print_json(f"plugin.{verb}/1", {"names": names, "disabled_plugins": after})
        return
    for name in names:
        was = (name in before) == is_disabled
        click.echo(f"{name} {'was' if was else 'is'} {verb}d")
    for owner in running_owners() if after != before else ():
        folders = ", ".join(sorted(set(owner.get("projects") or ())))
        text = f"Process {owner['pid']} in {folders} goes on with the plugins of its start"
        click.echo(f"{text}. Start it anew there: amplifier stop --all; amplifier up", err=True)
