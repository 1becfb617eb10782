"""Run `amplifier store copy`: copy everything of a store into another one."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .app import json_option, plugins_of, read_settings_here
from .output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.store_transfer import Copied, Progress

SETTINGS = "settings"
"""Stands for the store of the settings."""

_STEPS = {"read": "reading", "copy": "copying", "compare": "comparing"}


@click.command(
    short_help="Copy everything into another, empty store.", epilog="Example: amplifier store copy sqlite postgres"
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--from-config", metavar="KEY=VALUE", multiple=True, help="Open FROM with this; several times for more.")
@click.option("--to-config", metavar="KEY=VALUE", multiple=True, help="Open TO with this: dsn=env:AMPLIFIER_DSN.")
@json_option
@click.pass_context
def copy(
    ctx: click.Context,
    source: str,
    target: str,
    from_config: Sequence[str],
    to_config: Sequence[str],
    as_json: bool,
) -> None:
    """Copy everything from the store FROM into the empty store TO, and compare both.

    Each is the path of a SQLite file (with a / or .db), the name of a storage (sqlite, postgres), or `settings`: the
    store that the settings name. Stop everything that uses the two before. After an interruption, the same command
    goes on where it was. FROM stays as it is.
    """
    from contextlib import closing

    from amplifier_core.store_transfer import copy_store

    from ..sessions.lock import owner_lock
    from ..sessions.presence import refuse_use
    from ..sessions.storages import open_transfer

    plugins = plugins_of(ctx)
    chosen, wanted = _choose(source, from_config, plugins), _choose(target, to_config, plugins)
    with (
        owner_lock({"bundles": ["amplifier store copy"], "projects": [], "socket": ""}),
        closing(open_transfer(plugins, chosen)) as old,
        closing(open_transfer(plugins, wanted)) as new,
        closing(Shown(quiet=ctx.obj["quiet"])) as shown,
    ):
        if os.path.realpath(old.place) == os.path.realpath(new.place):
            raise click.UsageError("FROM and TO are the same store")
        refuse_use(old)
        refuse_use(new)
        copied = copy_store(old, new, shown.show)
    if as_json:
        print_json("store.copy/1", {"from": old.place, "to": new.place, **asdict(copied)})
    else:
        _print(copied)
        _explain(old.place, new.place, wanted, copied)


class Shown:
    """Progress on stderr: one line that moves at a terminal, else a line for each kind."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._moves = sys.stderr.isatty()
        self._line = ""

    def show(self, progress: Progress) -> None:
        """Show how far the copy is."""
        done = progress.rows == progress.total
        if self._quiet or not (self._moves or (done and progress.step == "copy" and progress.rows)):
            return
        total = "" if done or progress.total is None else f" of {progress.total:,}"
        line = f"{_STEPS[progress.step]} {progress.kind.replace('_', ' ')}: {progress.rows:,}{total}"
        if line != self._line:
            self._line = line
            click.echo(f"\r\x1b[K{line}" if self._moves else line, nl=not self._moves, err=True)

    def close(self) -> None:
        """Clear the moving line."""
        if self._moves and not self._quiet:
            click.echo("\r\x1b[K", nl=False, err=True)


def _choose(text: str, options: Sequence[str], plugins: Plugins) -> dict[str, Any]:
    """Return the storage that a text means, with its configuration. Raises `UnknownName`, `click.UsageError`."""
    from ..bundle.packages import OURS
    from ..sessions.storages import DEFAULT_STORAGE
    from .config import read_value

    named = _setting()
    config: dict[str, Any] = dict(named["config"])
    name = next((each for each in (text, f"storage-{text}") if each in plugins.storages), None)
    if text == SETTINGS:
        name = named["name"]
    elif name is None and (os.sep in text or text.endswith(".db") or Path(text).exists()):
        name, config = DEFAULT_STORAGE, {"path": str(Path(text).expanduser().absolute())}
    elif name != named["name"]:
        config = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise click.UsageError(f"'{option}' has no value. Write it as in: dsn=env:AMPLIFIER_DSN")
        config[key] = read_value(value)
    if name is None:
        name = f"storage-{text}" if f"storage-{text}" in OURS else text
    return {"name": name, "config": config}


def _setting() -> dict[str, Any]:
    """Return the name and the configuration of the storage of the settings."""
    setting: Any = read_settings_here().get("storage")
    return {"name": setting, "config": {}} if isinstance(setting, str) else {"config": {}, **setting}


def _print(copied: Copied) -> None:
    rows = [
        (kind.replace("_", " "), f"{total.rows:,}", total.digest[:16])
        for kind, total in copied.totals.items()
        if total.rows
    ]
    print_table(("KIND", "ROWS", "DIGEST"), rows, empty="", leave_out=("DIGEST",))


def _explain(old: str, new: str, wanted: dict[str, Any], copied: Copied) -> None:
    """Say on stderr what is not there, and how to use the new store."""
    import json
    import shlex

    if copied.left_out:
        click.echo(f"Not kept by {new}: {', '.join(copied.left_out)}", err=True)
    what = "was copied before, and is the same" if copied.was_there else "is copied, and the same"
    click.echo(f"Everything {what}. The old store stays as it is: {old}", err=True)
    if wanted != _setting():
        value = shlex.quote(json.dumps(wanted, ensure_ascii=False)) if wanted["config"] else wanted["name"]
        click.echo(f"Use the new one with: amplifier config set storage {value}", err=True)
