"""Run `amplifier auth`: keep, list and remove the keys of providers."""

from __future__ import annotations

import re
import sys

import click

from ..cli import Verbs
from .app import json_option
from .loops import run_in_loop
from .output import print_json, print_table

_VERBS = {
    "list": ("auth:list_", "List the keys and their places; no key is shown."),
    "login": ("auth:login", "Keep the key of a provider."),
    "logout": ("auth:logout", "Remove a kept key."),
}
_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
LONGEST = 16_384
"""Characters of a key."""


@click.group(cls=Verbs, lazy=_VERBS)
def auth() -> None:
    """Keep, list and remove the keys of providers.

    They are kept in the system's keyring, else in the private file keys.json of the data folder.
    """


@click.command(epilog="Example: amplifier auth login anthropic --check")
@click.argument("provider")
@click.option("--check", is_flag=True, help="Ask the provider first, and keep the key only if it works.")
@json_option
@run_in_loop
async def login(provider: str, check: bool, as_json: bool) -> None:
    """Keep the key of PROVIDER: typed without echo, or from a pipe.

    PROVIDER is a provider such as anthropic, or the name in a reference: GITHUB_TOKEN for secret://GITHUB_TOKEN.
    """
    import os

    from ..settings.keys import keep_key, keys_file, open_keyring

    module, name = _find_name(provider)
    if check and not module:
        raise click.UsageError(f"--check is for providers, and {name} names none")
    key = _read_key(name)
    if check:
        await _check(module, key)
    place = keep_key(name, key)
    if as_json:
        print_json("auth.login/1", {"name": name, "from": place, "checked": check})
    elif place == "keyring":
        click.echo(f"{name}: kept in the keyring")
    else:
        why = "no keyring works here" if open_keyring() is None else "the keyring does not take it"
        click.echo(f"{name}: kept in {keys_file()}, readable by your user alone (0600): {why}")
    if os.environ.get(name, "").strip():
        click.echo(f"amplifier: {name} is also in the environment, and that one is used", err=True)


@click.command("list", epilog="Example: amplifier auth list")
@json_option
def list_(as_json: bool) -> None:
    """List the keys and their places; no key is shown."""
    from ..bundle.check import names_of_modules
    from ..bundle.credentials import PREFIX, find_key_names
    from ..settings.keys import list_kept, locate_key

    kept = list_kept()
    used: dict[str, list[str]] = {name: [] for name in kept}
    for module in sorted(name for name in names_of_modules() if name.startswith(PREFIX)):
        for name in find_key_names(module):
            used.setdefault(name, []).append(module)
    found = [(name, used[name], place) for name in sorted(used) if (place := locate_key(name))]
    if as_json:
        print_json("auth.list/1", [{"name": name, "used_by": by, "from": place} for name, by, place in found])
        return
    print_table(
        ("NAME", "USED BY", "FROM"),
        ([name, ", ".join(by) or "-", place] for name, by, place in found),
        empty="There is no key. Keep one: amplifier auth login PROVIDER",
        shrink=("USED BY",),
        leave_out=("USED BY",),
    )


@click.command(epilog="Example: amplifier auth logout anthropic")
@click.argument("provider")
@json_option
def logout(provider: str, as_json: bool) -> None:
    """Remove the kept key of PROVIDER; a key in the environment stays there."""
    from ..settings.keys import KeyNotKept, forget_key

    name = _find_name(provider, may_be_missing=True)[1]
    if not forget_key(name):
        raise KeyNotKept(name)
    if as_json:
        print_json("auth.logout/1", {"name": name})
    else:
        click.echo(f"{name}: removed")


def _find_name(provider: str, *, may_be_missing: bool = False) -> tuple[str, str]:
    """Return the module of a provider and the name of its key; of a name in capitals: "" and the name.

    Raises `click.UsageError` for a provider that is neither installed nor the project's own, or needs no key.
    """
    from ..bundle.check import names_of_modules
    from ..bundle.credentials import PREFIX, find_key_names, key_names
    from ..bundle.packages import OURS, suggest

    if _NAME.fullmatch(provider):
        return "", provider
    module = PREFIX + provider.removeprefix(PREFIX)
    known = {name for name in names_of_modules() | OURS if name.startswith(PREFIX)}
    if module not in known and not may_be_missing:
        hint = suggest("providers", module, known) or "; for a key of anything else, write its name in capitals"
        raise click.UsageError(f"no provider '{module}' is installed{hint}")
    names = find_key_names(module) if module in known else key_names(module)
    if not names:
        raise click.UsageError(f"{module} needs no key")
    return module, names[0]


def _read_key(name: str) -> str:
    """Return the key that a person types without echo, or the one line of a pipe."""
    if sys.stdin.isatty():
        from .questions import ask_for_secret

        key = ask_for_secret(f"Key for {name}")
    else:
        key = sys.stdin.read(LONGEST + 1)
    key = key.strip()
    if not key:
        raise click.UsageError("there is no key; type it, or pipe it: amplifier auth login PROVIDER < FILE")
    if len(key) > LONGEST or not key.isprintable() or " " in key:
        raise click.UsageError("this is no key: it has spaces, several lines or too many characters")
    return key


async def _check(module: str, key: str) -> None:
    """Ask a provider for its models with a key. Raises `UnknownName` and `KeyRefused`."""
    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.loader import ModuleLoader
    from amplifier_core.utils.secrets import hide_secret, redact_text

    from ..sessions.failures import describe_failure
    from ..settings.keys import KeyRefused

    hide_secret(key)
    coordinator = ModuleCoordinator(session_id="auth")
    mount = await ModuleLoader().load(module, {"api_key": key})
    try:
        cleanup = await mount(coordinator)
        if cleanup is not None:
            coordinator.register_cleanup(cleanup)
        for provider in (coordinator.get("providers") or {}).values():
            await provider.list_models()
    except Exception as error:
        raise KeyRefused(redact_text(describe_failure(error))) from None
    finally:
        await coordinator.cleanup()
