"""`amplifier bundle tree`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import exits
from ..app import chosen_bundle, json_option, known_bundles, plugins_of, settings_here
from ..output import console, print_json

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from ...bundles.includes import IncludedBundle


@click.command()
@click.argument("bundle", required=False)
@json_option
@click.pass_context
def tree(ctx: click.Context, bundle: str | None, as_json: bool) -> None:
    """Draw which bundles BUNDLE (default: bundle.md here) includes, and which those do; later ones win.

    One that stands there before is marked and not drawn again. Ends with 4 when one cannot be read.
    """
    from ...bundles.includes import include_tree

    settings = settings_here()
    root = include_tree(chosen_bundle(bundle, settings), registry=known_bundles(plugins_of(ctx), settings))
    if as_json:
        print_json("bundle.tree/1", root.as_dict())
    else:
        console().print(_drawn(root))
    if not root.is_whole():
        ctx.exit(exits.USAGE)


def _drawn(root: IncludedBundle) -> Tree:
    from rich.tree import Tree

    drawn = Tree(_line(root, root=True), guide_style="dim")
    waiting = [(drawn, root)]
    while waiting:
        branch, node = waiting.pop()
        waiting.extend((branch.add(_line(each)), each) for each in node.includes)
    return drawn


def _line(node: IncludedBundle, *, root: bool = False) -> Text:
    from rich.text import Text

    from ...bundles.paths import is_path
    from ...sources import shown

    line = Text.assemble((node.name or shown(node.source), "bold"))
    if node.version:
        line.append(f" {node.version}", "dim")
    if node.name and node.source != node.name and not (root or is_path(node.source)):
        line.append(f"  {shown(node.source)}")
    if node.file:
        line.append(f"  {node.file}", "dim")
    if node.repeated:
        line.append("  included above", "yellow")
    if node.problem:
        line.append(f"  {' '.join(node.problem.split())}", "red")
    return line
