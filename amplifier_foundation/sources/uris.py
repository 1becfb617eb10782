"""Where a bundle or a module is, as its users write it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_USER = re.compile(r"(?P<scheme>[A-Za-z0-9+.-]*)://(?P<user>[^/?#\s]*)@")
_QUERY = re.compile(r"(://[^?#\s]*\?)[^#\s]+")


@dataclass(frozen=True, slots=True, repr=False)
class ParsedURI:
    """A place, taken apart; its text is safe to show.

    `scheme` is empty for a name, and `file` for a path. `host` holds the user and the port too, `path` the query; a
    `file` path is decoded, others are as written. `ref` is the branch, tag or commit of a git repository, `subpath`
    what `#subdirectory=` says or what stands behind a name.
    """

    scheme: str
    host: str
    path: str
    ref: str = ""
    subpath: str = ""

    @property
    def is_git(self) -> bool:
        """Whether it is a git repository."""
        return self.scheme == "git" or self.scheme.startswith("git+")

    @property
    def is_file(self) -> bool:
        """Whether it is a path on this machine."""
        return self.scheme == "file"

    @property
    def is_http(self) -> bool:
        """Whether it is one file on a web server."""
        return self.scheme in ("http", "https")

    @property
    def is_zip(self) -> bool:
        """Whether it is a zip archive."""
        return self.scheme == "zip" or self.scheme.startswith("zip+")

    @property
    def is_package(self) -> bool:
        """Whether it is a name: of a package, a registered bundle, or a path in one (`namespace:path`)."""
        return not self.scheme

    @property
    def transport(self) -> str:
        """Return how it is reached: `https` for `git+https`."""
        return self.scheme.partition("+")[2] or self.scheme

    @property
    def url(self) -> str:
        """Return what git or a web server is asked for: user and password stand in it, ref and subdirectory do not."""
        return f"{self.transport}://{self.host}{self.path}"

    @property
    def commit(self) -> str:
        """Return the commit that it is pinned to, in small letters; empty for what may change."""
        return self.ref.lower() if self.is_git and _COMMIT.fullmatch(self.ref) else ""

    def __str__(self) -> str:
        if self.is_package:
            return f"{self.path}:{self.subpath}" if self.subpath else self.path
        place = self.path if self.is_file and not self.host else f"{self.scheme}://{self.host}{self.path}"
        ref = f"@{self.ref}" if self.ref else ""
        return shown(place + ref + (f"#subdirectory={self.subpath}" if self.subpath else ""))

    def __repr__(self) -> str:
        return f"ParsedURI({str(self)!r})"


def parse_uri(uri: str) -> ParsedURI:
    """Take apart what names a source; never raises: what cannot be fetched is an error when it is fetched.

    Known are `git+https://host/org/repo@ref#subdirectory=path` (also `git+ssh`, `git+http`, `git+file`), `zip+https://…`
    and `zip+file://…`, `https://host/bundle.md`, `file:///folder`, `/folder`, `./folder`, `~/folder`, a name, and
    `namespace:path`.
    """
    url = _URL.match(uri)
    if url is not None:
        return _parse_url(url["scheme"].lower(), url["rest"])
    if uri.startswith(("git+", "zip+")):
        return ParsedURI(uri[:3], "", uri[4:])
    path, _, subpath = uri.partition("#subdirectory=")
    if path.startswith(("/", "./", "../", "~")) or path in (".", ".."):
        return ParsedURI("file", "", path, "", subpath)
    name, *inside = re.split("[:/]", uri, maxsplit=1)
    return ParsedURI("", "", name, "", "".join(inside))


def _parse_url(scheme: str, rest: str) -> ParsedURI:
    place, _, fragment = rest.partition("#")
    host, slash, path = place.partition("/")
    path, ref = slash + path, ""
    if scheme.startswith("git+") and "@" in path:
        path, _, ref = path.rpartition("@")
    if scheme == "file":
        path = unquote(path)
    return ParsedURI(scheme, host, path, ref, _subdirectory(fragment))


def _subdirectory(fragment: str) -> str:
    parts = (part.partition("=") for part in fragment.split("&"))
    return next((unquote(value) for key, _, value in parts if key == "subdirectory"), "")


def normalize_path(path: str | Path, relative_to: Path | None = None) -> Path:
    """Return `path` absolute, `~`, `..` and symlinks followed; relative to `relative_to`, or the current folder.

    Raises `ValueError` for what cannot be a path here.
    """
    from ..bundles.paths import local_path  # bundles are read from sources: each may be imported first

    return local_path(str(path), relative_to)[0].resolve()


def shown(uri: str) -> str:
    """Return a text with URIs in it for an error, a log or a file: printable, and without password, token or query."""
    text = _QUERY.sub(r"\1***", _USER.sub(_without_secret, uri))
    return "".join(character if character.isprintable() else "�" for character in text)


def _without_secret(found: re.Match[str]) -> str:
    public = found["scheme"].endswith("ssh") and ":" not in found["user"]  # who signs in by a key is named openly
    return f"{found['scheme']}://{found['user'] if public else '***'}@"
