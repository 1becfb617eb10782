"""A child session in the published kernel, made as its programs make one from a prepared bundle.

Those resolve modules to folders beforehand. For a child they make a session from its mount plan, mount the resolver,
initialise it with a loader of its own, take the turn, and clean up.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from answering import answer, seconds_of

from amplifier_core import AmplifierSession

MODULES = ("loop-basic", "context-simple", "provider-playbook")
PLAN: dict[str, Any] = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": {"otherwise": {"say": "Hello."}}}],
}
NUMBERS = count(1)


class Folder:
    """The source of a module: a folder with a package of its published name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resolve(self) -> Path:
        return self.path


class Resolver:
    """The folders of the modules of a prepared bundle."""

    def __init__(self, folders: dict[str, Folder]) -> None:
        self.folders = folders

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Folder:
        return self.folders[module_id]


def prepare(root: Path) -> Resolver:
    """Write a folder with a package for each module, which has the functions of ours."""
    folders = {}
    for name in MODULES:
        own, published = (f"{prefix}_{name.replace('-', '_')}" for prefix in ("amplifier", "amplifier_module"))
        package = root / name / published
        package.mkdir(parents=True)
        text = f"from {own} import __amplifier_module_type__, mount\n"
        (package / "__init__.py").write_text(text, encoding="utf-8")
        folders[name] = Folder(root / name)
    return Resolver(folders)


async def spawn(resolver: Resolver, parent: AmplifierSession) -> None:
    """Make a child, take its turn, end it."""
    child = AmplifierSession(PLAN, session_id=f"child-{next(NUMBERS)}", parent_id=parent.session_id)
    await child.coordinator.mount("module-source-resolver", resolver)
    await child.initialize()
    assert await child.execute("hello") == "Hello."
    await child.cleanup()


async def measure(resolver: Resolver) -> float:
    """Return the seconds of one child."""
    parent = AmplifierSession(PLAN, session_id="parent")
    await parent.coordinator.mount("module-source-resolver", resolver)
    await parent.initialize()
    seconds = await seconds_of(partial(spawn, resolver, parent))
    await parent.cleanup()
    return seconds


logging.disable(logging.CRITICAL)
with TemporaryDirectory() as folder:
    answer(spawn=partial(measure, prepare(Path(folder))))
