"""The agents that a session may ask, as they are now: what they are called, what they are for, and which is meant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .failures import Failure, UnknownAgent
from .places import allowed_bundle, is_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core import ModuleCoordinator

    from .config import Settings

SELF = "self"

ABOUT = (
    "Give a task to another agent. It works in a session of its own, knows only the instruction and the context you "
    "choose, and its answer comes back with a session_id."
)
_ABOUT_SELF = "An agent like you, with a fresh memory."
SIZE = 6_000
"""Characters that the list of agents may have."""
_MORE = 24  # characters kept for the line that tells how many were left out
LONGEST, SHORTEST = 600, 80
"""Characters that one agent's line may have: when there are few of them, and when there are many."""


class Agents:
    """The agents of one session, read from its config whenever they are asked for."""

    def __init__(self, coordinator: ModuleCoordinator, settings: Settings) -> None:
        self._coordinator = coordinator
        self._settings = settings

    @property
    def configs(self) -> dict[str, Any]:
        """The session's section `agents`, whatever this tool may use of it."""
        section = (self._coordinator.config or {}).get("agents")
        return section if isinstance(section, dict) else {}

    def purposes(self) -> dict[str, str]:
        """Return what each agent that may be asked is for, by name."""
        found = {name: _purpose(agent) for name, agent in self.configs.items() if isinstance(agent, dict)}
        if self._settings.max_self_depth:
            found[SELF] = _ABOUT_SELF
        if self._settings.agents is None:
            return found
        return {name: found.get(name, "") for name in self._settings.agents if name in found or is_bundle(name)}

    def described(self) -> str:
        """Return the tool's description: what it does, and the agents there are, within `SIZE` characters."""
        purposes = self.purposes()
        share = min(LONGEST, max(SHORTEST, SIZE // max(1, len(purposes))))
        lines: list[str] = []
        left = SIZE - _MORE
        for name, purpose in purposes.items():
            line = _cut(f"- {name}: {purpose}" if purpose else f"- {name}", share)
            left -= len(line) + 1
            if left < 0:
                lines.append(f"- and {len(purposes) - len(lines)} more")
                break
            lines.append(line)
        return "\n".join([ABOUT, "", "Agents:", *(lines or ["- none"])])

    def find(self, wanted: str) -> str:
        """Return what to have run for the agent that a call names. Raises `Failure`.

        A bundle's file is its absolute path then: what was checked is what runs.
        """
        if wanted in self.purposes():
            return wanted
        if not is_bundle(wanted):
            raise UnknownAgent(wanted, self.purposes())
        if not self._settings.bundles:
            raise UnknownAgent(wanted, self.purposes(), "bundles are not run here")
        return allowed_bundle(wanted, self._folders(), uris=self._settings.uris)

    def self_depth(self, name: str) -> int:
        """Return how often `self` was delegated to, from the first session to the one this call makes.

        Delegating to another agent in between neither counts nor starts the count anew. Raises `Failure` when it is
        too often.
        """
        depth = self._coordinator.get_capability("self_delegation_depth")
        depth = depth if isinstance(depth, int) else 0
        if name != SELF:
            return depth
        if depth >= self._settings.max_self_depth:
            raise Failure(
                "TooDeep",
                f"'self' was delegated to {depth} times on the way to this session, and may be "
                f"{self._settings.max_self_depth} times (max_self_depth); do the task here, or name another agent",
            )
        return depth + 1

    def _folders(self) -> list[Path]:
        """Return the working folder, and the bundle's where it is known."""
        capability = self._coordinator.get_capability
        bundle = getattr(capability("mention_resolver"), "base_path", None)
        return [Path(folder) for folder in (capability("session.working_dir") or ".", bundle) if folder]


def _purpose(agent: Mapping[str, Any]) -> str:
    meta = agent.get("meta")
    told = agent.get("description") or (meta.get("description") if isinstance(meta, dict) else None)
    return " ".join(str(told or "").split())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 2].rstrip() + " …"
