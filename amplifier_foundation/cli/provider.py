"""Run `amplifier provider`: list the providers, list the models of one, and ask one for a word."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amplifier_core.errors import BundleError

from ..cli import Verbs
from .app import (
    find_own_bundle,
    json_option,
    load_bundle_at,
    model_option,
    plugins_of,
    read_bundle_at,
    read_settings_here,
    trust_option,
)
from .completing import complete_providers
from .loops import run_in_loop
from .output import print_json, print_table
from .own_stdout import divert_stdout
from .running.terminal import tell
from .trusting import Asking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ..bundle.model import Bundle

_VERBS = {
    "list": ("provider:list_", "List the providers and where their keys come from."),
    "models": ("provider:models", "List the models that a provider reports."),
    "test": ("provider:test", "Ask a provider for a word, to see that it works."),
}
LONGEST_ANSWER = 16
"""Tokens of the answer to a test; services refuse less."""


@click.group(cls=Verbs, lazy=_VERBS)
def provider() -> None:
    """List, test and look into the providers of models. Keys: amplifier auth."""


provider_argument = click.argument("name", metavar="[PROVIDER]", required=False, shell_complete=complete_providers)


class Mounted(NamedTuple):
    """A provider ready for requests, its name, and the name of its module."""

    name: str
    module: str
    provider: Any


@click.command("list", epilog="Example: amplifier provider list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the installed providers and those of this project's bundle, with the place of each key; no key is shown."""
    rows = sorted(_rows(ctx), key=lambda row: (not row["bundle"], row["provider"]))
    if as_json:
        print_json("provider.list/1", rows)
        return
    cells = ((row["provider"], row["key"], row["model"] or "-", row["package"], row["bundle"] or "-") for row in rows)
    print_table(
        ("PROVIDER", "KEY", "MODEL", "PACKAGE", "IN BUNDLE"),
        cells,
        empty="No provider is installed. Install one: pip install amplifier-provider-anthropic",
        shrink=("MODEL", "PACKAGE", "KEY"),
        leave_out=("PACKAGE", "IN BUNDLE", "MODEL"),
    )


def _rows(ctx: click.Context) -> Iterator[dict[str, Any]]:
    """Yield the facts of each provider of the bundle, then of each installed one that is not in it."""
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.loader import GROUP

    from ..bundle.credentials import PREFIX, find_key_names, locate_first_key
    from ..bundle.first_provider import installed_providers
    from ..bundle.packages import requirement_of

    installed, seen = installed_providers(), set[str]()
    packages = {entry.name: str(entry.dist) for entry in find_entry_points(GROUP)}
    bundle = _read_bundle(ctx)
    own = [(entry, True) for entry in (bundle.providers if bundle is not None else ())]
    for entry, is_own in [*own, *(({"module": each}, False) for each in installed)]:
        module, config = str(entry["module"]), entry.get("config") or {}
        if module in seen and not is_own:
            continue
        seen.add(module)
        found = locate_first_key(module) if module in installed else None
        key = f"{found[0]} ({found[1]})" if found else "not found" if find_key_names(module) else "needs none"
        if config.get("api_key"):
            key = "in the configuration"
        package = packages.get(module, "a folder" if module in installed or entry.get("source") else "not installed")
        if package == "not installed" and (requirement := requirement_of(module)):
            package += f": pip install {requirement}"
        yield {
            "provider": str(entry.get("instance_id") or module.removeprefix(PREFIX)),
            "module": module,
            "key": key,
            "model": str(config.get("default_model") or config.get("model") or ""),
            "package": package,
            "bundle": bundle.name if is_own and bundle is not None else None,
        }


def _read_bundle(ctx: click.Context) -> Bundle | None:
    """Return this project's bundle, None without one; a broken one is a line on stderr."""
    settings = read_settings_here()
    if find_own_bundle(settings) is None:
        return None
    try:
        return read_bundle_at(None, plugins_of(ctx), settings)
    except BundleError as error:
        tell(f"amplifier: {error}")
        return None


@click.command(epilog="Example: amplifier provider models anthropic")
@provider_argument
@trust_option
@json_option
@click.pass_context
@run_in_loop
async def models(ctx: click.Context, name: str | None, trusts: bool, as_json: bool) -> None:
    """List the models that PROVIDER reports (default: the one that answers here), with their limits in tokens."""
    async with _mount(ctx, name, None, trusts=trusts) as mounted:
        found = await mounted.provider.list_models()
    if as_json:
        listed = [each.model_dump(mode="json") for each in found]
        print_json("provider.models/1", {"provider": mounted.name, "module": mounted.module, "models": listed})
        return
    print_table(
        ("MODEL", "CONTEXT", "OUTPUT", "CAPABILITIES", "NAME"),
        (
            (
                each.id,
                f"{each.context_window:,}" if each.context_window else "-",
                f"{each.max_output_tokens:,}" if each.max_output_tokens else "-",
                ", ".join(each.capabilities) or "-",
                each.display_name,
            )
            for each in found
        ),
        empty=f"{mounted.name} reports no models.",
        shrink=("NAME", "CAPABILITIES"),
        leave_out=("NAME", "CAPABILITIES", "OUTPUT", "CONTEXT"),
    )


@click.command(epilog="Example: amplifier provider test anthropic --model claude-sonnet-4-5")
@provider_argument
@model_option
@trust_option
@json_option
@click.pass_context
@run_in_loop
async def test(ctx: click.Context, name: str | None, model: str | None, trusts: bool, as_json: bool) -> None:
    """Ask PROVIDER (default: the one that answers here) for a word; nothing is stored.

    It costs a few tokens. Without an answer, the error says what is wrong, and the exit code is not 0.
    """
    from amplifier_core.message_models import ChatRequest, Message

    request = ChatRequest(
        messages=[Message(role="user", content="Answer with the word: OK")], max_output_tokens=LONGEST_ANSWER
    )
    async with _mount(ctx, name, model, trusts=trusts) as mounted:
        started = time.monotonic()
        response = await mounted.provider.complete(request)
        seconds = time.monotonic() - started
    usage = response.usage.model_dump(mode="json", exclude_none=True) if response.usage else None
    text = "".join(getattr(block, "text", "") for block in response.content).strip()
    answered_by = str((response.metadata or {}).get("model") or model or "")
    if as_json:
        facts = {"provider": mounted.name, "module": mounted.module, "model": answered_by or None}
        print_json("provider.test/1", {**facts, "seconds": round(seconds, 3), "answer": text, "usage": usage})
        return
    shown = f"{mounted.name} ({answered_by})" if answered_by else mounted.name
    click.echo(f"{shown}: works; it answered in {seconds:.2f} s")


@asynccontextmanager
async def _mount(ctx: click.Context, name: str | None, model: str | None, *, trusts: bool) -> AsyncIterator[Mounted]:
    """Mount one provider alone, as a session here has it: configured by the bundle and the settings, with its key.

    Raises `NoProviderMounted` with the cause, `ProviderMissing`, `BundleError`, `NotTrusted`.
    """
    from ..bundle.credentials import PREFIX
    from ..bundle.preferences import find_entry, find_first, find_mounted
    from .running.choosing import Wanted, make_bundle, prefer

    plugins, wanted = plugins_of(ctx), Wanted(provider=name, model=model)
    if find_own_bundle(read_settings_here()) is None:
        bundle = make_bundle(wanted, None)
    else:
        bundle = await load_bundle_at(None, plugins, asking=Asking(plugins, trusts))
        prefer(bundle, wanted)
    plan = {"providers": bundle.providers, "session": bundle.session}
    entry = (find_entry(plan, name) if name else None) or find_first(plan)
    if entry is None:
        raise click.UsageError("the bundle has no provider. Name one: amplifier provider list")
    bundle.providers, bundle.tools, bundle.hooks, bundle.background_sessions = [entry], [], [], []
    prepared = await bundle.prepare()
    with divert_stdout():
        session = await prepared.create_session(plugins=plugins)
        try:
            found = find_mounted(str(entry.get("instance_id") or entry["module"]), session.coordinator)
            if found is None:
                await session.execute("")  # raises the error that says why there is none
                raise AssertionError("a turn without a provider fails")
            shown = str(entry.get("instance_id") or str(entry["module"]).removeprefix(PREFIX))
            yield Mounted(shown, str(entry["module"]), session.coordinator.get("providers")[found])
        finally:
            await session.cleanup()
