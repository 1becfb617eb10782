"""Begin a process by a fresh interpreter: a script, so that it runs before any package can be found.

Its arguments are `zygote`, `session` or `module`, the folders of modules as JSON, and those of `begin_zygote`,
`begin_session` and `begin_module`.
"""

from __future__ import annotations

import gc
import json
import sys


def main() -> None:
    """Be a zygote, the process of one session, or that of a module in a sandbox."""
    what, folders, *arguments = sys.argv[1:]
    sys.path[:] = json.loads(folders)
    if what == "module":
        from amplifier_foundation.isolation.tool_host import begin_module

        begin_module(*arguments)
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
