"""Run `amplifier trust` and `amplifier untrust`: say whose code may run here."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import BundleNotFoundError

from ..cli import exits
from ..documents.safe_text import plain_line
from ..operations.loading import known_bundles
from .app import json_option, plugins_of
from .output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from ..security.trust import NotTrusted
    from ..security.trust_ledger import Ledger


@click.command(epilog="Example: amplifier trust --list")
@click.argument("target", required=False, metavar="[FOLDER|BUNDLE]")
@click.option("--list", "lists", is_flag=True, help="List what is trusted, and whether it has changed.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_context
def trust(ctx: click.Context, target: str | None, lists: bool, yes: bool, as_json: bool) -> None:
    """Let BUNDLE, or the bundle, settings and MCP servers of FOLDER (default: this one) run their code.

    The skills and commands of FOLDER are trusted with them.

    It shows what would run, or what has changed, and asks at a terminal. Every later change is asked for again.
    """
    from ..security.session_mark import refuse_in_session
    from ..security.trust import trust_content
    from .questions import ask_to_confirm
    from .trusting import show_content

    if lists:
        _list(as_json=as_json)
        return
    refuse_in_session("trust")
    found = _find_untrusted(ctx, target or ".")
    for error in found:
        show_content(error)
    if found and not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here; look at it, and say yes with --yes")
    if found and not yes and not ask_to_confirm("Trust it?"):
        ctx.exit(exits.CANCELLED)
    for error in found:
        assert error.content is not None
        trust_content(error.content)
    if as_json:
        print_json("trust/1", {"trusted": [error.place for error in found]})
    elif not found:
        click.echo(plain_line(f"{target or Path.cwd()} is trusted already"), err=True)
    else:
        for error in found:
            click.echo(plain_line(f"{error.place} is trusted"))


@click.command(epilog="Example: amplifier untrust team")
@click.argument("target", required=False, metavar="[FOLDER|BUNDLE]")
@json_option
@click.pass_context
def untrust(ctx: click.Context, target: str | None, as_json: bool) -> None:
    """Take the trust back from a bundle and the settings of its project: those of FOLDER (default: this one)."""
    from ..security.trust_ledger import Ledger

    ledger = Ledger()
    places = _places_at(ledger, target or ".") or [_place_of(ctx, target or ".")]
    removed = [place for place in places if ledger.remove(place)]
    if as_json:
        print_json("untrust/1", {"removed": removed})
        return
    for place in places:
        said = "is not trusted any more" if place in removed else "is not trusted, nor with another bundle"
        click.echo(plain_line(f"{place} {said}"))


def _find_untrusted(ctx: click.Context, target: str) -> list[NotTrusted]:
    """Return what is not trusted at a target: a bundle, and the settings and MCP servers of a folder."""
    from ..security.trust import NotTrusted, check_settings, load_trusted
    from ..security.trust_servers import FILE, check_servers
    from ..security.trust_texts import find_untrusted_texts
    from ..settings import read_settings

    path = Path(target)
    if path.name == FILE and path.is_file():
        error = check_servers(path.parent, checks=True)
        return [] if error is None else [error]
    plugins, folder = plugins_of(ctx), path if path.is_dir() else None
    found: list[NotTrusted] = []
    if folder is not None:
        errors = check_settings(read_settings(folder), folder, checks=True), check_servers(folder, checks=True)
        found += [error for error in errors if error is not None]
        found += find_untrusted_texts(folder, checks=True)
    names, packages = _known(ctx, plugins)
    try:
        load_trusted(target, names=names, installed=packages, checks=True)
    except NotTrusted as error:
        found.append(error)
    except BundleNotFoundError:
        if not found and (folder is None or not any((folder / each).exists() for each in (".amplifier", FILE))):
            raise
    return found


def _place_of(ctx: click.Context, target: str) -> str:
    from ..bundle.references import find_bundle
    from ..security.trust_files import path_of

    return path_of(find_bundle(target, names=_known(ctx, plugins_of(ctx))[0]))


def _known(ctx: click.Context, plugins: Any) -> tuple[dict[str, str], list[str]]:
    from ..bundle.registry import BundleRegistry
    from .app import read_settings_here

    return known_bundles(plugins, read_settings_here()), BundleRegistry(plugins=plugins).folders_of_packages()


def _places_at(ledger: Ledger, target: str) -> list[str]:
    """Return the trusted places that a target names, also of a folder that is gone."""
    from ..security.trust import show_place, target_of
    from ..security.trust_files import path_of

    path = path_of(target) if "://" not in target else target
    real = os.path.realpath(target)
    return [
        place
        for place in ledger.places()
        if path == place or real == str(Path(place).parent) or target in (show_place(place), target_of(place))
    ]


def _list(*, as_json: bool) -> None:
    from ..security.trust import address_of
    from ..security.trust_ledger import Ledger, find_problem

    ledger, rows = Ledger(), list[dict[str, Any]]()
    for place in ledger.places():
        entry, changed = ledger.find(place), find_problem(ledger, place)
        assert entry is not None
        is_there = os.path.exists(place)  # noqa: PTH110 - a path raises for one on a dead mount
        state = "missing" if not is_there else "unchanged" if changed is None else "changed"
        since = timestamp(datetime.fromtimestamp(entry.since, UTC))
        rows.append({"place": address_of(place) or place, "files": len(entry.files), "since": since, "state": state})
    if as_json:
        print_json("trust.list/1", rows)
        return
    table = [(row["place"], str(row["files"]), row["since"], row["state"]) for row in rows]
    print_table(
        ("PLACE", "FILES", "SINCE", "STATE"),
        table,
        empty="Nothing is trusted yet.",
        leave_out=("FILES", "SINCE", "STATE"),
    )
