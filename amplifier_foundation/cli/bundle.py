"""`amplifier bundle`: check what people write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from . import exits
from .app import json_option, plugins_of, run_async
from .output import print_json

if TYPE_CHECKING:
    from ..bundles.problems import Problem


@click.group()
def bundle() -> None:
    """Check bundles."""


@bundle.command()
@click.argument("path", default="bundle.md")
@json_option
@click.pass_context
def validate(ctx: click.Context, path: str, as_json: bool) -> None:
    """Check a bundle and everything it names; print every problem with its line."""
    problems = run_async(_problems(ctx, path))
    errors = [problem for problem in problems if problem.severity == "error"]
    if as_json:
        print_json("bundle.validate/1", {"valid": not errors, "problems": [problem.as_dict() for problem in problems]})
    else:
        for problem in problems:
            click.echo(str(problem), err=True)
        if not errors:
            click.echo(f"{path}: valid")
    if errors:
        ctx.exit(exits.USAGE)


async def _problems(ctx: click.Context, path: str) -> list[Problem]:
    from ..bundles.check import check_bundle

    return await check_bundle(path, plugins_of(ctx))
