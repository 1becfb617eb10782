from amplifier_core.testing import check_provider
from amplifier_core.validation.behavioral import ProviderBehaviorTests
from amplifier_core.validation.structural import ProviderStructuralTests

from amplifier_provider_example.provider import ExampleProvider


class TestStructure(ProviderStructuralTests):
    """The structure of every provider."""


class TestBehavior(ProviderBehaviorTests):
    """The behaviour of every provider."""


async def test_it_keeps_the_contract_of_a_provider() -> None:
    await check_provider(ExampleProvider)
