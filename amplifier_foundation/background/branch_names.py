"""Choose the names of branches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .git import Git

LONGEST_BRANCH = 150
"""Characters."""


def choose_branch(git: Git, wanted: str, default: str) -> str:
    """Return a valid name of a branch that no other one takes; compared without case, as some file systems do."""
    listed = git.run("for-each-ref", "--format=%(refname)", "refs/heads")
    taken = {line.removeprefix("refs/heads/").lower() for line in listed.splitlines()}
    name = make_branch_name(wanted) or default
    if any("/".join(name.lower().split("/")[:count]) in taken for count in range(1, name.count("/") + 1)):
        name = name.replace("/", "-")
    number, chosen = 1, name
    while any(each == chosen.lower() or each.startswith(f"{chosen.lower()}/") for each in taken):
        number += 1
        chosen = f"{name}-{number}"
    return chosen


def make_branch_name(text: str) -> str:
    """Return a text as the name of a branch: letters, digits, `.`, `_`, `-` and `/`; '' when nothing is left."""
    parts = [re.sub(r"[^\w.-]+|\.{2,}", "-", each).strip(".-")[:LONGEST_BRANCH] for each in text.split("/")]
    name = "/".join(re.sub(r"\.lock$", "-lock", each, flags=re.IGNORECASE) for each in parts if each)
    name = name[:LONGEST_BRANCH].strip("./-")
    return f"amplifier/{name}" if name.upper() == "HEAD" else name
