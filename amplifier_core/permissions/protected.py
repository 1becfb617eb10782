"""Know the files that programs obey, and those with secrets. Names are compared as a case-blind disk does."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from .hidden import JOINERS

if TYPE_CHECKING:
    from collections.abc import Mapping

_OBEYED = {
    "amplifier": "bundle.md bundle.yaml bundle.yml .amplifier/",
    "git": ".git/ .gitconfig .gitmodules .gitattributes .config/git/",
    "Mercurial": ".hgrc .hg/hgrc .config/hg/",
    "jj": ".jjconfig.toml .jj/repo/config.toml .config/jj/",
    "git hooks": ".husky/ .pre-commit-config.yaml lefthook.yml lefthook.yaml .lefthook.yml .lefthook.yaml "
    "lefthook-local.yml",
    "a build server": ".github/ .gitea/ .forgejo/ .circleci/ .gitlab-ci.yml .travis.yml",
    "an agent": ".agents/ .claude/ .codex/ .gemini/ .cursor/ .opencode/ .windsurf/ .mcp.json",
    "an editor": ".vscode/ .idea/ .zed/ .devcontainer/ .vim/ .config/nvim/ .emacs.d/ .config/emacs/ *.code-workspace "
    ".vimrc .gvimrc .exrc .nvimrc .nvim.lua .emacs .dir-locals.el .editorconfig",
    "a shell": ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zshenv .zprofile .zlogin .zlogout "
    ".kshrc .cshrc .tcshrc .profile .login .logout .inputrc .env .envrc config.fish .config/fish/",
    "mise": ".mise.toml mise.toml .config/mise/",
    "a terminal": ".tmux.conf .config/tmux/ .screenrc",
    "a desktop": ".xprofile .xinitrc .xsession .xsessionrc .config/autostart/ library/launchagents/",
    "systemd": ".config/systemd/ .config/environment.d/",
    "a debugger": ".gdbinit .lldbinit .config/gdb/",
    "cargo": ".cargo/config .cargo/config.toml",
    "npm": ".npmrc",
    "yarn": ".yarnrc .yarnrc.yml",
    "pip": "pip.conf",
    "Python": "sitecustomize.py usercustomize.py site-packages/*.pth dist-packages/*.pth",
    "ssh": ".ssh/",
    "gpg": ".gnupg/",
}
"""By what obeys them: names of files, ends of names (`*.x`), folders (`x/`), and all of these with those above."""
_SECRET = (
    ".netrc .pgpass .my.cnf .git-credentials .pypirc .npmrc credentials.json keys.json .htpasswd .vault-token .s3cfg "
    ".docker/config.json .cargo/credentials .cargo/credentials.toml gh/hosts.yml .terraform.d/credentials.tfrc.json "
    ".ssh/ .gnupg/ .aws/ .azure/ .kube/ .password-store/ .config/gcloud/ library/keychains/"
)
"""Spelled as those of `_OBEYED`."""
_SECRET_NAME = (
    r"\.?\.env(?!\.(?:example|sample|template)$)(?:\..*|rc)?~?$|.*\.(?:pem|key|p12|pfx|kdbx|jks|ppk)~?$"
    r"|(?!.*\b(?:example|sample|template)\b).*\.env~?$|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?$"
)


class _Names:
    """Files and folders by their names; a folder stands for everything in it."""

    def __init__(self, spelled: Mapping[str, str]) -> None:
        whats = {each: what for what, names in spelled.items() for each in names.split()}
        self._files = {each: what for each, what in whats.items() if "/" not in each and each[0] != "*"}
        self._suffixes = {each[1:]: what for each, what in whats.items() if each[0] == "*"}
        self._folders = {each[:-1]: what for each, what in whats.items() if each.find("/") == len(each) - 1}
        self._deep = {each: what for each, what in whats.items() if "/" in each[:-1]}
        self.tops = frozenset(each.partition("/")[0] for each in self._deep)

    def find(self, parts: list[str]) -> str | None:
        """Return what stands for a path with these folded parts."""
        if not self._folders.keys().isdisjoint(parts):
            return next(self._folders[each] for each in parts if each in self._folders)
        name = parts[-1]
        return (
            self._files.get(name)
            or self._suffixes.get(f".{name.rpartition('.')[2]}")
            or (None if self.tops.isdisjoint(parts) else self._find_deep(parts))
        )

    def _find_deep(self, parts: list[str]) -> str | None:
        """Return what stands for a path by its end and one or two folders above, or by a folder and the one above."""
        folders = (f"{above}/{each}/" for above, each in pairwise(parts) if above in self.tops)
        suffixed = f"{''.join(parts[-2:-1])}/*.{parts[-1].rpartition('.')[2]}"
        named = ("/".join(parts[-2:]), "/".join(parts[-3:]), suffixed, *folders)
        return next((self._deep[each] for each in named if each in self._deep), None)


_obeyed, _secret = _Names(_OBEYED), _Names({"secret": _SECRET})


def fold(name: str) -> str:
    """Return a name as a case-blind disk compares it; some ignore what joins letters, too."""
    if name.isascii():
        return name.lower()
    from unicodedata import normalize  # hardly any name needs it

    return normalize("NFC", re.sub(f"[{JOINERS}]", "", name)).casefold()


def what_obeys(path: str) -> str | None:
    """Return what obeys the file at a path with `/`: "git", "a shell"; None for an ordinary file."""
    return _obeyed.find(fold(path).split("/"))


def is_secret(path: str) -> bool:
    """Return whether the name of a file, or of a folder above it, says that it holds keys or passwords."""
    parts = fold(path).split("/")
    return _secret.find(parts) is not None or re.match(_SECRET_NAME, parts[-1]) is not None


def counts_with_names_above(folder: str) -> bool:
    """Return whether the folders above it, with their names, decide about what is in a folder at a path with `/`."""
    parts = fold(folder).split("/")
    return not (_obeyed.tops.isdisjoint(parts) and _secret.tops.isdisjoint(parts))
