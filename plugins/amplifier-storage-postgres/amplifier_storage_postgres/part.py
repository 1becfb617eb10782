"""Define what the parts of a store have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rows import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .running import Runner


class Part:
    """A part of `PostgresStore`; `_fence` is the claim that its writes check, if any."""

    _runner: Runner
    _fence: tuple[str, int] | None = None

    def _fenced(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a write with the claim that it checks."""
        return given if self._fence is None else {**given, "fence": self._fence}

    def _encode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return encode(values, self._runner.projects)

    def _filters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return self._encode({name: value for name, value in given.items() if value is not None})
