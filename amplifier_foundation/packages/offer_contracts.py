"""Hold the triggers, storages, runners and bundles of a package to their contracts; each function gets the `Task`."""

from __future__ import annotations

import asyncio
import inspect
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import Inbox, SessionStorage, SessionStore
from amplifier_core.testing.trigger_checks import check_configuration, check_trigger_ends
from amplifier_core.triggers import TriggerContext
from amplifier_core.validation.base import is_async, takes

from ..paths import find_bundle_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from amplifier_core.events import SessionEvent

    from .examining import Task

PATIENCE = 3.0
"""Seconds for the end of a watch."""
_AWAITED = ("stop", "ready", "stand_by")
_PLAIN = ("bind", "configure", "watch", "matches", "upcoming", "caught_up", "config_schema", "event_names")
_ARGUMENTS = {"bind": ("context",), "configure": ("config",), "matches": ("event",), "upcoming": ("after",)}


class _NoEvents:
    """The events of other sessions: none."""

    async def position(self) -> int:
        return 0

    async def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        await asyncio.Event().wait()
        nothing: tuple[SessionEvent, ...] = ()
        for event in nothing:
            yield event


def check_methods(title: str, thing: Any, awaited: Sequence[str], plain: Sequence[str]) -> None:
    """Require that the methods that are there are declared as their callers use them. Raises `AssertionError`."""
    for name in (*awaited, *plain):
        method = getattr(thing, name, None)
        if method is None:
            continue
        if not callable(method):
            raise AssertionError(f"{name} of {title} must be a method, and is {type(method).__name__}")
        wanted = name in awaited
        if is_async(method) != wanted:
            how = "must be declared 'async def'" if wanted else "must not be a coroutine: nobody awaits it"
            remedy = "; write `async def watch` with a yield in it" if name == "watch" else ""
            raise AssertionError(f"{name} of {title} {how}{remedy}")
        arguments = _ARGUMENTS.get(name, ())
        if not takes(method, *arguments):
            raise AssertionError(f"{name} of {title} must take ({', '.join(arguments)})")


def make(title: str, factory: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a factory makes. Raises `AssertionError` for its errors, but for those of a configuration."""
    try:
        return factory(*arguments)
    except (ValueError, StoreUnavailable):
        raise
    except BaseException as error:
        needs = "is called with its configuration" if arguments else "is called without arguments"
        raise AssertionError(f"the factory of {title} {needs}, and raised {type(error).__name__}: {error}") from error


async def examine_trigger(task: Task, name: str, factory: Callable[[], Any]) -> None:
    """Check the methods, the refusal of an unknown key, and the ends of a watch."""
    title = f"'{name}'"
    trigger = make(title, factory)
    missing = [each for each in ("configure", "watch", "stop") if not hasattr(trigger, each)]
    if missing:
        raise AssertionError(f"{title} is no trigger: its {type(trigger).__name__} has no {', '.join(missing)}")
    check_methods(title, trigger, _AWAITED, _PLAIN)
    folder = task.folder / name
    folder.mkdir(parents=True)
    context = TriggerContext(f"check/{name}#0", working_dir=folder, events=_NoEvents())
    try:
        check_configuration(factory, task.config, context)
    except AssertionError as broken:  # the ends of its watch are checked even so
        task.add("error", str(broken))
    try:
        if hasattr(trigger, "bind"):
            trigger.bind(context)
        trigger.configure(dict(task.config))
    except ValueError as error:
        task.add("note", f"{title} was not watched: it needs a configuration ({error}); give one with --config")
        return
    await check_trigger_ends(factory, task.config, context, PATIENCE)


async def examine_storage(task: Task, name: str, factory: Callable[[dict[str, Any]], Any]) -> None:
    """Check a store by its contract, the small one or the full one."""
    from amplifier_core.testing import check_storage, check_storage_kills, check_store  # their import takes a while

    title, numbers = f"'{name}'", count()

    def open_new() -> Any:
        folder = task.folder / f"{name}-{next(numbers)}"
        folder.mkdir(parents=True)
        return make(title, factory, task.config or {"folder": folder})

    try:
        store = open_new()
    except (ValueError, StoreUnavailable) as error:
        task.add("note", f"{title} was not opened: {error}; give its configuration with --config")
        return
    if inspect.isawaitable(store):
        raise AssertionError(f"the factory of {title} must return a store, not a coroutine")
    if isinstance(store, SessionStore):
        await store.close()
        if task.config:
            task.add("note", f"{title} was opened, and not written to: with a configuration it may be in use")
        else:
            await check_store(open_new, inbox=isinstance(store, Inbox))
    elif isinstance(store, SessionStorage):
        check_storage(open_new)
        if not task.config:
            place = {"folder": task.folder / f"{name}-killed"}
            place["folder"].mkdir()
            check_storage_kills(lambda: make(title, factory, place))
    else:
        raise AssertionError(f"{title} is no store: {type(store).__name__} has not save, load and exists")


async def examine_runner(task: Task, name: str, factory: Callable[[], Any]) -> None:
    """Check the methods of a runner; no session is run."""
    runner = make(f"'{name}'", factory)
    for method, arguments in {"run": ("request", "build"), "stop": ("session_id",)}.items():
        found = getattr(runner, method, None)
        if not is_async(found) or not takes(found, *arguments):
            raise AssertionError(f"'{name}' must have `async def {method}(self, {', '.join(arguments)})`")
    if await runner.stop("check-nobody") is not False:
        raise AssertionError(f"stop of '{name}' must return False for a session that it does not run")


def examine_bundle(task: Task, name: str, place: object) -> None:
    """Check the file of a bundle."""
    if not isinstance(place, (str, Path)):
        task.add("error", f"register('{name}', {place!r}): give the path of a bundle")
        return
    path = Path(place)
    if not (path.is_file() or find_bundle_file(path)):
        task.add("error", f"the bundle '{name}' is not there: {path} has no bundle.md; is it part of the wheel?")
        return
    from amplifier_core.plugins import load_plugins

    from ..bundle.check import check_file

    for problem in check_file(path, load_plugins()):
        task.add("error" if problem.severity == "error" else "warning", str(problem))
