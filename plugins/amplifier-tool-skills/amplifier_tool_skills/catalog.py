"""Know the skills and commands of a session; look for changes at each prompt."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from shlex import quote
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_core import ModuleCoordinator
    from amplifier_foundation.bundle.prompt_files import Kind, PromptFile, ReadText
    from amplifier_foundation.bundle.prompt_folders import Owner, PromptFolder
    from amplifier_foundation.documents.problems import Problem
    from amplifier_foundation.security.trust_texts import TrustedTexts

logger = logging.getLogger(__name__)

OWNERS: tuple[Owner, ...] = ("user", "project", "bundle")
LIST_CHARS = 8_000
"""Characters of the list of skills that models see."""
SHOWN = 3
"""Problems named in one warning."""
KINDS: tuple[Kind, ...] = ("command", "skill")


class Catalog:
    """The skills and commands by name; of two with one name, the person's own counts, then the project's.

    Files of a project, and of a bundle that was asked about, count as they were trusted alone.
    """

    def __init__(self, coordinator: ModuleCoordinator, owners: Sequence[Owner]) -> None:
        self.skills: dict[str, PromptFile] = {}
        self.commands: dict[str, PromptFile] = {}
        self.owners: dict[Path, str] = {}
        """Who each file belongs to."""
        self._coordinator = coordinator
        self._owners = owners
        self._stamp: object = None
        self._lock = Lock()
        self._readers: dict[Path, ReadText] = {}
        self._trusted: TrustedTexts | None = None
        self._told: set[str] = set()

    @property
    def working_dir(self) -> Path:
        """Return the working folder of the session."""
        return Path(self._coordinator.get_capability("session.working_dir") or Path.cwd())

    @property
    def is_read(self) -> bool:
        """Return whether the files were looked at."""
        return self._stamp is not None

    async def on_prompt(self, event: str, data: dict[str, Any]) -> None:
        """Look for changes, for the hook `prompt:submit`."""
        await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Read the skills and commands again, if any file of theirs has changed; call this in any thread."""
        from amplifier_foundation.bundle.prompt_folders import stamp_files

        with self._lock:
            folders = list(self._find_folders())
            stamp = [stamp_files(folder for folder, _ in folders), _stamp_trust()]
            if stamp != self._stamp:
                self._read(folders)
                self._stamp = stamp

    def list_files(self, skill: PromptFile) -> list[str]:
        """Return the files of a skill beside `SKILL.md`, without those that must be trusted and are not."""
        from amplifier_foundation.bundle.prompt_folders import list_skill_files

        folder, trusted = skill.file.parent, self._trusted
        files = list_skill_files(folder)
        if trusted is None or self._find_reader(skill.file) != trusted.read:
            return files
        return [each for each in files if trusted.knows(folder / each)]

    def read(self, file: Path, limit: int) -> str:
        """Return the text of a file of a skill or command. Raises `OSError` and `ValueError`."""
        reader = self._find_reader(file)
        if reader is None:
            raise FileNotFoundError(file)
        return reader(file, limit)

    def _find_reader(self, file: Path) -> ReadText | None:
        return next((read for root, read in self._readers.items() if file.is_relative_to(root)), None)

    async def expand_mentions(self, text: str, file: Path) -> str:
        """Return a text followed by the files that it mentions (`@path`, from the working folder on)."""
        from amplifier_foundation.mentions import BaseMentionResolver, expand_mentions_in_instruction

        known = self._coordinator.get_capability("mention_resolver")
        resolver = known if isinstance(known, BaseMentionResolver) else BaseMentionResolver({}, self.working_dir)
        within = resolver.within(file).beginning_in(self.working_dir)
        return await expand_mentions_in_instruction(text, within)

    def _find_folders(self) -> Iterator[tuple[PromptFolder, bool]]:
        """Yield the folders, and whether their files must be trusted."""
        from amplifier_foundation.bundle.prompt_folders import bundle_folders, project_folders, user_folders
        from amplifier_foundation.security.trust import is_checked

        bundles: dict[str, bool] = self._coordinator.get_capability("bundle.folders") or {}
        for owner in (each for each in OWNERS if each in self._owners):
            for kind in KINDS:
                if owner == "user":
                    yield from ((each, False) for each in user_folders(kind))
                elif owner == "project":
                    checks = is_checked()
                    yield from ((each, checks) for each in project_folders(kind, self.working_dir))
                else:
                    yield from ((each, bundles[str(each.root)]) for each in bundle_folders(kind, [*map(Path, bundles)]))

    def _read(self, folders: Sequence[tuple[PromptFolder, bool]]) -> None:
        from amplifier_foundation.bundle.prompt_files import read_text
        from amplifier_foundation.bundle.prompt_folders import find_prompt_files
        from amplifier_foundation.documents.positions import show_file
        from amplifier_foundation.security.trust_texts import TrustedTexts, UntrustedText

        project = self._coordinator.get_capability("session.project")  # of a session that works in a worktree
        self._trusted = trusted = TrustedTexts(self.working_dir, Path(project) if project else None)
        problems: list[Problem] = []
        untrusted: list[Path] = []
        shadowed: list[str] = []
        found: dict[Kind, dict[str, PromptFile]] = {kind: {} for kind in KINDS}
        readers: dict[Path, ReadText] = {}
        owners: dict[Path, str] = {}

        def read_trusted(file: Path, limit: int) -> str:
            try:
                return trusted.read(file, limit)
            except UntrustedText:
                untrusted.append(file)
                raise FileNotFoundError(file) from None

        for folder, checks in folders:
            readers.setdefault(folder.path, trusted.read if checks else read_text)
            for each in find_prompt_files(folder, read_trusted if checks else read_text, problems):
                first = found[folder.kind].setdefault(each.name, each)
                owners.setdefault(each.file, folder.owner)
                if first is not each and first.file.resolve() != each.file.resolve():
                    shadowed.append(f"{show_file(each.file)}: {show_file(first.file)} has its name")
        self._readers, self.owners = readers, owners
        self.commands, self.skills = ({name: found[kind][name] for name in sorted(found[kind])} for kind in KINDS)
        self._report([*(str(each) for each in problems if each.severity == "error"), *shadowed], untrusted)

    def _report(self, problems: list[str], untrusted: list[Path]) -> None:
        if untrusted:
            from amplifier_foundation.documents.positions import show_file

            names = _join([show_file(each) for each in untrusted])
            problems.append(
                f"{names}: not trusted. Look at it, and trust it, with: amplifier trust {quote(str(self.working_dir))}"
            )
        if fresh := [each for each in problems if each not in self._told]:
            self._told.update(fresh)
            logger.warning("skills and commands are left out: %s", _join(fresh))


def _join(texts: list[str]) -> str:
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more


def _stamp_trust() -> object:
    from amplifier_foundation.security.trust_ledger import Ledger

    try:
        status = os.stat(Ledger().file)  # noqa: PTH116
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
