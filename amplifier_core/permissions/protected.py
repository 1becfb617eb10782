"""Know the files that programs obey, and those with secrets. Names are compared as a case-blind disk does."""

from __future__ import annotations

import re

from .hidden import JOINERS

_OBEYED_FOLDERS = {
    ".git": "git",
    ".amplifier": "amplifier",
    ".husky": "git hooks",
    ".vscode": "an editor",
    ".idea": "an editor",
    ".zed": "an editor",
    ".devcontainer": "an editor",
    ".github": "a build server",
    ".circleci": "a build server",
    ".agents": "an agent",
    ".claude": "an agent",
    ".codex": "an agent",
    ".gemini": "an agent",
    ".cursor": "an agent",
    ".ssh": "ssh",
    ".gnupg": "gpg",
}
_OBEYED_FILES = {
    "bundle.md": "amplifier",
    "bundle.yaml": "amplifier",
    "bundle.yml": "amplifier",
    ".gitconfig": "git",
    ".gitmodules": "git",
    ".gitattributes": "git",
    ".pre-commit-config.yaml": "git hooks",
    ".gitlab-ci.yml": "a build server",
    ".mcp.json": "an agent",
    ".env": "a shell",
    ".envrc": "a shell",
    ".bashrc": "a shell",
    ".bash_profile": "a shell",
    ".bash_login": "a shell",
    ".bash_logout": "a shell",
    ".bash_aliases": "a shell",
    ".profile": "a shell",
    ".zshrc": "a shell",
    ".zshenv": "a shell",
    ".zprofile": "a shell",
    ".zlogin": "a shell",
    ".zlogout": "a shell",
    "config.fish": "a shell",
    ".npmrc": "npm",
    ".yarnrc": "yarn",
    ".yarnrc.yml": "yarn",
    "pip.conf": "pip",
    "sitecustomize.py": "Python",
    "usercustomize.py": "Python",
    ".vimrc": "an editor",
    ".exrc": "an editor",
    ".nvimrc": "an editor",
    ".nvim.lua": "an editor",
    ".emacs": "an editor",
    ".dir-locals.el": "an editor",
    ".editorconfig": "an editor",
}
_OBEYED_SUFFIXES = {".pth": "Python", ".code-workspace": "an editor"}
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube"})
_SECRET_FILES = frozenset(
    {
        *(".netrc", ".pgpass", ".git-credentials", ".pypirc", ".npmrc", "credentials.json", "keys.json", ".htpasswd"),
        *(".vault-token", ".docker/config.json", ".cargo/credentials", ".cargo/credentials.toml", "gh/hosts.yml"),
    }
)
"""By their names, or those with the folder."""
_SECRET_NAME = (
    r"\.?\.env(?!\.(?:example|sample|template)$)(?:\..*|rc)?~?$|.*\.(?:pem|key|p12|pfx|kdbx)~?$"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?$"
)


def fold(name: str) -> str:
    """Return a name as a case-blind disk compares it; some ignore what joins letters, too."""
    if name.isascii():
        return name.lower()
    from unicodedata import normalize  # hardly any name needs it

    return normalize("NFC", re.sub(f"[{JOINERS}]", "", name)).casefold()


def what_obeys(path: str) -> str | None:
    """Return what obeys the file at a path with `/`: "git", "a shell"; None for an ordinary file."""
    *folders, name = fold(path).split("/")
    for folder in (*folders, name):
        if folder in _OBEYED_FOLDERS:
            return _OBEYED_FOLDERS[folder]
    return _OBEYED_FILES.get(name) or _OBEYED_SUFFIXES.get(f".{name.rpartition('.')[2]}")


def is_secret(path: str) -> bool:
    """Return whether the name of a file, or of a folder above it, says that it holds keys or passwords."""
    *folders, name = fold(path).split("/")
    return (
        name in _SECRET_FILES
        or f"{folders[-1] if folders else ''}/{name}" in _SECRET_FILES
        or not _SECRET_FOLDERS.isdisjoint((*folders, name))
        or bool(re.match(_SECRET_NAME, name))
    )
