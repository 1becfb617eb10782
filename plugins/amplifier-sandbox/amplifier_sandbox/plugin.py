"""Offer the sandbox for tools, and tell `amplifier doctor` what it covers and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .tools import ToolSandbox


@hookimpl
def amplifier_register_sandbox(register: Any) -> None:
    """Offer the sandbox for tools with `sandbox: true`."""
    register("sandbox", make_tool_sandbox)


@hookimpl
def amplifier_register_checkup(register: Any) -> None:
    """Offer the check of the sandbox."""
    register("sandbox", check_sandbox)


def make_tool_sandbox(
    folder: str, is_released: Callable[[str, str], bool], is_read_only: Callable[[], bool]
) -> ToolSandbox:
    """Return the sandbox of one process in a working folder."""
    from .tools import ToolSandbox

    return ToolSandbox(folder, is_released, is_read_only)


def check_sandbox() -> Iterator[Mapping[str, str]]:
    """Yield the sandbox of this machine, after a try, and each fact that it does not cover."""
    from .choosing import describe

    found = describe()
    if found["kind"] is None:
        missing = "; ".join(f"{kind}: {why}" for kind, why in found["missing"].items())
        fact = f"no command of tool-bash and no tool with 'sandbox: true' can run: {missing}"
        yield _finding("weak", fact, _find_remedy())
        return
    tried = f"{found['kind']}, which was tried just now"
    yield _finding("ok", f"commands of tool-bash, and tools with 'sandbox: true' in their bundle, run in {tried}")
    if found["kind"] == "landlock":
        fact = f"bubblewrap covers more, and cannot run: {found['missing']['bubblewrap']}"
        yield _finding("weak", fact, _find_remedy())
    for fact in found["open"]:
        yield _finding("off", fact)
    yield _finding("off", "tools without 'sandbox: true' run in the process of their session, with your rights")


def _find_remedy() -> str:
    """Return what lets bubblewrap run here."""
    import shutil  # not at the start of each program: it imports archivers, too

    if shutil.which("bwrap") is None:
        return "apt-get install bubblewrap"
    return "allow new user namespaces and mounts, also of /proc: containers, and some systems, forbid them"


def _finding(state: str, fact: str, remedy: str = "") -> dict[str, str]:
    return {"part": "sandbox", "state": state, "fact": fact, "remedy": remedy}
