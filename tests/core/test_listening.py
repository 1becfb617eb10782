import asyncio

from amplifier_core.listening import close_server


async def test_a_server_whose_end_is_cancelled_gives_its_address_back() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    closing = asyncio.ensure_future(close_server(server))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port) as again:
        assert again.is_serving()
