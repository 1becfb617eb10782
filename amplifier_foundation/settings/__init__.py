"""Read and write the settings of a user, a project and a folder, with the origin of each value.

Later layers win: `settings.yaml` in the data folder, `settings.yaml` and `settings.local.yaml` in the project's
`.amplifier` folder, the environment, the command line. Every name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .layer import DEFAULTS, Layer
    from .places import SCOPES, Scope, project_folder, settings_exist, settings_file
    from .problems import CODES, InvalidSettings, SettingNotSet, SettingNotWritten, SettingsError
    from .reading import Origin, Settings, read_settings, read_user_settings
    from .writing import unset_setting, write_setting

_HOMES = {
    ".layer": "DEFAULTS Layer",
    ".places": "SCOPES Scope project_folder settings_exist settings_file",
    ".problems": "CODES InvalidSettings SettingNotSet SettingNotWritten SettingsError",
    ".reading": "Origin Settings read_settings read_user_settings",
    ".writing": "unset_setting write_setting",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

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
    "read_user_settings",
    "settings_exist",
    "settings_file",
    "unset_setting",
    "write_setting",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
