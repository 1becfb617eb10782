"""Wake sessions when a git branch moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amplifier_core import PollingTrigger, hookimpl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core import TriggerEvent
    from amplifier_core.hookspecs import Register, TriggerFactory


class GitBranchTrigger(PollingTrigger):
    """Yields an event when the branch has another commit than at the last look."""

    name = "trigger-git-branch"
    defaults = {"branch": "main", "seconds": 1.0}

    async def poll(self) -> AsyncIterator[TriggerEvent]:
        """Compare the commit with the stored one; `moves` counts the events, since a branch may move back."""
        commit = await self._read_commit()
        self.context.report(None if commit else f"there is no branch {self.config['branch']}")
        if commit is None or commit == self.state.get("commit"):
            return
        if "commit" not in self.state:
            self.state = {"commit": commit, "moves": 0}
            await self.context.save_state(self.state)
            return
        moves, data = self.state["moves"] + 1, {"branch": self.config["branch"], "commit": commit}
        yield self.event(str(moves), {**data, "before": self.state["commit"]}, {"commit": commit, "moves": moves})

    async def _read_commit(self) -> str | None:
        process = await asyncio.create_subprocess_exec(
            *("git", "rev-parse", "--verify", "--quiet", f"refs/heads/{self.config['branch']}"),
            cwd=self.context.working_dir,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        told, _ = await process.communicate()
        return told.decode().strip() or None


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Offer the trigger to bundles."""
    register("trigger-git-branch", GitBranchTrigger)
