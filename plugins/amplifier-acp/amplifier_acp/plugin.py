"""Tell `amplifier doctor` whether an editor could use this agent here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@hookimpl
def amplifier_register_checkup(register: Any) -> None:
    """Offer the check of the agent for editors."""
    register("acp", check_agent)


def check_agent() -> Iterator[Mapping[str, str]]:
    """Yield whether `amplifier acp` answers an editor, after a try."""
    from .trying import try_agent

    yield from try_agent()
