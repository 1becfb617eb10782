"""Run commands without a sandbox, for those who have allowed it in their own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contracts import Launch, make_environment

if TYPE_CHECKING:
    from .contracts import Run


class Unconfined:
    """No confinement: a command may do what the person may do."""

    kind = "off"
    confines = False
    covers: tuple[str, ...] = ()
    open = ("a command may do everything that you may do; every command is asked for",)

    def find_obstacle(self) -> str:
        """Return ""; it runs everywhere."""
        return ""

    def launch(self, run: Run) -> Launch:
        """Return the process that runs a program; its environment is by the same list as in a sandbox."""
        return Launch([*run.argv], dict(make_environment(run)), goes_on=True)
