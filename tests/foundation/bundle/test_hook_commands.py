"""Commands of `hooks-shell` know the folder of the bundle that they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_foundation import load_bundle
from amplifier_foundation.bundle.sources import find_hook_commands

if TYPE_CHECKING:
    from pathlib import Path

TOP = """---
bundle: {name: top}
includes: [{bundle: ./below/bundle.md}]
hooks: [{module: hooks-shell, config: {hooks: {PreToolUse: [{hooks: [{command: sh top.sh}]}]}}}]
agents:
  clerk:
    hooks: [{module: hooks-shell, config: {hooks: {Stop: [{hooks: [{command: sh clerk.sh}]}]}}}]
---
"""
BELOW = """---
bundle: {name: below}
hooks: [{module: hooks-shell, config: {hooks: {PreToolUse: [{hooks: [{command: sh below.sh}]}]}}}]
---
"""


async def test_bundles_that_are_put_together_keep_all_their_commands_and_folders(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "bundle.md").write_text(TOP)
    (tmp_path / "below/bundle.md").write_text(BELOW)
    bundle = await load_bundle(str(tmp_path))
    assert sorted(find_hook_commands(bundle)) == [
        ("sh below.sh", str(tmp_path / "below")),
        ("sh clerk.sh", str(tmp_path)),
        ("sh top.sh", str(tmp_path)),
    ]
