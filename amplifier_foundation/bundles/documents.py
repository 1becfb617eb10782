"""A bundle's file as it was read: its data with the spot of every value, and its body."""

from __future__ import annotations

import stat
import threading
from codecs import BOM_UTF8
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleLoadError, BundleNotFoundError

from .positions import Place, Positions, show_file
from .problems import Problem, error_at
from .yaml_reader import Unreadable, place_of, read_yaml

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
"""Size of the largest bundle file."""
KEPT_DOCUMENTS, KEPT_BYTES = 256, 32 * 1024 * 1024
"""Documents that are not parsed again while their files stay as they are, and the memory that they may take."""

_FENCE = "---"
_WRITTEN_AS_TEXT = frozenset({("bundle", "name"), ("bundle", "version")})
"""Where `1.10` is not a number."""


@dataclass(slots=True)
class Document:
    """One file, or data that a program made. `data` is None when the file could not be read; `problems` say why."""

    positions: Positions
    data: dict[str, Any] | None = None
    body: str = ""
    path: Path | None = None
    digest: str = ""
    problems: list[Problem] = field(default_factory=list)


def read_document(path: Path) -> Document:
    """Read the file of a bundle; what is wrong with its text or YAML is in `problems`.

    Raises `BundleNotFoundError` and `BundleLoadError` for a file that cannot be opened.
    """
    raw = _bytes_of(path)
    file, digest = show_file(path), sha256(raw).hexdigest()
    key = (digest, file, path.suffix.lower())
    parsed = _kept.get(key)
    if parsed is None:
        parsed = Document(Positions(file), path=path, digest=digest)
        try:
            _fill(parsed, raw)
        except Unreadable as stopped:
            parsed.problems.append(stopped.problem)
        _kept.put(key, parsed, len(raw))
    return _copy_of(parsed, path)


def _fill(document: Document, raw: bytes) -> None:
    file = document.positions.file
    text = _text_of(raw, file)
    front, first_line, document.body = _split(text, file) if _is_markdown(document.path) else (text, 1, "")
    data, problems = read_yaml(front, document.positions, first_line=first_line, as_text=_WRITTEN_AS_TEXT)
    document.problems.extend(problems)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise Unreadable(error_at(document.positions.at(()), "AMP212", "must be a mapping such as 'bundle: {name: …}'"))
    document.data = data


def _copy_of(document: Document, path: Path) -> Document:
    """Return a document whose data may be changed; positions are shared, nobody changes those."""
    data, problems = _plain_copy(document.data), list(document.problems)
    return Document(document.positions, data, document.body, path, document.digest, problems)


def _plain_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_copy(each) for key, each in value.items()}
    return [_plain_copy(each) for each in value] if isinstance(value, list) else value


_Key = tuple[str, str, str]


class _Kept:
    """The documents that were used last. Safe to use from several threads."""

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
"""Roughly: the value, its path, and its spot."""

_kept = _Kept(KEPT_DOCUMENTS, KEPT_BYTES)


def _is_markdown(path: Path | None) -> bool:
    return path is None or path.suffix.lower() not in (".yaml", ".yml")


def _bytes_of(path: Path) -> bytes:
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
        raise BundleLoadError(f"{show_file(path)}: cannot be read ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _text_of(raw: bytes, file: str) -> str:
    if len(raw) > MAX_BYTES:
        raise Unreadable(error_at(Place(file, 1, 1), "AMP209", f"larger than {MAX_BYTES // 2**20} MiB"))
    raw = raw.removeprefix(BOM_UTF8)
    try:
        text = _with_plain_ends(raw.decode())
    except UnicodeDecodeError as error:
        before = _with_plain_ends(raw[: error.start].decode())
        place = place_of(before, len(before), file)
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise Unreadable(error_at(place, "AMP210", message)) from None
    nul = text.find("\0")
    if nul >= 0:
        raise Unreadable(error_at(place_of(text, nul, file), "AMP211", "character U+0000 is not allowed here"))
    return text


def _with_plain_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split(text: str, file: str) -> tuple[str, int, str]:
    """Return the front matter, the line it begins in, and the body."""
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
