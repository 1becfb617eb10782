"""Offer the runner `runner-subprocess`: each of its sessions has a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amplifier_core.hookspecs import Register, RunnerFactory

__all__ = ["amplifier_register_checkup", "amplifier_register_runner"]


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Register the runner; all runners that it makes share one process that forks, and one limit."""
    shared: list[Any] = []

    def make_runner() -> Any:
        from amplifier_foundation.isolation.runner import SubprocessRunner
        from amplifier_foundation.isolation.zygotes import Zygotes
        from amplifier_foundation.settings import read_settings

        if not shared:
            shared.append(SubprocessRunner(Zygotes(read_settings().get("max_subprocess"))))
        return shared[0]

    register("runner-subprocess", make_runner)


@hookimpl
def amplifier_register_checkup(register: Any) -> None:
    """Offer the check of processes for sessions."""
    register("processes", check_processes)


def check_processes() -> Iterator[Mapping[str, str]]:
    """Yield whether a process for a session starts here, after a try, and what its limits do not cover."""
    from amplifier_core.errors import SessionProcessEnded
    from amplifier_foundation.isolation.control_groups import try_groups
    from amplifier_foundation.isolation.zygotes import Zygotes

    part, zygotes = "processes", Zygotes()
    try:
        reason = zygotes.try_start()
    except SessionProcessEnded as error:
        yield {"part": part, "state": "weak", "fact": f"no session can have a process of its own: it {error.cause}"}
        return
    finally:
        zygotes.close()
    yield {
        "part": part,
        "state": "ok",
        "fact": f"runner-subprocess {_describe_start(reason)}, which was tried just now",
    }
    if try_groups():
        fact = "a limit of memory, CPU or processes holds for all processes of a session together, by control groups"
        yield {"part": part, "state": "ok", "fact": fact}
    else:
        fact = "a limit of memory or CPU holds for each process of a session by itself: no control group can be made"
        yield {"part": part, "state": "off", "fact": fact}


def _describe_start(reason: str) -> str:
    return f"starts a fresh Python for each session ({reason})" if reason else "forks processes for sessions"
