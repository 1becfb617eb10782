"""Find the file for the log of a session."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

_LONGEST = 200
"""Bytes of a name; file systems allow 255."""


def log_path(template: str, session_id: str, working_dir: str | os.PathLike[str] | None) -> Path:
    """Return the file of `template`; a relative one lies in the session's working folder, or the current one.

    Raises `OSError` or `RuntimeError` if there is no such folder.
    """
    folder = Path(working_dir or ".").expanduser().resolve()
    values = {
        "home": lambda: str(data_home()),
        "project": lambda: slug(str(folder)),
        "session_id": lambda: session_folder(session_id),
    }
    filled = re.sub(r"\{(\w+)\}", lambda found: values[found[1]](), template)
    return folder / Path(filled).expanduser()


def data_home() -> Path:
    """Return the data folder: `AMPLIFIER_HOME`, or the system's folder for user data."""
    chosen = os.environ.get("AMPLIFIER_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("amplifier")


def slug(project: str) -> str:
    """Return the folder name of a project, as other amplifier tools make it: `/work/app` is `-work-app`."""
    name = re.sub(r"[/\\]", "-", project).replace(":", "")
    name = "-" + re.sub(r"[\x00-\x1f\ud800-\udfff]", "-", name).removeprefix("-")
    return name if len(name.encode()) <= _LONGEST else _shorten(name, name)


def session_folder(session_id: str) -> str:
    """Return the folder name of a session: its id, unless it could lead elsewhere; two ids never share a name."""
    name = re.sub(r"[^\w.-]", "-", session_id, flags=re.ASCII)
    if name == session_id and name[:1] not in ("", ".") and len(name) <= _LONGEST:
        return name
    return _shorten(name.lstrip("."), session_id)


def _shorten(name: str, whole: str) -> str:
    digest = sha256(whole.encode(errors="surrogatepass")).hexdigest()[:8]
    return name.encode()[:_LONGEST].decode(errors="ignore") + "-" + digest
