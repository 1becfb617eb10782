from pathlib import Path

from amplifier_core import load_plugins
from amplifier_foundation.bundle.check import check_bundle

import amplifier_bundle_example

BUNDLE = Path(amplifier_bundle_example.__file__).parent / "bundles" / "bundle.md"


async def test_the_bundle_is_valid() -> None:
    assert await check_bundle(str(BUNDLE), load_plugins()) == []
