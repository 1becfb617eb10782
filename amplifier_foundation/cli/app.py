"""What commands share: the plugins, the store, the event loop, and sessions by the beginning of their id."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from amplifier_core.errors import BundleNotFoundError, SessionConflict, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery, DurableStore, SessionRecord, SessionStore

    from ..bundles.model import Bundle
    from ..bundles.problems import Problem
    from ..settings import Settings

Result = TypeVar("Result")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
bundle_option = click.option(
    "-b",
    "--bundle",
    "bundle_path",
    metavar="BUNDLE",
    help="A file, folder, URL or registered name; default: bundle.md here.",
)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end."""
    import asyncio

    return asyncio.run(work)


def plugins_of(ctx: click.Context) -> Plugins:
    """Load the plugins, as the options of the command line say."""
    from amplifier_core.plugins import load_plugins

    return load_plugins(safe_mode=bool((ctx.obj or {}).get("safe_mode")))


def settings_here() -> Settings:
    """Return the settings that count here; warnings of them go to stderr, once a command. Raises `SettingsError`."""
    from ..settings import read_settings

    settings = read_settings()
    context = click.get_current_context()
    told: set[Problem] = context.meta.setdefault(f"{__name__}.told", set())
    for problem in settings.problems:
        if problem not in told and not (context.obj or {}).get("quiet"):
            click.echo(str(problem), err=True)
        told.add(problem)
    return settings


@asynccontextmanager
async def opened_store(plugins: Plugins) -> AsyncIterator[SessionStore]:
    """Open the store while the block runs."""
    from ..stores import open_store

    store = open_store(plugins, str(settings_here().get("storage")))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_inbox(plugins: Plugins) -> AsyncIterator[DurableStore]:
    """Open the store while the block runs. Raises `StoreUnavailable` when background sessions cannot run on it."""
    from ..stores import open_inbox

    store = open_inbox(plugins, str(settings_here().get("storage")))
    try:
        yield store
    finally:
        await store.close()


async def deliveries_in(store: SessionStore, **wanted: Any) -> list[Delivery]:
    """Return the deliveries of a store; none of one that keeps no inbox."""
    from amplifier_core.storage import Inbox

    return await store.deliveries(**wanted, limit=100_000) if isinstance(store, Inbox) else []


async def bundle_at(path: str | None, plugins: Plugins) -> Bundle:
    """Load a bundle as settings want it: `path`, else the `bundle.md` of the current folder, else the settings' own.

    `path` may be a URL or a registered name too. Raises `BundleError`, `SettingsError`.
    """
    from ..bundles.load import load_bundle
    from ..bundles.overrides import override_modules

    settings = settings_here()
    bundle = await load_bundle(chosen_bundle(path, settings), registry=known_bundles(plugins, settings))
    override_modules(bundle, settings.get("overrides"), Path.cwd())
    return bundle


def chosen_bundle(path: str | None, settings: Settings) -> str:
    """Return `path`, else the `bundle.md` of the current folder, else the settings' own bundle.

    Raises `BundleNotFoundError`.
    """
    chosen = path or ("bundle.md" if Path("bundle.md").is_file() else settings.get("bundle"))
    if chosen is None:
        raise BundleNotFoundError(
            "no bundle.md in this folder; name one with -b, make one with: amplifier bundle new, "
            "or see what one does: amplifier demo"
        )
    return str(chosen)


def known_bundles(plugins: Plugins, settings: Settings) -> dict[str, str]:
    """Return the bundles that have a name here, with their places; packages' own, registered ones, and settings'."""
    from ..bundles.registry import BundleRegistry

    return {**BundleRegistry(plugins=plugins).names(), **settings.get("bundles")}


def refuse_what_cannot_run(bundle: Bundle, plugins: Plugins) -> None:
    """Raise `InvalidBundle` when `bundle` names what nothing installed provides, or a trigger refuses its config."""
    from ..bundles.check import check_loaded
    from ..bundles.problems import InvalidBundle, has_errors

    problems = check_loaded(bundle, plugins)
    if has_errors(problems):
        raise InvalidBundle(problems)


async def session_by_prefix(store: SessionStore, prefix: str) -> SessionRecord:
    """Return the one session whose id is, or begins with, `prefix` (four characters or more).

    Raises `InvalidSessionId`, `SessionNotFound`, and `SessionConflict` when several do.
    """
    from amplifier_core.ids import validate_session_id

    validate_session_id(prefix)
    found = await store.find(prefix)
    for record in found:
        if record.session_id == prefix:
            return record
    if not found or len(prefix) < 4:
        raise SessionNotFound(prefix)
    if len(found) > 1:
        ids = ", ".join(record.session_id for record in found[:5])
        raise SessionConflict(prefix, f"'{prefix}' begins several sessions: {ids}. Give more of the id")
    return found[0]


class Point(NamedTuple):
    """A place in a stored session's history; neither turn nor message: now."""

    session: str
    turn: int | None = None
    message: int | None = None


def split_point(text: str) -> Point:
    """Return the point that `ID`, `ID@now`, `ID@TURN` or `ID@mMESSAGE` names. Raises `click.UsageError`."""
    session, separator, place = text.partition("@")
    if not separator or place == "now":
        return Point(session)
    number = place.removeprefix("m")
    if not (number.isascii() and number.isdigit()):
        raise click.UsageError(
            f"'{text}': after '@' comes the number of a turn, the id of a message such as m12, or 'now'"
        )
    return Point(session, message=int(number)) if place != number else Point(session, turn=int(number))


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask a person, unless they said yes before. Raises `click.UsageError` where nobody can be asked."""
    import sys

    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here; say --yes")
    return click.confirm(question, err=True)


async def wake(project: str, name: str) -> bool:
    """Tell the process that runs background session `name` of `project` to look at its inbox; return whether one does.

    Without it, that process looks within a second.
    """
    from ..control import ask
    from ..lock import running_owner

    owner = running_owner()
    if owner is None or project not in owner.get("projects", ()):
        return False
    with suppress(SessionConflict):
        await ask(owner, "wake", project=project, name=name)
    return True
