"""Settings: what a person, a project and a folder want of the program, with the place that each value comes from.

The later wins: `settings.yaml` in the data folder, `settings.yaml` and `settings.local.yaml` in the project's
`.amplifier` folder, the environment, the command line. Importing this imports neither YAML nor pydantic; reading does.
"""

from __future__ import annotations

from .layers import Layer
from .places import SCOPES, Scope, project_folder, settings_file
from .problems import CODES, InvalidSettings, SettingNotSet, SettingNotWritten, SettingsError
from .reading import DEFAULTS, Origin, Settings, read_settings
from .writing import unset_setting, write_setting

__all__ = [
    "CODES",
    "DEFAULTS",
    "SCOPES",
    "InvalidSettings",
    "Layer",
    "Origin",
    "Scope",
    "SettingNotSet",
    "SettingNotWritten",
    "Settings",
    "SettingsError",
    "project_folder",
    "read_settings",
    "settings_file",
    "unset_setting",
    "write_setting",
]
