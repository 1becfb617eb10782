"""Read the text of a bundle's file, check it before it is saved, and save it.

All functions but `save_bundle_text` block on files. A file that is a symlink stays one: its target is written.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, BundleLoadError, BundleNotFoundError
from amplifier_core.frozen import frozen

from .acting import record_act

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionStore

    from ..documents.problems import Problem
    from .acting import Actor


class BundleTextChanged(AmplifierError, RuntimeError):
    """The file of a bundle is no longer what was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path}: somebody changed this file since you read it, and nothing was saved. Read it again, and make "
            "your change anew"
        )


@frozen
class BundleText:
    """The text of a bundle's file."""

    path: Path
    """The file, symlinks followed."""
    text: str
    digest: str
    """The SHA-256 of the file's bytes, in hex."""


def read_bundle_text(path: Path | str) -> BundleText:
    """Read the file of a bundle, or of the bundle in a folder.

    Raises `BundleNotFoundError`, and `BundleLoadError` for a file that is none, is too large or is not UTF-8.
    """
    from ..paths import find_bundle_file

    path = Path(path)
    real = Path(os.path.realpath(find_bundle_file(path) or path))
    with _opening(real) as descriptor:
        return _read(real, descriptor)


def validate_text(path: Path | str, text: str, plugins: Plugins) -> list[Problem]:
    """Return the problems of a bundle whose file would have this text, with line and column, as `bundle validate` does.

    Nothing is fetched: an included bundle that is not in the cache is left out, with a warning. Raises
    `BundleNotFoundError` and `BundleLoadError` for a missing file, and the errors of settings.
    """
    from amplifier_core.utils.secrets import redact_text

    from ..bundle.check import check_file
    from ..bundle.references import remote_place
    from ..documents.document import reading_unsaved
    from ..sources import default_cache, redact_uris
    from .loading import known_bundles, read_trusted_settings

    path = Path(path)
    settings, _ = read_trusted_settings(path.parent)
    names = known_bundles(plugins, settings)

    def leave_out(source: str) -> str:
        place = remote_place(source, None, names)
        is_here = place is None or default_cache().get(place) is not None
        return "" if is_here else f"{redact_uris(source)} is not fetched for a text that is not saved"

    with reading_unsaved(path, text):
        found = check_file(path, plugins, registry=names, leave_out=leave_out)
    return [replace(each, file=redact_text(each.file), message=redact_text(each.message)) for each in found]


async def save_bundle_text(store: SessionStore, actor: Actor, path: Path | str, text: str, digest: str) -> BundleText:
    """Replace the text of a bundle's file if the file still has the `digest` of the text that was read.

    The file is replaced in one step, and keeps its line ends and its mode. Raises `BundleTextChanged`,
    `BundleNotFoundError`, and `BundleLoadError` when the file cannot be written.
    """
    from asyncio import to_thread

    from ..paths import project_of

    saved = await to_thread(_replace, Path(path), text, digest)
    facts = {"digest": saved.digest, "digest_before": digest}
    await record_act(store, actor, "bundle.save", str(saved.path), project=project_of(saved.path.parent), **facts)
    return saved


def _replace(path: Path, text: str, digest: str) -> BundleText:
    from ..documents.files import replace_file

    real = Path(os.path.realpath(path))
    with _opening(real) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # of several that save at once, one finds the digest that it read
        before = _read(real, descriptor)
        try:
            is_there = os.path.samestat(os.lstat(real), os.fstat(descriptor))
        except FileNotFoundError:
            is_there = False
        if before.digest != digest or not is_there:  # another file may have taken its place
            raise BundleTextChanged(real)
        text = text.replace("\r\n", "\n")
        if "\r\n" in before.text:
            text = text.replace("\n", "\r\n")
        try:
            if not os.access(real, os.W_OK):
                raise PermissionError(f"{real} is read-only")
            replace_file(real, text.encode(), stat.S_IMODE(os.fstat(descriptor).st_mode))
        except OSError as error:
            raise BundleLoadError(f"{real}: cannot be written ({error.strerror or error})") from error
    return BundleText(real, text, sha256(text.encode()).hexdigest())


@contextmanager
def _opening(real: Path) -> Iterator[int]:
    """Open a regular file while the block runs; a symlink in its place is refused."""
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BundleNotFoundError(f"{real}: no such file") from None
    except OSError as error:
        raise BundleLoadError(f"{real}: cannot be read ({error.strerror})") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BundleLoadError(f"{real}: not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def _read(real: Path, descriptor: int) -> BundleText:
    from ..documents.document import MAX_BYTES

    with os.fdopen(os.dup(descriptor), "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise BundleLoadError(f"{real}: larger than {MAX_BYTES // 2**20} MiB")
    try:
        return BundleText(real, raw.decode(), sha256(raw).hexdigest())
    except UnicodeDecodeError:
        raise BundleLoadError(f"{real}: not UTF-8; save the file as UTF-8") from None
