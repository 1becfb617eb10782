"""Test the answers of a webhook, and its events."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn.server
from starlette.datastructures import Headers

import amplifier_trigger_webhook.connections as connections
import amplifier_trigger_webhook.receiving as receiving
import amplifier_trigger_webhook.refused_requests as refused_requests
import amplifier_trigger_webhook.seen_signatures as seen_signatures
import amplifier_trigger_webhook.server as server
from amplifier_core.errors import QueueFull, StoreUnavailable, TriggerConfigError, TriggerError
from amplifier_core.plugins import load_plugins
from amplifier_core.testing.clock import VirtualClock
from amplifier_core.testing.trigger_checks import check_trigger
from amplifier_core.triggers import TriggerContext, TriggerSource, TriggerType
from amplifier_trigger_webhook import WebhookTrigger
from amplifier_trigger_webhook.config import Scheme
from amplifier_trigger_webhook.rate_limit import RateLimit
from amplifier_trigger_webhook.seen_signatures import SeenSignatures
from amplifier_trigger_webhook.signatures import BadSignature, check_signature, read_key
from amplifier_trigger_webhook.trigger import default_path

from .conftest import SECRET, Answer, Run, Running, github, plain, send, slack, standard, stripe, webhook

GITHUB = {"secret_env": "HOOK_SECRET"}
PLAIN = {"secret_env": "HOOK_SECRET", "signature": "plain"}


async def test_the_contract_of_a_trigger() -> None:
    made: list[WebhookTrigger] = []
    said = iter(range(10))

    def make() -> WebhookTrigger:
        made.append(WebhookTrigger())
        return made[-1]

    async def provoke() -> Answer:
        body = b"%d" % next(said)
        return await asyncio.to_thread(send, made[-1].url, body, github(body))

    events = await check_trigger(
        make, {"port": 0, **GITHUB}, provoke=provoke, context=TriggerContext("tests/hook#1", clock=VirtualClock())
    )
    assert [event.data["body"] for event in events] == ["0", "1"]


def test_the_plugin_registers_it() -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-webhook"})
    assert plugins.triggers.get("trigger-webhook") is WebhookTrigger
    assert isinstance(WebhookTrigger(), TriggerSource)


async def test_a_request_is_an_event(run: Run) -> None:
    async with run() as bench:
        answer = await bench.post(
            {"n": 1},
            {
                "Authorization": "Bearer secret",
                "Cookie": "secret",
                "User-Agent": "test",
                "X-GitHub-Event": "push",
                "X-GitHub-Delivery": "d-1",
                "X-Hub-Signature-256": "secret",
            },
            path="/hook?to=main&to=test",
        )
        [event] = bench.events
    assert (answer.status, answer.body) == (202, {"status": "accepted", "event_id": event.event_id})
    assert (event.type, event.source, event.event_name) == (TriggerType.WEBHOOK, "trigger-webhook", "push")
    assert (event.timestamp, event.dedupe_key) == (bench.clock.now(), "tests/hook#1 d-1")
    assert event.data == {
        "method": "POST",
        "path": "/hook",
        "query": {"to": "test"},
        "headers": {
            "content-type": "application/json",
            "user-agent": "test",
            "x-github-delivery": "d-1",
            "x-github-event": "push",
        },
        "body": {"n": 1},
    }


async def test_a_request_is_answered_when_its_event_is_stored_and_not_before(run: Run) -> None:
    async with run() as bench:
        bench.hold.clear()
        async with asyncio.TaskGroup() as group:
            posts = [group.create_task(bench.post({"n": n})) for n in range(3)]
            while not bench.events:
                await asyncio.sleep(0)
            assert len(bench.events) == 1
            assert not any(post.done() for post in posts)
            bench.hold.set()
    assert [post.result().status for post in posts] == [202] * 3
    assert sorted(event.data["body"]["n"] for event in bench.events) == [0, 1, 2]


@pytest.mark.parametrize(
    ("config", "headers", "told"),
    [
        ({}, {}, "counts each time: it has no id"),
        ({}, {"X-Amplifier-Delivery": "d-1"}, "counts once by its id or signature"),
        (GITHUB, github(b"{}"), "counts once by its id or signature"),
    ],
)
async def test_an_event_that_could_not_be_stored_is_answered_503(
    config: dict[str, Any], headers: dict[str, str], told: str, run: Run
) -> None:
    async with run(**config) as bench:
        bench.failure = OSError("disk full")
        answer = await bench.post(b"{}", headers)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.body == {"error": f"the event may not be stored, and {told}; try again"}


async def test_a_full_queue_is_answered_503_with_the_time_of_the_next_try(run: Run) -> None:
    async with run() as bench:
        bench.failure = QueueFull("b/hook", 10)
        answer = await bench.post({"n": 1})
        bench.failure = None
        assert (answer.status, answer.headers["retry-after"]) == (503, "60")
        assert (await bench.post({"n": 2})).status == 202


async def test_a_store_that_fails_closes_no_port(run: Run) -> None:
    async with run() as bench:
        bench.failure = StoreUnavailable("/store", "the disk is full")
        answers = [await bench.post({"n": n}) for n in range(40)]
        bench.failure = None
        later = await bench.post({"n": 40})
    assert {(answer.status, answer.headers["retry-after"]) for answer in answers} == {(503, "1")}
    assert later.status == 202


async def test_a_stopped_background_session_answers_503_until_it_ends() -> None:
    trigger = webhook()
    standing_by = asyncio.create_task(trigger.stand_by())
    while not trigger.url:
        await asyncio.sleep(0.001)
    answer = await asyncio.to_thread(send, trigger.url, b"{}", {})
    await trigger.stop()
    await standing_by
    assert (answer.status, answer.headers["retry-after"]) == (503, "60")
    assert answer.body == {"error": "this background session is stopped"}


async def test_a_request_that_waits_for_the_store_too_long_is_answered_503_and_never_yielded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "STORE_TIME", 0.01)
    async with run() as bench:
        bench.hold.clear()
        answers = [await bench.post({"n": n}) for n in range(2)]
    assert [answer.status for answer in answers] == [503, 503]
    assert [event.data["body"]["n"] for event in bench.events] == [0]


async def test_stop_answers_those_who_wait_and_those_who_still_write(run: Run) -> None:
    async with run() as bench:
        bench.hold.clear()
        with socket.create_connection(address(bench)) as slow:
            slow.sendall(b"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345")
            async with asyncio.TaskGroup() as group:
                posts = [group.create_task(bench.post({"n": n})) for n in range(3)]
                pending = bench.trigger._pending
                assert pending is not None
                while (len(bench.events), len(pending._waiting), len(pending._reading)) != (1, 2, 1):
                    await asyncio.sleep(0)
                await bench.trigger.stop()
                bench.hold.set()
            slow_answer = await asyncio.to_thread(slow.recv, 1000)
    assert sorted(post.result().status for post in posts) == [202, 503, 503]
    assert slow_answer.startswith(b"HTTP/1.1 503 ")
    assert len(bench.events) == 1


async def test_one_that_is_stopped_before_it_is_watched_ends_at_once() -> None:
    trigger = webhook()
    await trigger.stop()
    assert [event async for event in trigger.watch()] == []


def address(bench: Running) -> tuple[str, int]:
    host, port = bench.trigger.url.removeprefix("http://").partition("/")[0].split(":")
    return host, int(port)


async def started_server(bench: Running) -> uvicorn.server.ServerState:
    """Have the server started by a connection, unless it was; return its state once that is closed."""
    [listener] = [each for each in server._LISTENERS[asyncio.get_running_loop()].values() if each._socket is not None]
    if listener._server is not None:
        return listener._server.server_state
    with await asyncio.to_thread(socket.create_connection, address(bench)):
        while listener._server is None or not listener._server.server_state.connections:
            await asyncio.sleep(0.001)
    while listener._server.server_state.connections:
        await asyncio.sleep(0.001)
    return listener._server.server_state


@asynccontextmanager
async def idling(
    bench: Running, count: int, source: str = "127.0.0.1", sends: bytes = b""
) -> AsyncIterator[list[socket.socket]]:
    """Hold so many connections that the server knows; each has sent these bytes."""
    state = await started_server(bench)
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            known = set(state.connections)
            held.append(await asyncio.to_thread(socket.create_connection, address(bench), None, (source, 0)))
            held[-1].sendall(sends)
            while not state.connections - known:
                await asyncio.sleep(0)
        yield held
    finally:
        for each in held:
            each.close()


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (b"{", {"Content-Type": "application/json"}, 400, "not JSON that can be stored"),
        (b"", {"Content-Type": "application/problem+json; charset=utf-8"}, 400, "not JSON that can be stored"),
        (b'{"n": NaN}', {"Content-Type": "application/json"}, 400, "body.n: nan is not JSON"),
        (b'{"n": [1e999]}', {"Content-Type": "application/json"}, 400, "body.n[0]: inf is not JSON"),
        (b"9" * 5000, {"Content-Type": "application/json"}, 400, "4300"),
        (b'["\\ud800"]', {"Content-Type": "application/json"}, 400, "half of a surrogate pair"),
        (b"[" * 65 + b"]" * 65, {"Content-Type": "application/json"}, 400, "more than 64 levels"),
        (b"[" * 100_000, {"Content-Type": "application/json"}, 400, "nested too deeply"),
        (b"\xff", {}, 415, "not UTF-8"),
        (b"x", {"Content-Type": "multipart/form-data; boundary=x"}, 415, "send JSON or text"),
        (b"x", {"Content-Encoding": "gzip"}, 415, "compressed"),
        (b"x", {"X-Amplifier-Delivery": "a b"}, 400, "without spaces"),
        (b"x", {"X-Amplifier-Delivery": "a" * 129}, 400, "1 to 128"),
        (b"x", {"Host": "evil.example:80"}, 421, "not the host"),
        (b"x", {"Host": "localhost:80@evil.example"}, 421, "not the host"),
        (b"x", {"Host": "localhost:evil.example"}, 421, "not the host"),
        (b"x", {"Host": "[::1].evil.example"}, 421, "not the host"),
        (b"x", {"Origin": "https://evil.example"}, 403, "browser"),
        (b"x", {"Sec-Fetch-Site": "same-origin"}, 403, "browser"),
        (b"x" * 101, {}, 413, "larger than 100 bytes"),
    ],
)
async def test_what_cannot_be_an_event_is_refused(
    body: bytes, headers: dict[str, str], status: int, message: str, run: Run
) -> None:
    most = 100 if status == 413 else 200_000
    async with run(max_bytes=most) as bench:
        answer = await bench.post(body, headers)
    assert (answer.status, bench.events) == (status, [])
    assert message in answer.body["error"]


async def test_a_target_may_be_a_whole_address_whose_host_counts(run: Run) -> None:
    async with run() as bench:
        url = bench.trigger.url
        assert (await bench.post(b"1", path=url)).status == 202
        assert (await bench.post(b"2", {"Host": "evil.example"}, path=url)).status == 202
        evil = f"http://evil.example{urlsplit(url).path}"
        assert (await bench.post(b"3", {"Host": urlsplit(url).netloc}, path=evil)).status == 421
        assert (await bench.post(b"4", path="http:///hook")).status == 404
        assert (await bench.post(b"5", path=f"http://localhost:1@evil.example{urlsplit(url).path}")).status == 421
        assert len(bench.events) == 2


async def test_an_unknown_path_is_told_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async with run() as bench:
        path = urlsplit(bench.trigger.url).path
        for _ in range(3):
            assert (await bench.post(path=f"/of-a-stranger{path}")).status == 404
    (told,) = [each.getMessage() for each in caplog.records if "refused with 404" in each.getMessage()]
    assert f"none of the paths of webhooks here ({path}); let the proxy pass" in told
    assert "stranger" not in told


async def test_other_paths_and_methods_are_refused(run: Run) -> None:
    async with run() as bench:
        assert (await bench.post(path="/")).status == 404
        refused = await bench.post(method="GET")
        assert (await bench.post(method="DELETE")).status == 405
    assert (refused.status, refused.headers["allow"], bench.events) == (405, "POST", [])


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8787", "hook.example", "[2001:DB8::7]"]
)
async def test_its_own_names_are_let_in(host: str, run: Run) -> None:
    async with run(hosts=["Hook.Example", "[2001:DB8::7]"]) as bench:
        assert (await bench.post({}, {"Host": host})).status == 202


async def test_a_body_without_a_length_is_counted_while_it_comes(run: Run) -> None:
    async with run(max_bytes=1000) as bench:
        assert (await bench.post(b"x" * 1000, chunked=True)).status == 202
        assert (await bench.post(b"x" * 100_000, chunked=True)).status == 413
        assert (await bench.post(b"x" * 100_000)).status == 413
        announced = await asyncio.to_thread(send, bench.trigger.url, b"", {"Content-Length": "9999999999"})
        assert announced.status == 413
    assert [len(event.data["body"]) for event in bench.events] == [1000]


async def test_only_the_events_that_are_asked_for_count(run: Run) -> None:
    async with run(events=["issues"]) as bench:
        answers = [await bench.post({}, {"X-GitHub-Event": kind}) for kind in ("issues", "push")]
        answers.append(await bench.post({}))
    assert [answer.status for answer in answers] == [202, 200, 200]
    assert answers[1].body == {"status": "ignored", "reason": "event 'push' is not among its events"}
    assert [event.event_name for event in bench.events] == ["issues"]


async def test_too_many_requests_are_told_when_to_try_again(run: Run) -> None:
    async with run(rate=2) as bench:
        answers = [await bench.post({}) for _ in range(3)]
        await bench.clock.advance(int(answers[2].headers["retry-after"]))
        answers.append(await bench.post({}))
    assert [answer.status for answer in answers] == [202, 202, 429, 202]
    assert len(bench.events) == 3


async def test_a_rate_limit_grows_back_to_its_rate_and_no_further() -> None:
    clock = VirtualClock()
    limit = RateLimit(60, clock)
    assert [limit.take() for _ in range(61)] == [0] * 60 + [1]
    await clock.advance(1)
    assert [limit.take() for _ in range(2)] == [0, 1]
    await clock.advance(3600)
    assert [limit.take() for _ in range(61)] == [0] * 60 + [1]


async def test_requests_that_wait_are_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MOST_REQUESTS", 2)
    async with run() as bench:
        bench.hold.clear()
        async with asyncio.TaskGroup() as group:
            posts = [group.create_task(bench.post({"n": n})) for n in range(3)]
            done, _ = await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
            bench.hold.set()
    assert [post.result().status for post in done] == [503]
    assert Counter(post.result().status for post in posts) == {202: 2, 503: 1}


async def test_a_slow_body_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "BODY_TIME", 0.01)
    async with run() as bench:
        with socket.create_connection(address(bench)) as slow:
            slow.sendall(b"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1")
            said = await asyncio.to_thread(slow.makefile("rb").read)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert bench.events == []


@pytest.mark.parametrize("head", [b"", b"POST /hook HTTP/1.1\r\nHo"])
async def test_a_slow_head_is_given_up(head: bytes, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIME", 0.01)
    async with run() as bench:
        with socket.create_connection(address(bench)) as slow:
            slow.sendall(head)
            with slow.makefile("rb") as file:
                try:
                    said = await asyncio.to_thread(file.read)
                except ConnectionResetError:
                    said = b""
    assert b"HTTP/1.1 2" not in said


async def test_connections_wait_for_a_server_that_is_still_loaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SERVER_DELAY", 3600)
    async with run(**GITHUB) as bench:
        [listener] = [each for each in server._LISTENERS[asyncio.get_running_loop()].values() if each._socket]
        assert listener._server is None
        assert [each.status for each in await asyncio.gather(*(bench.signed(b"%d" % n) for n in range(3)))] == [202] * 3
        assert listener._server is not None
    assert sorted(each.data["body"] for each in bench.events) == ["0", "1", "2"]


async def test_a_server_is_there_without_a_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SERVER_DELAY", 0)
    async with run() as bench:
        [listener] = [each for each in server._LISTENERS[asyncio.get_running_loop()].values() if each._socket]
        while listener._server is None:
            await asyncio.sleep(0.001)
    assert bench.events == []


async def test_a_webhook_whose_server_never_started_frees_its_port(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SERVER_DELAY", 3600)
    async with run() as bench:
        place = address(bench)
    with socket.create_server(place):
        pass


async def test_a_server_that_cannot_start_is_an_error_of_the_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    async def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError("no server")

    monkeypatch.setattr(server, "SERVER_DELAY", 0)
    monkeypatch.setattr("amplifier_trigger_webhook.application.start_server", break_down)
    trigger = WebhookTrigger()
    trigger.configure({"port": 0})
    with pytest.raises(RuntimeError, match="no server"):
        await anext(aiter(trigger.watch()))


async def test_a_webhook_is_started_again_while_another_holds_the_port_of_the_server_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError("no server")

    async def respond(request: Any) -> receiving.Answer:
        return receiving.Answer({"path": request.url.path})

    monkeypatch.setattr(server, "SERVER_DELAY", 0)
    failures: list[Exception] = []
    listener = server.Listener("127.0.0.1", 0)
    with monkeypatch.context() as broken:
        broken.setattr("amplifier_trigger_webhook.application.start_server", break_down)
        for path in ("/first", "/second"):
            listener.claim("hook", path, respond, failures.append)
            await listener.start("hook")
        async with asyncio.timeout(60):
            while len(failures) < 2:
                await asyncio.sleep(0.001)
    await listener.leave("/first")
    listener.claim("hook", "/first", respond, failures.append)
    url = await listener.start("hook")
    answer = await asyncio.to_thread(send, f"{url}/first", b"{}", {})
    assert (answer.status, len(failures)) == (200, 2)
    for path in ("/first", "/second"):
        await listener.leave(path)


async def test_idle_connections_give_way_to_others_the_longest_idle_first(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    async with run(**GITHUB) as bench, idling(bench, 2) as held:
        assert (await bench.signed(b"genuine")).status == 202
        assert await asyncio.to_thread(is_closed, held[0])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, 127.0.0.2 is no address of this machine")
async def test_the_address_with_the_most_connections_gives_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    async with run(**GITHUB) as bench, idling(bench, 1, "127.0.0.3") as [lone], idling(bench, 2, "127.0.0.2") as many:
        assert (await bench.signed(b"genuine")).status == 202
        assert await asyncio.to_thread(is_closed, many[0])
        lone.setblocking(False)
        with pytest.raises(BlockingIOError):
            is_closed(lone)


async def test_a_flood_of_bodies_that_drip_starves_no_signed_caller(run: Run) -> None:
    head = b"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n1"
    async with run(**GITHUB) as bench, idling(bench, 70, sends=head), idling(bench, 186):
        answers = [await bench.signed(b"genuine %d" % number) for number in range(20)]
    assert {answer.status for answer in answers} == {202}


async def test_the_body_that_is_read_longest_gives_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MOST_REQUESTS", 1)
    head = b"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1"
    async with run() as bench, idling(bench, 1, sends=head) as [slow]:
        while not (bench.trigger._pending and bench.trigger._pending._reading):
            await asyncio.sleep(0)
        assert (await bench.post(b"next")).status == 202
        said = await asyncio.to_thread(slow.makefile("rb").read)
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in said
    assert [event.data["body"] for event in bench.events] == ["next"]


async def test_a_client_that_leaves_is_forgotten(run: Run) -> None:
    async with run() as bench:
        with socket.create_connection(address(bench)) as hasty:
            hasty.sendall(b"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1")
        assert (await bench.post(b"next")).status == 202
    assert [event.data["body"] for event in bench.events] == ["next"]


# signatures


async def test_githubs_signature_is_the_hmac_of_the_body(run: Run) -> None:
    """The example that GitHub publishes."""
    expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert github(b"Hello, World!") == {"X-Hub-Signature-256": expected}
    async with run(**GITHUB) as bench:
        assert (await bench.signed(b"Hello, World!")).status == 202
    assert SECRET not in repr(bench.events)
    assert expected not in repr(bench.events)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "x-hub-signature-256 is missing"),
        ({"X-Hub-Signature-256": ""}, "does not fit"),
        ({"X-Hub-Signature-256": "sha256="}, "does not fit"),
        ({"X-Hub-Signature-256": "\xe9" * 71}, "does not fit"),
        (github(b"other"), "does not fit"),
        (github(b"body", "other"), "does not fit"),
        (github(b"body", ""), "does not fit"),
        ({"X-Hub-Signature": "sha1=0"}, "is missing"),
        (plain(b"body", 1_767_225_600), "is missing"),
    ],
)
async def test_a_forged_request_is_refused(headers: dict[str, str], message: str, run: Run) -> None:
    async with run(**GITHUB) as bench:
        answer = await bench.post(b"body", headers)
    assert (answer.status, bench.events) == (401, [])
    assert message in answer.body["error"]
    assert SECRET not in answer.body["error"]


@pytest.mark.parametrize(("at", "status"), [(0, 202), (-300, 202), (300, 202), (-301, 401), (301, 401)])
async def test_a_plain_signature_is_good_for_its_time(at: float, status: int, run: Run) -> None:
    async with run(**PLAIN) as bench:
        assert (await bench.plain(b"body", at=at)).status == status


@pytest.mark.parametrize("timestamp", ["", "now", "-1", "1e9", "\xb2", "9" * 13, "1767225601"])
async def test_a_timestamp_that_was_not_signed_is_refused(timestamp: str, run: Run) -> None:
    async with run(**PLAIN) as bench:
        answer = await bench.plain(b"body", {"X-Amplifier-Timestamp": timestamp})
    assert (answer.status, bench.events) == (401, [])


@pytest.mark.parametrize("scheme", [GITHUB, PLAIN])
async def test_what_is_sent_again_keeps_its_key_also_under_another_delivery(scheme: dict[str, str], run: Run) -> None:
    async with run(**scheme) as bench:
        sign = bench.signed if scheme is GITHUB else bench.plain
        for delivery in ({"X-Amplifier-Delivery": "a"}, {"X-Amplifier-Delivery": "b"}, {}, {"X-GitHub-Delivery": "c"}):
            assert (await sign(b"body", delivery)).status == 202
        await sign(b"other", {"X-Amplifier-Delivery": "b"})
    assert [event.dedupe_key for event in bench.events] == ["tests/hook#1 a", "tests/hook#1 b"]


async def test_a_captured_delivery_is_no_event_under_another_id_also_after_the_tolerance(run: Run) -> None:
    first, again = {"X-GitHub-Delivery": "a"}, {"X-GitHub-Delivery": "b"}
    async with run(**GITHUB, tolerance=300.0) as bench:
        assert (await bench.signed(b"deploy", first)).status == 202
        [event] = bench.events
        await bench.clock.advance(1_000)
        assert (await bench.signed(b"deploy", again)).body["reason"] == "this request was accepted before"
    async with run(**GITHUB, state=dict(event.state_changes or {})) as bench:
        await bench.clock.advance(1_000)
        assert (await bench.signed(b"deploy", again)).body["reason"] == "this request was accepted before"
    assert bench.events == []


def test_the_seen_signatures_are_bounded_by_age_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_signatures, "MOST_SIGNATURES", 2)
    seen = SeenSignatures({"old": [5.0, "k-old"], "older": [1.0, "k-older"]}, 10.0)
    assert (seen.is_stored("old"), seen.key_of("old", "new", 2.0)) == (True, "k-old")
    assert (seen.key_of("a", "k-a", 2.0), seen.is_stored("a")) == ("k-a", False)
    assert seen.changes("a", 2.0) == {"older": None, "a": [12.0, "k-a"]}
    seen.key_of("b", "k-b", 3.0)
    assert seen.changes("b", 3.0) == {"old": None, "b": [13.0, "k-b"]}


async def test_a_signed_request_without_a_delivery_is_known_by_what_was_signed(run: Run) -> None:
    keys = []
    for _ in range(2):  # as before and after a restart
        async with run(**GITHUB) as bench:
            await bench.signed(b"body")
            keys += [event.dedupe_key for event in bench.events]
    assert keys[0] == keys[1] is not None
    assert re.fullmatch(r"tests/hook#1 [0-9a-f]{64}", str(keys[0]))


async def test_without_signature_and_delivery_every_request_counts(run: Run) -> None:
    async with run() as bench:
        for _ in range(2):
            await bench.post(b"again")
    assert len({event.dedupe_key for event in bench.events}) == 2


async def test_a_delivery_sent_again_without_a_signature_promises_no_other_event(run: Run) -> None:
    delivery = {"X-GitHub-Delivery": "a"}
    async with run() as bench:
        first, again = [await bench.post(b"deploy", delivery) for _ in range(2)]
        [event] = bench.events
    async with run(state=dict(event.state_changes or {})) as bench:
        later = await bench.post(b"deploy", delivery)
    assert first.body == {"status": "accepted", "event_id": event.event_id}
    assert again.body == later.body == {"status": "accepted", "reason": "this request was accepted before"}
    assert bench.events == []


# signatures of services


SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SIGNED_BY = {"slack": slack, "stripe": stripe, "standard": standard}
WHSEC = "whsec_" + b64encode(SECRET.encode()).decode()


@pytest.mark.parametrize(
    ("scheme", "secret", "body", "at", "headers"),
    [
        (
            "slack",
            "8f742231b10e8888abcd99yyyzzz85a5",
            SLACK_BODY,
            1531420618,
            {"x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
        ),
        (
            "standard",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            b'{"test": 2432232314}',
            1614265330,
            {
                "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
                "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            },
        ),
    ],
)
def test_the_examples_that_services_publish(
    scheme: Scheme, secret: str, body: bytes, at: int, headers: dict[str, str]
) -> None:
    timestamps = {"x-slack-request-timestamp": str(at), "webhook-timestamp": str(at)}
    now, key = datetime.fromtimestamp(at, UTC), read_key(scheme, secret)
    assert check_signature(scheme, key, Headers({**headers, **timestamps}), body, now, 300)
    with pytest.raises(BadSignature, match="signature does not fit"):
        check_signature(scheme, key, Headers({**headers, **timestamps}), body + b" ", now, 300)


@pytest.mark.parametrize("scheme", SIGNED_BY)
async def test_services_sign_as_each_of_them_does(scheme: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", WHSEC if scheme == "standard" else SECRET)
    body, sign, json_type = b'{"type": "paid"}', SIGNED_BY[scheme], {"Content-Type": "application/json"}
    async with run(secret_env="HOOK_SECRET", signature=scheme, events=["paid"]) as bench:
        now = int(bench.clock.now().timestamp())
        other = b'{"type": "refunded"}'
        answer = await bench.post(other, {**sign(other, now), **json_type})
        assert (answer.status, answer.body["status"]) == (200, "ignored")
        for headers, status in [
            (sign(body, now), 202),
            (sign(body, now, "another secret"), 401),
            (sign(b"another body", now), 401),
            (sign(body, now - 301), 401),
            (sign(body, now + 301), 401),
            (plain(body, now), 401),
            (github(body), 401),
        ]:
            assert (await bench.post(body, {**headers, **json_type})).status == status
    assert [event.event_name for event in bench.events] == ["paid"]
    assert SECRET not in repr(bench.events)


@pytest.mark.parametrize("scheme", SIGNED_BY)
async def test_what_a_service_sends_again_under_a_new_signature_counts_once(
    scheme: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", WHSEC if scheme == "standard" else SECRET)
    json_type = {"Content-Type": "application/json"}
    async with run(secret_env="HOOK_SECRET", signature=scheme) as bench:
        for tries in (0, 1):  # Stripe counts in the body what it still has to send
            body = b'{"id": "evt_1", "event_id": "Ev1", "pending_webhooks": %d}' % tries
            now = int(bench.clock.now().timestamp())
            assert (await bench.post(body, {**SIGNED_BY[scheme](body, now), **json_type})).status == 202
            await bench.clock.advance(3_600)
    assert len(bench.events) == 1


async def test_slack_gets_its_challenge_back(run: Run) -> None:
    body = b'{"type": "url_verification", "challenge": "3eZbrw1a"}'
    async with run(secret_env="HOOK_SECRET", signature="slack", events=["app_mention"]) as bench:
        now = int(bench.clock.now().timestamp())
        json_type = {"Content-Type": "application/json"}
        answer = await bench.post(body, {**slack(body, now), **json_type})
        assert (answer.status, answer.body) == (200, {"challenge": "3eZbrw1a"})
        assert (await bench.post(body, json_type)).status == 401
        mention = b'{"type": "event_callback", "event_id": "Ev1", "event": {"type": "app_mention", "text": "hello"}}'
        assert (await bench.post(mention, {**slack(mention, now), **json_type})).status == 202
    assert [event.event_name for event in bench.events] == ["app_mention"]


async def test_gitlab_sends_the_secret_itself(run: Run) -> None:
    headers = {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": SECRET}
    async with run(secret_env="HOOK_SECRET", signature="gitlab", events=["Push Hook"]) as bench:
        for changes, status in [
            ({"Idempotency-Key": "a"}, 202),
            ({"Idempotency-Key": "a"}, 202),
            ({}, 202),
            ({}, 202),
            ({"X-Gitlab-Token": "another"}, 401),
            ({"X-Gitlab-Event": "Pipeline Hook"}, 200),
        ]:
            assert (await bench.post({"ref": "main"}, {**headers, **changes})).status == status
        assert (await bench.post({"ref": "main"}, {"X-Gitlab-Event": "Push Hook"})).status == 401
    assert [event.event_name for event in bench.events] == ["Push Hook"] * 3
    assert SECRET not in repr(bench.events)


# warnings


def warnings_of_refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if " refused " in message]


async def test_refused_requests_are_warned_of_at_once_and_then_together(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with run(**GITHUB, rate=1) as bench:
        for body in (b"a", b"b", b"c"):
            await bench.post(body, {**github(body, "rotated"), "Content-Type": "multipart/of-a-stranger"})
        await bench.signed(b"{", {"Content-Type": "multipart/of-a-stranger"})
        await bench.signed(b"d")
        await bench.signed(b"e")
        await bench.signed(b"f", {"Host": "hooks.example.org"})
        assert len(warnings_of_refusals(caplog)) == 1
    unsigned = refused_requests.REASONS[401].format(secret_env="HOOK_SECRET")
    assert warnings_of_refusals(caplog) == [
        f"tests/hook#1 refused 1 request with 401 within a minute: {unsigned}",
        f"tests/hook#1 refused 2 requests with 401 within a minute: {unsigned}",
        "tests/hook#1 refused 1 request with 415 within a minute: the body is no text; let the sender use JSON, "
        "uncompressed",
        "tests/hook#1 refused 1 request with 421 within a minute: the Host header is none of its names; add it to "
        "`hosts`, or let the proxy pass another one",
        "tests/hook#1 refused 1 request with 429 within a minute: more than 1 requests a minute; raise `rate`",
    ]


async def test_what_the_runner_tells_of_is_told_by_it_alone(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async with run() as bench:
        for failure in (QueueFull("b/hook", 10), StoreUnavailable("/store", "the disk is full")):
            bench.failure = failure
            assert (await bench.post({})).status == 503
        bench.failure = None
        assert warnings_of_refusals(caplog) == []
        assert (await bench.post(method="GET")).status == 405
        assert len(warnings_of_refusals(caplog)) == 1


async def test_later_refused_requests_are_warned_of_when_the_minute_is_over(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_requests, "PERIOD", 0.05)
    async with run(**GITHUB) as bench, asyncio.timeout(120):
        while len(warnings_of_refusals(caplog)) < 3:
            await bench.post(b"body")


# sharing, addresses, configuration


async def test_webhooks_at_one_port_share_a_server_and_leave_it_one_by_one(run: Run) -> None:
    async with run("b/one/trigger-webhook#1") as one:
        async with run("b/two/trigger-webhook#1") as two:
            assert (one.trigger.url[:-3], two.trigger.url[-4:]) == (two.trigger.url[:-3], "/two")
            assert (await two.post(b"2")).status == 202
        assert (await one.post(b"1")).status == 202
        assert (await one.post(b"2", path="/two")).status == 404
    assert [len(bench.events) for bench in (one, two)] == [1, 1]
    with pytest.raises(ConnectionRefusedError):
        await one.post(b"1")


async def test_a_path_that_is_taken_is_told_with_its_owner(run: Run) -> None:
    async with run("b/one/hook#1"):
        with pytest.raises(TriggerError, match=r"^b/two/hook#1: /hook at port 0 is taken by b/one/hook#1; give one"):
            async with run("b/two/hook#1"):
                pass


async def test_a_port_that_is_taken_is_told(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(TriggerError, match=rf"cannot listen at 127.0.0.1, port {port}: Address already in use"):
            async with run(port=port):
                pass
    async with run(port=port) as bench:  # and is free for the restarted trigger when the other one has gone
        assert bench.trigger.url == f"http://127.0.0.1:{port}/hook"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bundle/session/trigger-webhook#1", "/session"),
        ("bundle/session/own#2", "/own"),
        ("trigger-webhook", "/trigger-webhook"),
        ("check", "/check"),
    ],
)
def test_the_path_without_one_is_its_name(name: str, path: str) -> None:
    assert default_path(name) == path


async def saved(state: Mapping[str, Any]) -> None:
    """Save nothing."""


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        ({"secret": SECRET}, "secret", "put it into an environment variable, and name that in secret_env"),
        ({"secret_env": "NO_SUCH_VARIABLE"}, "secret_env", "NO_SUCH_VARIABLE is not set"),
        ({"secret_env": "EMPTY"}, "secret_env", "EMPTY is empty"),
        ({"secret_env": "BLANK"}, "secret_env", "BLANK is empty"),
        ({"secret_env": "a b"}, "secret_env", "match"),
        ({"signature": "github"}, "signature", "needs a secret_env"),
        ({"signature": "plain"}, "signature", "needs a secret_env"),
        ({"signature": "none", **GITHUB}, "signature", "checks no secret"),
        ({"signature": "md5"}, "signature", "'standard', 'plain' or 'none'"),
        (
            {"signature": "standard", **GITHUB},
            "secret_env",
            "HOOK_SECRET must be a secret of Standard Webhooks: whsec_",
        ),
        ({"host": "0.0.0.0"}, "host", "other machines can reach 0.0.0.0"),
        ({"host": "::"}, "host", "other machines can reach ::"),
        ({"host": "example.org"}, "host", "is not an address"),
        ({"hosts": ["https://hooks.example.com/x"]}, "hosts", "write each name alone, as hooks.example.com"),
        ({"hosts": ["a.example.org", "*.example.org"]}, "hosts", "'*.example.org' is no name of a host"),
        ({"hosts": ["hooks.example.net:443"]}, "hosts", "'hooks.example.net:443' is no name of a host"),
        ({"hosts": ["[::1]:443"]}, "hosts", "is no name of a host"),
        ({"hosts": [""]}, "hosts", "is no name of a host"),
        ({"path": "hook"}, "path", "match"),
        ({"path": "/a b"}, "path", "match"),
        ({"port": 65536}, "port", "at most"),
        ({"port": "8787"}, "port", "whole number"),
        ({"rate": 0}, "rate", "at least"),
        ({"events": []}, "events", "at least 1"),
        ({"max_byte": 1}, "max_byte", "did you mean 'max_bytes'?"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(
    config: dict[str, Any], key: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("BLANK", "\n")
    trigger = WebhookTrigger()
    trigger.bind(TriggerContext("a/b/c#1", saver=saved))
    with pytest.raises(TriggerConfigError, match=r"^trigger-webhook: ") as caught:
        trigger.configure(config)
    assert caught.value.key == key
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_whitespace_around_the_secret_is_none_of_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOUNTED_SECRET", f"{SECRET}\n")
    async with run(secret_env="MOUNTED_SECRET") as bench:
        assert (await bench.signed(b"x")).status == 202


async def test_a_configuration_can_be_checked_without_the_secret_and_not_listened_with() -> None:
    trigger = WebhookTrigger()
    trigger.configure({"secret_env": "NO_SUCH_VARIABLE"})
    with pytest.raises(TriggerConfigError, match="NO_SUCH_VARIABLE is not set"):
        await anext(trigger.watch())


async def test_an_address_for_all_takes_any_host_as_every_request_is_signed(run: Run) -> None:
    async with run(host="0.0.0.0", **GITHUB) as bench:
        assert (await bench.signed(b"x", {"Host": "hook.example"})).status == 202
        assert (await bench.post(b"x", {"Host": "hook.example"})).status == 401


def test_the_schema_describes_every_key() -> None:
    schema = json.loads(json.dumps(WebhookTrigger.config_schema()))
    assert all(each.get("description") for each in schema["properties"].values())
    assert {"path", "port", "host", "hosts", "secret_env", "signature"} <= set(schema["properties"])
