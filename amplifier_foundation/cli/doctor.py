"""Run `amplifier doctor`: say what protects this machine, and what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..cli import exits
from .app import json_option, plugins_of, use_store
from .loops import run_async
from .output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_core.plugins import Plugins

    from ..security.checkup import Finding


@click.command(epilog="Example: amplifier doctor")
@click.option("--acp", "only", flag_value="acp", help="Say only whether an editor can use this agent (amplifier-acp).")
@json_option
@click.pass_context
def doctor(ctx: click.Context, only: str | None, as_json: bool) -> None:
    """Say what protects this machine and what does not, each with its remedy.

    It looks at trust, permissions, the store and its disk, the sandbox, keys, the modes of files, the ports of
    background sessions, proxies and certificates, who is told when a session needs a person, and events that wait for
    a folder that is gone or out of reach. It ends with 1 when something is weak. A protection that is `off` is not in
    use.
    """
    from amplifier_core.plugins import load_plugins

    from ..packages.lock import LockUnreadable
    from ..security.checkup import check_plugins, dump, find_all

    failure: LockUnreadable | None = None
    try:
        plugins = plugins_of(ctx)
    except LockUnreadable as error:
        failure, plugins = error, load_plugins(safe_mode=True)
    if only is not None and only not in plugins.registry_of("checkup"):
        raise click.UsageError(f"no package offers the check '{only}'. Install it with: pip install amplifier-{only}")
    findings = list(check_plugins(plugins, only)) if only is not None else [*find_all(plugins), *_check_packages()]
    is_missing = [each.state for each in findings if each.part == "store"] == ["off"]
    if only is None and failure is None and not is_missing:  # a look for events makes a store that is not there
        findings += run_async(_check_events(plugins))
    if as_json:
        print_json("doctor/1", dump(findings))
    else:
        print_table(
            ("PART", "STATE", "FACT", "REMEDY"),
            [[*each[:3], each.remedy or "-"] for each in findings],
            empty="",
            wrap=("FACT", "REMEDY"),
            leave_out=("REMEDY",),
        )
    if failure is not None:
        raise failure
    if any(each.state == "weak" for each in findings):
        ctx.exit(exits.FAILED)


def _check_packages() -> Iterator[Finding]:
    """Yield the packages of plugins whose requirements are not met."""
    from amplifier_core.entry_points import find_entry_points

    from ..packages.report import GROUPS
    from ..packages.requirements import find_unmet
    from ..security.checkup import Finding

    for dist in sorted({entry.dist.name for group in GROUPS for entry in find_entry_points(group)}):
        if unmet := find_unmet(dist):
            yield Finding("packages", "weak", f"{dist} needs {', '.join(unmet)}", f"pip install --upgrade {dist}")


async def _check_events(plugins: Plugins) -> list[Finding]:
    """Return the queues whose events wait for a folder that is gone; a store that cannot be read is a finding, too."""
    from amplifier_core.cancellation import own_failure
    from amplifier_core.storage import DurableStore

    from ..background.undeclared import find_stranded
    from ..security.checkup import Finding
    from ..sessions.failures import describe_failure

    try:
        async with use_store(plugins) as store:
            await store.sessions(limit=1)
            stranded = await find_stranded(store) if isinstance(store, DurableStore) else []
    except BaseException as error:  # of any storage
        told = describe_failure(own_failure(error))
        return [Finding("events", "weak", f"nobody knows whether events wait in vain: {told}")]
    return [Finding("events", "weak", each.fact, each.remedy) for each in stranded]
