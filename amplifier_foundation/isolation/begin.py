"""Begin a zygote, or the process of a sandboxed module: a script, so that it runs before any package can be found.

Its arguments are a socket's number and, for a sandboxed module, the folders of modules as JSON; a zygote receives them.
"""

from __future__ import annotations

import gc
import json
import socket
import sys


def main() -> None:
    """Read where modules are, and be a zygote or the process of a module."""
    if len(sys.argv) > 2:
        sys.path[:] = json.loads(sys.argv[2])
        from amplifier_foundation.isolation.tool_host import serve_module

        serve_module(socket.socket(fileno=int(sys.argv[1])))
        return
    gc.disable()  # memory that it frees would be used by each child, and copied there
    own = socket.socket(fileno=int(sys.argv[1]))
    sys.path[:] = json.loads(own.recv(1 << 20))
    from amplifier_foundation.isolation.zygote import Zygote, prepare

    prepare()
    Zygote(own).serve()


if __name__ == "__main__":
    main()
