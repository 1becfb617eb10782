"""Zip archives, of friends and of enemies."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.sources import SourceCache, SourceNotFound, SourceRefused

from .conftest import Server, Write


def special(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = mode << 16
    return entry


def patched(path: Path, *changes: tuple[bytes, int, bytes]) -> str:
    """Overwrite bytes at an offset after each occurrence of a signature; return the archive's URI."""
    content = bytearray(path.read_bytes())
    for signature, offset, value in changes:
        place = content.find(signature)
        while place >= 0:
            content[place + offset : place + offset + len(value)] = value
            place = content.find(signature, place + 1)
    path.write_bytes(content)
    return f"zip+file://{path}"


LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"


def test_an_archive_is_unpacked_once_for_all_its_subdirectories(cache: SourceCache, write_zip: Write) -> None:
    entries = {"repo/": "", "repo/bundle.md": "one", "repo/./deep/x.yaml": "x", special("run.sh", 0o100755): "#!"}
    uri = f"zip+file://{write_zip(entries)}"
    root = cache.fetch(uri)
    assert cache.fetch(f"{uri}#subdirectory=repo/deep/x.yaml") == root / "repo" / "deep" / "x.yaml"
    assert (root / "repo" / "bundle.md").read_text() == "one"
    assert (root / "run.sh").stat().st_mode & 0o100
    assert not (root / "repo" / "bundle.md").stat().st_mode & 0o100
    assert root.name.startswith("archive-")
    with pytest.raises(SourceRefused, match="leads out of the source"):
        cache.fetch(f"{uri}#subdirectory=../x")


def test_an_archive_comes_from_a_web_server_too(
    cache: SourceCache, write_zip: Write, serve: Callable[..., Server]
) -> None:
    path = write_zip({"bundle.md": "one"})
    server = serve(path.parent)
    uri = f"zip+http://{server.address}/archive.zip"
    assert cache.fetch(f"{uri}#subdirectory=bundle.md").read_text() == "one"
    assert [file.name for file in cache.fetch(uri).iterdir()] == ["bundle.md"]
    assert len(server.asked) == 1
    path.unlink()
    with pytest.raises(SourceNotFound, match="HTTP 404"):
        cache.fetch(uri, refresh=True)
    assert cache.fetch(uri).is_dir()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("../x", "leads out of the archive"),
        ("a/../../x", "leads out of the archive"),
        ("/abs", "leads out of the archive"),
        ("..\\x", "leads out of the archive"),
        (special("link", 0o120777), "is a link or a device"),
        (special("pipe", 0o010644), "is a link or a device"),
    ],
)
def test_an_entry_that_could_land_elsewhere_refuses_the_archive(
    cache: SourceCache, write_zip: Write, tmp_path: Path, entry: str | zipfile.ZipInfo, reason: str
) -> None:
    before = sorted(tmp_path.iterdir())
    uri = f"zip+file://{write_zip({'good.md': 'good', entry: '/etc/passwd'})}"
    with pytest.raises(SourceRefused, match=f"its entry '.*' {reason}. Use another archive"):
        cache.fetch(uri)
    assert list(cache.folder.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "archives", cache.folder])


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"a": "file", "a/b": "below a file"}, r"file names impossible here"),
        ({"a": "one", "./a": "two"}, r"file names impossible here \(File exists\)"),
        ({".": "the folder itself"}, r"file names impossible here"),
        ({"x" * 300: "long"}, r"file names impossible here \(File name too long\)"),
    ],
)
def test_names_that_cannot_be_written_refuse_the_archive(
    cache: SourceCache, write_zip: Write, entries: dict[str, str], reason: str
) -> None:
    with pytest.raises(SourceRefused, match=reason):
        cache.fetch(f"zip+file://{write_zip(entries)}")
    assert list(cache.folder.iterdir()) == []


def test_an_encrypted_archive_is_refused(cache: SourceCache, write_zip: Write) -> None:
    uri = patched(write_zip({"a": "a"}), (LOCAL, 6, b"\1"), (CENTRAL, 8, b"\1"))
    with pytest.raises(SourceRefused, match="its entry 'a' is encrypted"):
        cache.fetch(uri)


def test_a_compression_that_is_not_zip_s_own_is_refused(cache: SourceCache, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", "a")
    with pytest.raises(SourceRefused, match="uses an unsupported compression"):
        cache.fetch(f"zip+file://{tmp_path}/a.zip")


def test_what_unpacks_to_too_much_is_refused(cache: SourceCache, write_zip: Write) -> None:
    zeros = bytes(65 * 1024**2)
    path = write_zip(dict.fromkeys("abcd", zeros))
    assert path.stat().st_size < 1024**2
    with pytest.raises(SourceRefused, match="is larger than 256 MiB when unpacked"):
        cache.fetch(f"zip+file://{path}")
    assert list(cache.folder.iterdir()) == []


def test_what_lies_about_its_size_is_refused(cache: SourceCache, write_zip: Write) -> None:
    uri = patched(write_zip({"a": bytes(1024**2)}), (LOCAL, 22, b"\1\0\0\0"), (CENTRAL, 24, b"\1\0\0\0"))
    with pytest.raises(SourceRefused, match="is not a readable zip archive"):
        cache.fetch(uri)
    assert list(cache.folder.iterdir()) == []


def test_too_many_entries_are_refused(cache: SourceCache, write_zip: Write) -> None:
    path = write_zip({f"{number}": "" for number in range(20_001)})
    with pytest.raises(SourceRefused, match="has more than 20000 entries"):
        cache.fetch(f"zip+file://{path}")


def test_a_list_of_entries_that_would_fill_the_memory_is_refused_before_it_is_read(
    cache: SourceCache, write_zip: Write
) -> None:
    with pytest.raises(SourceRefused, match="has more than 20000 entries"):
        cache.fetch(patched(write_zip({"a": "a"}), (END, 12, struct.pack("<L", 2**31))))
    path = write_zip({"b": "b"}, "large.zip")
    content = path.read_bytes()
    end = content.find(END)
    path.write_bytes(content[:end] + b"PK\6\7" + bytes(16) + content[end:])
    with pytest.raises(SourceRefused, match="or is a zip64 archive"):
        cache.fetch(f"zip+file://{path}")


@pytest.mark.parametrize(
    "content", [b"", b"no archive", END, b"PK\3\4" + bytes(100), END + bytes(17), bytes(100) + END + b"\1" * 18]
)
def test_what_is_no_archive_is_refused(cache: SourceCache, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(SourceRefused, match="is not a zip archive|has more than"):
        cache.fetch(f"zip+file://{tmp_path}/a.zip")
    assert list(cache.folder.iterdir()) == []


def test_no_damage_to_an_archive_is_more_than_a_refusal(cache: SourceCache, write_zip: Write, tmp_path: Path) -> None:
    content = write_zip({"bundle.md": "one", "deep/x.yaml": "x" * 50}).read_bytes()
    refused = 0
    for place in range(len(content)):
        damaged = tmp_path / f"{place}.zip"
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            cache.fetch(f"zip+file://{damaged}")
        except SourceRefused:
            refused += 1
    assert refused > len(content) / 2


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("zip+ftp://host/a.zip", "is not an address of an archive. Write zip"),
        ("zip+https://host", r"names no archive. Write zip\+https://host/archive.zip"),
        ("zip+file://host/a.zip", "names no archive. Write zip"),
        ("zip+file:///missing/a.zip", "there is no such file. Check its path"),
        ("zip+file:///missing/a%00.zip", "there is no such file"),
        ("zip+file:///", "names no archive"),
    ],
)
def test_what_names_no_archive_is_told(cache: SourceCache, uri: str, message: str) -> None:
    with pytest.raises((SourceRefused, SourceNotFound), match=message):
        cache.fetch(uri)
