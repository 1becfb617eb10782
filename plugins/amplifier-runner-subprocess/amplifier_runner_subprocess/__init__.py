"""Offer the runner `runner-subprocess`: each of its sessions has a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, RunnerFactory

__all__ = ["amplifier_register_runner"]


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Register the runner; all runners that it makes share one process that forks, and one limit."""
    shared: list[Any] = []

    def make_runner() -> Any:
        from amplifier_foundation.isolation.runner import SubprocessRunner

        if not shared:
            shared.append(SubprocessRunner())
        return shared[0]

    register("runner-subprocess", make_runner)
