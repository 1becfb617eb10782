"""Run programs under `sandbox-exec` of macOS."""

from __future__ import annotations

import shutil
from pathlib import PurePath
from typing import TYPE_CHECKING

from .contracts import Launch, make_environment

if TYPE_CHECKING:
    from .contracts import Run

_PROGRAM = "/usr/bin/sandbox-exec"
_READABLE = ("/usr", "/bin", "/sbin", "/System", "/Library", "/opt/homebrew", "/private/etc", "/private/var/db", "/dev")


class Seatbelt:
    """Confinement by a profile of macOS. It is not tested by this project."""

    kind = "sandbox-exec"
    confines = False
    covers = (
        "writes only in the working folder and in a temporary folder of the session",
        "no file outside of the system's and of the working folder is read",
        "no network without a grant",
    )
    open = (
        "the profile is not tested",
        "services of the system may start programs outside",
        "files that programs obey and files with secrets in the working folder are not guarded, but for amplifier's",
        "every command is asked for",
    )

    def find_obstacle(self) -> str:
        """Return why it cannot run here."""
        return "" if shutil.which(_PROGRAM) else "sandbox-exec is a program of macOS"

    def launch(self, run: Run) -> Launch:
        """Return the process that runs a program."""
        argv = [_PROGRAM, "-p", make_profile(run), *run.argv]
        return Launch(argv, {**make_environment(run), "HOME": run.scratch}, goes_on=True)


def make_profile(run: Run) -> str:
    """Return the profile for a command: everything is denied but for what it lists; a later line decides."""
    readable = " ".join(f"(subpath {_quote(path)})" for path in (*_READABLE, *run.readable, run.folder, run.scratch))
    writable = " ".join(f"(subpath {_quote(path)})" for path in (run.folder, run.scratch))
    fixed, hidden = (run.guarded.fixed, run.guarded.hidden) if run.guarded is not None else ((), ())
    links = run.guarded.own_links if run.guarded is not None else {}
    above = {str(PurePath(run.folder, each)) for path in (*fixed, *hidden, *links) for each in PurePath(path).parents}
    return "\n".join(
        [
            "(version 1)",
            "(deny default)",
            "(allow process-fork process-exec sysctl-read)",
            "(allow signal (target same-sandbox))",
            f'(allow file-read* (literal "/") {readable})',
            f'(allow file-write* (literal "/dev/null") {writable})',
            *(["(allow network*)"] if run.network else []),
            *(f"(deny file-write* (subpath {_quote(f'{run.folder}/{path}')}))" for path in fixed),
            *(f"(deny file-write* (literal {_quote(f'{run.folder}/{path}')}))" for path in links),
            *(f"(deny file-read* file-write* (subpath {_quote(f'{run.folder}/{path}')}))" for path in hidden),
            *(f"(deny file-write-unlink (literal {_quote(path)}))" for path in sorted(above)),  # nor moved
        ]
    )


def _quote(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
