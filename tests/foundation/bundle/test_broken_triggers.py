"""A trigger that its package cannot make is told with its line and its package, and ends no check."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import PollingTrigger, hookimpl
from amplifier_core.plugins import Plugins, load_plugins
from amplifier_foundation.bundle.check import check_file

BUNDLE = """background_sessions:
  - name: broken
    triggers:
      - {module: trigger-acme}
  - name: good
    triggers:
      - {module: trigger-timer, config: {evry: 1h}}
"""


class Nameless(PollingTrigger):
    """A trigger of an author who forgot `name`."""


class Keyless(PollingTrigger):
    name = "trigger-acme"

    def __init__(self) -> None:
        super().__init__()
        Path("/nonexistent/acme.key").read_text(encoding="utf-8")


KEYLESS = f"{__file__}:{Keyless.__init__.__code__.co_firstlineno + 2}"


class Blind:
    def configure(self, config: Any) -> None:
        """Take anything."""

    async def stop(self) -> None:
        """End at once."""


class Leaving(PollingTrigger):
    name = "trigger-acme"

    def __init__(self) -> None:
        sys.exit(3)


class Named(PollingTrigger):
    name = "trigger-acme"


FAULTS: list[tuple[Callable[[], object], str]] = [
    (lambda: Nameless, "NotImplementedError: Nameless needs: name = 'trigger-…', its registered name"),
    (lambda: Keyless, f"FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent/acme.key' ({KEYLESS})"),
    (lambda: Leaving, "called exit(3), which a module may not do"),
    (lambda: Blind, "TypeError: Blind has no watch"),
    (Named, "TypeError: 'Named' object is not callable"),
]


def offer(plugins: Plugins, factory: object) -> None:
    class Acme:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-acme", factory)

    plugins.register(Acme(), "acme")


@pytest.mark.parametrize(("make_factory", "cause"), FAULTS)
async def test_a_trigger_that_cannot_be_made_is_told_and_the_others_are_checked(
    write: Any, make_factory: Callable[[], object], cause: str
) -> None:
    plugins = load_plugins()
    offer(plugins, make_factory())
    broken, good = [str(each) for each in check_file(write(BUNDLE), plugins) if each.code == "AMP112"]
    assert broken.startswith(
        "bundle.md:6:18: warning[AMP112] background_sessions[0].triggers[0].module: trigger-acme: this program "
    )
    assert broken.endswith(cause)
    assert "evry" in good


async def test_a_configuration_that_a_trigger_fails_on_is_told_with_its_class_and_place(write: Any) -> None:
    class Hasty(Blind):
        def configure(self, config: Any) -> None:
            self.url = config["url"]

        async def watch(self) -> AsyncIterator[Any]:
            yield None

    plugins = load_plugins()
    offer(plugins, Hasty)
    broken, _ = [str(each) for each in check_file(write(BUNDLE), plugins) if each.code == "AMP112"]
    place = f"{__file__}:{Hasty.configure.__code__.co_firstlineno + 1}"
    assert broken.endswith(f": trigger-acme: KeyError: 'url' ({place})")
