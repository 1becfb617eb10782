"""Run `amplifier permission`: say what happens to a tool call, and why."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import BundleNotFoundError

from ..cli import exits
from .app import bundle_option, json_option, load_bundle_at, plugins_of, read_settings_here
from .loops import run_reading
from .output import print_json, print_table

if TYPE_CHECKING:
    from amplifier_core.permissions import Decision, Policy

logger = logging.getLogger(__name__)

_USUAL = (
    ("command", ("bash", "shell", "command", "exec", "terminal")),
    ("url", ("fetch", "http", "web", "url", "browse")),
    ("event", ("emit",)),
    ("agent", ("delegate", "spawn")),
)
"""The argument that is meant by the text in the brackets, by a part of the tool's name; else it is a path."""
_CODES = {"allow": exits.OK, "ask": exits.WAITING, "deny": exits.FAILED}


@click.group()
def permission() -> None:
    """Explain and list the permissions of tool calls."""


@permission.command()
@click.argument("call")
@bundle_option
@json_option
@click.pass_context
@run_reading
async def test(ctx: click.Context, call: str, bundle_path: str | None, as_json: bool) -> int:
    """Say whether CALL is allowed, asked or denied, and which rule decides.

    CALL is a tool with what it reaches, as in 'write_file(.git/config)', 'bash(git status)', or with its arguments as
    JSON: 'write_file({"path": "a.txt"})'. Exit code: 0 allowed, 3 asked, 1 denied.
    """
    from amplifier_core.permissions import PermissionGate

    tool, arguments = _read_call(call)
    policy = await _policy_here(ctx, bundle_path)
    decision = PermissionGate(policy, Path.cwd()).decide(tool, arguments, await _find_accesses(tool))
    if as_json:
        print_json("permission.test/1", {"tool": tool, "arguments": arguments, **_dump(decision)})
    else:
        click.echo(f"{decision.effect}: {_explain(decision)}")
    return _CODES[decision.effect]


@permission.command(name="list")
@bundle_option
@json_option
@click.pass_context
@run_reading
async def list_rules(ctx: click.Context, bundle_path: str | None, as_json: bool) -> None:
    """List the modes and rules that hold here, the strictest layer counts."""
    policy = await _policy_here(ctx, bundle_path)
    rows = [(layer.source, "mode", str(layer.mode), "") for layer in policy.layers if layer.mode]
    rows += [(layer.source, str(rule.effect), str(rule), rule.place) for layer in policy.layers for rule in layer.rules]
    if as_json:
        names = ("source", "effect", "rule", "place")
        print_json("permission.list/1", {"rules": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    print_table(("FROM", "EFFECT", "RULE", "PLACE"), rows, empty="No rules; the defaults hold.")


async def _find_accesses(tool: str) -> Any:
    """Return what an installed module `tool-<tool>` says of the calls of its tool; None without one."""
    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.loader import ModuleLoader

    from ..bundle.check import names_of_modules

    module = f"tool-{tool.replace('_', '-')}"
    if module not in names_of_modules():
        return None
    coordinator = ModuleCoordinator(session_id="permission")
    coordinator.register_capability("session.working_dir", str(Path.cwd()))
    try:
        await (await ModuleLoader().load(module, {}))(coordinator)
        return getattr(coordinator.get("tools", tool), "accesses", None)
    except Exception as error:  # it is the code of others; the usual names of arguments count then
        logger.warning("%s cannot say what its calls reach: %s", module, error)
        return None
    finally:
        await coordinator.cleanup()


async def _policy_here(ctx: click.Context, bundle_path: str | None) -> Policy:
    """Return the policy of the settings and of the bundle here; without a bundle, of the settings alone."""
    from ..bundle.permissions import bundle_layer
    from ..security import read_policy

    read_settings_here()
    policy = read_policy()
    try:
        layer = bundle_layer(await load_bundle_at(bundle_path, plugins_of(ctx), runs=False))
    except BundleNotFoundError:
        if bundle_path is not None:
            raise
        return policy
    return policy.below(layer) if layer is not None else policy


def _read_call(text: str) -> tuple[str, dict[str, Any]]:
    tool, bracket, rest = text.strip().partition("(")
    if not tool or (bracket and not rest.endswith(")")):
        raise click.UsageError(f"'{text}' is no call; write it as in 'write_file(.git/config)'")
    given = rest.removesuffix(")")
    if given.lstrip().startswith("{"):
        try:
            arguments = json.loads(given)
        except ValueError as error:
            raise click.UsageError(f"the arguments of '{tool}' are no JSON: {error}") from None
        return tool, arguments
    usual = next((name for name, parts in _USUAL if any(part in tool for part in parts)), "path")
    return tool, {usual: given} if given else {}


def _dump(decision: Decision) -> dict[str, Any]:
    rule = decision.rule
    return {
        "effect": decision.effect,
        "reason": decision.reason,
        "rule": str(rule) if rule is not None else None,
        "source": decision.source or None,
        "place": rule.place or None if rule is not None else None,
    }


def _explain(decision: Decision) -> str:
    source = f" of the {decision.source}" if decision.source else ""
    place = f", {decision.rule.place}" if decision.rule is not None and decision.rule.place else ""
    return f"{decision.reason}{source}{place}"
