"""Read the policy of a folder from the layers of its settings.

The settings of the person (`settings.yaml` in the data folder, the environment and the command line) may allow what is
protected, or asked by default. Those of a project only tighten: a stranger may have written them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from amplifier_core.permissions import Layer, Policy, parse_permissions, parse_rule

from ..paths import data_home
from ..settings.places import settings_files
from ..settings.reading import read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from ..settings.layer import Layer as SettingsLayer

OWN_SOURCES = ("user", "environment", "command line")
"""The sources of settings that only the person writes."""
KEY = "permissions"


def read_policy(folder: Path | str | None = None) -> Policy:
    """Return the policy of the sessions in `folder` (default: the current one), without that of their bundle.

    A data folder inside of the working folder is closed to every tool. Raises `InvalidSettings` and `PermissionsError`:
    with settings that cannot be read, nothing starts.
    """
    stamps = _read_stamps(folder)
    layers = [_read_layer(each) for each in read_settings(folder).layers if each.values.get(KEY)]
    top, own = os.path.realpath(folder or "."), os.path.realpath(data_home())
    if own.startswith(f"{top.rstrip('/')}/"):  # the settings, the trusted places and all sessions are there
        inside = re.sub(r"([*?\[\]\\])", r"\\\1", os.path.relpath(own, top))
        layers.append(Layer("built-in settings", [parse_rule("deny", f"*({inside}/**)")]))
    return Policy(
        layers,
        remember_rule,
        refresh=lambda: None if _read_stamps(folder) == stamps else read_policy(folder),
    )


def _read_stamps(folder: Path | str | None) -> list[tuple[int, ...] | None]:
    """Return what tells one state of the settings files from another."""
    found: list[tuple[int, ...] | None] = []
    for path in settings_files(folder).values():
        try:
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return found


def remember_rule(rule: str) -> None:
    """Add a rule to `permissions.allow` of the user's settings, once. Raises the errors of `write_setting`."""
    from ..settings.writing import change_list

    change_list("user", f"{KEY}.allow", lambda allowed: allowed if rule in allowed else [*allowed, rule])


def _read_layer(layer: SettingsLayer) -> Layer:
    positions = layer.positions
    place = None if positions is None else lambda path: str(positions.at((KEY, *path)))
    return parse_permissions(
        layer.values[KEY], f"{layer.source} settings", is_own=layer.source in OWN_SOURCES, place=place
    )
