"""Close servers without a loss of connections that were accepted just before."""

from __future__ import annotations

import asyncio


async def stop_accepting(server: asyncio.Server) -> None:
    """Accept no more connections, and let the accepted ones reach `server`, in its event loop; then it may be closed.

    A closed server takes none in, and leaves it open for good: https://github.com/python/cpython/issues/109564.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each)
    await asyncio.sleep(0)
