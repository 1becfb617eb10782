"""Read a bundle's file: its data, the position of every value, and its body."""

from __future__ import annotations

import os
import stat
import threading
from codecs import BOM_UTF8
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleLoadError, BundleNotFoundError
from amplifier_core.frozen import slotted

from . import yaml_reader
from .kept import Check
from .positions import Place, Positions, show_file
from .problems import Problem, error_at
from .yaml_reader import Unreadable, place_of, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .positions import KeyPath

MAX_BYTES = 4 * 1024 * 1024
"""Size of the largest bundle file."""
KEPT_DOCUMENTS, KEPT_BYTES = 2_048, 32 * 1024 * 1024
"""Limits of the cache of parsed documents: number and memory."""

_CHECK = Check("documents", (Path(__file__), Path(yaml_reader.__file__)))
_FENCE = "---"
_WRITTEN_AS_TEXT = frozenset({("bundle", "name"), ("bundle", "version")})
"""Where `1.10` is not a number."""


@slotted
class Document:
    """One file, or data of a program. `data` is None for an unreadable file; `problems` say why.

    `is_changed` says that `data` is no longer the file's.
    """

    positions: Positions
    data: dict[str, Any] | None = None
    body: str = ""
    path: Path | None = None
    digest: str = ""
    problems: list[Problem] = field(default_factory=list)
    is_changed: bool = False


def read_document(path: Path) -> Document:
    """Read the file of a bundle; mistakes in its text or YAML become `problems`.

    Raises `BundleNotFoundError` and `BundleLoadError` when the file cannot be opened.
    """
    raw = read_bytes(path)
    file, digest = show_file(path), sha256(raw).hexdigest()
    key = (digest, file, path.suffix.lower())
    parsed = _kept.get(key)
    if parsed is None:
        parsed = Document(Positions(file), path=path, digest=digest)
        try:
            _parse(parsed, raw)
        except Unreadable as stopped:
            parsed.problems.append(stopped.problem)
        _kept.put(key, parsed, len(raw))
    # Callers may change data and problems; positions never change and are shared.
    return Document(parsed.positions, _copy_plain(parsed.data), parsed.body, path, parsed.digest, list(parsed.problems))


def _parse(document: Document, raw: bytes) -> None:
    file = document.positions.file
    text = _decode(raw, file)
    is_yaml = document.path is not None and document.path.suffix.lower() in (".yaml", ".yml")
    front, first_line, document.body = (text, 1, "") if is_yaml else _split(text, file)
    if _take_kept(document):
        return
    data, problems = read_yaml(front, document.positions, first_line=first_line, as_text=_WRITTEN_AS_TEXT)
    document.problems.extend(problems)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise Unreadable(error_at(document.positions.at(()), "AMP212", "must be a mapping such as 'bundle: {name: …}'"))
    document.data = data
    if document.path is None or problems or _unsaved.get():
        return
    from .secrets import may_hold_secrets

    if not may_hold_secrets(data):
        keys, values = ([[*path, *at] for path, at in places.items()] for places in _places_of(document))
        _CHECK.keep(document.path, document.digest, {"data": data, "keys": keys, "values": values})


def _take_kept(document: Document) -> bool:
    """Take the data of an unchanged file as it was read before: reading YAML takes longer than all the rest."""
    kept = _CHECK.find(document.path, document.digest) if document.path is not None else None
    if kept is None or kept.values is None:
        return False
    try:
        data, places = kept.values["data"], [_read_places(kept.values[name]) for name in ("keys", "values")]
    except (KeyError, TypeError, ValueError):  # somebody changed the entry
        return False
    if not isinstance(data, dict):
        return False
    document.data = data
    for known, found in zip(_places_of(document), places, strict=True):
        known.update(found)
    return True


def _read_places(written: Any) -> dict[KeyPath, tuple[int, int]]:
    return {tuple(path): (int(line), int(column)) for *path, line, column in written}


def _places_of(document: Document) -> tuple[dict[KeyPath, tuple[int, int]], ...]:
    return document.positions.keys, document.positions.values


def _copy_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy_plain(each) for key, each in value.items()}
    return [_copy_plain(each) for each in value] if isinstance(value, list) else value


_Key = tuple[str, str, str]


class _Kept:
    """A cache of the documents used last. Thread-safe."""

    def __init__(self, documents: int, size: int) -> None:
        self._most, self._room = documents, size
        self._entries: OrderedDict[_Key, tuple[Document, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> Document | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: _Key, document: Document, size: int) -> None:
        size += _BYTES_OF_A_VALUE * len(document.positions.values)
        with self._lock:
            if key in self._entries:
                return
            self._entries[key] = document, size
            self._room -= size
            while self._room < 0 or len(self._entries) > self._most:
                _, (_, freed) = self._entries.popitem(last=False)
                self._room += freed


_BYTES_OF_A_VALUE = 400
"""Roughly: the value, its path, and its position."""

_kept = _Kept(KEPT_DOCUMENTS, KEPT_BYTES)


_unsaved: ContextVar[Mapping[str, bytes]] = ContextVar("unsaved", default={})  # noqa: B039 - it is never changed
"""Texts that are not saved, by the real paths of their files."""


@contextmanager
def reading_unsaved(path: Path, text: str) -> Iterator[None]:
    """Have this thread or task read `text` in the place of the file at `path`, while the block runs."""
    token = _unsaved.set({**_unsaved.get(), os.path.realpath(path): text.encode()})
    try:
        yield
    finally:
        _unsaved.reset(token)


def read_bytes(path: Path) -> bytes:
    """Return the first `MAX_BYTES` of a file and one more, or of its text of `reading_unsaved`.

    Raises `BundleNotFoundError` and `BundleLoadError` when the file cannot be read.
    """
    if (unsaved := _unsaved.get()) and (raw := unsaved.get(os.path.realpath(path))) is not None:
        return raw[: MAX_BYTES + 1]
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BundleLoadError(f"{show_file(path)}: not a file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BundleNotFoundError(f"{show_file(path)}: no such file") from None
    except (OSError, ValueError) as error:
        if isinstance(error, BundleLoadError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise BundleLoadError(f"{show_file(path)}: cannot be read ({reason})") from error


def _decode(raw: bytes, file: str) -> str:
    if len(raw) > MAX_BYTES:
        raise Unreadable(error_at(Place(file, 1, 1), "AMP209", f"larger than {MAX_BYTES // 2**20} MiB"))
    while raw.startswith(BOM_UTF8):  # editors that add a mark to a marked file leave several
        raw = raw.removeprefix(BOM_UTF8)
    try:
        text = _unify_line_ends(raw.decode())
    except UnicodeDecodeError as error:
        before = _unify_line_ends(raw[: error.start].decode())
        place = place_of(before, len(before), file)
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise Unreadable(error_at(place, "AMP210", message)) from None
    nul = text.find("\0")
    if nul >= 0:
        raise Unreadable(error_at(place_of(text, nul, file), "AMP211", "character U+0000 is not allowed here"))
    return text


def _unify_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split(text: str, file: str) -> tuple[str, int, str]:
    """Return the front matter, its first line, and the body."""
    first, _, rest = text.partition("\n")
    if first.rstrip() != _FENCE:
        message = "a bundle begins with front matter: make '---' the first line"
        raise Unreadable(error_at(Place(file, 1, 1), "AMP201", message))
    lines = rest.split("\n")
    for number, line in enumerate(lines):
        if line.rstrip() == _FENCE:
            return "\n".join([*lines[:number], ""]), 2, "\n".join(lines[number + 1 :])
    message = "the front matter that begins here has no end: write a line '---' after it"
    raise Unreadable(error_at(Place(file, 1, 1), "AMP202", message))
