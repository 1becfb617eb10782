"""Declare the hooks of the foundation; plugins implement them like those of `amplifier_core.hookspecs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from amplifier_core.hookspecs import hookspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from amplifier_core.hookspecs import Register

    IsReleased: TypeAlias = Callable[[str, str], bool]
    SandboxFactory: TypeAlias = Callable[[str, IsReleased, Callable[[], bool]], "Sandbox"]


class Launch(Protocol):
    """A process to start."""

    @property
    def argv(self) -> Sequence[str]:
        """Its arguments, the program first."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Its whole environment."""
        ...

    @property
    def descriptors(self) -> Sequence[int]:
        """What it inherits besides; the starter closes them afterwards."""
        ...


class Sandbox(Protocol):
    """Confines one process in a working folder. All methods block."""

    def launch(self, argv: Sequence[str], readable: Sequence[str]) -> Launch:
        """Return the confined process that runs `argv`, and reads the files and folders `readable` besides.

        It inherits the descriptors of its starter. Raises an error with the remedy where no sandbox holds.
        """
        ...

    def is_current(self) -> bool:
        """Return whether a new process would be confined in the same way: nothing to guard came or changed."""
        ...

    def look_again(self) -> list[str]:
        """Make new files harmless that programs would obey; return a sentence about each."""
        ...

    def close(self) -> None:
        """Delete what the sandbox needed; its process has ended."""
        ...


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


@hookspec
def amplifier_register_sandbox(register: Register[SandboxFactory]) -> None:
    """Offer a sandbox for tools with `sandbox: true`: `register("sandbox", make_sandbox)`.

    The factory is called for each process with the working folder and two functions: `is_released("read" or "write",
    path)` says whether the person's own rules release a guarded file, `is_read_only()` whether nothing may be written.
    """
