"""Tell `amplifier doctor` what the sandbox of this machine covers, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@hookimpl
def amplifier_register_checkup(register: Any) -> None:
    """Offer the check of the sandbox."""
    register("sandbox", check_sandbox)


def check_sandbox() -> Iterator[Mapping[str, str]]:
    """Yield the sandbox for commands, after a try, and each fact that it does not cover."""
    from . import describe_sandbox

    found = describe_sandbox()
    if found["kind"] is None:
        missing = "; ".join(f"{kind}: {why}" for kind, why in found["missing"].items())
        yield _finding("weak", f"no command of tool-bash can run: {missing}", "apt-get install bubblewrap")
        return
    yield _finding("ok", f"commands of tool-bash run in {found['kind']}, which was tried just now")
    if found["kind"] == "landlock":
        remedy = "apt-get install bubblewrap"
        yield _finding("weak", f"bubblewrap covers more, and cannot run: {found['missing']['bubblewrap']}", remedy)
    for fact in found["open"]:
        yield _finding("off", fact)
    yield _finding("off", "other tools run in the process of their session, with your rights")


def _finding(state: str, fact: str, remedy: str = "") -> dict[str, str]:
    return {"part": "sandbox", "state": state, "fact": fact, "remedy": remedy}
