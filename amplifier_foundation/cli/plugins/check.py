"""Run `amplifier plugin check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .. import exits
from ..app import json_option
from ..numbers import NumberRange
from ..output import print_json

if TYPE_CHECKING:
    from ...packages.report import Report


def _read_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("must be a JSON object, such as '{\"seconds\": 1}'")
    return found


@click.command(epilog="Example: amplifier plugin check amplifier-trigger-timer")
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@click.option("--config", type=_read_object, metavar="JSON", help="Configuration of what is checked, as JSON.")
@click.option("--timeout", type=NumberRange(min=1), default=60.0, show_default=True, help="Seconds for each check.")
@json_option
def check(packages: tuple[str, ...], config: dict[str, Any] | None, timeout: float, as_json: bool) -> int:
    """Check installed packages against their contracts, each plugin in a process of its own.

    PACKAGE is the name of a distribution, or of a plugin of it. The code of the package runs.
    """
    from ...cli import _COMMANDS
    from ...packages.checking import IMPORT_SECONDS, check_package

    reports = [
        check_package(
            package,
            config=config,
            import_seconds=min(timeout, IMPORT_SECONDS),
            contract_seconds=timeout,
            commands=list(_COMMANDS),
        )
        for package in packages
    ]
    if as_json:
        print_json("plugin.check/1", [report.to_json() for report in reports])
    else:
        for report in reports:
            _print(report)
    return exits.OK if all(report.is_healthy for report in reports) else exits.FAILED


def _print(report: Report) -> None:
    click.echo(f"{report.dist} {report.version}".strip())
    for entry in report.entries:
        names = [f"{kind} {', '.join(found)}" for kind, found in entry.offers.items()]
        time = "" if entry.seconds is None else f" ({entry.seconds * 1000:.0f} ms)"
        told = f": {'; '.join(names)}" if names else ""
        click.echo(f"  {entry.name} ({entry.kind}){told}{time}")
        for finding in entry.findings:
            click.echo(f"    {finding.level}: {finding.text}")
    broken = sum(finding.level == "error" for entry in report.entries for finding in entry.findings)
    click.echo("  it keeps its contracts" if not broken else f"  errors: {broken}")
