from amplifier_core import Plugins
from amplifier_core.testing import check_runner

import amplifier_runner_example
from amplifier_runner_example import ExampleRunner


async def test_it_keeps_the_contract_of_a_runner() -> None:
    await check_runner(ExampleRunner)


def test_bundles_find_it_by_its_name() -> None:
    plugins = Plugins()
    plugins.register(amplifier_runner_example)
    assert plugins.runners.get("runner-example") is ExampleRunner
