"""Check that the files mentioned in instructions exist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleError

from ..documents.document import read_bytes
from ..documents.positions import Place, show_file
from ..documents.problems import Problem, warning_at
from .prompt import mention_resolver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Bundle

MAX_MENTIONS = 100
"""Mentions checked in one text."""


def check_mentions(bundle: Bundle) -> Iterator[Problem]:
    """Yield a warning for each file mentioned in an instruction and missing: the current folder is the session's.

    An agent's file is checked as its bundle's instruction. Each warning has the line of the mention.
    """
    layers = reversed(bundle.layers or [bundle])
    owner = next((each for each in layers if each.instruction == bundle.instruction), bundle)
    texts = [(bundle.instruction, owner.source_path)]
    for agent in bundle.agents.values():
        if isinstance(agent, dict) and isinstance(agent.get("instruction"), str):
            own = agent.get("source_path")
            texts.append((agent["instruction"], Path(own) if isinstance(own, str) else owner.source_path))
    texts = [(text, file) for text, file in texts if "@" in (text or "")]
    if not texts:
        return
    from ..mentions import parse_mentions

    resolver = mention_resolver(bundle, Path.cwd())
    for text, file in texts:
        for mention in parse_mentions(text or "")[:MAX_MENTIONS]:
            reason = resolver.explain(mention)
            if reason:
                place = find_mention(mention, file) if file else Place(f"bundle '{bundle.name}'")
                yield warning_at(place, "AMP108", f"{mention}: {reason}")


def find_mention(mention: str, file: Path) -> Place:
    """Return the last line of a file with a mention: front matter comes before the instruction."""
    shown, name = show_file(file), mention.removeprefix("@")
    try:
        lines = read_bytes(file).decode(errors="replace").splitlines()
    except BundleError:
        return Place(shown)
    for number, line in reversed(list(enumerate(lines, 1))):
        for written in (f"@{name}", f'@"{name}"'):
            if written in line:
                return Place(shown, number, line.index(written) + 1)
    return Place(shown)
