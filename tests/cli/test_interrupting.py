"""Ctrl-C before an event loop answers it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits

PRESSED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
PROGRAM = """
import sys
sys.path.insert(0, "{folder}")
import amplifier_foundation.cli as program
def invoke(arguments):
    try:
        {work}
    except KeyboardInterrupt:
        print("raised")
    return 0
program.invoke = invoke
program.main([])
"""


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("import pressed", exits.INTERRUPTED, ("", "amplifier: interrupted\n")),
        (PRESSED, exits.OK, ("raised\n", "")),
        ("program.import_module('.loops', 'amplifier_foundation.cli').run_async(run())", exits.OK, ("raised\n", "")),
    ],
    ids=["in an import", "elsewhere", "in a loop"],
)
def test_ctrl_c_never_leaves_an_import_half_done(work: str, code: int, said: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "pressed.py").write_text(PRESSED)
    run = f"async def run():\n    {PRESSED}\n    import asyncio; await asyncio.sleep(60)\n"
    program = run + PROGRAM.format(folder=tmp_path, work=work)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, (ended.stdout, ended.stderr)) == (code, said)
