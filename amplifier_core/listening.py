"""Close servers without a loss of connections that were accepted just before."""

from __future__ import annotations

import asyncio


async def close_server(server: asyncio.Server) -> None:
    """Accept no more connections, and let the accepted ones reach `server`; then close it, in its event loop.

    A closed server takes none in, and leaves it open for good: https://github.com/python/cpython/issues/109564.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each)
    try:
        await asyncio.sleep(0)
    finally:  # also when cancelled, or its address stays taken
        server.close()
