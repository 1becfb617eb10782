"""Let a provider stand in while there is no other: `stand_in: true` in its entry.

A bundle for many people cannot know their provider. It ships one that needs nothing, which gives way to any other: one
of the including bundle, one of the command line, or one with a key on this machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..settings import Settings
    from .model import Bundle

KEY = "stand_in"


def drop_stand_ins(bundle: Bundle) -> None:
    """Leave out the providers that stand in, if the bundle has another one."""
    others = [entry for entry in bundle.providers if not entry.get(KEY)]
    bundle.providers = others or bundle.providers


def replace_stand_ins(bundle: Bundle, settings: Settings, folder: Path | None = None) -> None:
    """Take the provider that `choose_provider` finds on this machine in place of those that stand in.

    The settings hold for it, too. It may ask a local Ollama. Without a key and an Ollama, those that stand in stay.
    """
    if not bundle.providers or not all(entry.get(KEY) for entry in bundle.providers):
        return
    from .first_provider import PLAYBOOK, choose_provider
    from .overrides import override_entry

    choice = choose_provider()
    if choice.module != PLAYBOOK:
        bundle.providers = [{"module": choice.module, "config": choice.config}]
        override_entry(bundle, bundle.providers[0], settings.get("overrides"), folder or Path.cwd())
