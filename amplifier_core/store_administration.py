"""Define the administration of a store: look at its size, check, back up, restore, salvage and compact it.

A storage package offers it as the attribute `administer` of its factory: a function from the factory's configuration to
a `StoreAdministration`. It does not open the store: check, restore and salvage are for stores that do not open. An open
store may offer the same as its attribute `administration`. An administration may also offer `losses(backup)`, which
returns the `RestoreLosses` of a restore, or None where it cannot tell.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .contracts import Contract
from .frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@frozen
class StoreUse:
    """Say how many rows and bytes one kind of data takes, indexes included."""

    kind: str
    rows: int
    bytes: int


@frozen
class StoreInfo:
    """Describe the room a store takes.

    `bytes` is the size of its files, `free` the part of it without data. `uses` has every kind of data, `largest` the
    largest sessions, queues and trigger states; `backups` are in the order of their age, the newest first, and so are
    the stores `replaced` by restores. A store that makes none says in `other_backups` how it is backed up, as in
    `is backed up with pg_dump`.
    """

    place: Path
    bytes: int
    free: int
    uses: tuple[StoreUse, ...] = ()
    largest: tuple[StoreUse, ...] = ()
    backups: tuple[Path, ...] = ()
    other_backups: str = ""
    replaced: tuple[Path, ...] = ()


@frozen
class StoreFault:
    """Describe one fault of a store: its place, and the remedy."""

    where: str
    message: str
    remedy: str


@frozen
class Salvaged:
    """Say how many rows of each kind are in the new store at `path`, and in sentences what is lost."""

    path: Path
    rows: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[str, ...] = ()


@frozen
class Compacted:
    """Give the size of a store before and after, in bytes, and the bytes still free inside."""

    before: int
    after: int
    free: int = 0


@frozen
class RestoreLosses:
    """Count what a store has and a backup has not.

    `handled` deliveries came to an end since the backup, where they wait or are missing. `waiting` deliveries and
    `sessions` are missing in it; a session with fewer messages there counts, too. `returning` sessions are in it alone:
    they were deleted since, and come back.
    """

    handled: int
    waiting: int
    sessions: int
    returning: int = 0


@runtime_checkable
class StoreAdministration(Protocol, metaclass=Contract):
    """Look after the files of a store; synchronous, and usable in any thread.

    Methods raise `StoreUnavailable`, `StoreDamaged` and, for a store of a newer version, `StoreConflict`; after an
    error the store is as it was before.
    """

    def info(self) -> StoreInfo:
        """Return the room the store takes, by kind of data."""
        ...

    def size(self) -> tuple[int, int]:
        """Return (bytes, free) as `info` does, at once."""
        ...

    def probe(self) -> None:
        """Raise an error for a store damaged, replaced or removed while it is in use, as far as a quick look tells."""
        ...

    def check(self, *, repair: bool = False) -> list[StoreFault]:
        """Read everything and return the faults; with `repair`, rebuild damaged indexes and return the other faults."""
        ...

    def backup(self, path: Path | None = None, *, keep: int | None = None, label: str = "") -> Path:
        """Copy the store, in use or not, to a new file `path`, else into its folder of backups; return the file.

        With `keep`, all but the newest `keep` backups with the same `label` in that folder are deleted afterwards.
        """
        ...

    def backups(self) -> list[Path]:
        """Return the backups in the store's folder of backups, the newest first."""
        ...

    def restore(self, path: Path | None = None) -> Path:
        """Put a copy of `path`, else of the newest backup, in place of the store; return the place of the old one.

        The caller ensures that nobody uses the store. Raises `StoreUnavailable` if somebody does, `BackupNotFound`.
        """
        ...

    def salvage(self, path: Path | None = None) -> Salvaged:
        """Write everything readable of a damaged store into a new one; the damaged store stays as it is."""
        ...

    def compact(self, *, wait: bool = False) -> Compacted:
        """Give free room back to the file system, beside writers; with `wait`, all of it, while writers wait.

        Without `wait` it may return before all is given back: see `compactions`.
        """
        ...


def administration_of(factory: object, config: Mapping[str, Any]) -> StoreAdministration | None:
    """Return the administration a storage's factory offers for `config`; None without one."""
    administer = getattr(factory, "administer", None)
    return administer(config) if callable(administer) else None


def compactions(administration: StoreAdministration) -> Iterator[Compacted]:
    """Give free room back beside writers, and yield after each call, until no more of it can be given back."""
    done = administration.compact()
    yield done
    while done.free and (following := administration.compact()).free < done.free:
        done = following
        yield done
