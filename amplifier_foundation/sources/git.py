"""Fetches git repositories with the git that its user has.

Nothing of a repository is executed: no hooks, no submodules. git asks nobody for anything; how its user signs in (a
credential helper, an ssh agent) is theirs, and for this reason it gets their environment.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .errors import SourceNotFound, out_of_time
from .uris import shown

if TYPE_CHECKING:
    from pathlib import Path

    from .limits import Deadline
    from .uris import ParsedURI

_OF_ONE_REPOSITORY = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
}
"""What git's hooks and aliases set: with it, a fetch would go into the repository that they run in."""

_SAFE = {
    "core.askPass": "",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "init.defaultBranch": "main",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
}
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
_EVERYTHING = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
_NOT_SHALLOW = ("does not support shallow", "unadvertised object")
"""What servers say that give no single commit, or nothing but whole histories."""

_MAX_SAID = 8192

_DISK = ""
_SIGN_IN = "Sign in with git first, so that this works: git ls-remote {url}"
_REMEDIES = {
    "no space left|quota exceeded|read-only file system|file too large|unable to (create|write)": _DISK,
    "could not read (user|pass)|authentication failed|permission denied \\(|error: 403": _SIGN_IN,
    "could not resolve|failed to connect|couldn't connect|connect to host": "Check the address and the network",
    "couldn't find remote ref|not our ref|unable to read tree": "See what it has with: git ls-remote {url}",
    "not found|not appear to be a git|does not exist": f"Check the address. If it is private: {_SIGN_IN}",
    "^(fatal|error): ": "Try: git ls-remote {url}",
    "": "Try: git ls-remote {url}",
}
"""What to do by what git says in a line, in small letters; the first that is found counts."""


class _GitFailed(Exception):
    """git ended with an error; the text is the end of what it said."""


def fetch_git(source: ParsedURI, target: Path, deadline: Deadline) -> str:
    """Fill the empty folder `target` with the files of a repository, without its history; return the commit.

    Raises `SourceNotFound`, and `OSError` for a full disk.
    """
    url, signing_in = _address(source)
    git = _Git(target, deadline, _environment(source, signing_in))
    try:
        git.run("init", "--quiet", "--template=")
        git.use_ssh(source)
        git.run("checkout", "--quiet", "--detach", git.fetch(url, source))
    except TimeoutError:
        raise out_of_time(source, deadline) from None
    except _GitFailed as failure:
        raise _explained(source, url, str(failure)) from None
    commit = (target / ".git" / "HEAD").read_text(encoding="ascii").strip()
    shutil.rmtree(target / ".git")
    return commit


class _Git:
    """git in one folder, until a deadline."""

    def __init__(self, folder: Path, deadline: Deadline, environment: dict[str, str]) -> None:
        self._folder, self._deadline, self._environment = folder, deadline, environment
        # A git that outlives a killed fetch gives up by itself on a server that says nothing.
        patience = {"http.lowSpeedLimit": "1", "http.lowSpeedTime": str(math.ceil(deadline.seconds) + 10)}
        self._options = [part for key, value in (_SAFE | patience).items() for part in ("-c", f"{key}={value}")]

    def fetch(self, url: str, source: ParsedURI) -> str:
        """Fetch a branch, tag or commit, or the default branch; return what to check out."""
        wanted = source.commit or source.ref or "HEAD"
        try:
            self.run(*_FETCH, "--depth=1", "--", url, wanted)
        except _GitFailed as failure:
            if not any(reason in str(failure) for reason in _NOT_SHALLOW):
                raise
            self.run(*_FETCH, "--", url, *(_EVERYTHING if source.commit else [wanted]))
        return source.commit or "FETCH_HEAD"

    def use_ssh(self, source: ParsedURI) -> None:
        """Let ssh ask nothing, unless its user has a command of their own for it."""
        if source.transport != "ssh" or {"GIT_SSH", "GIT_SSH_COMMAND"} & self._environment.keys():
            return
        with suppress(_GitFailed):
            self.run("config", "--get", "core.sshCommand")
            return
        self._environment["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes"

    def run(self, *arguments: str) -> None:
        """Run git to its end. Raises `_GitFailed`, and `TimeoutError` when all it started is gone."""
        child = subprocess.Popen(
            [_executable(), *self._options, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with child:
            try:
                said = _listen(child, self._deadline)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                raise
        if child.returncode:
            raise _GitFailed(said.strip() or f"git ended with {child.returncode}")


def _listen(child: subprocess.Popen[bytes], deadline: Deadline) -> str:
    """Return the end of what `child` says until it ends. Raises `TimeoutError`.

    The end of its words is not waited for: a shared ssh connection may keep the pipe open.
    """
    assert child.stdout is not None
    said, speaking = b"", True
    with DefaultSelector() as selector:
        selector.register(child.stdout, EVENT_READ)
        while deadline.left():
            if speaking and selector.select(deadline.step()):
                heard = os.read(child.stdout.fileno(), 65536)
                said, speaking = (said + heard)[-_MAX_SAID:], bool(heard)
            elif _ended(child, 0 if speaking else deadline.step()):
                return said.decode("utf-8", "replace")
    raise TimeoutError


def _ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    return child.returncode is not None


def _executable() -> str:
    found = shutil.which("git")
    if found is None:
        raise SourceNotFound("git", "git is not installed", "Install it with: apt-get install git, or brew install git")
    return found


def _address(source: ParsedURI) -> tuple[str, dict[str, str]]:
    """Return the URL for git's command line, which everybody on the machine can read, and how git signs in there.

    A password, or a token in place of a user, reaches git by its environment.
    """
    user, at, host = source.host.rpartition("@")
    if not at or source.transport not in ("http", "https"):
        return source.url, {}
    name, _, password = user.partition(":")
    place = f"{source.transport}://{host}"
    answer = '!printf "username=%s\\npassword=%s\\n" "$GIT_SOURCE_USERNAME" "$GIT_SOURCE_PASSWORD"; :'
    helpers = ["", answer]  # the empty one takes away the user's own, which would be told to remember the password
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    signing_in = {"GIT_SOURCE_USERNAME": unquote(name), "GIT_SOURCE_PASSWORD": unquote(password)}
    signing_in["GIT_CONFIG_COUNT"] = str(first + len(helpers))
    for number, helper in enumerate(helpers, first):
        signing_in[f"GIT_CONFIG_KEY_{number}"] = f"credential.{place}.helper"
        signing_in[f"GIT_CONFIG_VALUE_{number}"] = helper
    return f"{place}{source.path}", signing_in


def _environment(source: ParsedURI, signing_in: dict[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_ONE_REPOSITORY}
    plain = ["http"] if source.transport == "http" else []
    return {
        **inherited,
        "GCM_INTERACTIVE": "never",
        "GIT_ALLOW_PROTOCOL": ":".join(["file", "https", "ssh", *plain]),  # https is not led on to http
        "GIT_ASKPASS": "",
        "GIT_DEFAULT_REF_FORMAT": "files",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "SSH_ASKPASS_REQUIRE": "never",
        **signing_in,
    }


def _explained(source: ParsedURI, url: str, said: str) -> SourceNotFound | OSError:
    """Return the error that git's words stand for; an `OSError` for what is wrong with the disk."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("remote: ")] or lines
    line, remedy = next(
        (line, remedy)
        for words, remedy in _REMEDIES.items()
        for line in reversed(own)
        if re.search(words, line.lower())
    )
    told = f"git says: {shown(line)[:300].rstrip('.')}"
    if remedy == _DISK:
        return OSError(errno.EIO, told)
    if re.fullmatch(r"[0-9a-fA-F]{7,39}", source.ref):
        remedy = "Write all 40 characters of a commit, or a branch or tag"
    return SourceNotFound(source, told, remedy.format(url=shown(url)))
