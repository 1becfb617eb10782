"""Report problems of settings in the format of bundles.

.amplifier/settings.yaml:3:3: error[AMP301] fetch.timout: unknown key; did you mean 'timeout'?
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError

from ..documents.problems import BundleProblemsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..documents.problems import Problem

CODES = {
    "AMP301": "a setting is not known",
    "AMP302": "a setting is of the wrong kind",
    "AMP303": "a setting is not one of those allowed",
    "AMP304": "a path cannot be one on this machine",
    "AMP305": "a settings file cannot be opened",
    "AMP306": "a secret stands in a file that others of the project see",
}
"""The codes of settings with their meanings; mistakes in YAML have the codes of bundles, AMP2xx."""


class SettingsError(AmplifierError, ValueError):
    """Settings are at fault."""


class InvalidSettings(SettingsError):
    """Settings cannot be used because of `problems`, warnings included."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(str(BundleProblemsError(problems)))


class SettingNotSet(SettingsError, LookupError):
    """Nothing sets the requested value."""


class SettingNotWritten(SettingsError):
    """The settings file `file` is unchanged; the message says how to change it by hand."""

    def __init__(self, file: Path, message: str) -> None:
        self.file = file
        super().__init__(f"{file}: {message}")
