"""Real repositories, real servers on 127.0.0.1, and a git that writes down what it was called with."""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import socket
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from amplifier_foundation.sources import SourceCache

GIT = shutil.which("git") or ""
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's settings of git, nor a proxy, nor this user's data folder."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMPLIFIER_FETCH_TIMEOUT", raising=False)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def cache(tmp_path: Path) -> SourceCache:
    return SourceCache(tmp_path / "cache")


class Repository:
    """A git repository on disk, and how a source of it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    @property
    def uri(self) -> str:
        return f"git+file://{self.folder}"

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        done = subprocess.run([GIT, *who, *arguments], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str | bytes]) -> str:
        """Write files and commit them; return the commit."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")
        self.git("update-server-info")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with one commit."""
    made = Repository(tmp_path / "origin" / "repo")
    made.commit({"bundle.md": "one", "behaviors/x.yaml": "x", "behaviors/deep/y.yaml": "y"})
    return made


class GitLog:
    """What git was called with, a line a call: the process, then the arguments."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def calls(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []

    @property
    def fetches(self) -> int:
        return sum(" fetch " in call for call in self.calls)

    def last_process(self) -> int:
        return int(self.calls[-1].split()[0])


@pytest.fixture
def git_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitLog:
    """Puts a git first in PATH that writes down its calls and then is the real one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "git.log"
    script = folder / "git"
    script.write_text(f'#!/bin/sh\necho "$$ $*" >> {shlex.quote(str(log))}\nexec {shlex.quote(GIT)} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return GitLog(log)


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; below `/private/` to who signs in as ada:pass word."""

    def do_GET(self) -> None:
        asked = getattr(self.server, "asked", None)
        if asked is not None:
            asked.append((self.path, self.headers.get("Authorization")))
        signed = "Basic " + base64.b64encode(b"ada:pass word").decode()
        if self.path.startswith("/private/") and self.headers.get("Authorization") != signed:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="private"')
            self.end_headers()
        elif urlsplit(self.path).path == "/to":
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        return


class Server(ThreadingHTTPServer):
    """A web server that remembers what it was asked, and with which sign-in."""

    daemon_threads = True
    asked: list[tuple[str, str | None]]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up, as who fetches may."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts web servers of folders, which end with the test."""
    servers: list[tuple[Server, Thread]] = []

    def start(folder: Path, port: int = 0) -> Server:
        server = Server(("127.0.0.1", port), partial(Handler, directory=str(folder)))
        server.asked = []
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        servers.append((server, thread))
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        yield server


@pytest.fixture
def write_zip(tmp_path: Path) -> Write:
    """Writes an archive of texts by name, or by `ZipInfo`; returns its path."""

    def write(entries: Mapping[str | zipfile.ZipInfo, str | bytes], name: str = "archive.zip") -> Path:
        path = tmp_path / "archives" / name
        path.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, content in entries.items():
                archive.writestr(entry, content)
        return path

    return write


def left_in(folder: Path) -> list[str]:
    """Return the names of all that is in a cache's folder, save the locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []
