"""Files of a stranger's project that are no plain files, or have no end: no command waits for one or reads it whole."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from amplifier_foundation.cli import exits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PLACES = {
    ".amplifier/plugins.lock": ("os.mkfifo(place)", "place.symlink_to('/dev/zero')", "os.truncate(place, 20 << 30)"),
    ".amplifier/settings.yaml": ("os.mkfifo(place)",),
    ".mcp.json": ("os.truncate(place, 20 << 30)",),
    "bundle.md": ("os.truncate(place, 20 << 30)",),
    "AGENTS.md": ("place.symlink_to('/dev/zero')",),
}
COMMANDS = """
import contextlib, io, json, os, pathlib, resource, sys
from amplifier_foundation.cli import invoke
most = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, most))
place = pathlib.Path(sys.argv[1])
place.parent.mkdir(parents=True, exist_ok=True)
for make in sys.argv[2:]:
    place.unlink(missing_ok=True)
    if "truncate" in make:
        place.touch()
    exec(make)
    for command in (["ps"], ["bundle", "validate"], ["trust", "--yes"], ["run", "hello"]):
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = invoke(command)
        print(json.dumps([command[0], code, said.getvalue()]))
"""


@pytest.mark.parametrize("place", PLACES)
def test_no_command_waits_for_an_unusual_file_or_reads_it_whole(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    (project / ".git").mkdir()
    (project / "bundle.md").write_text(
        "---\nbundle: {name: a}\nproviders: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n"
        "tools: [{module: tool-mcp}]\n---\n@AGENTS.md\n"
    )
    given = [sys.executable, "-c", COMMANDS, place, *PLACES[place]]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 4 * len(PLACES[place])
    assert [row for row in rows if row[1] not in (exits.OK, exits.USAGE) or "memory" in row[2]] == []
    if place.endswith("lock"):
        assert all(row[1] == exits.USAGE and "plugins.lock: it " in row[2] for row in rows)
