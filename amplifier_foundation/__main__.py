"""Run the program `amplifier`."""

import gc
import importlib
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from threading import Lock
from types import ModuleType
from typing import Any

# Until the command line can answer it in one line, Ctrl-C ends the program without a traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)
# Imports make many objects and little garbage: no collection walks through them. `cli.loops.end_start` ends that.
gc.set_threshold(1_000_000, 20, 20)
# Schemas of this program need no plugins of pydantic; looking for them reads every distribution.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
# SIGHUP has `up` look at its bundles: until it can, the signal must not end it.
if next((each for each in sys.argv[1:] if not each.startswith("-")), "") == "up":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

STREAMS = "amplifier_streams"
"""The option `-X` of Python with the encoding of the terminal, where that is not UTF-8."""
REMEDY = "pip uninstall amplifier-core && pip install --force-reinstall --no-deps amplifier"


class LateMetadata(ModuleType):
    """Stand for `importlib.metadata` until something of it is used.

    pydantic imports its function `entry_points` for the first model, and does not call it: here the import takes longer
    than that of click.
    """

    def __init__(self) -> None:
        super().__init__("importlib.metadata")
        self.__spec__ = type(importlib.__spec__)("importlib.metadata", None, is_package=True)  # for `find_spec`
        self.__path__ = [os.path.join(importlib.__path__[0], "metadata")]  # noqa: PTH118 - pathlib is not imported here
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def entry_points(self, **selection: Any) -> Any:
        """Return installed entry points."""
        return self._load().entry_points(**selection)

    def _load(self) -> ModuleType:
        with self._lock:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)  # it waits for an import that another thread has begun


def main() -> None:
    """Run the command line."""
    if os.getpid() == 1 and is_command():
        from .first_process import run_as_child

        run_as_child()
    if sys.getfilesystemencoding() != "utf-8" and is_command():
        restart_with_utf8()
    if isinstance(encoding := sys._xoptions.get(STREAMS), str):
        read_as_locale(encoding)
    _open_closed_streams()
    if not _kernel_is_ours():
        raise SystemExit(
            "amplifier: the package amplifier_core that Python finds is not this program's: another distribution "
            f"(amplifier-core, most likely) was installed over it. Mend it with: {REMEDY}"
        )
    if "importlib.metadata" not in sys.modules:
        importlib.metadata = sys.modules["importlib.metadata"] = LateMetadata()
    from amplifier_foundation.cli import main as command_line

    try:
        command_line()
    finally:
        gc.freeze()  # else the last collection walks through every module: a fifth of the time of a short command


def is_command() -> bool:
    """Return whether this process is the command, and no program that calls `main` in the middle of its own work."""
    before = sys.orig_argv[: max(0, len(sys.orig_argv) - len(sys.argv) + 1)]
    is_script = [os.path.basename(each) for each in before[-1:]] == ["amplifier"]  # noqa: PTH119
    return bool(sys.executable) and (is_script or before[-2:] == ["-m", "amplifier_foundation"])


def restart_with_utf8() -> None:
    """Become a Python that reads names of files as UTF-8: a folder is the same project in every locale.

    No variable says so: programs started from here keep their locale.
    """
    options = ["-X", "utf8", "-X", f"{STREAMS}={sys.getfilesystemencoding()}"]
    with suppress(OSError, ValueError):  # then it goes on as it is
        try:
            with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123 - pathlib is not imported here
                given: list[str] | list[bytes] = file.read().split(b"\0")[1:-1]  # `sys.orig_argv` may not be exact
        except OSError:
            given = sys.orig_argv[1:]
        os.execv(sys.executable, [sys.executable, *options, *given])


def read_as_locale(encoding: str) -> None:
    """Print and read text as the terminal does. An argument is UTF-8, or names a file; else it was typed there."""
    for place, argument in enumerate(sys.argv):
        raw, paths = os.fsencode(argument), (argument, os.path.dirname(argument))  # noqa: PTH120 - as above
        is_named = any(not each.isascii() and os.path.lexists(each) for each in paths)
        if not is_named and raw.decode("utf-8", "ignore") != argument:
            sys.argv[place] = raw.decode(encoding, "surrogateescape")
    if "PYTHONIOENCODING" not in os.environ:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding=encoding, errors=stream.errors)


def _open_closed_streams() -> None:
    """Have /dev/null stand for a closed stdin, stdout or stderr: a file opened later would take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free number, so that of the stream
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", encoding="utf-8"))


def _kernel_is_ours() -> bool:
    try:
        import amplifier_core
    except ImportError:
        return False
    return getattr(amplifier_core, "DISTRIBUTION", None) == "amplifier"


if __name__ == "__main__":
    main()
