"""Run the program `amplifier`."""

import gc
import importlib
import os
import signal
import sys
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
