"""Have the registered triggers of a bundle check their configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, NameTaken, TriggerError
from amplifier_core.raised import describe_raised
from amplifier_core.triggers import TriggerContext

from ..documents.problems import Problem, error_at, text_of, warning_at
from .names import place_of
from .origins import origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_core.plugins import Plugins
    from amplifier_core.triggers import TriggerSource

    from .model import Bundle

_NAMED = re.compile(r"(?:trigger-[\w-]+: )?(?P<key>\w+)(?=[:.\[])")
"""The key at the beginning of a trigger's error about its configuration."""


def make_registered(module: str, plugins: Plugins) -> TriggerSource:
    """Return a new trigger of a registered name.

    Raises `UnknownName` and `NameTaken`, and `TriggerError` with the name of its package where it cannot be made.
    """
    factory = plugins.triggers.get(module)
    try:
        trigger = factory()
        for name in ("configure", "watch"):
            if not hasattr(trigger, name):
                raise TypeError(f"{type(trigger).__name__} has no {name}")
        return trigger
    except (Exception, SystemExit) as error:
        cause = describe_raised(error)
        if isinstance(error, SystemExit):
            from amplifier_core.cancellation import as_failure

            if (failure := as_failure(error)) is error:  # a signal ends the program
                raise
            cause = str(failure)
        owner = next((row.owner for row in plugins.rows if module in row.offers), "its package")
        raise TriggerError(module, f"{owner} cannot make it: {cause}") from error


def check_triggers(bundle: Bundle, plugins: Plugins, *, runs: bool) -> Iterator[Problem]:
    """Yield an error for each trigger that refuses its configuration; `runs` is that of `check_loaded`.

    One that its package cannot make is a warning: its background session waits for it, and the others work.
    """

    async def save_nothing(*_: Any, **__: Any) -> None:
        """Stand in for a store: with a `saver`, a trigger takes its configuration as before a start."""

    taken: dict[str, str] = {}
    for index, config in enumerate(bundle.background_sessions):
        for number, declared in enumerate(config.triggers):
            if declared.module not in plugins.triggers:
                continue
            spot = place_of(bundle, "background_sessions", config.name, str(number))
            try:
                trigger = make_registered(declared.module, plugins)
            except (NameTaken, TriggerError) as error:
                yield (warning_at if isinstance(error, TriggerError) else error_at)(spot, "AMP112", str(error))
                continue
            try:
                bind = getattr(trigger, "bind", None)
                if bind is not None:
                    folder, saver = bundle.base_path or Path.cwd(), save_nothing if runs else None
                    key = f"{bundle.name}/{config.name}/{declared.name or declared.module}#{number + 1}"
                    bind(TriggerContext(key, working_dir=folder, saver=saver))
                trigger.configure(declared.config)
                if (address := getattr(trigger, "address", "")) in taken:
                    raise ValueError(f"{address} is taken by '{taken[address]}'; give one of them another `path`")
                taken |= {address: config.name} if address else {}
            except Exception as error:
                for each in (error, *getattr(error, "others", ())):
                    named = _NAMED.match(str(each))
                    path = ("background_sessions", index, "triggers", number, "config", named["key"] if named else "")
                    place = origin(bundle, path, key=True) if path[-1] in declared.config else None
                    is_told = isinstance(each, AmplifierError | ValueError)
                    text = text_of(each) if is_told else f"{declared.module}: {describe_raised(each)}"
                    yield error_at(place or spot, "AMP112", text)
