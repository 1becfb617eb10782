from pathlib import Path

from amplifier_core import Plugins, TriggerContext
from amplifier_core.testing import VirtualClock, check_trigger, check_trigger_kills

import amplifier_trigger_example
from amplifier_trigger_example import ExampleTrigger


async def test_it_keeps_the_contract_of_a_trigger(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def write_a_line() -> None:
        with (tmp_path / "inbox.txt").open("a") as file:
            file.write("hello\n")
        await clock.advance(1)

    context = TriggerContext("tests/example#0", working_dir=tmp_path, clock=clock)
    events = await check_trigger(ExampleTrigger, {}, provoke=write_a_line, context=context)
    assert [event.data["line"] for event in events] == ["hello", "hello"]
    await check_trigger_kills(ExampleTrigger, {}, provoke=write_a_line, context=context)


def test_bundles_find_it_by_its_name() -> None:
    plugins = Plugins()
    plugins.register(amplifier_trigger_example)
    assert plugins.triggers.get("trigger-example") is ExampleTrigger
