"""Read settings and load bundles to look at them: nothing of them runs. The functions here block on files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core.plugins import Plugins

    from ..bundle.load import LeaveOut
    from ..bundle.model import Bundle
    from ..documents.problems import Problem
    from ..settings import Settings


def read_trusted_settings(folder: Path | None = None) -> tuple[Settings, list[Problem | str]]:
    """Return the settings in `folder` (default: the current one), and their warnings.

    What matters in those of a project that is not trusted is left out, with a warning. Raises `SettingsError`,
    `TrustUnreadable`.
    """
    from ..settings import read_settings

    settings = read_settings(folder)
    problems: list[Problem | str] = [*settings.problems]
    if any(layer.source in ("project", "local") for layer in settings.layers):
        from ..security.trust import check_settings, without_project

        if (error := check_settings(settings, folder)) is not None:
            settings = without_project(settings)
            problems.append(f"amplifier: {error}")
    return settings, problems


def known_bundles(plugins: Plugins, settings: Settings) -> dict[str, str]:
    """Return the place of each named bundle: settings win over registered names, those win over packages."""
    from ..bundle.registry import BundleRegistry

    return {**BundleRegistry(plugins=plugins).names(), **settings.get("bundles")}


def find_left_out_here(source: str, plugins: Plugins, names: Mapping[str, str]) -> LeaveOut | None:
    """Return what leaves out the includes of an untrusted bundle, as `find_left_out` does."""
    from ..bundle.registry import BundleRegistry
    from ..security.trust import find_left_out

    return find_left_out(source, names, BundleRegistry(plugins=plugins).folders_of_packages())


def load_to_look(source: str, plugins: Plugins, settings: Settings, folder: Path | None = None) -> Bundle:
    """Load the bundle at `source` (a file, folder, URL or known name) with the overrides of the settings in `folder`.

    Includes of an untrusted bundle that would have to be fetched are left out. Raises `BundleError`.
    """
    from ..bundle.load import load_bundle_sync
    from ..bundle.overrides import apply_settings

    names = known_bundles(plugins, settings)
    bundle = load_bundle_sync(source, registry=names, leave_out=find_left_out_here(source, plugins, names))
    apply_settings(bundle, settings, folder)
    return bundle
