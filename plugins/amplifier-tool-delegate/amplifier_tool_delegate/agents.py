"""List the agents that a session may call now, and find one by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bundle_paths import find_bundle, is_bundle
from .failures import DelegationError, UnknownAgent

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .config import DelegateConfig

SELF = "self"

ABOUT = (
    "Give a task to another agent. It works in a session of its own, knows only the instruction and the context you "
    "choose, and its answer comes back with a session_id."
)
_ABOUT_SELF = "An agent like you, with a fresh memory."
SIZE = 6_000
"""The most characters for the list of agents."""
_MORE = 24  # characters for the last line, if some agents are left out
LONGEST, SHORTEST = 600, 80
"""The most characters for one agent's line: with few agents, and with many."""


class Agents:
    """The agents of one session, read from its config at each use."""

    def __init__(self, coordinator: ModuleCoordinator, config: DelegateConfig) -> None:
        self._coordinator = coordinator
        self._config = config

    @property
    def configs(self) -> dict[str, Any]:
        """The session's section `agents`, also those that the tool may not call."""
        section = (self._coordinator.config or {}).get("agents")
        return section if isinstance(section, dict) else {}

    def purposes(self) -> dict[str, str]:
        """Return the agents for calls by name, each with its purpose."""
        found: dict[str, str] = {}
        for name, agent in self.configs.items():
            if isinstance(agent, dict):
                meta = agent.get("meta")
                told = agent.get("description") or (meta.get("description") if isinstance(meta, dict) else None)
                found[name] = " ".join(str(told or "").split())
        if self._config.self_depth:
            found[SELF] = _ABOUT_SELF
        if self._config.agents is None:
            return found
        return {name: found.get(name, "") for name in self._config.agents if name in found or is_bundle(name)}

    def describe(self) -> str:
        """Return the tool's description: its use, and the agents, within `SIZE` characters."""
        purposes = self.purposes()
        share = min(LONGEST, max(SHORTEST, SIZE // max(1, len(purposes))))
        lines: list[str] = []
        left = SIZE - _MORE
        for name, purpose in purposes.items():
            line = f"- {name}: {purpose}" if purpose else f"- {name}"
            line = line if len(line) <= share else line[: share - 2].rstrip() + " …"
            left -= len(line) + 1
            if left < 0:
                lines.append(f"- and {len(purposes) - len(lines)} more")
                break
            lines.append(line)
        return "\n".join([ABOUT, "", "Agents:", *(lines or ["- none"])])

    def find(self, wanted: str) -> str:
        """Return the agent or bundle to run for the name in a call. Raises `DelegationError`.

        A bundle's file becomes its absolute path, so that the program runs the checked file.
        """
        if wanted in self.purposes():
            return wanted
        if not is_bundle(wanted):
            raise UnknownAgent(wanted, self.purposes())
        if not self._config.allows_bundles:
            raise UnknownAgent(wanted, self.purposes(), "bundles are off here")
        capability = self._coordinator.get_capability
        bundle = getattr(capability("mention_resolver"), "base_path", None)
        folders = [Path(folder) for folder in (capability("session.working_dir") or ".", bundle) if folder]
        return find_bundle(wanted, folders, uris=self._config.uris)

    def self_depth(self, name: str) -> int:
        """Return the delegations to `self`, from the first session to the session of this call.

        A delegation to another agent in between neither counts nor restarts the count. Raises `DelegationError` if
        there are too many.
        """
        depth = self._coordinator.get_capability("self_delegation_depth")
        depth = depth if isinstance(depth, int) else 0
        if name != SELF:
            return depth
        if depth >= self._config.self_depth:
            raise DelegationError(
                "TooDeep",
                f"{depth} delegations to 'self' led to this session, and max_self_depth is {self._config.self_depth}; "
                "do the task here, or name another agent",
            )
        return depth + 1
