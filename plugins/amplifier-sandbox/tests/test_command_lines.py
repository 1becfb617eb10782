"""Every user of a machine sees the command lines of all: none has a value of the environment."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from amplifier_sandbox.bubblewrap import Bubblewrap
from amplifier_sandbox.contracts import Run, find_bash
from amplifier_sandbox.landlock import Landlock, find_version
from tests.programs import require


@pytest.mark.parametrize("sandbox", [Bubblewrap(), Landlock()], ids=["bubblewrap", "landlock"])
def test_a_value_of_the_environment_stands_in_no_command_line(
    sandbox: Bubblewrap | Landlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(sandbox, Bubblewrap):
        require("bwrap")
    elif not find_version():
        pytest.skip("this kernel has no Landlock")
    value = f"{uuid4()}\ngrün"
    monkeypatch.setenv("TESTED_VALUE", value)
    shell = [find_bash(), "-c", 'printf "%s\\0" "$TESTED_VALUE"; read -r']
    launch = sandbox.launch(Run(shell, str(tmp_path), str(tmp_path), passed=["TESTED_VALUE"], scratch=str(tmp_path)))
    with subprocess.Popen(
        launch.argv, env=launch.environment, pass_fds=launch.descriptors, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        for descriptor in launch.descriptors:
            os.close(descriptor)
        assert process.stdout is not None
        said = b""
        while not said.endswith(b"\0") and (part := process.stdout.read(1)):
            said += part
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                lines.append(path.read_bytes())
        process.communicate(b"\n")
    assert said == f"{value}\0".encode()
    assert not [line for line in lines if value.encode() in line]
