"""Read a page as its reader does: write each file that it shows, and type each command, from top to bottom.

A block that begins with a comment naming a path is that file. A block `console` holds commands behind `$ `, each with
the output below it. No other block is understood: whatever a page shows is executed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import venv
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile

from hatchling.build import build_editable

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
FILE = re.compile(r"\A(?:---\n)?# (\S+\.\w+)\n")
"""A file's first line, or the second of one with front matter."""
PATIENCE = 120.0
"""Seconds that one command may take."""
MARK = "= = ="
PACKAGES = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
PROGRAMS = {
    "amplifier": "from amplifier_foundation.__main__ import main",
    "pip": "from pip._internal.cli.main import main",
    "pytest": "from pytest import main",
}
"""Programs of an environment, and the function that each one calls."""


@dataclass(frozen=True)
class Block:
    """A block of a page: a file, or commands with the output that the page shows."""

    kind: str
    text: str

    @property
    def path(self) -> str | None:
        """The file that the block shows; None: it holds commands."""
        found = FILE.match(self.text)
        return found[1] if found and self.kind != "console" else None

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands, each with the lines below it; a line that ends with a backslash goes on."""
        found = [each.splitlines() for each in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]]
        return [(command, shown) for command, *shown in found]


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    return [Block(kind, text) for kind, text in BLOCK.findall(text)]


@dataclass
class Reader:
    """Somebody with a shell in an empty folder, and an environment where amplifier and its packages are installed.

    `stand_ins` maps patterns of commands to what is typed instead, for commands that need a network or a key. A reader
    that `installs_quickly` builds and unpacks a package without pip.
    """

    folder: Path
    stand_ins: dict[str, str] = field(default_factory=dict)
    installs_quickly: bool = True
    has_detached: bool = False
    """Whether a process may run on that has to be stopped in the end."""

    def __enter__(self) -> Reader:
        self.folder.mkdir(parents=True, exist_ok=True)
        home = self.folder.parent / "reader"
        make_environment(home / "environment")
        kept = {name: value for name, value in os.environ.items() if name not in ("AMPLIFIER_TRUST", "CI")}
        self.environment = {
            **kept,
            "AMPLIFIER_HOME": str(home / "data"),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **{f"GIT_{who}_{what}": "ann@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "HOME": str(home),
            "NO_COLOR": "1",
            "PATH": f"{home / 'environment' / 'bin'}:{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # the tool reads it as: no isolation
            "PIP_NO_DEPS": "1",  # they are there
            "PIP_NO_INDEX": "1",
            "PYTHONPATH": "",
        }
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self.has_detached:
                self.type("amplifier stop --everything", check=False)
        finally:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.communicate()

    def install(self, project: Path) -> None:
        """Do as `pip install --editable` does, in a tenth of its time."""
        packages = self.folder.parent / "reader" / "environment" / PACKAGES
        with contextlib.chdir(project):
            wheel = packages / build_editable(str(packages))
        with ZipFile(wheel) as files:
            files.extractall(packages)

    def read(self, page: Path) -> list[Block]:
        """Do what a page says; fail when a command fails, or prints other lines than shown. Return the blocks."""
        blocks = blocks_of(page.read_text(encoding="utf-8"))
        for block in blocks:
            if block.kind != "console":
                assert block.path is not None, f"{page.name}: a block {block.kind} that is no file:\n{block.text}"
                self.write(block.path, block.text)
                continue
            for command, shown in block.commands:
                printed = normal(self.type(command))
                missing = [line for line in normal("\n".join(shown)) if line not in printed]
                assert missing == [], f"{page.name}: $ {command}\n" + "\n".join(printed)
        return blocks

    def write(self, path: str, text: str) -> None:
        """Write a file, at a path as in the shell."""
        file = Path(self.type("pwd").strip()) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def type(self, command: str, *, check: bool = True) -> str:
        """Run a command in the shell and return what it prints; fail when it fails."""
        for pattern, instead in self.stand_ins.items():
            command = re.sub(pattern, instead, command)
        self.has_detached |= "--detach" in command
        if self.installs_quickly and command == "pip install -e '.[dev]'":
            self.install(Path(self.type("pwd").strip()))
            return ""
        if made := re.fullmatch(r"python -m venv (\S+)", command):
            make_environment(Path(self.type("pwd").strip()) / made[1])
            return ""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {command}\n}} < /dev/null\nprintf '\\n{MARK} %s\\n' $?\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        watch = threading.Timer(PATIENCE, os.killpg, (self._shell.pid, signal.SIGKILL))
        watch.start()
        try:
            for line in self._shell.stdout:
                if line.startswith(MARK):
                    printed = "".join(lines)
                    assert not check or line.split()[-1] == "0", f"$ {command}\n{printed}{line}"
                    return printed
                lines.append(line)
        finally:
            watch.cancel()
        raise AssertionError(f"the shell ended at: {command}\n" + "".join(lines))


def make_environment(folder: Path) -> None:
    """Make a Python environment that sees the packages of this one; what it installs stays in it."""
    venv.create(folder, symlinks=True, with_pip=False)
    packages = folder / PACKAGES
    here = sysconfig.get_paths()["purelib"]
    (packages / "seen.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    for name, begin in PROGRAMS.items():
        program = folder / "bin" / name
        program.write_text(f"#!{folder / 'bin' / 'python'}\nimport sys\n{begin}\nsys.exit(main())\n", encoding="utf-8")
        program.chmod(0o755)


def normal(text: str) -> list[str]:
    """Return the lines without what differs from run to run."""
    for pattern, shown in (
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"-[0-9a-f]{12}\b", "-ID"),
        (r"(?<=[▶✓] )(\S+ +)[0-9a-f]{4}\b", r"\1TAG"),
        (r"(?m)^(TIME   \S+ +)[0-9a-f]{4}\b", r"\1TAG"),
        (r"\b\d+(\.\d+)? ?m?s\b", "SECONDS"),
        (r"/\S*/(?=[\w.]+)", "/…/"),
        (r"  +", "  "),
    ):
        text = re.sub(pattern, shown, text)
    return [line.rstrip() for line in text.splitlines() if line.strip() and line.strip() != "…"]
