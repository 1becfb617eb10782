"""Find the folders below the base: `projects/<slug>/sessions/<session_id>`."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.errors import InvalidSessionId, SessionNotFound
from amplifier_core.ids import validate_session_id

from .files import hold_lock, make_folder, translate_errors
from .folder import SessionFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LONGEST = 200
"""Bytes of a slug; file systems take names of 255."""


def slug(project: str) -> str:
    """Return the folder name of a project, as other amplifier tools make it: `/work/app` is `-work-app`."""
    name = re.sub(r"[/\\]", "-", project).replace(":", "")
    name = "-" + re.sub(r"[\x00-\x1f\ud800-\udfff]", "-", name).removeprefix("-")
    if len(name.encode()) > _LONGEST:
        name = name.encode()[:_LONGEST].decode(errors="ignore") + "-" + sha256(name.encode()).hexdigest()[:8]
    return name


class Tree:
    """Find sessions by id in any project, and remember their folders."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._projects = base / "projects"
        self._known: dict[str, SessionFolder] = {}

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the whole tree while an id is taken or given up."""
        with translate_errors(self.base):
            make_folder(self.base)
            with hold_lock(self.base / ".lock"):
                yield

    def path(self, session_id: str, project: str) -> Path:
        """Return the place of a new session's folder."""
        return self._projects / slug(project) / "sessions" / session_id

    def find(self, session_id: str) -> SessionFolder:
        """Return a session's folder. Raises `SessionNotFound`, `InvalidSessionId`."""
        validate_session_id(session_id)
        known = self._known.get(session_id)
        if known is not None and known.exists():
            return known
        for sessions in self._sessions_folders():
            folder = SessionFolder(sessions / session_id)
            if folder.exists():
                self._known[session_id] = folder
                return folder
        self._known.pop(session_id, None)
        raise SessionNotFound(session_id)

    def has(self, session_id: str) -> bool:
        """Return whether there is such a session."""
        try:
            self.find(session_id)
        except (SessionNotFound, InvalidSessionId):
            return False
        return True

    def all(self) -> Iterator[SessionFolder]:
        """Yield every session, in no order."""
        for sessions, names in self.ids():
            for name in names:
                folder = self.folder(sessions, name)
                if folder.exists():
                    yield folder

    def ids(self, prefix: str = "") -> Iterator[tuple[Path, list[str]]]:
        """Yield each folder of sessions with the possible ids in it beginning with `prefix`."""
        for sessions in self._sessions_folders():
            names = [name for name in _names(sessions) if name.startswith(prefix) and _is_id(name)]
            if names:
                yield sessions, names

    def folder(self, sessions: Path, session_id: str) -> SessionFolder:
        """Return the folder of a session below `sessions`, which may be missing."""
        known = self._known.get(session_id)
        return known if known is not None and known.path.parent == sessions else SessionFolder(sessions / session_id)

    def _sessions_folders(self) -> Iterator[Path]:
        for name in _names(self._projects):
            if not name.startswith("."):
                yield self._projects / name / "sessions"


def _is_id(name: str) -> bool:
    try:
        return bool(validate_session_id(name))
    except InvalidSessionId:
        return False


def _names(folder: Path) -> list[str]:
    with translate_errors(folder):
        try:
            return os.listdir(folder)  # noqa: PTH208  # ten thousand names, and no path objects
        except (FileNotFoundError, NotADirectoryError):
            return []
