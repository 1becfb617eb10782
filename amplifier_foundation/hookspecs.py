"""Declare the hooks of the foundation; plugins implement them like those of `amplifier_core.hookspecs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookspec

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.hookspecs import Register


@hookspec
def amplifier_register_bundle(register: Register[str | Path]) -> None:
    """Offer bundles of the package: `register("foreman", Path(__file__).parent / "bundles")`.

    A bundle is a folder with a `bundle.md`, or a file. Users write `foreman`, and `foreman:workers/coding` for a file
    in the folder.
    """
