"""`amplifier bundle validate`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import BundleError

from .. import exits
from ..app import chosen_bundle, json_option, known_bundles, plugins_of, settings_here
from ..output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...bundles.problems import Problem


@click.command()
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "json", "sarif"]),
    help="text: each problem with its line of the file, as a terminal gets it anyway.",
)
@click.option("--strict", is_flag=True, help="Take warnings for errors.")
@click.option("--codes", is_flag=True, help="Print what each code means, and check nothing.")
@json_option
@click.pass_context
def validate(
    ctx: click.Context, bundles: tuple[str, ...], kind: str | None, strict: bool, codes: bool, as_json: bool
) -> None:
    """Check each BUNDLE (default: bundle.md here) and everything it names; print every problem with its line.

    BUNDLE is a file, a folder, a URL, a registered name, or name:path.
    """
    kind = "json" if as_json else kind
    if codes:
        _print_codes(as_json=kind == "json")
        return
    checked = _check(ctx, bundles, strict=strict)
    if kind == "sarif":
        _print_sarif(checked)
    elif kind == "json":
        _print_json(checked)
    else:
        _print_text(checked, with_lines=kind == "text" or sys.stderr.isatty())
    if not all(_is_valid(problems) for problems in checked.values()):
        ctx.exit(exits.USAGE)


def _check(ctx: click.Context, bundles: Sequence[str], *, strict: bool) -> dict[str, list[Problem]]:

    plugins, settings = plugins_of(ctx), settings_here()
    names = known_bundles(plugins, settings)
    chosen = bundles or (chosen_bundle(None, settings),)

    def check(bundle: str) -> list[Problem]:
        from ...bundles.check import check_file
        from ...bundles.positions import Place
        from ...bundles.problems import error_at

        try:
            return check_file(bundle, plugins, registry=names, strict=strict)
        except BundleError as error:
            if len(chosen) == 1:
                raise
            return [error_at(Place(bundle), "AMP108", str(error))]

    return {bundle: check(bundle) for bundle in chosen}


def _is_valid(problems: Sequence[Problem]) -> bool:
    from ...bundles.problems import has_errors

    return not has_errors(problems)


def _once_each(checked: dict[str, list[Problem]]) -> list[Problem]:
    """Return the problems of all bundles: two of them may include the same broken one."""
    return list(dict.fromkeys(problem for problems in checked.values() for problem in problems))


def _print_text(checked: dict[str, list[Problem]], *, with_lines: bool) -> None:
    for problem in _once_each(checked):
        if with_lines:
            from .snippets import print_problem

            print_problem(problem)
        else:
            click.echo(str(problem), err=True)
    for bundle, problems in checked.items():
        if _is_valid(problems):
            click.echo(f"{bundle}: valid")


def _print_json(checked: dict[str, list[Problem]]) -> None:
    each = [{"bundle": bundle, "valid": _is_valid(problems)} for bundle, problems in checked.items()]
    problems = [problem.as_dict() for problem in _once_each(checked)]
    data: dict[str, Any] = {"valid": all(one["valid"] for one in each), "bundles": each, "problems": problems}
    print_json("bundle.validate/1", data)


def _print_sarif(checked: dict[str, list[Problem]]) -> None:
    from importlib.metadata import version

    from ...bundles.sarif import as_sarif

    click.echo(json.dumps(as_sarif(_once_each(checked), version("amplifier")), indent=2, ensure_ascii=False))


def _print_codes(*, as_json: bool) -> None:
    from ...bundles.problems import CODES
    from ...settings import CODES as OF_SETTINGS

    codes = {**CODES, **OF_SETTINGS}
    if as_json:
        print_json("bundle.validate.codes/1", codes)
    else:
        print_table(("CODE", "MEANING"), codes.items(), empty="")
