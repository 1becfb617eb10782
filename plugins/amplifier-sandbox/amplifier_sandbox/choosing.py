"""Choose the sandbox of this machine, and try it before the first command: it must hold, or nothing runs in it."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError

from .bubblewrap import Bubblewrap
from .contracts import Run, find_bash
from .landlock import Landlock
from .seatbelt import Seatbelt
from .unconfined import Unconfined

if TYPE_CHECKING:
    from .contracts import Sandbox

_ALL: tuple[Sandbox, ...] = (Bubblewrap(), Landlock(), Seatbelt())
_results: dict[str, str] = {}
"""What the self-test of a sandbox has found, by its kind; "" when it holds."""
_testing = Lock()
_SECONDS = 30


class NoSandbox(AmplifierError):
    """No sandbox can run here; the text says what to install."""


def find_sandbox(wanted: str = "auto") -> Sandbox:
    """Return the sandbox for `auto`, `bubblewrap`, `landlock`, `sandbox-exec` or `off`, without a new self-test.

    Raises `NoSandbox`.
    """
    if wanted == "off":
        return Unconfined()
    obstacles = []
    for sandbox in _ALL:
        if wanted in ("auto", sandbox.kind):
            obstacle = sandbox.find_obstacle() or _results.get(sandbox.kind, "")
            if not obstacle:
                return sandbox
            obstacles.append(f"{sandbox.kind}: {obstacle}")
    raise NoSandbox(f"no sandbox can run here, so nothing does. {'; '.join(obstacles)}")


def require_sandbox(wanted: str = "auto") -> Sandbox:
    """Return a sandbox that has passed its self-test. Raises `NoSandbox`."""
    while True:
        sandbox = find_sandbox(wanted)
        if sandbox.kind == "off" or not _find_failure(sandbox):
            return sandbox


def describe() -> dict[str, Any]:
    """Return the sandbox of this machine, as `describe_sandbox` says."""
    missing = {each.kind: why for each in _ALL if (why := each.find_obstacle() or _find_failure(each))}
    chosen = next((each for each in _ALL if each.kind not in missing), None)
    return {
        "kind": chosen.kind if chosen is not None else None,
        "tested": chosen is not None,
        "covers": list(chosen.covers) if chosen is not None else [],
        "open": list(chosen.open) if chosen is not None else [],
        "missing": missing,
    }


def _find_failure(sandbox: Sandbox) -> str:
    """Return what is wrong with a sandbox, "" when it holds; it is tried once in a process."""
    with _testing:
        if sandbox.kind not in _results:
            _results[sandbox.kind] = _try_sandbox(sandbox)
        return _results[sandbox.kind]


def _try_sandbox(sandbox: Sandbox) -> str:
    with tempfile.TemporaryDirectory(prefix="amplifier-sandbox-") as whole, socket.socket() as server:
        real = Path(whole).resolve()
        work, outside, scratch = real / "work", real / "outside", real / "scratch"
        for folder in (work, outside, scratch):
            folder.mkdir()
        (outside / "secret").write_text("secret\n")
        server.bind(("127.0.0.1", 0))
        server.listen()
        script = (
            "echo inside >inside\n"
            f"(echo outside >'{outside}/new') 2>/dev/null\n"
            f"(read -r line <'{outside}/secret') 2>/dev/null && echo 'files outside of the working folder are read'\n"
            f"(echo x >/dev/tcp/127.0.0.1/{server.getsockname()[1]}) 2>/dev/null && echo 'the network is reached'\n"
            "echo tested\n"
        )
        try:
            shell = [find_bash(), "--noprofile", "--norc", "-c", script]
            said = _run(sandbox, Run(shell, str(work), str(work), scratch=str(scratch)))
        except (OSError, subprocess.SubprocessError) as error:
            return f"it does not start: {error}"
        if said != "tested":
            return f"its self-test failed: {said[-500:] or 'no answer'}"
        if (outside / "new").exists():
            return "its self-test failed: files outside of the working folder are written"
        return "" if (work / "inside").exists() else "its self-test failed: the working folder is not written"


def _run(sandbox: Sandbox, run: Run) -> str:
    launch = sandbox.launch(run)
    try:
        done = subprocess.run(
            launch.argv,
            env=launch.environment,
            pass_fds=launch.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            start_new_session=True,
            cwd=run.where,
            check=False,
        )
    finally:
        for descriptor in launch.descriptors:
            os.close(descriptor)
    return done.stdout.decode("utf-8", "replace").strip()
