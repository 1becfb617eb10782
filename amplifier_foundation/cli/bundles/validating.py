"""Run `amplifier bundle validate`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import BundleError
from amplifier_core.utils.secrets import redact_text

from ...cli import exits
from ...operations.loading import find_left_out_here, known_bundles
from ..app import choose_bundle, json_option, plugins_of, read_settings_here
from ..completing import complete_bundles
from ..output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...documents.problems import Problem


@click.command(epilog="Example: amplifier bundle validate bundle.md --strict")
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...", shell_complete=complete_bundles)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "json", "sarif"]),
    help="text: each problem with its line of the file, the default at a terminal.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--codes", is_flag=True, help="List all codes and their meanings, and check nothing.")
@json_option
@click.pass_context
def validate(
    ctx: click.Context, bundles: tuple[str, ...], kind: str | None, strict: bool, codes: bool, as_json: bool
) -> None:
    """Check each BUNDLE (default: bundle.md here) and everything it names; print every problem with its place.

    BUNDLE is a file, a folder, a URL, a registered name, or name:path.
    """
    kind = "json" if as_json else kind
    if codes:
        from ...documents.problems import CODES
        from ...settings import CODES as OF_SETTINGS

        if kind == "json":
            print_json("bundle.validate.codes/1", {**CODES, **OF_SETTINGS})
        else:
            print_table(("CODE", "MEANING"), {**CODES, **OF_SETTINGS}.items(), empty="", wrap=("MEANING",))
        return
    from ...documents.problems import has_errors
    from .snippets import print_problem

    checked = _check(ctx, bundles, strict=strict)
    valid = {bundle: not has_errors(found) for bundle, found in checked.items()}
    found = dict.fromkeys(problem for problems in checked.values() for problem in problems)
    problems = [replace(each, file=redact_text(each.file), message=redact_text(each.message)) for each in found]
    if kind == "json":
        each = [{"bundle": bundle, "valid": is_valid} for bundle, is_valid in valid.items()]
        data = {"valid": all(valid.values()), "bundles": each}
        print_json("bundle.validate/1", {**data, "problems": [problem.as_dict() for problem in problems]})
    elif kind == "sarif":
        from importlib.metadata import version

        from ...documents.json_text import dump_json
        from ...documents.sarif import as_sarif

        click.echo(dump_json(as_sarif(problems, version("amplifier")), indent=2))
    else:
        for problem in problems:
            print_problem(problem, with_line=kind == "text" or sys.stderr.isatty())
        for bundle in filter(valid.get, valid):
            click.echo(redact_text(f"{bundle}: valid"))
    if not all(valid.values()):
        ctx.exit(exits.USAGE)


def _check(ctx: click.Context, bundles: Sequence[str], *, strict: bool) -> dict[str, list[Problem]]:
    """Return the problems of each bundle; a bundle that cannot be read is an error only if it is the only one."""
    from ...bundle.check import check_file
    from ...documents.positions import Place
    from ...documents.problems import error_at
    from ...sources import redact_uris

    plugins, settings = plugins_of(ctx), read_settings_here()
    names = known_bundles(plugins, settings)
    checked = {}
    for bundle in bundles or (choose_bundle(None, settings),):
        shown = redact_uris(bundle)
        try:
            leave_out = find_left_out_here(bundle, plugins, names)
            checked[shown] = check_file(bundle, plugins, registry=names, strict=strict, leave_out=leave_out)
        except BundleError as error:
            if len(bundles) < 2:
                raise
            checked[shown] = [error_at(Place(shown), "AMP108", str(error))]
    return checked
