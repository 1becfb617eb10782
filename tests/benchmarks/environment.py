"""The environment of the peers, beside ours: one of them has the import name of our kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-peers"
WANTED = Path(__file__).with_name("peers.txt")
INSTALLED = FOLDER / "installed.txt"
"""What `peers.txt` said when it was installed."""
PATIENCE = 600
"""Seconds."""


def peers_python() -> Path | None:
    """Return the interpreter that has the peers, made once; None, and the cause on stderr, where it cannot be made."""
    python = FOLDER / "bin" / "python"
    wanted = WANTED.read_text(encoding="utf-8")
    if not INSTALLED.is_file() or INSTALLED.read_text(encoding="utf-8") != wanted:
        click.echo(f"Installing the peers into {FOLDER.name} (once) …", err=True)
        try:
            _run(sys.executable, "-m", "venv", str(FOLDER))
            _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(WANTED))
        except (subprocess.SubprocessError, OSError) as error:
            click.echo(f"The peers are not installed: {_cause(error)}", err=True)
            return None
        INSTALLED.write_text(wanted, encoding="utf-8")
    return python


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)


def _cause(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip().splitlines()[-1]
