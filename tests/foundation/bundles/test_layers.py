"""Where the values of a composed bundle were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amplifier_foundation.bundles import Bundle, load_bundle_sync
from amplifier_foundation.bundles.layers import origin, values


def test_each_value_comes_from_the_last_bundle_that_says_it(write: Any) -> None:
    write(
        "tools:\n  - module: tool-a\n    config: {x: 1, y: 2}\nspawn: {exclude_tools: [a]}\n", "Base.", name="base.md"
    )
    top = load_bundle_sync(
        write("includes: [./base.md]\ntools:\n  - module: tool-b\n  - {module: tool-a, config: {y: 3}}\n")
    )
    told = {path: (value, str(place)) for path, value, place in values(top)}
    assert told == {
        ("spawn", "exclude_tools", 0): ("a", "base.md:6:25"),
        ("tools", 0, "module"): ("tool-a", "bundle.md:6:14"),
        ("tools", 0, "config", "x"): (1, "base.md:5:17"),
        ("tools", 0, "config", "y"): (3, "bundle.md:6:34"),
        ("tools", 1, "module"): ("tool-b", "bundle.md:5:13"),
    }


def test_what_a_program_made_comes_from_nowhere(folder: Path) -> None:
    bundle = Bundle("made", tools=[{"module": "tool-a"}])
    assert origin(bundle, ("tools", 0, "module")) is None
