"""Unpack zip archives of strangers."""

from __future__ import annotations

import errno
import shutil
import stat
import struct
import zlib
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from .errors import SourceRefused
from .limits import MAX_ARCHIVE, MAX_ENTRIES

if TYPE_CHECKING:
    from pathlib import Path
    from zipfile import ZipInfo

    from .uris import ParsedURI

_END, _END_SIZE, _MAX_COMMENT = b"PK\5\6", 22, 65536
_LOCATOR, _LOCATOR_SIZE = b"PK\6\7", 20
_MAX_LISTING = MAX_ENTRIES * 512
"""Bytes of an archive's central directory; it is read into memory whole."""

_ENCRYPTED = 1
_UNREADABLE = (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error, zlib.error)
_NAME_IS_WRONG = (errno.EEXIST, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR)
_ANOTHER = "Use another archive, or a git source"


def unpack(source: ParsedURI, archive: Path, target: Path) -> None:
    """Unpack an archive into the folder `target`.

    Refused are entries outside the target (absolute, with `..`, a symlink), encrypted entries, and archives beyond
    `MAX_ARCHIVE` bytes or `MAX_ENTRIES`. Raises `SourceRefused`, and `OSError` for disk errors.
    """
    try:
        _check_directory_size(source, archive)
        with ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > MAX_ENTRIES:
                raise SourceRefused(source, f"has more than {MAX_ENTRIES} entries", _ANOTHER)
            if sum(entry.file_size for entry in entries) > MAX_ARCHIVE:
                raise SourceRefused(source, f"is larger than {MAX_ARCHIVE // 1024**2} MiB when unpacked", _ANOTHER)
            # All names are checked before the first file is written.
            paths = {info: target.joinpath(*_check_entry(source, info)) for info in entries}
            for info, path in paths.items():
                (path if info.is_dir() else path.parent).mkdir(parents=True, exist_ok=True)
                if info.is_dir():
                    continue
                with opened.open(info) as packed, path.open("xb") as file:
                    shutil.copyfileobj(packed, file)
                if (info.external_attr >> 16) & stat.S_IXUSR:
                    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    except SourceRefused:
        raise
    except _UNREADABLE as error:
        raise SourceRefused(source, f"is not a readable zip archive ({error})", _ANOTHER) from None
    except OSError as error:
        if error.errno not in _NAME_IS_WRONG:
            raise
        raise SourceRefused(source, f"has file names impossible here ({error.strerror})", _ANOTHER) from None


def _check_directory_size(source: ParsedURI, archive: Path) -> None:
    """Refuse an archive with a central directory too large for memory, or of unlimited size (zip64)."""
    with archive.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _END_SIZE - _MAX_COMMENT - _LOCATOR_SIZE))
        tail = file.read()
    start = len(tail) - _END_SIZE
    if tail[start : start + 4] != _END or tail[-2:] != b"\0\0":
        start = tail.rfind(_END)
    if start < 0 or len(tail) < start + _END_SIZE:
        raise SourceRefused(source, "is not a zip archive", _ANOTHER)
    (listing,) = struct.unpack_from("<L", tail, start + 12)
    if listing > _MAX_LISTING or tail[max(0, start - _LOCATOR_SIZE) : start].startswith(_LOCATOR):
        raise SourceRefused(source, f"has more than {MAX_ENTRIES} entries, or is a zip64 archive", _ANOTHER)


def _check_entry(source: ParsedURI, info: ZipInfo) -> list[str]:
    """Return the parts of an entry's path below the target; refuse every other kind of entry."""
    name, kind = info.orig_filename, stat.S_IFMT(info.external_attr >> 16)
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not name:
        reason = "has no name"
    elif name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        reason = "leads out of the archive"
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        reason = "is a link or a device"
    elif info.flag_bits & _ENCRYPTED:
        reason = "is encrypted"
    elif info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        reason = "uses an unsupported compression"
    else:
        return parts
    raise SourceRefused(source, f"its entry {name[:200]!r} {reason}", _ANOTHER)
