"""Declare the hooks of the foundation; plugins implement them like those of `amplifier_core.hookspecs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from amplifier_core.hookspecs import Register


@hookspec
def amplifier_register_bundle(register: Register[str | Path]) -> None:
    """Offer bundles of the package: `register("foreman", Path(__file__).parent / "bundles")`.

    A bundle is a folder with a `bundle.md`, or a file. Users write `foreman`, and `foreman:workers/coding` for a file
    in the folder.
    """


@hookspec
def amplifier_register_checkup(register: Register[Callable[[], Iterable[Mapping[str, str]]]]) -> None:
    """Offer a check of `amplifier doctor`: `register("sandbox", describe_sandbox)`.

    The check changes nothing. It returns mappings with `part`, `state` (`ok`; `weak`: should be mended; `off`: not in
    use), `fact`, and perhaps `remedy`. What it says of the part `sandbox` stands for the sandbox of this machine.
    """
