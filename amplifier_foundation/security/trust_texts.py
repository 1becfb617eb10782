"""Let skills and commands of a project into prompts only as the person has trusted them.

Those of a bundle are a part of the bundle. Those of a project are known by its folder; who does not trust them works
without them.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from ..bundle.sections import PROMPT_TOOL
from .trust_files import owner_of, path_of, read_seen, read_stamp
from .trust_ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..bundle.model import Bundle
    from ..bundle.prompt_folders import PromptFolder
    from .trust import NotTrusted
    from .trust_content import Content
    from .trust_files import Seen

SHOWN = 100
"""Characters of a description that is shown before the trust."""


class UntrustedText(ValueError):
    """The content of a file is not what the person has trusted."""

    def __init__(self, path: Path) -> None:
        super().__init__("is not trusted, or has changed since")
        self.path = path


class TrustedTexts:
    """Reads files with the content that was trusted for them, at whatever place.

    A worktree has the files of its project: what was trusted in the `project` counts in the `folder` of a session, too.
    """

    def __init__(self, folder: Path | None = None, project: Path | None = None) -> None:
        self._ledger = Ledger()
        self._folder, self._project = folder, project

    def read(self, path: Path, limit: int) -> str:
        """Return the text of a file of at most `limit` bytes. Raises `UntrustedText`, `OSError`, `ValueError`."""
        from ..mentions.files import decode_text, read_bytes

        real = path.resolve()
        raw = read_bytes(real, limit)
        if sha256(raw).hexdigest() not in self._find_digests(real):
            raise UntrustedText(path)
        return decode_text(raw)

    def knows(self, path: Path) -> bool:
        """Return whether any content of a file was trusted: the name of a planted file is a stranger's text, too."""
        return bool(self._find_digests(path.resolve()))

    def _find_digests(self, path: Path) -> set[str]:
        found = self._ledger.digests_of(path_of(path))
        if self._folder is not None and self._project is not None:
            inside = os.path.relpath(path_of(path), os.path.realpath(self._folder))
            found |= self._ledger.digests_of(path_of(os.path.realpath(self._project) + os.sep + inside))
        return found


def find_untrusted_texts(folder: Path, *, checks: bool | None = None) -> list[NotTrusted]:
    """Return an error for each folder of a project with skills or commands that are not trusted as they are.

    `folder` is the working folder of a session; `checks` is by default what `is_checked` says. Raises
    `TrustUnreadable`.
    """
    from ..bundle.prompt_folders import find_roots
    from .trust import NotTrusted, is_checked

    if not (is_checked() if checks is None else checks):
        return []
    from .trust_content import Content

    ledger, found = Ledger(), []
    for root in find_roots(folder):
        folders = _folders_of(root)
        entry = ledger.find(str(root))
        known = entry.files if entry is not None else {}
        content = Content(str(root), owner_of(str(root)), files=_see_files(folders, known))
        strange = [path for path, seen in content.files.items() if seen.digest not in ledger.digests_of(path)]
        if strange:
            content.lines = list(_describe(folders))
            found.append(NotTrusted(content.place, strange if known else (), content))
    return found


def add_texts(content: Content, folders: Sequence[PromptFolder]) -> None:
    """Add the files of skills and commands in these folders to a content, with a line for each of them."""
    content.files = {**_see_files(folders, {}), **content.files}
    content.lines += _describe(folders)


def _see_files(folders: Iterable[PromptFolder], known: Mapping[str, Seen]) -> dict[str, Seen]:
    """Return the files by their paths; what is `known` and has its stamp is not read again."""
    from ..bundle.prompt_folders import list_files

    files: dict[str, Seen] = {}
    for path in map(path_of, list_files(folders)):
        seen = known.get(path)
        is_unchanged = seen is not None and seen.stamp is not None and read_stamp(path) == seen.stamp
        files[path] = seen if seen is not None and is_unchanged else read_seen(path)
    return files


def _describe(folders: Iterable[PromptFolder]) -> Iterator[tuple[str, str]]:
    from amplifier_core.utils.secrets import redact_text

    from ..bundle.prompt_files import read_text
    from ..bundle.prompt_folders import find_prompt_files
    from ..documents.positions import show_file

    for folder in folders:
        for each in find_prompt_files(folder, read_text, []):
            description = each.description if len(each.description) <= SHOWN else f"{each.description[: SHOWN - 1]}…"
            yield each.kind, redact_text(f"{each.name}: {description} ({show_file(each.file)})")


def find_strange_texts(bundle: Bundle, known: Iterable[str]) -> Iterator[str]:
    """Yield the files of a bundle's skills and commands that are not among the `known` ones."""
    if folders := folders_of_bundle(bundle):
        from ..bundle.prompt_folders import list_files

        names = set(known)
        yield from (path for path in map(path_of, list_files(folders)) if path not in names)


def folders_of_bundle(bundle: Bundle) -> list[PromptFolder]:
    """Return the folders with skills and commands of a bundle; none for a bundle without the tool for them."""
    if not bundle.has_tool(PROMPT_TOOL):
        return []
    from ..bundle.prompt_folders import FOLDERS, bundle_folders, bundle_roots

    return [each for kind in FOLDERS for each in bundle_folders(kind, bundle_roots(bundle))]


def _folders_of(root: Path) -> list[PromptFolder]:
    from ..bundle.prompt_folders import FOLDERS, project_folders

    return [each for kind in FOLDERS for each in project_folders(kind, root) if each.root == root]
