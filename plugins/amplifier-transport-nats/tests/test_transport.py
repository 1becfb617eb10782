"""Test the transport with the real broker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import nkeys
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from nats.aio.client import Client, RawCredentials

from amplifier_foundation.hookspecs import Message
from amplifier_foundation.transports.checks import check_transport
from amplifier_transport_nats import make_nats
from amplifier_transport_nats.config import read_config
from amplifier_transport_nats.transport import options_of
from tests.nats_server import NatsServer, nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from amplifier_transport_nats.transport import NatsTransport

SECRET = "t0p-s3cret-0123456789"
SEED = nkeys.encode_seed(b"\1" * 32, nkeys.PREFIX_BYTE_USER)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path / "nats") as running:
        yield running


@asynccontextmanager
async def opened(server: NatsServer, site: str = "berlin", *names: str, **config: Any) -> AsyncIterator[NatsTransport]:
    transport = make_nats({"servers": [server.url], **config})
    try:
        await transport.open(site, names)
        yield transport
    finally:
        await transport.close()


async def test_the_transport_keeps_the_contract(server: NatsServer) -> None:
    await check_transport(lambda: make_nats({"servers": ["nats://127.0.0.1:9", server.url]}))


async def test_a_message_published_again_is_in_the_stream_once(server: NatsServer) -> None:
    message = Message("berlin.1", "berlin", "work:done", b"{}")
    for _ in range(2):
        async with opened(server) as berlin:
            await berlin.publish([message, message])
    async with opened(server, "oslo") as oslo:
        info = await (await oslo._open_stream()).stream_info("amplifier")
    assert (info.state.messages, info.config.max_age, info.config.subjects) == (1, 7 * 86_400, ["amplifier.>"])


async def test_a_message_beyond_the_limit_of_the_broker_is_refused_and_the_others_go(server: NatsServer) -> None:
    sent = [Message(f"berlin.{n}", "berlin", "work:done", b"x" * size) for n, size in enumerate((1, 2**21, 2))]
    async with opened(server) as berlin:
        refused = await berlin.publish(sent)
        assert refused == {"berlin.1": "it has 2,097,152 bytes, and max_payload is 1,048,576"}
        assert (await (await berlin._open_stream()).stream_info("amplifier")).state.messages == 2


@pytest.mark.parametrize("names", [(), ("work:*",)], ids=["none", "some"])
async def test_a_lost_connection_is_told_whether_events_are_wanted_or_not(
    names: tuple[str, ...], server: NatsServer
) -> None:
    async with opened(server, "oslo", *names) as oslo:
        await oslo.publish([Message("oslo.0", "oslo", "work:done", b"{}")])
        messages = oslo.receive()
        if names:
            assert (await anext(messages))[0].id == "oslo.0"
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        server.kill()
        with pytest.raises(ConnectionError):
            await waiting
        with pytest.raises(ConnectionError):
            await oslo.publish([Message("oslo.1", "oslo", "work:done", b"{}")])


async def test_a_site_that_wants_other_names_goes_on_where_it_was(server: NatsServer) -> None:
    sent = [Message(f"berlin.{n}", "berlin", name, b"{}") for n, name in enumerate(["a:1", "a:2", "b:1", "a:3"])]
    async with opened(server) as berlin:
        await berlin.publish(sent)
    async with opened(server, "oslo", "a:*") as oslo:
        first, acknowledge = await anext(oslo.receive())
        await acknowledge()
    async with opened(server, "oslo", "a:*", "b:*") as oslo:
        messages = oslo.receive()
        rest = [(await anext(messages))[0] for _ in sent[1:]]
    assert [first, *rest] == sent


async def test_a_message_of_another_program_comes_with_its_subject(server: NatsServer) -> None:
    stranger = Client()
    await stranger.connect(server.url)
    async with opened(server, "oslo", "work:*") as oslo:
        await oslo._open_stream()
        await stranger.jetstream().publish("amplifier.mallory.work.%FF%E2", b"\xff no JSON")
        message, acknowledge = await anext(oslo.receive())
        await acknowledge()
    await stranger.close()
    assert (message.id, message.site, message.body) == ("", "mallory", b"\xff no JSON")


async def test_a_broker_without_jetstream_is_named_with_the_remedy(tmp_path: Path) -> None:
    with nats_server(tmp_path / "nats", jetstream=False) as server:
        async with opened(server) as berlin:
            with pytest.raises(ConnectionError, match="start it with nats-server -js"):
                await berlin.publish([Message("berlin.1", "berlin", "work:done", b"{}")])


async def test_rights_of_the_broker_bind_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_transport_nats.transport.ANSWERED", 0.5)  # it gives no answer
    rights = '{publish: ["amplifier.berlin.>", "$JS.API.>"], subscribe: ["_INBOX.>"]}'
    users = f'{{user: berlin, password: "{SECRET}", permissions: {rights}}}'
    with nats_server(tmp_path / "nats", f"authorization {{ users: [{users}] }}") as server:
        async with opened(server, user="berlin", password=SECRET) as berlin:
            await berlin.publish([Message("berlin.1", "berlin", "work:done", b"{}")])
            with pytest.raises(ConnectionError, match="(?i)permissions violation .*oslo"):
                await berlin.publish([Message("oslo.1", "oslo", "work:done", b"{}")])


WAYS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (f'authorization {{ token: "{SECRET}" }}', {"token": SECRET}, {"token": f"{SECRET}-wrong"}),
    (
        f'authorization {{ user: me, password: "{SECRET}" }}',
        {"user": "me", "password": SECRET},
        {"user": "me", "password": f"{SECRET}-wrong"},
    ),
    (
        f"authorization {{ users: [{{nkey: {nkeys.from_seed(SEED).public_key.decode()}}}] }}",
        {"nkey": SEED.decode()},
        {"nkey": nkeys.encode_seed(b"\2" * 32, nkeys.PREFIX_BYTE_USER).decode()},
    ),
]


@pytest.mark.parametrize(("lines", "right", "wrong"), WAYS, ids=["token", "user", "nkey"])
async def test_a_site_says_who_it_is_and_a_refusal_has_no_secret_in_it(
    lines: str, right: dict[str, Any], wrong: dict[str, Any], tmp_path: Path
) -> None:
    with nats_server(tmp_path / "nats", lines) as server:
        async with opened(server, **right) as berlin:
            await berlin.publish([Message("berlin.1", "berlin", "work:done", b"{}")])
        for config in (wrong, {}):
            with pytest.raises(ConnectionError, match="the broker refuses this site's credentials") as told:
                async with opened(server, **config):
                    pass
            assert not [value for value in (*right.values(), *config.values()) if value != "me" and value in str(told)]


async def test_a_seed_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "seed").write_bytes(SEED)
    with nats_server(tmp_path / "nats", WAYS[2][0]) as server:
        async with opened(server, nkey_file=str(tmp_path / "seed")) as berlin:
            await berlin.publish([Message("berlin.1", "berlin", "work:done", b"{}")])


def test_credentials_go_to_the_client_as_their_text_or_the_path_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    servers = {"servers": ["tls://127.0.0.1:4222"]}
    text = options_of(read_config({**servers, "credentials": "-----BEGIN NATS USER JWT-----"}))
    assert text == {"user_credentials": RawCredentials("-----BEGIN NATS USER JWT-----")}
    assert isinstance(text["user_credentials"], RawCredentials)
    path = options_of(read_config({**servers, "credentials_file": "~/berlin.creds"}))
    assert path == {"user_credentials": str(tmp_path / "berlin.creds")}


def make_certificate(folder: Path) -> tuple[str, str]:
    """Write a certificate of 127.0.0.1 that is its own authority; return its path and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(folder / "cert.pem"), str(folder / "key.pem")


async def test_the_connection_is_encrypted_and_both_sides_are_checked(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    lines = f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{cert}", verify: true }}'
    with nats_server(tmp_path / "nats", lines) as server:
        files = {"ca_file": cert, "cert_file": cert, "key_file": key}
        async with opened(server, tls=files) as berlin:
            await berlin.publish([Message("berlin.1", "berlin", "work:done", b"{}")])
        for tls, why in (({}, "certificate verify failed"), ({"ca_file": cert}, None)):
            with pytest.raises(ConnectionError, match=why):
                async with opened(server, tls=tls) as berlin:
                    await berlin.publish([Message("berlin.2", "berlin", "work:done", b"{}")])
