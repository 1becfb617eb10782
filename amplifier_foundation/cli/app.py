"""Share among commands: the plugins, the store, the event loop, and sessions found by the beginning of their id."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amplifier_core.errors import (
    AmplifierError,
    BundleNotFoundError,
    SessionConflict,
    SessionNotFound,
    StoreUnavailable,
)

from .loops import enter_loop, is_in_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from click.shell_completion import CompletionItem

    from amplifier_core.plugins import PluginRow, Plugins
    from amplifier_core.storage import Delivery, DurableStore, SessionRecord, SessionStore

    from ..bundle.load import LeaveOut
    from ..bundle.model import Bundle
    from ..documents.problems import Problem
    from ..settings import Settings
    from .trusting import Asking


LAST = "last"
"""Stands for the id of the last changed session, run or approval of this project."""

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
    """Load the plugins; `--safe-mode` loads none."""
    from amplifier_core.plugins import load_plugins

    from ..paths import data_home, make_private

    marks: Path | None = None
    with suppress(StoreUnavailable):  # a command that needs the folder reports it
        marks = make_private(data_home())
    return load_plugins(safe_mode=bool((ctx.obj or {}).get("safe_mode")), marks=marks)


def storage_plugins(ctx: click.Context) -> Plugins:
    """Load the plugin of the chosen storage alone, by its name; all plugins if it does not offer that storage."""
    from amplifier_core.plugins import load_plugins

    name = _storage_name(storage_setting())
    only = {"AMPLIFIER_LOAD_PLUGINS": name, **os.environ}
    plugins = load_plugins(environ=only, safe_mode=bool((ctx.obj or {}).get("safe_mode")))
    return plugins if name in plugins.storages else plugins_of(ctx)


def storage_setting() -> Any:
    """Return the `storage` of the settings; without a settings file, reading settings is left out to save time."""
    from ..sessions.storages import DEFAULT_STORAGE
    from ..settings import settings_exist

    if settings_exist():
        return read_settings_here().get("storage")
    return os.environ.get("AMPLIFIER_STORAGE") or DEFAULT_STORAGE


def _storage_name(storage: Any) -> str:
    return storage if isinstance(storage, str) else str(storage["name"])


def read_settings_here(folder: Path | None = None) -> Settings:
    """Return the settings in `folder` (default: the current one); print each of their warnings to stderr once.

    What matters in those of a project that is not trusted is left out, with a warning. Raises `SettingsError`,
    `TrustUnreadable`.
    """
    from ..settings import read_settings

    settings = read_settings(folder)
    context = click.get_current_context()
    shown: set[Problem | str] = context.meta.setdefault(f"{__name__}.shown", set())
    problems: list[Problem | str] = [*settings.problems]
    if any(layer.source in ("project", "local") for layer in settings.layers):
        from ..security.trust import check_settings, without_project

        if (error := check_settings(settings, folder)) is not None:
            settings = without_project(settings)
            problems.append(f"amplifier: {error}")
    for problem in problems:
        if problem not in shown and not (context.obj or {}).get("quiet"):
            click.echo(str(problem), err=True)
        shown.add(problem)
    return settings


class StorageNotLoaded(AmplifierError, LookupError):
    """The plugin of the chosen storage is installed, and blocked or broken."""

    def __init__(self, row: PluginRow) -> None:
        cause = f"does not load: {row.error}. See: amplifier plugin list"
        if row.status == "blocked" and row.error:
            cause = f"is not loaded: {row.error}"
        elif row.status == "blocked":
            cause = "is not loaded. Leave out --safe-mode, or change AMPLIFIER_LOAD_PLUGINS or AMPLIFIER_BLOCK_PLUGINS"
        super().__init__(f"sessions are kept by '{row.name}', and this plugin {cause}")


@asynccontextmanager
async def use_store(plugins: Plugins) -> AsyncIterator[SessionStore]:
    """Open the store while the block runs. Raises `StorageNotLoaded`."""
    from ..sessions.storages import open_store

    storage = storage_setting()
    for row in plugins.rows:
        if row.name == _storage_name(storage) and row.status != "loaded":
            raise StorageNotLoaded(row)
    store = open_store(plugins, storage)
    if not getattr(store, "reads_without_loop", False):
        await enter_loop()
    try:
        yield store
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
    from ..paths import project_of

    if everywhere:
        return await store.sessions(limit=limit)
    found = [
        each
        for project in {project_here(), project_of()}
        for each in await store.sessions(project=project, limit=limit)
    ]
    return sorted(found, key=lambda each: each.updated, reverse=True)[:limit]


async def read_deliveries(store: SessionStore, **wanted: Any) -> list[Delivery]:
    """Return the deliveries of a store; a store without an inbox has none."""
    from amplifier_core.storage import Inbox

    return await store.deliveries(**wanted, limit=100_000) if isinstance(store, Inbox) else []


async def load_bundle_at(
    path: str | None, plugins: Plugins, folder: Path | None = None, *, asking: Asking | None = None, runs: bool = True
) -> Bundle:
    """Load `path` (a file, folder, URL or registered name; None: see `choose_bundle`) with the settings' overrides.

    The settings are those in `folder` (default: the current one). A bundle that `runs` must be trusted, as its
    project's settings: `asking` settles what is not. Raises `BundleError`, `SettingsError`, `NotTrusted`.
    """
    from functools import partial

    from ..bundle.load import load_bundle_sync
    from ..bundle.overrides import apply_settings

    if runs:
        await _require_settings(folder, asking)
    settings = read_settings_here(folder)
    source, names = choose_bundle(path, settings), known_bundles(plugins, settings)
    if runs:
        from ..security.loading import load_to_run
        from ..security.trust import NotTrusted

        load = partial(load_to_run, source, names, plugins, settings, folder)
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
    leave_out = find_left_out_here(source, plugins, names)
    bundle = await _call(partial(load_bundle_sync, source, registry=names, leave_out=leave_out))
    apply_settings(bundle, settings, folder)
    return bundle


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

    file = Path(path or "bundle.md")
    with suppress(OSError):
        text = (file / "bundle.md" if file.is_dir() else file).read_text(encoding="utf-8", errors="replace")
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


def find_left_out_here(source: str, plugins: Plugins, names: Mapping[str, str]) -> LeaveOut | None:
    """Return what leaves out the includes of an untrusted bundle, as `find_left_out` does."""
    from ..bundle.registry import BundleRegistry
    from ..security.trust import find_left_out

    return find_left_out(source, names, BundleRegistry(plugins=plugins).folders_of_packages())


def choose_bundle(path: str | None, settings: Settings) -> str:
    """Return `path`, else the `bundle.md` of this project, else the bundle of the settings.

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
    """Return the `bundle.md` of this project, else the bundle of the settings, else None."""
    from ..paths import find_project

    own = Path("bundle.md") if Path("bundle.md").is_file() else Path(find_project()) / "bundle.md"
    chosen = str(own) if own.is_file() else settings.get("bundle")
    return None if chosen is None else str(chosen)


def project_here() -> str:
    """Return the folder of this project, as `find_project` finds it."""
    from ..paths import find_project

    return find_project()


def known_bundles(plugins: Plugins, settings: Settings) -> dict[str, str]:
    """Return the place of each named bundle: settings win over registered names, those win over packages."""
    from ..bundle.registry import BundleRegistry

    return {**BundleRegistry(plugins=plugins).names(), **settings.get("bundles")}


def require_runnable(bundle: Bundle, plugins: Plugins, *, runs: bool = False) -> None:
    """Raise `InvalidBundle` when `bundle` names a missing package, or a trigger refuses its configuration.

    With `runs`, triggers are asked as before a start: a missing secret is a problem, too.
    """
    from ..bundle.check import check_loaded
    from ..documents.problems import InvalidBundle, has_errors

    problems = check_loaded(bundle, plugins, runs=runs)
    if has_errors(problems):
        raise InvalidBundle(problems)


async def find_session(store: SessionStore, prefix: str) -> SessionRecord:
    """Return the session with the id `prefix`, else the only one whose id begins with it (four characters or more).

    `last` is the last changed session of this project that has messages and is no run of a workflow.
    Raises `InvalidSessionId`, `SessionNotFound`, and `SessionConflict` when several ids begin so.
    """
    from amplifier_core.ids import validate_session_id

    from ..sessions.runs import is_run

    validate_session_id(prefix)
    if prefix == LAST:
        return await find_last(store, lambda record: record.message_count > 0 and not is_run(record))
    found = await store.find(prefix)
    for record in found:
        if record.session_id == prefix:
            return record
    if not found or len(prefix) < 4:
        raise SessionNotFound(prefix)
    if len(found) > 1:
        with suppress(SessionNotFound):  # many ids may begin with a whole one: those of the tasks of a run
            return await store.get(prefix)
        ids = ", ".join(record.session_id for record in found[:5])
        raise SessionConflict(prefix, f"'{prefix}' begins the ids of several sessions: {ids}. Type more of the id")
    return found[0]


async def find_last(store: SessionStore, is_wanted: Callable[[SessionRecord], bool]) -> SessionRecord:
    """Return the last changed session of this project that is wanted. Raises `SessionNotFound`."""
    for limit in (20, None):
        for record in await read_sessions(store, everywhere=False, limit=limit):
            if is_wanted(record):
                return record
    raise SessionNotFound(LAST)


class Point(NamedTuple):
    """A place in a stored session's history; without turn and message: its end."""

    session: str
    turn: int | None = None
    message: int | None = None


def split_point(text: str) -> Point:
    """Return the point of `ID`, `ID@now`, `ID@TURN` or `ID@mMESSAGE`. Raises `click.UsageError`."""
    session, separator, place = text.partition("@")
    if not separator or place == "now":
        return Point(session)
    number = place.removeprefix("m")
    if not (number.isascii() and number.isdigit()):
        raise click.UsageError(f"'{text}': after '@' write the number of a turn, the id of a message (m12), or 'now'")
    return Point(session, message=int(number)) if place != number else Point(session, turn=int(number))


def confirm(question: str, *, yes: bool) -> bool:
    """Ask for confirmation unless `yes` is given. Raises `click.UsageError` without a terminal to ask at."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for confirmation; use --yes")
    return click.confirm(question, err=True)
