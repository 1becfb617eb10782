"""Find the files of the running Python: it imports each change of them, outside of every sandbox.

The folder of an editable install is not among them: it is the person's work.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from .protected import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OWN_PYTHON = "the Python that runs this program"
"""What obeys these files."""
MOST_LINKS = 40
"""Links on the way to one file; Linux follows no more."""
_PACKAGES = ("/site-packages", "/dist-packages")


def is_own_python(path: str, folder: str) -> bool:
    """Return whether an absolute path is one of `find_own_python`, or below one."""
    return f"{fold(path)}/".startswith(_find_folded(folder))


@lru_cache(maxsize=64)
def find_own_python(folder: str) -> tuple[str, ...]:
    """Return the paths, with links followed, closed to writes of sessions in `folder`; none of them holds the folder.

    An environment inside of the folder counts as a whole. Elsewhere, the modules and the programs of one count.
    """
    top = f"{os.path.realpath(folder).rstrip('/')}/"
    prefixes = [os.path.realpath(each) for each in (sys.prefix, sys.base_prefix)] if top != "/" else []
    places = (*(each for each in prefixes if each.startswith(top)), *map(os.path.realpath, _find_parts()))
    return tuple(dict.fromkeys(each for each in places if not top.startswith(f"{each}/")))


def find_own_links(folder: str, others: Iterable[str] = ()) -> dict[str, str]:
    """Return what the links below the real path of a folder hold on the way to this Python, and to `others`."""
    python = (sys.prefix, sys.executable, *(each for each in sys.path if each.endswith(_PACKAGES)))
    found = dict.fromkeys(link for path in (*python, *others) for link in find_links(path))
    return {each: os.readlink(each) for each in found if each.startswith(f"{folder}/")}  # noqa: PTH115 - as below


def find_links(path: str) -> Iterator[str]:
    """Yield the links on the way to an absolute path, each in the real path of its folder."""
    here, parts, left = "/", path.split("/")[::-1], MOST_LINKS
    while parts and left:
        if (part := parts.pop()) == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - as below
            continue
        current = os.path.join(here, part)  # noqa: PTH118 - as below
        if part and os.path.islink(current):  # noqa: PTH114 - as below
            yield current
            target, left = os.readlink(current), left - 1  # noqa: PTH115 - as below
            parts += target.split("/")[::-1]
            here = "/" if target.startswith("/") else here
        elif part not in ("", "."):
            here = current


@lru_cache(maxsize=64)
def _find_folded(folder: str) -> tuple[str, ...]:
    """Return the beginnings of folded paths, also as they are spelled in the folder when links lead to it."""
    real, found = os.path.realpath(folder), find_own_python(folder)
    spelled = (folder + each[len(real) :] for each in found if each.startswith(f"{real}/"))
    return tuple(f"{fold(each)}/" for each in (*found, *spelled))


def _find_parts() -> Iterator[str]:
    """Yield where Python has its modules and its programs."""
    yield f"{sys.prefix}/pyvenv.cfg"
    yield os.path.dirname(os.__file__)  # noqa: PTH120 - each session begins with this; pathlib costs more
    for place in sys.path:
        if place.endswith(_PACKAGES):
            yield place
            yield f"{place}/../../../bin"
    for program in follow_links(sys.executable):
        yield program
        yield os.path.dirname(program)  # noqa: PTH120 - as above


def follow_links(program: str) -> Iterator[str]:
    """Yield a path, and each path that it leads to as a link."""
    yield program
    while os.path.islink(program):  # noqa: PTH114 - as above
        program = os.path.join(os.path.dirname(program), os.readlink(program))  # noqa: PTH115, PTH118, PTH120 - as above
        yield program
