"""What can be wrong with settings, told as what is wrong with a bundle is.

.amplifier/settings.yaml:3:3: error[AMP301] fetch.timout: unknown key; did you mean 'timeout'?
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError

from ..bundles.problems import BundleProblems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..bundles.problems import Problem

CODES = {
    "AMP301": "a setting is not known",
    "AMP302": "a setting is of the wrong kind",
    "AMP303": "a setting is not one of those allowed",
    "AMP304": "a path cannot be one on this machine",
    "AMP305": "a settings file cannot be opened",
    "AMP306": "a secret stands in a file that others of the project see",
}
"""Every code of settings and what it means; how a file is written has the codes of a bundle's, AMP2xx."""


class SettingsError(AmplifierError, ValueError):
    """Settings are at fault."""


class InvalidSettings(SettingsError):
    """Settings cannot be used; `problems` are all that is wrong with them, warnings included."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(str(BundleProblems(problems)))


class SettingNotSet(SettingsError, LookupError):
    """Nothing sets what was asked for."""


class SettingNotWritten(SettingsError):
    """A settings file was left as it is; `file` says which, and the message what to do by hand."""

    def __init__(self, file: Path, message: str) -> None:
        self.file = file
        super().__init__(f"{file}: {message}")
