"""A bundle's file as it was read: its data with the spot of every value, and its body."""

from __future__ import annotations

import stat
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
    document = Document(Positions(show_file(path)), path=path, digest=sha256(raw).hexdigest())
    try:
        _fill(document, raw)
    except Unreadable as stopped:
        document.problems.append(stopped.problem)
    return document


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
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig")
        place = place_of(before, len(before), file)
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise Unreadable(error_at(place, "AMP210", message)) from None
    text = text.replace("\r\n", "\n")
    nul = text.find("\0")
    if nul >= 0:
        raise Unreadable(error_at(place_of(text, nul, file), "AMP211", "character U+0000 is not allowed here"))
    return text


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
