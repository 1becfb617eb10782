"""Begin a process by a fresh interpreter: a script, so that it runs before any package can be found.

Its arguments are `zygote`, `session` or a function as `module:name`, the folders of modules as JSON, and those of
`begin_zygote`, `begin_session` or the function.
"""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module


def main() -> None:
    """Be a zygote, the process of one session, or what a function makes of it."""
    what, folders, *arguments = sys.argv[1:]
    sys.path[:] = json.loads(folders)
    from amplifier_foundation.packages.gate import close_gate

    close_gate()
    if ":" in what:
        module, _, name = what.partition(":")
        getattr(import_module(module), name)(*arguments)
        return
    gc.disable()  # memory that it frees would be used by each child, and copied there
    if what == "zygote":
        from amplifier_foundation.isolation.zygote import begin_zygote

        begin_zygote(*arguments)
    else:
        from amplifier_foundation.isolation.fresh import begin_session

        begin_session(*arguments)


if __name__ == "__main__":
    main()
