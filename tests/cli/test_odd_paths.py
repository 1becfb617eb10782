"""Projects whose paths are not UTF-8: every command works in them as elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits

BUNDLE = """---
bundle: {name: reviews}
providers: [{module: provider-playbook, config: {otherwise: {say: "seen"}}}]
background_sessions: [{name: asked, instruction: Look.}]
---
You review.
"""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A project in a folder whose name is no UTF-8."""
    folder = tmp_path / os.fsdecode(b"b-\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    (folder / "bundle.md").write_text(BUNDLE)
    return folder


def test_background_sessions_run_in_a_project_whose_path_is_not_utf_8(odd: Path, amplifier: Any) -> None:
    assert amplifier("trigger", "fire", "asked", cwd=odd).returncode == exits.OK
    done = amplifier("up", "--once", cwd=odd)
    assert (done.returncode, "seen" in done.stdout) == (exits.OK, True), done.stderr
    listed = json.loads(amplifier("session", "list", "--json", cwd=odd).stdout)["data"]
    assert sorted(each["status"] for each in listed) == ["completed", "idle"]
    assert amplifier("up", "--detach", cwd=odd).returncode == exits.OK
    assert "running" in amplifier("ps", cwd=odd).stdout
    assert amplifier("stop", "--all", cwd=odd).returncode == exits.OK
