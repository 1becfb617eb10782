"""Load the bundle of a session that is to run, once it is trusted, with the settings of its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import session_mark
from .trust import extend_guard, load_trusted

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.plugins import Plugins

    from ..bundle.model import Bundle
    from ..settings import Settings


def load_to_run(source: str, plugins: Plugins, settings: Settings, folder: Path | None = None) -> Bundle:
    """Load the bundle at `source` (a file, folder, URL or known name); its code is checked when it is imported.

    The settings are those in `folder` (default: the current one), and trusted already. From here on, this process
    counts as one of sessions. Raises `BundleError`, `NotTrusted`, `TrustUnreadable`.
    """
    from ..bundle.overrides import apply_settings
    from ..bundle.registry import BundleRegistry
    from ..bundle.stand_ins import replace_stand_ins

    registry = BundleRegistry(plugins=plugins)
    names = {**registry.names(), **settings.get("bundles")}
    bundle = load_trusted(source, names=names, installed=registry.folders_of_packages())
    session_mark.mark_process()
    extend_guard(bundle, settings, folder)
    apply_settings(bundle, settings, folder)
    replace_stand_ins(bundle, settings, folder)
    return bundle
