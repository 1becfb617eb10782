"""Define what is run in a sandbox, and how a sandbox starts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from amplifier_foundation import paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .protection import Guarded

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLORTERM|NO_COLOR")
_OTHER_ENCODING = re.compile(r"(?:LANG|LC_[A-Z]+)=(?!(?:C|POSIX)?$|.*\.utf-?8(?:@|$)).*", re.IGNORECASE)
"""A locale in which bash may read other words than those that are decoded."""


class Run(NamedTuple):
    """A program to run in a sandbox. Paths are real and absolute."""

    argv: Sequence[str]
    folder: str
    """The working folder of the session: the only place for writes that last."""
    where: str
    """The folder of the program, inside of it."""
    network: bool = False
    passed: Sequence[str] = ()
    """More names of the environment."""
    readable: Sequence[str] = ()
    guarded: Guarded | None = None
    scratch: str = "/tmp"
    """The folder for temporary files, where a sandbox has none of its own."""
    is_read_only: bool = False
    """Whether the working folder can be read alone."""
    supervised: bool = False
    """Whether a process that leaves its group ends with the program, too; the sandbox's first process ends all."""

    def find_readable(self) -> list[str]:
        """Return what is readable outside of the working folder; a path inside may have become a link meanwhile."""
        return [path for path in self.readable if not f"{path}/".startswith(f"{self.folder}/")]


class Launch(NamedTuple):
    """A process to start."""

    argv: list[str]
    environment: dict[str, str]
    descriptors: tuple[int, ...] = ()
    """What the process inherits; the starter closes them afterwards."""
    goes_on: bool = False
    """Whether its processes go on when the starter is killed."""


class Sandbox(Protocol):
    """A way to confine a program."""

    @property
    def kind(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def confines(self) -> bool:
        """Whether a command that only reads needs no question."""
        ...

    @property
    def covers(self) -> tuple[str, ...]:
        """What it holds, in sentences."""
        ...

    @property
    def open(self) -> tuple[str, ...]:
        """What it does not hold."""
        ...

    def find_obstacle(self) -> str:
        """Return why it cannot run here, with the remedy; "" when it can."""
        ...

    def launch(self, run: Run) -> Launch:
        """Return the process that runs a program. Raises `OSError`."""
        ...


def find_bash() -> str:
    """Return the path of bash. Raises `FileNotFoundError`."""
    for path in ("/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("bash is not installed; install it with the system's package manager")


def make_environment(run: Run) -> dict[str, str]:
    """Return the environment of a program: a few harmless names, and git's author from the settings of the person."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name) or name in run.passed}
    kept = {name: value for name, value in passed.items() if not _OTHER_ENCODING.fullmatch(f"{name}={value}")}
    own = {"PATH": PATH, "HOME": find_home() or run.scratch, "TMPDIR": run.scratch, "GIT_TERMINAL_PROMPT": "0"}
    return {"LANG": "C.UTF-8", **kept, **read_author(), **own}


def find_home() -> str | None:
    """Return the home folder of the person, with its links followed; None without one, or if it is `/`."""
    home = paths.find_home()
    return None if home is None or (real := os.path.realpath(home)) == "/" else real


def holds_home(folder: str) -> bool:
    """Return whether a working folder is the home folder, or above it: nothing in there is to be seen in a sandbox."""
    home = find_home() or "/"
    return f"{home.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


@cache
def read_author() -> Mapping[str, str]:
    """Return the variables of git's author, from the person's own settings; empty without them."""
    git = shutil.which("git", path=PATH)
    if git is None:
        return {}
    asked = [git, "config", "--global", "--get-regexp", r"^user\.(name|email)$"]
    done = subprocess.run(asked, cwd="/", capture_output=True, text=True, errors="replace", check=False)
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    named = {"NAME": found.get("user.name"), "EMAIL": found.get("user.email")}
    return {f"GIT_{who}_{what}": value for what, value in named.items() if value for who in ("AUTHOR", "COMMITTER")}
