"""Commands of `hooks-shell` and servers of `tool-mcp` are found, with the folder of the bundle they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_foundation import load_bundle
from amplifier_foundation.bundle.sources import find_bundle_commands
from amplifier_foundation.security.trust_content import find_bundle_scripts

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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


SERVERS = """---
bundle: {name: servers}
tools:
  - module: tool-mcp
    config: {servers: {one: {command: python3, args: [one.py], cwd: tools}, far: {url: "https://far.example/mcp"}}}
---
"""


async def test_the_scripts_of_mcp_servers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bundle.md").write_text(SERVERS)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "one.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert find_bundle_scripts(await load_bundle(str(tmp_path))) == [str(tmp_path / "tools" / "one.py")]


async def test_bundles_that_are_put_together_keep_all_their_commands_and_folders(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "bundle.md").write_text(TOP)
    (tmp_path / "below/bundle.md").write_text(BELOW)
    bundle = await load_bundle(str(tmp_path))
    assert sorted(find_bundle_commands(bundle)) == [
        ("sh below.sh", str(tmp_path / "below")),
        ("sh clerk.sh", str(tmp_path)),
        ("sh top.sh", str(tmp_path)),
    ]
