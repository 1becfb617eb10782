"""Share among commands: the plugins, the store, the event loop, and sessions found by the beginning of their id."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import (
    AmplifierError,
    BundleNotFoundError,
    StoreUnavailable,
)

from ..operations import sessions
from ..operations.loading import find_left_out_here, known_bundles, load_to_look, read_trusted_settings
from ..operations.sessions import LAST
from .loops import enter_loop, is_in_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from click.shell_completion import CompletionItem

    from amplifier_core.plugins import PluginRow, Plugins
    from amplifier_core.storage import DurableStore, SessionRecord, SessionStore

    from ..bundle.model import Bundle
    from ..documents.problems import Problem
    from ..operations.acting import Actor
    from ..operations.sessions import Point
    from ..settings import Settings
    from .trusting import Asking


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
provider_option = click.option("--provider", metavar="NAME", help="Ask this provider: anthropic, openai, ollama, …")
model_option = click.option("--model", metavar="MODEL", help="Ask this model, by its name or alias.")
trust_option = click.option("--trust", "trusts", is_flag=True, help="Trust the code of the bundle and of this project.")


def _complete_bundles(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from .completing import complete_bundles

    return complete_bundles(ctx, option, incomplete)


bundle_option = click.option(
    "-b",
    "--bundle",
    "bundle_path",
    metavar="BUNDLE",
    shell_complete=_complete_bundles,
    help="A file, folder, URL or registered name. Default: bundle.md of this project.",
)


def plugins_of(ctx: click.Context) -> Plugins:
    """Load the plugins; `--safe-mode` loads none. Raises `LockUnreadable`."""
    from amplifier_core.plugins import load_plugins

    from ..paths import data_home, make_private

    is_safe = _is_safe(ctx)
    marks: Path | None = None
    with suppress(StoreUnavailable):  # a command that needs the folder reports it
        marks = make_private(data_home())
    return load_plugins(safe_mode=is_safe, marks=marks)


def storage_plugins(ctx: click.Context) -> Plugins:
    """Load the plugin of the chosen storage alone, by its name; all plugins if it does not offer that storage.

    Raises `LockUnreadable`, `StoreUnavailable`.
    """
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.hookspecs import GROUP
    from amplifier_core.plugins import is_allowed, load_plugins

    is_safe = _is_safe(ctx)
    name = _storage_name(storage_setting())
    if not is_safe and is_allowed(name, os.environ) and find_entry_points(GROUP, name):
        plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": name})
        if name in plugins.storages:
            return plugins
    return plugins_of(ctx)


def _is_safe(ctx: click.Context) -> bool:
    """Return whether no plugin is to be loaded. Raises `LockUnreadable` if some are: each would be refused."""
    from ..packages.gate import find_lock

    is_safe = bool((ctx.obj or {}).get("safe_mode"))
    if not is_safe:
        find_lock()
    return is_safe


def storage_setting() -> Any:
    """Return the `storage` of the settings; without a settings file, reading settings is left out to save time.

    Raises `StoreUnavailable` for a data folder that is closed to this user.
    """
    from ..paths import require_open_home
    from ..sessions.storages import DEFAULT_STORAGE
    from ..settings import settings_exist

    require_open_home()
    if settings_exist():
        return read_settings_here().get("storage")
    return os.environ.get("AMPLIFIER_STORAGE") or DEFAULT_STORAGE


def _storage_name(storage: Any) -> str:
    return storage if isinstance(storage, str) else str(storage["name"])


def read_settings_here(folder: Path | None = None) -> Settings:
    """Return the settings in `folder` (default: the current one); print each of their warnings to stderr once.

    What matters in those of a project that is not trusted is left out, with a warning. Raises `SettingsError`,
    `TrustUnreadable`, `StoreUnavailable`.
    """
    from ..paths import require_open_home

    require_open_home()
    settings, problems = read_trusted_settings(folder)
    context = click.get_current_context()
    shown: set[Problem | str] = context.meta.setdefault(f"{__name__}.shown", set())
    for problem in problems:
        if problem not in shown and not (context.obj or {}).get("quiet"):
            click.echo(str(problem), err=True)
        shown.add(problem)
    return settings


class StorageNotLoaded(AmplifierError, LookupError):
    """The plugin of the chosen storage is installed, and blocked or broken."""

    def __init__(self, row: PluginRow) -> None:
        cause = f"does not load: {row.error}. See: amplifier plugin check {row.name}"
        if row.status == "blocked" and row.error:
            cause = f"is not loaded: {row.error}"
        elif row.status == "blocked":
            cause = "is not loaded. Leave out --safe-mode, or change AMPLIFIER_LOAD_PLUGINS or AMPLIFIER_BLOCK_PLUGINS"
        super().__init__(f"sessions are kept by '{row.name}', and this plugin {cause}")


@asynccontextmanager
async def use_store(plugins: Plugins) -> AsyncIterator[SessionStore]:
    """Open the store while the block runs. Raises `StorageNotLoaded`.

    An error of the storage's own code names it and its package; an exit of that code is a `PluginError`.
    """
    from ..sessions.storages import open_store

    storage = storage_setting()
    name = _storage_name(storage)
    if name not in plugins.storages and (row := next((row for row in plugins.rows if row.name == name), None)):
        raise StorageNotLoaded(row)
    store = open_store(plugins, storage)
    if not getattr(store, "reads_without_loop", False):
        await enter_loop()
    try:
        yield store
    except (Exception, SystemExit) as error:
        from amplifier_core.cancellation import as_failure
        from amplifier_core.raised import note_source

        owner = next((row.owner for row in plugins.rows if name in row.offers), "this program")
        if note_source(error, plugins.storages.get(name), f"storage '{name}' of {owner}"):
            raise as_failure(error) from error.__cause__
        raise
    finally:
        await store.close()


@asynccontextmanager
async def use_inbox(plugins: Plugins) -> AsyncIterator[DurableStore]:
    """Open the store while the block runs. Raises `StoreUnavailable` when it cannot run background sessions."""
    from ..sessions.storages import require_inbox

    async with use_store(plugins) as store:
        yield require_inbox(store, storage_setting())


async def read_sessions(store: SessionStore, *, everywhere: bool, limit: int | None = None) -> list[SessionRecord]:
    """Return the sessions of this project and of the current folder, or of all folders, the last changed first."""
    return await sessions.read_sessions(store, None if everywhere else projects_here(), limit)


async def load_bundle_at(
    path: str | None, plugins: Plugins, folder: Path | None = None, *, asking: Asking | None = None, runs: bool = True
) -> Bundle:
    """Load `path` (a file, folder, URL or registered name; None: see `choose_bundle`) with the settings' overrides.

    The settings are those in `folder` (default: the current one). A bundle that `runs` must be trusted, as its
    project's settings: `asking` settles what is not. Raises `BundleError`, `SettingsError`, `NotTrusted`.
    """
    from functools import partial

    if runs:
        await _require_settings(folder, asking)
    settings = read_settings_here(folder)
    source = choose_bundle(path, settings)
    if runs:
        from ..security.loading import load_to_run
        from ..security.trust import NotTrusted

        load = partial(load_to_run, source, plugins, settings, folder)
        while True:
            try:
                bundle = await _call(load)
            except NotTrusted as error:
                if asking is None or not await asking.settle(error):
                    raise
            else:
                if asking is not None:
                    await asking.settle_texts(bundle, folder)
                return bundle
    return await _call(partial(load_to_look, source, plugins, settings, folder))


async def _require_settings(folder: Path | None, asking: Asking | None) -> None:
    """Return if the project's settings of a folder are trusted, or have nothing to trust. Raises `NotTrusted`."""
    from ..settings import read_settings, settings_exist

    if asking is not None:
        await asking.settle_settings(folder)
    elif settings_exist(folder):
        from ..security.trust import check_settings

        if (error := check_settings(read_settings(folder), folder)) is not None:
            raise error


async def _call(function: Callable[[], Bundle]) -> Bundle:
    """Call a function, in a thread where there is an event loop: some commands need none."""
    if not is_in_loop():
        return function()
    from asyncio import to_thread

    return await to_thread(function)


def preload_providers(path: str | None) -> None:
    """Begin to import the providers named in a bundle's file, before the file is read as a bundle.

    Names in its text are enough: a wrong one costs nothing, and one in an included bundle is imported when it mounts.
    """
    import re

    from amplifier_core.permissions import read_regular

    from ..documents.document import MAX_BYTES
    from ..paths import find_bundle_file

    file = Path(path or "")
    with suppress(OSError):
        text = read_regular(find_bundle_file(file) or file, MAX_BYTES).decode(errors="replace")
        if names := re.findall(r"\bmodule:\s*[\"']?(provider-[\w-]+)", text):
            from amplifier_core.loader import GROUP
            from amplifier_core.preloading import preload

            preload(names, GROUP)


def read_bundle_at(path: str | None, plugins: Plugins, settings: Settings) -> Bundle:
    """Return the same bundle as `load_bundle_at` and log no warnings but of left out includes.

    `bundle validate` prints all. Raises `BundleError`.
    """
    from ..bundle.load import read_bundle
    from ..bundle.overrides import override_modules

    source, names = choose_bundle(path, settings), known_bundles(plugins, settings)
    bundle = read_bundle(source, registry=names, leave_out=find_left_out_here(source, plugins, names))
    for problem in bundle.problems:
        if problem.code == "AMP111":
            click.echo(str(problem), err=True)
    override_modules(bundle, settings.get("overrides"), Path.cwd())
    return bundle


def choose_bundle(path: str | None, settings: Settings) -> str:
    """Return `path`, else the bundle's file of this project, else the bundle of the settings.

    Raises `BundleNotFoundError`.
    """
    chosen = path or find_own_bundle(settings)
    if chosen is None:
        raise BundleNotFoundError(
            "no bundle.md in this project; name one with -b, make one with: amplifier init, "
            "or see what one does: amplifier demo"
        )
    return chosen


def find_own_bundle(settings: Settings) -> str | None:
    """Return the bundle's file of this project, else the bundle of the settings, else None."""
    from ..paths import find_own_file, find_project

    chosen = find_own_file(Path()) or find_own_file(Path(find_project())) or settings.get("bundle")
    return None if chosen is None else str(chosen)


def project_here() -> str:
    """Return the folder of this project, as `find_project` finds it."""
    from ..paths import find_project

    return find_project()


def require_runnable(bundle: Bundle, plugins: Plugins, *, runs: bool = False) -> list[Problem]:
    """Return the warnings about `bundle`, and with `runs` about what this machine lacks for a start.

    Raises `InvalidBundle` when it names a missing package, or a trigger refuses its configuration.
    """
    from ..bundle.check import check_loaded
    from ..documents.problems import InvalidBundle, has_errors

    problems = check_loaded(bundle, plugins, runs=runs)
    if has_errors(problems):
        raise InvalidBundle(problems)
    return problems


async def find_session(store: SessionStore, prefix: str) -> SessionRecord:
    """Return the session with the id `prefix`, as `sessions.find_session` does; `last` is that of this project."""
    return await sessions.find_session(store, prefix, projects_here() if prefix == LAST else ())


def projects_here() -> set[str]:
    """Return this project and the current folder."""
    from ..paths import project_of

    return {project_here(), project_of()}


def split_point(text: str) -> Point:
    """Return the point of a session as `sessions.split_point` does. Raises `click.UsageError`."""
    try:
        return sessions.split_point(text)
    except sessions.InvalidPoint as error:
        raise click.UsageError(str(error)) from None


def person() -> Actor:
    """Return the person at the command line."""
    from ..operations.acting import person_here

    return person_here("command line")


def confirm(question: str, *, yes: bool) -> bool:
    """Ask for confirmation unless `yes` is given. Raises `click.UsageError` without a terminal to ask at."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for confirmation; use --yes")
    from .questions import ask_to_confirm

    return ask_to_confirm(question)
