"""Ask whether to trust a bundle or the settings of a project, and show what they would run."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from amplifier_core.errors import AmplifierError
from amplifier_core.utils.command_secrets import redact_words

from ..documents.safe_text import exact_line, plain_line
from ..security.session_mark import is_within_session, refuse_in_session
from ..security.trust import NotTrusted, check_settings, is_checked, show_place, trust_content, without_project

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord

    from ..bundle.model import Bundle
    from ..security.trust_content import Content

    Confirm = Callable[[str], Awaitable[bool]]

_Shown = TypeVar("_Shown", str, list[str])
MOST_SHOWN = 200_000
"""Characters of a diff that are shown; of a longer one, the rest is told with its files."""
LONGEST_LINE, MOST_LINES, MOST_FILES = 4_000, 400, 200
"""Characters of a line about what would run, these lines, and the files to look at where more is left out."""


async def confirm_here(question: str) -> bool:
    """Ask a person in this thread."""
    from .questions import ask_to_confirm

    return ask_to_confirm(question)


class Asking:
    """Settles what is not trusted: `always` says yes, a person is asked at a terminal, nobody elsewhere.

    Raises `WithinSession` for `always` in a command of a session.
    """

    def __init__(self, plugins: Plugins, always: bool = False, confirm: Confirm = confirm_here) -> None:
        if always:
            refuse_in_session("run --trust")
        self._plugins, self._always, self._confirm = plugins, always, confirm
        self._accepted: dict[str, Content] = {}

    async def settle_settings(self, folder: Path | None = None) -> None:
        """Settle the trust in the project's settings of a folder. Raises `NotTrusted`, `SettingsError`."""
        if not is_checked():
            return
        from ..settings import read_settings, settings_exist

        if settings_exist(folder):
            error = check_settings(read_settings(folder), folder)
            if error is not None and not await self.settle(error):
                raise error

    async def settle_texts(self, bundle: Bundle, folder: Path | None = None) -> None:
        """Settle the trust in the skills and commands of a folder's project; who says no works without them."""
        from ..bundle.sections import PROMPT_TOOL
        from ..security.trust_texts import find_untrusted_texts

        if bundle.has_tool(PROMPT_TOOL):
            for error in find_untrusted_texts(folder or Path.cwd()):
                await self.settle(error)

    async def settle(self, error: NotTrusted) -> bool:
        """Return whether the content of an error is trusted now."""
        content = error.content
        if content is None:
            return False
        before = self._accepted.get(content.place)
        if before is not None and before.files == content.files:
            return False
        is_yes = before is not None and _only_fetched_more(before, content)
        if is_yes or self._always or await self._was_used(content) or await self._ask(error):
            trust_content(content)
            self._accepted[content.place] = content
            return True
        return False

    async def _ask(self, error: NotTrusted) -> bool:
        if not (sys.stdin.isatty() and sys.stderr.isatty()) or is_within_session():
            return False
        show_content(error)
        return await self._confirm("Trust it?")

    async def _was_used(self, content: Content) -> bool:
        """Return whether sessions of a version without trust ran this very bundle, or ran with these settings.

        What somebody took the trust from is asked for again.
        """
        from ..security.trust_ledger import Ledger

        ledger = Ledger()
        begun = ledger.begin()
        if ledger.find(content.place) is not None:
            return False
        place = Path(content.place)
        for record in await self._old_sessions(begun):
            if place.name == ".amplifier" and Path(record.project) == place.parent:
                return True
            if content.digest and record.bundle_digest == content.digest and is_same(record.bundle_source, place):
                return True
        return False

    async def _old_sessions(self, before: float) -> list[SessionRecord]:
        from ..sessions.storages import open_store
        from ..settings import read_settings

        try:
            store = open_store(self._plugins, without_project(read_settings()).get("storage"))
        except AmplifierError:  # the command needs it too, and tells
            return []
        try:
            return [each for each in await store.sessions(limit=10_000) if each.created.timestamp() < before]
        finally:
            await store.close()


def is_same(source: str, place: Path) -> bool:
    """Return whether a stored path of a bundle names a place."""
    from ..security.trust_files import path_of

    return bool(source) and path_of(source) == str(place)


def show_content(error: NotTrusted) -> None:
    """Show on stderr what would run, or what has changed."""
    content = error.content
    assert content is not None
    shown = plain_line(show_place(content.place))
    if not error.changed:
        click.echo(f"{shown} is not trusted yet. It would run or use:", err=True)
        click.echo(f"  {'file':12} {plain_line(content.place)}", err=True)
        lines = [f"  {plain_line(label):12} {exact_line(text)}" for label, text in content.lines]
        for line in keep_ends(lines, MOST_LINES, [f"… {len(lines) - MOST_LINES} lines are not shown …"]):
            note = f" … {len(line) - LONGEST_LINE} characters are not shown … "
            click.echo(keep_ends(line, LONGEST_LINE, note), err=True)
        if len(lines) > MOST_LINES or any(len(line) > LONGEST_LINE for line in lines):
            click.echo("Not all is shown. Look at these files before you say yes:", err=True)
            name_files([content.place, *content.files])
        return
    click.echo(f"{shown} {error.problem}:", err=True)
    left, rest = MOST_SHOWN, 0
    for line in diff(content, error.changed):
        rest += 1 if len(line) > left else 0
        if not rest:
            left -= len(line)
            click.echo(exact_line(redact_words(line)), err=True)
    if rest:
        click.echo(f"… {rest} more lines are not shown. Look at these files before you say yes:", err=True)
        name_files([*error.changed, *content.files])


def keep_ends(shown: _Shown, most: int, note: _Shown) -> _Shown:
    """Return a text or a list with `note` in place of its middle if it is longer than `most`."""
    return shown if len(shown) <= most else shown[: most // 2] + note + shown[-most // 2 :]


def name_files(paths: Sequence[str]) -> None:
    """Name on stderr the first of these files, and tell how many others there are."""
    named = [plain_line(path) for path in dict.fromkeys(paths)]
    rest = len(named) - MOST_FILES
    for path in named[:MOST_FILES] + ([f"… {rest} more"] if rest > 0 else []):
        click.echo(f"  {path}", err=True)


def diff(content: Content, changed: tuple[str, ...]) -> Iterator[str]:
    """Yield a unified diff of the changed files; of one without a kept text, its name."""
    from difflib import unified_diff

    from amplifier_core.permissions import read_regular

    from ..security.trust_ledger import MAX_TEXTS, Ledger

    ledger = Ledger()
    entry, texts = ledger.find(content.place), ledger.texts(content.place)
    known = entry.files if entry is not None else {}
    for path in dict.fromkeys((*changed, *(each for each in content.files if each not in known))):
        now = ""
        with suppress(OSError, UnicodeDecodeError):
            now = read_regular(path, MAX_TEXTS).decode()
        if path in texts or path not in known:
            found = list(unified_diff(texts.get(path, "").splitlines(), now.splitlines(), path, path, n=2, lineterm=""))
            yield from found or [f"new: {path}"]
        else:
            yield f"changed: {path}"


def _only_fetched_more(before: Content, after: Content) -> bool:
    """Return whether the files beyond those that a person agreed to were fetched, as was shown."""
    from ..security.trust_files import is_below
    from ..sources import default_cache

    kept = all(path in after.files and after.files[path].digest == seen.digest for path, seen in before.files.items())
    cache = str(default_cache().folder.resolve())
    return kept and all(path in before.files or is_below(path, (cache,)) for path in after.files)
