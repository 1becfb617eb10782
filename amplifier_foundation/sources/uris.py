"""Parse the addresses of bundles and modules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import replace_unprintable

if TYPE_CHECKING:
    from pathlib import Path

_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_USER = re.compile(r"(?P<scheme>[A-Za-z0-9+.-]*)://(?P<user>[^/?#\s]*)@")
_QUERY = re.compile(r"(://[^?#\s]*\?)[^#\s]+")


@frozen
class ParsedURI:
    """The parts of an address; its text is safe to show.

    `scheme` is empty for a name, and `file` for a path. `host` includes user and port, `path` the query; a `file` path
    is decoded, others are as written. `ref` is the branch, tag or commit of a git repository, `subpath` the value of
    `#subdirectory=` or the part after a name. With `is_default_ref`, the address has no ref: `ref` is `main`, as other
    programs expect, and a fetch takes the repository's default branch whatever its name.
    """

    scheme: str
    host: str
    path: str
    ref: str = ""
    subpath: str = ""
    is_default_ref: bool = False

    @property
    def written_ref(self) -> str:
        """Return the ref in the address, or ``."""
        return "" if self.is_default_ref else self.ref

    @property
    def is_git(self) -> bool:
        """Whether it addresses a git repository."""
        return self.scheme == "git" or self.scheme.startswith("git+")

    @property
    def is_file(self) -> bool:
        """Whether it is a path of a machine, Windows paths included."""
        return self.scheme == "file"

    @property
    def is_http(self) -> bool:
        """Whether it addresses one file on a web server."""
        return self.scheme in ("http", "https")

    @property
    def is_zip(self) -> bool:
        """Whether it addresses a zip archive."""
        return self.scheme == "zip" or self.scheme.startswith("zip+")

    @property
    def is_package(self) -> bool:
        """Whether it is the name of a package or a registered bundle, or a path in one (`namespace:path`)."""
        return not self.scheme

    @property
    def transport(self) -> str:
        """Return the transport: `https` for `git+https`."""
        return self.scheme.partition("+")[2] or self.scheme

    @property
    def url(self) -> str:
        """Return the URL for git or a web server: with user and password, without ref and subdirectory."""
        return f"{self.transport}://{self.host}{self.path}"

    @property
    def commit(self) -> str:
        """Return the pinned commit in small letters, or ``."""
        return self.ref.lower() if self.is_git and _COMMIT.fullmatch(self.ref) else ""

    def __str__(self) -> str:
        if self.is_package:
            return f"{self.path}:{self.subpath}" if self.subpath else self.path
        place = self.path if self.is_file and not self.host else f"{self.scheme}://{self.host}{self.path}"
        ref = f"@{self.written_ref}" if self.written_ref else ""
        return redact_uris(place + ref + (f"#subdirectory={self.subpath}" if self.subpath else ""))

    def __repr__(self) -> str:
        return f"ParsedURI({str(self)!r})"


def parse_uri(uri: str) -> ParsedURI:
    """Parse the address of a source; never raises, since fetching reports impossible addresses.

    Known are `git+https://host/org/repo@ref#subdirectory=path` (also `git+ssh`, `git+http`, `git+file`), `zip+https://…`
    and `zip+file://…`, `https://host/bundle.md`, `file:///folder`, `/folder`, `./folder`, `~/folder`, `C:\\folder`, a
    name, and `namespace:path`.
    """
    url = _URL.match(uri)
    if url is not None:
        return _parse_url(url["scheme"].lower(), url["rest"])
    if uri.startswith(("git+", "zip+")):
        return ParsedURI(uri[:3], "", uri[4:])
    path, _, subpath = uri.partition("#subdirectory=")
    if path.startswith(("/", "./", "../", "~")) or path in (".", "..") or _WINDOWS.match(path):
        return ParsedURI("file", "", path, "", subpath)
    name, *inside = re.split("[:/]", uri, maxsplit=1)
    return ParsedURI("", "", name, "", "".join(inside))


def _parse_url(scheme: str, rest: str) -> ParsedURI:
    place, _, fragment = rest.partition("#")
    host, slash, path = place.partition("/")
    path, ref, is_default = slash + path, "", False
    if scheme.startswith("git+"):
        path, at, ref = path.rpartition("@") if "@" in path else (path, "", "main")
        is_default = not at
    if scheme == "file":
        path = unquote(path)
    parts = (part.partition("=") for part in fragment.split("&"))
    subpath = next((unquote(value) for key, _, value in parts if key == "subdirectory"), "")
    return ParsedURI(scheme, host, path, ref, subpath, is_default)


def normalize_path(path: str | Path, relative_to: Path | None = None) -> Path:
    """Return `path` absolute, with `~`, `..` and symlinks resolved; relative to `relative_to`, or the current folder.

    Raises `ValueError` for an impossible path.
    """
    from ..documents.local_paths import local_path  # bundles are read from sources: each may be imported first

    return local_path(str(path), relative_to)[0].resolve()


def redact_uris(text: str) -> str:
    """Return a text for an error, a log or a file: printable, its URIs without password, token or query."""

    def hide_user(found: re.Match[str]) -> str:
        public = found["scheme"].endswith("ssh") and ":" not in found["user"]  # no secret: ssh signs in by a key
        return f"{found['scheme']}://{found['user'] if public else '***'}@"

    return replace_unprintable(_QUERY.sub(r"\1***", _USER.sub(hide_user, text)), lambda each: "�")
