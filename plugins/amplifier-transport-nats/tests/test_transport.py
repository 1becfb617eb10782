from amplifier_foundation.transports.checks import check_transport
from amplifier_transport_nats import make_nats
from tests.nats_server import nats_server


async def test_c(tmp_path):
    with nats_server(tmp_path / "n") as s:
        await check_transport(lambda: make_nats({"servers": [s.url]}))
