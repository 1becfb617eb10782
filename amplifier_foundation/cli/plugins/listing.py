"""Run `amplifier plugin list` and `show`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import StoreUnavailable, UnknownName

from ..app import json_option, plugins_of
from ..output import print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from ...packages.listing import Listed

load_option = click.option("--load", "loads", is_flag=True, help="Load the plugins, to show what they offer.")


@click.command("list", epilog="Example: amplifier plugin list --load")
@load_option
@json_option
@click.pass_context
def list_(ctx: click.Context, loads: bool, as_json: bool) -> None:
    """List the installed plugins, modules and commands; nothing of them is imported without --load."""
    listed = _list(ctx, loads=loads)
    if as_json:
        plugins = [asdict(each) for each in listed if each.group == "amplifier"]
        modules = [asdict(each) for each in listed if each.group == "amplifier.modules"]
        others = [asdict(each) for each in listed if each.group not in ("amplifier", "amplifier.modules")]
        print_json("plugin.list/1", {"plugins": plugins, "modules": modules, "others": others})
        return
    headings: tuple[str, ...] = ("NAME", "KIND", "FROM", "VERSION", "STATUS", "CAUSE")
    rows = [[each.name, each.kind, each.dist, each.version, each.status, each.error] for each in listed]
    if loads:
        headings = (*headings[:2], "OFFERS", "MS", *headings[2:])
        facts = [[", ".join(each.offers) or "-", str(each.milliseconds or "-")] for each in listed]
        rows = [[*row[:2], *more, *row[2:]] for row, more in zip(rows, facts, strict=True)]
    print_table(
        headings,
        rows,
        empty="No plugins.",
        shrink=("OFFERS", "CAUSE"),
        leave_out=("OFFERS", "MS", "KIND", "VERSION", "CAUSE", "FROM", "STATUS"),
    )


@click.command(epilog="Example: amplifier plugin show trigger-timer --load")
@click.argument("name")
@load_option
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, loads: bool, as_json: bool) -> None:
    """Show the entry points with this NAME, or of the package NAME; nothing is imported without --load."""
    listed = _list(ctx, loads=loads)
    found = [each for each in listed if name in (each.name, each.dist)]
    if not found:
        raise UnknownName("plugin", name, {each.name for each in listed})
    if as_json:
        print_json("plugin.show/1", [asdict(each) for each in found])
        return
    for each in found:
        click.echo(f"{each.name}: {each.status}" + (f": {each.error}" if each.error else ""))
        facts = {
            "kind": each.kind,
            "package": f"{each.dist} {each.version}".strip(),
            "about": each.summary,
            "entry point": f"{each.target} ({each.group})",
            "offers": ", ".join(each.offers),
            "hooks": ", ".join(each.hooks),
            "load time": f"{each.milliseconds} ms" if each.milliseconds else "",
        }
        for label, fact in facts.items():
            if fact:
                click.echo(f"  {label + ':':<13}{fact}")


def _list(ctx: click.Context, *, loads: bool) -> list[Listed]:
    from ...packages.listing import add_loaded, list_packages

    listed = list_packages(marks_folder(), safe_mode=bool((ctx.obj or {}).get("safe_mode")))
    if loads:
        add_loaded(listed, plugins_of(ctx))
    return listed


def marks_folder() -> Path | None:
    """Return the folder of the marks of loaded plugins; None where there can be none."""
    from ...paths import data_home, make_private

    with suppress(StoreUnavailable):
        return make_private(data_home())
    return None
