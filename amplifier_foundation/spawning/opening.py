"""Load the bundle of a session: the one of the command, of the session's record, or of its folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict

from ..bundle.starter import TOOL
from ..sessions.records import agent_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord

    from ..bundle.model import Bundle
    from ..security.trust import NotTrusted
    from ..settings import Settings

    Settle = Callable[[NotTrusted], Awaitable[bool]]
    """Settles what is not trusted yet, and returns whether it is now."""


async def refuse(error: NotTrusted) -> bool:
    """Trust nothing: nobody can be asked."""
    return False


def is_fileless(record: SessionRecord) -> bool:
    """Return whether a session is from a bundle that a program has made: no file has it, and the record not all of it.

    The first bundle of a folder without one is in no file, either, but can be made once more.
    """
    if record.bundle_source or not record.bundle or not record.config:
        return False
    modules = [[entry.get("module") for entry in record.config.get(key) or ()] for key in ("providers", "tools")]
    is_first = len(modules[0]) == 1 and modules[1] == [TOOL] and bool(record.bundle_digest) and not agent_of(record)
    return not is_first


def refuse_fileless(record: SessionRecord) -> None:
    """Return for any other session. Raises `SessionConflict` for one of a bundle that a program has made."""
    if is_fileless(record):
        session = record.session_id
        raise SessionConflict(
            session,
            f"session '{session}' is from the bundle '{record.bundle}' of a program, which no file has. Resume it in "
            f"the program, or go on with another bundle: amplifier run --resume {session} -b BUNDLE",
        )


class BundleOpener:
    """Loads bundles for sessions; `chosen`, from the command line, is that of all new ones."""

    def __init__(self, plugins: Plugins, chosen: str | None = None) -> None:
        self._plugins = plugins
        is_file = chosen is not None and Path(chosen).exists()
        self._chosen = str(Path(chosen).absolute()) if chosen and is_file else chosen

    async def load(self, folder: str, record: SessionRecord | None, settle: Settle) -> Bundle:
        """Return the bundle for a session that works in `folder`; `record` is that of a stored one.

        Raises `BundleError`, `SettingsError`, `NotTrusted`, and `SessionConflict` for a session of a program's bundle.
        """
        if record is not None and self._chosen is None:
            refuse_fileless(record)
        settings = await self._read_settings(folder, settle)
        source = (record.bundle_source if record is not None else None) or self._chosen
        source = source or await asyncio.to_thread(find_own_bundle, folder, settings)
        if source is None:
            bundle = await asyncio.to_thread(_make_bundle, folder, record, settings)
        else:
            bundle = await self._load(source, folder, settings, settle)
        await asyncio.to_thread(self._require_runnable, bundle)
        return bundle

    async def _read_settings(self, folder: str, settle: Settle) -> Settings:
        from ..security.trust import check_settings
        from ..settings import read_settings

        place = Path(folder)
        settings = await asyncio.to_thread(read_settings, place)
        error = await asyncio.to_thread(check_settings, settings, place)
        if error is not None and not await settle(error):
            raise error
        return settings

    async def _load(self, source: str, folder: str, settings: Settings, settle: Settle) -> Bundle:
        from ..bundle.sections import PROMPT_TOOL
        from ..security.loading import load_to_run
        from ..security.trust import NotTrusted
        from ..security.trust_texts import find_untrusted_texts

        while True:
            try:
                bundle = await asyncio.to_thread(load_to_run, source, self._plugins, settings, Path(folder))
            except NotTrusted as error:
                if not await settle(error):
                    raise
                continue
            texts = await asyncio.to_thread(find_untrusted_texts, Path(folder)) if bundle.has_tool(PROMPT_TOOL) else ()
            for untrusted in texts:  # who says no works without them
                if not await settle(untrusted) and settle is refuse:
                    raise untrusted
            return bundle

    def _require_runnable(self, bundle: Bundle) -> None:
        from ..bundle.check import check_loaded
        from ..documents.problems import InvalidBundle, has_errors

        problems = check_loaded(bundle, self._plugins)
        if has_errors(problems):
            raise InvalidBundle(problems)


def find_own_bundle(folder: str, settings: Settings) -> str | None:
    """Return the bundle's file of the project around a folder, else the bundle of the settings, else None."""
    from ..paths import find_own_file, find_project

    chosen = find_own_file(Path(find_project(folder))) or settings.get("bundle")
    return None if chosen is None else str(chosen)


def _make_bundle(folder: str, record: SessionRecord | None, settings: Settings) -> Bundle:
    """Return the bundle of `amplifier init` for a folder without one; that of a stored session once more."""
    from ..bundle.first_provider import Choice, choose_provider
    from ..bundle.names import is_bundle_name
    from ..bundle.overrides import apply_settings
    from ..bundle.starter import first_bundle

    providers = record.config.get("providers") if record is not None else None
    if record is not None and providers:
        choice = Choice(str(providers[0]["module"]), dict(providers[0].get("config") or {}), "")
        return first_bundle(record.bundle, choice, Path(folder))
    name = Path(folder).name
    bundle = first_bundle(name if is_bundle_name(name) else "session", choose_provider(), Path(folder))
    apply_settings(bundle, settings, Path(folder))
    return bundle
