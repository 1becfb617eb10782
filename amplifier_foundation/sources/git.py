"""Fetch git repositories with the user's git.

Nothing of a repository is executed: no hooks, no submodules. git never prompts; it signs in as its user has configured
(a credential helper, an ssh agent), and gets the user's environment for this reason.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from amplifier_core.network import ADD_AUTHORITY, CERTIFICATES, NetworkMisconfigured, check_certificates, read_proxies
from amplifier_core.utils.secrets import redact_text

from .errors import SourceNotFound, SourceRefused, misconfigured, out_of_time
from .uris import redact_uris

if TYPE_CHECKING:
    from pathlib import Path

    from .connecting import Reach
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
"""Set by git's hooks and aliases: a fetch would go into their repository."""

SAFE_SETTINGS = {
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
_REFS = "/info/refs?service=git-upload-pack"
"""The first file that git asks a web server for."""
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
_EVERYTHING = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
_NOT_SHALLOW = ("does not support shallow", "unadvertised object")
"""Answers of servers without single commits or shallow histories."""

_MAX_SAID = 8192
_PINS_SINCE = (2, 37)
"""The git that obeys `http.curloptResolve`; an older one ignores it."""

_DISK = ""
_SIGN_IN = "Sign in with git first, so that this works: git ls-remote {url}"
_REMEDIES = {
    "no space left|quota exceeded|read-only file system|file too large|unable to (create|write)": _DISK,
    "could not read (user|pass)|authentication failed|permission denied \\(|error: 403": _SIGN_IN,
    "certificate problem|certificate verif|verification failed": ADD_AUTHORITY,
    "could not resolve|failed to connect|couldn't connect|connect to host": "Check the address and the network",
    "couldn't find remote ref|not our ref|unable to read tree": "See what it has with: git ls-remote {url}",
    "not found|not appear to be a git|does not exist": f"Check the address. If it is private: {_SIGN_IN}",
    "^(fatal|error): ": "Try: git ls-remote {url}",
    "": "Try: git ls-remote {url}",
}
"""Remedies by the words of git in one line, in small letters; the first match counts."""


class _GitFailed(Exception):
    """git ended with an error; the text is the end of its output."""


def fetch_git(source: ParsedURI, target: Path, deadline: Deadline, *, public_only: bool = False) -> str:
    """Fill the empty folder `target` with the files of a repository, without its history; return the commit.

    `public_only` is that of `SourceCache.fetch`. Raises `SourceNotFound`, `SourceRefused`, and `OSError` for a full
    disk.
    """
    url, signing_in = _address(source)
    git = _Git(target, deadline, _environment(source, signing_in))
    try:
        if public_only:
            url = git.stay_public(source, url)
        git.run("init", "--quiet", "--template=")
        git.use_ssh(source)
        git.use_network(source)
        git.run("checkout", "--quiet", "--detach", git.fetch(url, source))
    except TimeoutError:
        raise out_of_time(source, deadline) from None
    except _GitFailed as failure:
        raise _explain(source, url, str(failure)) from None
    commit = (target / ".git" / "HEAD").read_text(encoding="ascii").strip()
    shutil.rmtree(target / ".git")
    return commit


class _Git:
    """git in one folder, until a deadline."""

    def __init__(self, folder: Path, deadline: Deadline, environment: dict[str, str]) -> None:
        self._folder, self._deadline, self._environment = folder, deadline, environment
        # A git that outlives a killed fetch gives up on a silent server by itself.
        patience = {"http.lowSpeedLimit": "1", "http.lowSpeedTime": str(math.ceil(deadline.seconds) + 10)}
        self._options = [part for key, value in (SAFE_SETTINGS | patience).items() for part in ("-c", f"{key}={value}")]

    def fetch(self, url: str, source: ParsedURI) -> str:
        """Fetch a branch, tag or commit, or the default branch; return the name to check out."""
        wanted = source.commit or source.written_ref or "HEAD"
        try:
            self.run(*_FETCH, "--depth=1", "--", url, wanted)
        except _GitFailed as failure:
            if not any(reason in str(failure) for reason in _NOT_SHALLOW):
                raise
            self.run(*_FETCH, "--", url, *(_EVERYTHING if source.commit else [wanted]))
        return source.commit or "FETCH_HEAD"

    def use_ssh(self, source: ParsedURI) -> None:
        """Keep ssh from prompting, unless the user has configured a command for ssh."""
        if source.transport != "ssh" or {"GIT_SSH", "GIT_SSH_COMMAND"} & self._environment.keys():
            return
        with suppress(_GitFailed):
            self.run("config", "--get", "core.sshCommand")
            return
        self._environment["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes"

    def use_network(self, source: ParsedURI) -> None:
        """Trust the certificates of the environment, unless the user's git has others. Raises `SourceRefused`."""
        is_needed = source.transport == "https" and self._environment.get(CERTIFICATES)
        if not is_needed or "GIT_SSL_CAINFO" in self._environment:
            return
        with suppress(_GitFailed):
            self.run("config", "--get-regexp", r"^http\..*sslcainfo$")
            return
        try:
            check_certificates()
        except NetworkMisconfigured as error:
            raise misconfigured(source, error) from None
        self._environment["GIT_SSL_CAINFO"] = self._environment[CERTIFICATES]

    def stay_public(self, source: ParsedURI, url: str) -> str:
        """Keep git to public addresses, resolved here; return the URL that `url` redirects to.

        Raises `SourceRefused` and `SourceNotFound`.
        """
        from .connecting import Reach

        reach = Reach(source, public_only=True)
        if source.transport == "ssh":
            self._pin_ssh(source, reach)
            return url
        from .http import find_last_url

        reach.check_url(url)
        if _read_version() < _PINS_SINCE:
            raise SourceRefused(source, "a fetched bundle names it, and git is too old", "Install git 2.37 or newer")
        url = find_last_url(source, url, _REFS, self._deadline, reach)
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        addresses = ",".join(f"[{each}]" if ":" in each else each for each in reach.addresses)
        if addresses and ":" not in str(parts.hostname):
            self._options += ["-c", f"http.curloptResolve={parts.hostname}:{port}:{addresses}"]
        self._options += ["-c", "http.followRedirects=false"]
        return url

    def _pin_ssh(self, source: ParsedURI, reach: Reach) -> None:
        host = source.host.rpartition("@")[2]
        name, _, port = host.partition(":") if not host.startswith("[") else (host.strip("[]"), "", "")
        reach.check_url(source.url)
        try:
            address = reach.resolve(name, int(port or 22))[0]
        except SourceRefused:
            raise
        except (OSError, ValueError) as error:
            raise SourceNotFound(source, f"cannot be reached ({error})", "Check the address and the network") from None
        self.use_ssh(source)
        if "GIT_SSH" in self._environment or not self._environment.get("GIT_SSH_COMMAND"):
            remedy = "Fetch it yourself first: amplifier bundle add NAME ADDRESS"
            raise SourceRefused(source, "a fetched bundle names it, and your git has a command for ssh", remedy)
        pins = f"-o HostName={address} -o HostKeyAlias={shlex.quote(name)} -o ProxyCommand=none -o ProxyJump=none"
        self._environment["GIT_SSH_COMMAND"] += f" {pins}"

    def run(self, *arguments: str) -> None:
        """Run git to its end. Raises `_GitFailed`, and `TimeoutError` once all its processes are killed."""
        executable = shutil.which("git")
        if executable is None:
            raise SourceNotFound("git", "git is not installed", "Install it: apt-get install git, or brew install git")
        child = subprocess.Popen(
            [executable, *self._options, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with child:
            try:
                said = self._read_output(child)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                raise
        if child.returncode:
            raise _GitFailed(said.strip() or f"git ended with {child.returncode}")

    def _read_output(self, child: subprocess.Popen[bytes]) -> str:
        """Return the end of the output of `child` once it has ended. Raises `TimeoutError`.

        The pipe may stay open longer: a shared ssh connection holds it.
        """
        assert child.stdout is not None
        said, speaking, has_ended = b"", True, False
        with DefaultSelector() as selector:
            selector.register(child.stdout, EVENT_READ)
            while self._deadline.seconds_left():
                if speaking and selector.select(0 if has_ended else self._deadline.step()):
                    heard = os.read(child.stdout.fileno(), 65536)
                    said, speaking = (said + heard)[-_MAX_SAID:], bool(heard)
                elif has_ended:
                    return said.decode("utf-8", "replace")
                else:
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(0 if speaking else self._deadline.step())
                    has_ended = child.returncode is not None
        raise TimeoutError


def _read_version() -> tuple[int, ...]:
    said = subprocess.run(["git", "version"], capture_output=True, text=True, check=False, timeout=60).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:2]))


def _address(source: ParsedURI) -> tuple[str, dict[str, str]]:
    """Return the URL for git's command line, and the environment for its sign-in.

    Everybody on the machine can read a command line: a password, or a token in place of a user, reaches git by its
    environment.
    """
    user, at, host = source.host.rpartition("@")
    if not at or source.transport not in ("http", "https"):
        return source.url, {}
    name, _, password = user.partition(":")
    place = f"{source.transport}://{host}"
    answer = '!printf "username=%s\\npassword=%s\\n" "$GIT_SOURCE_USERNAME" "$GIT_SOURCE_PASSWORD"; :'
    helpers = ["", answer]  # the empty one removes the user's own, so that none stores the password
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
        "GIT_ALLOW_PROTOCOL": ":".join(["file", "https", "ssh", *plain]),  # no redirect from https to http
        "GIT_ASKPASS": "",
        "GIT_DEFAULT_REF_FORMAT": "files",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "SSH_ASKPASS_REQUIRE": "never",
        **signing_in,
    }


def _explain(source: ParsedURI, url: str, said: str) -> SourceNotFound | SourceRefused | OSError:
    """Return the error for git's message; an `OSError` for disk errors.

    git has proxies of its own, too: those of the environment are looked at once it has failed.
    """
    if source.transport in ("http", "https"):
        try:
            parts = urlsplit(url)
            read_proxies().find(parts.scheme, parts.hostname or "", parts.port)
        except NetworkMisconfigured as error:
            return misconfigured(source, error)
        except ValueError:  # git tells of such an address
            pass
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("remote: ")] or lines
    line, remedy = next(
        (line, remedy)
        for words, remedy in _REMEDIES.items()
        for line in reversed(own)
        if re.search(words, line.lower())
    )
    message = f"git says: {redact_text(redact_uris(line))[:300].rstrip('.')}"
    if remedy == _DISK:
        return OSError(errno.EIO, message)
    if re.fullmatch(r"[0-9a-fA-F]{7,39}", source.ref):
        remedy = "Write all 40 characters of a commit, or a branch or tag"
    return SourceNotFound(source, message, remedy.format(url=redact_uris(url)))
