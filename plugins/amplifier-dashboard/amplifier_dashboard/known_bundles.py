"""Find the files of the bundles that this machine knows: only these may be read and written.

A bundle is known that runs or has run, that has a registered name, or that is the one of the page's folder. Fetched
bundles and those of packages are not here: their files are not the person's.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, BundleError, SessionNotFound
from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .desk import Desk


class UnknownBundle(AmplifierError, LookupError):
    """No known bundle has this file."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: no bundle that this machine knows. See /bundles; a name for it: amplifier bundle add NAME PATH"
        )


@frozen
class KnownBundle:
    """The file of a bundle, and why it is known: "runs", "has run", "of this project", "registered as NAME"."""

    path: Path
    reasons: tuple[str, ...]
    projects: tuple[str, ...] = ()
    """Where it runs."""


async def find_known_bundle(desk: Desk, path: str) -> KnownBundle:
    """Return the known bundle with this file, or in this folder. Raises `UnknownBundle`."""
    wanted = await asyncio.to_thread(_find_file, Path(path), {})
    for each in await find_known_bundles(desk):
        if each.path == wanted:
            return each
    raise UnknownBundle(path)


async def find_known_bundles(desk: Desk) -> list[KnownBundle]:
    """Return the known bundles, by their paths."""
    from amplifier_foundation.background.keys import RUNS
    from amplifier_foundation.operations.running import list_all_running

    running = {each.key for each in await asyncio.to_thread(list_all_running)}
    had = {(each.project, each.queue) for each in await desk.store.delivery_counts() if each.queue != RUNS}
    sources: list[tuple[str, str, str]] = []
    for reason, queues in (("runs", running), ("has run", had - running)):
        bundles = {(project, queue.rpartition("/")[0]) for project, queue in queues}
        for project, bundle in sorted(bundles):
            sources.append((await _source_of(desk, project, bundle), reason, project))
    return await asyncio.to_thread(_find_files, desk, sources)


async def _source_of(desk: Desk, project: str, bundle: str) -> str:
    """Return the source that a background session was started with; '' for one that is unknown."""
    from amplifier_foundation.background.up import root_id

    try:
        return (await desk.store.get(root_id(bundle, project))).bundle_source
    except SessionNotFound:
        return ""


def _find_files(desk: Desk, sources: Iterable[tuple[str, str, str]]) -> list[KnownBundle]:
    from amplifier_foundation.bundle.registry import BundleRegistry
    from amplifier_foundation.operations.loading import known_bundles, read_trusted_settings

    settings, _ = read_trusted_settings(Path(desk.project))
    names = known_bundles(desk.plugins, settings)
    of_packages = BundleRegistry(plugins=desk.plugins).names_of_packages().items()
    own = sorted(name for name, _ in names.items() - of_packages)
    wanted = [*sources, (desk.project, "of this project", ""), *((name, f"registered as {name}", "") for name in own)]
    found: dict[Path, KnownBundle] = {}
    for source, reason, project in wanted:
        path = _find_file(source, names)
        if path is not None:
            before = found.get(path, KnownBundle(path, ()))
            reasons = tuple(dict.fromkeys([*before.reasons, reason]))
            running = [*before.projects, project] if reason == "runs" else before.projects
            found[path] = KnownBundle(path, reasons, tuple(running))
    return sorted(found.values(), key=lambda each: str(each.path))


def _find_file(source: str | Path, names: Mapping[str, str]) -> Path | None:
    """Return the file of a bundle of the person's own; None for another one."""
    from amplifier_foundation.bundle.references import find_bundle, remote_place
    from amplifier_foundation.paths import is_personal

    if not source or (isinstance(source, str) and remote_place(source, None, names) is not None):
        return None
    try:
        path = Path(os.path.realpath(find_bundle(source, names=names)))
    except (BundleError, OSError):
        return None
    return path if is_personal(path.parent) else None
