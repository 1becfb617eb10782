"""The doors that the kernel knows nothing of; a plugin implements them as those of `amplifier_core.hookspecs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookspec

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.hookspecs import Register


@hookspec
def amplifier_register_bundle(register: Register[str | Path]) -> None:
    """Offer bundles that the package brings: `register("foreman", Path(__file__).parent / "bundles")`.

    A folder with a `bundle.md`, or a file. Its users write `foreman`, and `foreman:workers/coding` for what lies in it.
    """
