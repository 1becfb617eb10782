"""Offer the runner `runner-ray`: each of its sessions has a process of its own on a node of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amplifier_core.hookspecs import Register, RunnerFactory

__all__ = ["amplifier_register_checkup", "amplifier_register_runner"]


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Register the runner; all runners that it makes share one connection to Ray, and one limit."""
    shared: list[Any] = []

    def make_runner() -> Any:
        from amplifier_foundation.isolation.runner import SubprocessRunner

        from .cluster import RayCluster, read_config

        if not shared:
            shared.append(SubprocessRunner(RayCluster(read_config())))
        return shared[0]

    register("runner-ray", make_runner)


@hookimpl
def amplifier_register_checkup(register: Any) -> None:
    """Offer the check of the Ray cluster."""
    register("ray", check_ray)


def check_ray() -> Iterator[Mapping[str, str]]:
    """Yield whether a session can run on the Ray cluster that is configured, after a try."""
    from amplifier_core.errors import SessionProcessEnded

    from .cluster import RayCluster, find_address, read_config

    config = read_config()
    address = find_address(config)
    if not address:
        fact = "runner-ray is not in use: no Ray cluster runs here, and RAY_ADDRESS names none"
        yield {"part": "ray", "state": "off", "fact": fact}
        return
    cluster = RayCluster(config)
    try:
        cluster.try_start()
    except SessionProcessEnded as error:
        fact = f"no session can run on the Ray cluster {address}: its process {error.cause}"
        yield {"part": "ray", "state": "weak", "fact": fact}
    else:
        fact = f"runner-ray starts sessions on the Ray cluster {address}, which was tried just now"
        yield {"part": "ray", "state": "ok", "fact": fact}
    finally:
        cluster.close()
