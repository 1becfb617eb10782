"""Begin a zygote: a script, so that it runs before any package can be found. Its argument is a socket's number."""

from __future__ import annotations

import gc
import json
import socket
import sys


def main() -> None:
    """Read where modules are, and be a zygote."""
    gc.disable()  # memory that it frees would be used by each child, and copied there
    own = socket.socket(fileno=int(sys.argv[1]))
    sys.path[:] = json.loads(own.recv(1 << 20))
    from amplifier_foundation.isolation.zygote import Zygote, prepare

    prepare()
    Zygote(own).serve()


if __name__ == "__main__":
    main()
