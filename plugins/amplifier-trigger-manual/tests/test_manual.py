"""The trigger that is fired by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import TriggerConfigError
from amplifier_core.plugins import load_plugins
from amplifier_core.testing.trigger_checks import check_configuration
from amplifier_core.triggers import TriggerContext, TriggerSource
from amplifier_trigger_manual import ManualTrigger

if TYPE_CHECKING:
    from amplifier_core.triggers import TriggerEvent


def test_the_plugin_registers_it() -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-manual"})
    assert plugins.triggers.get("trigger-manual") is ManualTrigger
    assert isinstance(ManualTrigger(), TriggerSource)


async def test_it_waits_until_it_is_stopped_and_yields_nothing() -> None:
    trigger, events = ManualTrigger(), list["TriggerEvent"]()
    trigger.configure({})

    async def consume() -> None:
        events.extend([event async for event in trigger.watch()])

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(consume())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not watching.done()
        await trigger.stop()
        await trigger.stop()
    assert events == []


async def test_one_that_is_stopped_before_it_is_watched_ends_at_once() -> None:
    trigger = ManualTrigger()
    await trigger.stop()
    assert [event async for event in trigger.watch()] == []


async def test_it_takes_no_configuration() -> None:
    check_configuration(ManualTrigger, {}, TriggerContext("tests/manual#1"))
    with pytest.raises(TriggerConfigError, match=r"^trigger-manual: data: unknown key; known are none$"):
        ManualTrigger().configure({"data": {}})
    assert ManualTrigger.config_schema()["additionalProperties"] is False
