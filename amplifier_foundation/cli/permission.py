"""Run `amplifier permission`: say what happens to a tool call, and why."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import BundleNotFoundError

from ..cli import exits
from ..documents.problems import did_you_mean
from .app import bundle_option, json_option, load_bundle_at, plugins_of, read_settings_here
from .loops import run_reading
from .output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from amplifier_core.permissions import Decision, PermissionGate, Policy

    from ..bundle import Bundle

logger = logging.getLogger(__name__)

_USUAL = (
    ("command", ("bash", "shell", "command", "exec", "terminal")),
    ("url", ("fetch", "http", "web", "url", "browse")),
    ("event", ("emit",)),
    ("agent", ("delegate", "spawn")),
)
"""The argument that is meant by the text in the brackets, by a part of the name of a tool that is not installed."""
EXPLAINED = "permission.tool"
"""The capability with the name of the tool that is explained: nothing is called, and a stand-in for it is enough."""
_CODES = {"allow": exits.OK, "ask": exits.WAITING, "deny": exits.FAILED}


@click.group()
def permission() -> None:
    """Test and list the permissions of tool calls."""


@permission.command(epilog="Example: amplifier permission test 'write_file(.git/config)'")
@click.argument("call")
@bundle_option
@json_option
@click.pass_context
@run_reading
async def test(ctx: click.Context, call: str, bundle_path: str | None, as_json: bool) -> int:
    """Say whether CALL is allowed, asked or denied, and which rule decides.

    CALL is a tool with what it reaches, as in 'write_file(.git/config)', 'bash(git status)', or with its arguments as
    JSON: 'write_file({"path": "a.txt"})'. Exit code: 0 allowed, 3 asked, 1 denied, 4 for a tool that nobody offers.
    """
    from amplifier_core.permissions import PermissionGate

    name, given = _split_call(call)
    policy, bundle = await _read_here(ctx, bundle_path)
    confined = {each.get("module") for each in bundle.tools if each.get("sandbox")} if bundle is not None else set()
    gate = PermissionGate(policy, Path.cwd())
    tools = await _find_tools(name, confined, gate, bundle)
    if name not in tools and not _has_other_tools(bundle):
        raise click.UsageError(
            f"no installed module and no bundle here offers a tool '{name}'{did_you_mean(name, tools)}"
        )
    tool = tools.get(name)
    arguments = _read_arguments(name, given, tool)
    decision = gate.decide(name, arguments, getattr(tool, "accesses", None))
    if as_json:
        print_json("permission.test/1", {"tool": name, "arguments": arguments, **_dump(decision)})
    else:
        click.echo(f"{decision.effect}: {_explain(decision)}")
    return _CODES[decision.effect]


@permission.command(name="list", epilog="Example: amplifier permission list")
@bundle_option
@json_option
@click.pass_context
@run_reading
async def list_rules(ctx: click.Context, bundle_path: str | None, as_json: bool) -> None:
    """List the modes and rules that hold here, the strictest layer counts."""
    policy, _ = await _read_here(ctx, bundle_path)
    rows = [(layer.source, "mode", str(layer.mode), "") for layer in policy.layers if layer.mode]
    rows += [(layer.source, str(rule.effect), str(rule), rule.place) for layer in policy.layers for rule in layer.rules]
    if as_json:
        names = ("source", "effect", "rule", "place")
        print_json("permission.list/1", {"rules": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    print_table(
        ("FROM", "EFFECT", "RULE", "PLACE"),
        rows,
        empty="No rules; the defaults hold.",
        shrink=("PLACE",),
        leave_out=("PLACE", "FROM"),
    )


async def _find_tools(
    name: str, confined: Collection[str | None], gate: PermissionGate, bundle: Bundle | None
) -> dict[str, Any]:
    """Return the tools of installed modules by name; those after the one that offers `name` are left out.

    So are the `confined` ones: their code runs in a sandbox alone, and the usual names of arguments count.
    """
    from ..bundle.check import names_of_modules
    from ..bundle.sources import SERVERS

    entries = bundle.tools if bundle is not None else []
    servers = next((each.get("config") for each in entries if each.get("module") == SERVERS), None)
    usual = f"tool-{name.replace('_', '-')}"
    modules = [module for module in names_of_modules() if module.startswith("tool-") and module not in confined]
    found: dict[str, Any] = {}
    for module in sorted(modules, key=lambda module: (module != usual, module)):
        found |= await _mount(module, gate, name, (servers or {}) if module == SERVERS else {})
        if name in found:
            break
    return found


async def _mount(module: str, gate: PermissionGate, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the tools of an installed module, among which the one of a name is explained; it may look at the rules."""
    from amplifier_core.cancellation import own_failure
    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.loader import ModuleLoader

    coordinator = ModuleCoordinator(session_id="permission")
    coordinator.register_capability("session.working_dir", str(Path.cwd()))
    coordinator.register_capability(EXPLAINED, name)
    coordinator.guard(gate)
    try:
        await (await ModuleLoader().load(module, config))(coordinator)
        return dict(coordinator.get("tools"))
    except BaseException as raised:  # it is the code of others; the usual names of arguments count then
        logger.warning("%s cannot say what its calls reach: %s", module, own_failure(raised))
        return {}
    finally:
        await coordinator.cleanup()


def _has_other_tools(bundle: Bundle | None) -> bool:
    """Return whether a bundle has modules of its own, whose tools are unknown until they run."""
    from ..bundle.check import names_of_modules

    entries = bundle.tools if bundle is not None else []
    known = names_of_modules()
    return any(each.get("source") or each.get("sandbox") or each.get("module") not in known for each in entries)


async def _read_here(ctx: click.Context, bundle_path: str | None) -> tuple[Policy, Bundle | None]:
    """Return the policy of the settings and of the bundle here, with the bundle; without one, of the settings alone."""
    from ..bundle.permissions import bundle_layer
    from ..security import read_policy

    read_settings_here()
    policy = read_policy()
    try:
        bundle = await load_bundle_at(bundle_path, plugins_of(ctx), runs=False)
    except BundleNotFoundError:
        if bundle_path is not None:
            raise
        return policy, None
    layer = bundle_layer(bundle)
    return (policy.below(layer) if layer is not None else policy), bundle


def _split_call(text: str) -> tuple[str, str]:
    """Return the name of a tool, and what stands in the brackets."""
    name, bracket, rest = text.strip().partition("(")
    if not name or (bracket and not rest.endswith(")")):
        raise click.UsageError(f"'{text}' is no call; write it as in 'write_file(.git/config)'")
    return name, rest.removesuffix(")")


def _read_arguments(name: str, given: str, tool: Any) -> dict[str, Any]:
    if not given.lstrip().startswith("{"):
        return {_find_argument(name, tool): given} if given else {}
    try:
        arguments: dict[str, Any] = json.loads(given)
    except ValueError as error:
        raise click.UsageError(f"the arguments of '{name}' are no JSON: {error}") from None
    return arguments


def _find_argument(name: str, tool: Any) -> str:
    """Return the argument that is meant by the text in the brackets: the tool's first one that reaches something."""
    from amplifier_core.permissions.calls import USUAL_KINDS

    declared = getattr(tool, "accesses", None)
    known = {**USUAL_KINDS, **(declared if isinstance(declared, dict) else {})}
    properties = (getattr(tool, "input_schema", None) or {}).get("properties", {})
    usual = next((argument for argument, parts in _USUAL if any(part in name for part in parts)), "path")
    return next((argument for argument in properties if argument in known), usual)


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
