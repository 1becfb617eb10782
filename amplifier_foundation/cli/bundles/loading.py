"""Loads a bundle for the commands that look at it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..app import chosen_bundle, known_bundles

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins

    from ...bundles.model import Bundle
    from ...settings import Settings


def bundle_as_it_runs(path: str | None, plugins: Plugins, settings: Settings) -> Bundle:
    """Return what `bundle_at` returns, and log no warning: that is what `validate` is for. Raises `BundleError`."""
    from ...bundles.load import read_bundle
    from ...bundles.overrides import override_modules

    bundle = read_bundle(chosen_bundle(path, settings), registry=known_bundles(plugins, settings))
    override_modules(bundle, settings.get("overrides"), Path.cwd())
    return bundle
