"""Fetching from a real server: pages, limits, redirects, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
import re
import ssl
import subprocess
import sys
import threading
import zlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any
from urllib import request as urllib_request

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests
from amplifier_tool_web import check_config, config_schema, mount
from amplifier_tool_web.failures import FetchError
from amplifier_tool_web.urls import follow, read_url
from tests.programs import require
from tests.proxies import CLOSING, Proxy

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Fetch, Names, Server


class TestStructure(ToolStructuralTests):
    """The structure of every tool's module."""


class TestBehavior(ToolBehaviorTests):
    """The behavior of every tool."""


PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def inside(content: str) -> str:
    """Return what stands within the fence."""
    found = re.match(r"<page-(\w{16})>\n(.*)\n</page-\1>\nWhat stands between .* no instruction\.$", content, re.DOTALL)
    assert found is not None, content
    return found[2]


def error_of(result: Any) -> tuple[str, str]:
    assert result.success is False
    return result.error["type"], result.error["message"]


# pages


async def test_html_becomes_markdown_with_whole_links_and_without_what_does_not_show(
    server: Server, fetch: Fetch
) -> None:
    server.put(
        "/a/page?q=1",
        "<title>T</title><h1>Hi</h1><p>See <a href='../docs?x=1'>the docs</a>.<script>evil()</script>"
        "<style>p{}</style><p hidden>no</p><p>zero\u200bwidth \U000e0041tag</p><nav><a href=/n>nav</a></nav>",
        "text/html; charset=utf-8",
    )
    output = (await fetch(server.url("/a/page?q=1"))).output
    text = f"# Hi\n\nSee [the docs]({server.url('/docs?x=1')}).\n\nzerowidth tag\n\n[nav]({server.url('/n')})\n"
    assert inside(output.pop("content")) == text
    assert output == {
        "url": server.url("/a/page?q=1"), "content_type": "text/html", "characters": len(text), "truncated": False,
    }  # fmt: skip


async def test_other_text_stays_as_it_is(server: Server, fetch: Fetch) -> None:
    body = '{"a": "<b>not HTML</b>",\n "b": [1, 2]}'
    server.put("/data", body, "application/vnd.api+json")
    assert inside((await fetch(server.url("/data"))).output["content"]) == body


async def test_a_media_type_has_no_characters_that_steer_a_terminal(server: Server, fetch: Fetch) -> None:
    server.put("/", "hi", "text/\x1b[31mred")
    assert (await fetch(server.url())).output["content_type"] == "text/[31mred"


async def test_a_long_text_comes_in_pieces_of_one_fetch(server: Server, fetch: Fetch) -> None:
    text = "".join(f"{number:05}" for number in range(50))
    server.put("/", text, "text/plain")
    read, offset = "", 0
    while offset is not None:
        output = (await fetch(server.url(), offset, max_chars=100)).output
        read, offset = read + inside(output["content"]), output.get("next_offset")
        assert output["truncated"] is (offset is not None)
    assert (read, len(server.seen)) == (text, 1)
    assert error_of(await fetch(server.url(), 250))[1] == "offset 250 is past the end: the text has 250 characters"


async def test_a_page_is_fetched_again_when_it_is_old(server: Server, fetch: Fetch) -> None:
    server.put("/", "one", "text/plain")
    await fetch(server.url(), cache_seconds=0)
    server.put("/", "two", "text/plain")
    assert inside((await fetch(server.url())).output["content"]) == "two"


async def test_an_image_is_a_block(server: Server, fetch: Fetch) -> None:
    server.put("/x.png?token=abc", PIXEL, "image/jpeg")  # it is none
    text, image = (await fetch(server.url("/x.png?token=abc"))).content
    assert text.text == f"{server.url('/x.png')}: image/png, {len(PIXEL)} bytes"
    assert image.source == {"type": "base64", "media_type": "image/png", "data": b64encode(PIXEL).decode()}


@pytest.mark.parametrize("body", [PIXEL[:50], b"not a png", b""])
async def test_a_damaged_image_is_refused(server: Server, fetch: Fetch, body: bytes) -> None:
    server.put("/", body, "image/png")
    message = f"{server.url('/')} is sent as image/png, and is damaged, or no such image"
    assert error_of(await fetch(server.url())) == ("Unreadable", message)


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("application/pdf", b"%PDF-1.7", "is application/pdf (8 bytes); look for the same as a web page"),
        ("application/zip", b"PK", "is application/zip (2 bytes); only text and images can be read"),
        ("text/plain", b"a\0b", "is a binary file (3 bytes)"),
    ],
)
async def test_what_is_no_text_is_refused(server: Server, fetch: Fetch, kind: str, body: bytes, message: str) -> None:
    server.put("/f", body, kind)
    assert error_of(await fetch(server.url("/f"))) == ("UnsupportedType", f"{server.url('/f')} {message}")


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=ISO-8859-1", b"caf\xe9 \x93q\x94", "café “q”"),
        ('text/plain; charset="Shift_JIS"', "日本".encode("shift_jis"), "日本"),
        ("text/html", "<meta charset=windows-1251><p>привет".encode("cp1251"), "привет\n"),
        ("text/plain", "\ufeffnaïve".encode(), "naïve"),
        ("text/plain; charset=latin-1", "日本".encode("utf-16"), "日本"),
        ("text/plain; charset=punycode", "naïve".encode(), "naïve"),
        ("text/plain; charset=hex", b"6162", "6162"),
        ("text/plain", "Съешь же ещё этих мягких французских булок. ".encode("cp1251") * 9, None),
    ],
)
async def test_the_charset_is_found(server: Server, fetch: Fetch, kind: str, body: bytes, text: str | None) -> None:
    server.put("/", body, kind)
    wanted = body.decode("cp1251") if text is None else text
    assert inside((await fetch(server.url())).output["content"]) == wanted


async def test_an_error_of_the_server_is_a_failure_without_the_query(server: Server, fetch: Fetch) -> None:
    assert error_of(await fetch(server.url("/none?api_key=12345678"))) == (
        "HTTPError", f"{server.url('/none')} answers 404 Not Found",
    )  # fmt: skip


# limits


async def test_too_large_pages_are_refused_however_they_come(server: Server, fetch: Fetch) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await writer.drain()

    server.answers["/endless"] = endless
    server.answers["/says"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx"
    server.put("/bomb", gzip.compress(b"x" * 50_000_000), more="Content-Encoding: gzip\r\n")
    for path in ("/endless", "/says", "/bomb"):
        kind, message = error_of(await fetch(server.url(path), max_bytes=100_000))
        assert (kind, message) == (
            "TooLarge", f"{server.url(path)} is larger than 100000 bytes; fetch a smaller page",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("packing", "body"),
    [
        ("gzip", gzip.compress(b"packed", mtime=0)),
        ("gzip", gzip.compress(b"pack", mtime=0) + gzip.compress(b"ed", mtime=0)),
        ("gzip", gzip.compress(b"packed", mtime=0) + bytes(512)),
        ("deflate", zlib.compress(b"packed")),
        ("deflate", zlib.compress(b"packed")[2:-4]),
        ("identity", b"packed"),
    ],
)
async def test_packed_pages_are_unpacked(server: Server, fetch: Fetch, packing: str, body: bytes) -> None:
    server.put("/", body, "text/plain", more=f"Content-Encoding: {packing}\r\n")
    assert inside((await fetch(server.url())).output["content"]) == "packed"


async def test_a_page_of_many_packed_parts_in_any_pieces_is_whole(server: Server, fetch: Fetch) -> None:
    body = b"".join(gzip.compress(bytes([each]), mtime=0) for each in b"packed")

    async def drip(writer: asyncio.StreamWriter) -> None:
        kind = "Content-Type: text/plain\r\nContent-Encoding: gzip"
        writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for at in range(len(body)):
            writer.write(b"1\r\n" + body[at : at + 1] + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    server.answers["/"] = drip
    assert inside((await fetch(server.url())).output["content"]) == "packed"


async def test_an_empty_page_may_say_that_it_is_packed(server: Server, fetch: Fetch) -> None:
    server.put("/", b"", "text/plain", more="Content-Encoding: gzip\r\n")
    assert (await fetch(server.url())).output["characters"] == 0


async def test_a_page_that_breaks_off_is_a_failure(server: Server, fetch: Fetch) -> None:
    server.put("/packed", gzip.compress(b"packed" * 1000)[:-20], "text/plain", more="Content-Encoding: gzip\r\n")
    server.answers["/short"] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nabc"
    for path in ("/packed", "/short"):
        kind, message = error_of(await fetch(server.url(path)))
        assert kind == "ConnectionFailed"
        assert message.startswith(f"{server.url(path)} broke off before its end (")
        assert message.endswith("); try again")


@pytest.mark.parametrize(("packing", "body"), [("br", b"x"), ("gzip, gzip", b"x"), ("gzip", b"no gzip")])
async def test_what_cannot_be_unpacked_is_refused(server: Server, fetch: Fetch, packing: str, body: bytes) -> None:
    server.put("/", body, more=f"Content-Encoding: {packing}\r\n")
    assert error_of(await fetch(server.url()))[0] == "UnsupportedEncoding"


async def test_a_server_that_does_not_answer_costs_the_time_limit(server: Server, fetch: Fetch) -> None:
    async def wait(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server.answers["/"] = wait
    message = "gave up after 0.2 s; try again later, or fetch another page"
    assert error_of(await fetch(server.url(), timeout=0.2)) == ("TimeoutError", message)


async def test_a_page_that_grows_when_it_is_converted_ends_its_own_process_alone(
    server: Server, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_tool_web.texts._CHILD", "import sys; sys.exit(6)")
    server.put("/", "<blockquote>" * 90 + "x<br>" * 10)
    assert error_of(await fetch(server.url()))[0] == "Unreadable"


async def test_a_cancelled_fetch_ends_the_process_that_converts(
    server: Server, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_tool_web.texts._CHILD", "import time; time.sleep(600)")
    start, started = asyncio.create_subprocess_exec, asyncio.Queue[Any]()

    async def note(*args: Any, **more: Any) -> Any:
        process = await start(*args, **more)
        started.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", note)
    server.put("/", "<p>x")
    fetching = asyncio.ensure_future(fetch(server.url()))
    process = await started.get()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert process.returncode == -9


@pytest.mark.parametrize("html", ["<div>" * 100_000 + "x", "<!--" * 200_000, "<" * 500_000, "<table><tr><td>" * 500])
async def test_hostile_html_has_an_answer(server: Server, fetch: Fetch, html: str) -> None:
    server.put("/", html)
    assert (await fetch(server.url())).success


@pytest.mark.parametrize("html", ["<div>" * 200 + "deep", "<table><tr><td>" * 500 + "deep"])
async def test_what_is_too_deep_to_convert_is_told(server: Server, fetch: Fetch, html: str) -> None:
    server.put("/", "<p>shown</p>" + html)
    text = inside((await fetch(server.url())).output["content"])
    assert text.startswith("shown\n")
    assert text.endswith("[Parts of the page are missing: they stand in more than 100 elements, one in the other.]")


# redirects


async def test_redirects_are_followed_to_a_limit(server: Server, fetch: Fetch) -> None:
    server.redirect("/a", "b?c=d")
    server.redirect("/b?c=d", server.url("/e"))
    server.put("/e", "there", "text/plain")
    assert (await fetch(server.url("/a"))).output["url"] == server.url("/e")
    server.redirect("/loop", "/loop")
    assert error_of(await fetch(server.url("/loop")))[0] == "TooManyRedirects"
    assert len([head for head in server.seen if head.startswith("GET /loop ")]) == 6


@pytest.mark.parametrize("location", ["http://127.0.0.1:1/", "http://[::1]/", "http://lan.test/", "//localhost./"])
async def test_no_redirect_leads_to_this_machine(server: Server, fetch: Fetch, names: Names, location: str) -> None:
    names["lan.test"] = ["10.0.0.1"]
    server.redirect("/", location)
    assert error_of(await fetch(server.url()))[0] == "Refused"
    assert server.connections == 1


@pytest.mark.parametrize(
    "location",
    [
        *("file:///etc/passwd", "ftp://example.com/", "http://u:p@other.test/"),
        *("http://\x7f/", "http://a..b/", "http://[bad", "http://[::1"),
    ],
)
async def test_no_redirect_leads_out_of_the_web(server: Server, fetch: Fetch, location: str) -> None:
    server.redirect("/", location)
    assert error_of(await fetch(server.url()))[0] == "InvalidInput"


def test_no_redirect_leads_from_https_to_http() -> None:
    with pytest.raises(FetchError, match="from https to http"):
        follow(read_url("https://a.example/x?secret=1"), "http://a.example/")


@pytest.mark.parametrize(
    ("rules", "type"),
    [
        ({"allow": ["web_fetch(*)"]}, None),
        ({"allow": ["web_fetch(pages.test)"]}, "Redirected"),
        ({"allow": ["web_fetch(pages.test)"], "deny": ["web_fetch(other.test)"]}, "NotPermitted"),
    ],
)
async def test_a_redirect_to_another_host_needs_its_own_permission(
    server: Server, fetch: Fetch, coordinator: ModuleCoordinator, tmp_path: Path, rules: Any, type: str | None
) -> None:
    gate = PermissionGate(Policy([parse_permissions(rules, "settings", is_own=True)]), tmp_path)
    coordinator.guard(gate)
    server.redirect("/", server.url("/x?y=z", "other.test"))
    server.put("/x?y=z", "there", "text/plain")
    result = await fetch(server.url())
    if type is None:
        assert result.output["url"] == server.url("/x?y=z", "other.test")
    else:
        assert error_of(result)[0] == type
        assert len(server.seen) == 1
        assert type == "NotPermitted" or result.error["message"].endswith(server.url("/x?y=z", "other.test"))


# hosts

INTERNAL = [
    "127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001", "0", "localhost", "LOCALHOST.", "x.localhost",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b::a00:1]",
    "[64:ff9b:1::7f00:1]", "[::ffff:0:127.0.0.1]", "192.0.0.192",
    "[2002:7f00:1::]", "[::127.0.0.1]",
    "[fe80::1]", "[fec0::1]", "[fd00:ec2::254]", "[ff02::1]", "10.0.0.1", "192.168.1.1", "172.16.0.1",
    "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255", "metadata.google.internal",
    "printer.local", "127.0.0.1.",
]  # fmt: skip


@pytest.mark.parametrize("host", INTERNAL)
async def test_this_machine_and_its_network_are_refused_in_every_spelling(
    server: Server, fetch: Fetch, tmp_path: Path, names: Names, host: str
) -> None:
    url = f"http://{host}:{server.port}/"
    kind, message = error_of(await fetch(url, internal=[]))
    assert kind == "Refused"
    assert "is this machine, or its own network" in message
    assert (server.connections, names.asked) == (0, [])
    gate = PermissionGate(Policy([parse_permissions({"allow": ["web_fetch(*)"]}, "settings", is_own=True)]), tmp_path)
    coordinator = ModuleCoordinator(session_id="test")
    await mount(coordinator)
    tools = coordinator.get("tools")
    refusal = gate.check({"tool_name": "web_fetch", "tool_input": {"url": url}}, tools)
    assert refusal is not None
    assert refusal.action == "deny"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "::ffff:127.0.0.1", "169.254.169.254"])
async def test_a_name_that_leads_inside_is_refused(server: Server, fetch: Fetch, names: Names, address: str) -> None:
    names["evil.test"] = [address]
    kind, message = error_of(await fetch(server.url(host="evil.test")))
    assert kind == "Refused"
    assert message.startswith("evil.test is this machine, or its own network; a person may add it")
    assert server.connections == 0


async def test_a_name_is_resolved_once(server: Server, fetch: Fetch, names: Names) -> None:
    names["rebind.test"] = ["127.0.0.1", "127.0.0.99"]  # the second answer leads elsewhere
    server.put("/", "there", "text/plain")
    assert (await fetch(server.url(host="rebind.test"), internal=["rebind.test"])).success
    assert names.asked == ["rebind.test"]


async def test_a_name_with_several_addresses_is_reached_at_one_that_answers(
    server: Server, fetch: Fetch, names: Names
) -> None:
    names["pages.test"] = ["127.0.0.99", "127.0.0.1"]
    server.put("/", "there", "text/plain")
    assert (await fetch(server.url())).success


async def test_a_host_is_named_exactly_or_below_it(server: Server, fetch: Fetch, names: Names) -> None:
    names |= {"a.pages.test": ["127.0.0.1"], "notpages.test": ["127.0.0.1"]}
    server.put("/", "there", "text/plain")
    assert (await fetch(server.url(host="a.pages.test"))).success
    assert error_of(await fetch(server.url(host="notpages.test")))[0] == "Refused"
    assert error_of(await fetch(server.url(host="pages.test.evil.test")))[0] == "ConnectionFailed"


async def test_lists_of_the_configuration_hold_for_every_hop(server: Server, fetch: Fetch) -> None:
    server.redirect("/", server.url("/x", "other.test"))
    config = {"allow": ["pages.test"], "internal": ["pages.test"], "deny": ["b.pages.test"]}
    assert error_of(await fetch(server.url(), **config)) == (
        "Refused", "other.test is none of the hosts that the configuration of tool-web allows",
    )  # fmt: skip
    assert error_of(await fetch(server.url(host="a.b.pages.test")))[1].startswith("a.b.pages.test is denied")


async def test_an_internal_host_is_asked_about_when_the_configuration_names_it(tmp_path: Path) -> None:
    coordinator = ModuleCoordinator(session_id="test")
    await mount(coordinator, {"internal": ["127.0.0.1"]})
    gate = PermissionGate(Policy([]), tmp_path)
    for url, action in (
        ("http://127.0.0.1:8080/x", "ask_user"),
        ("http://127.0.0.2/", "deny"),
        ("http://u@127.0.0.1/", "deny"),
    ):
        found = gate.check({"tool_name": "web_fetch", "tool_input": {"url": url}}, coordinator.get("tools"))
        assert found is not None
        assert found.action == action
    assert gate.untrusted == "it has read a result of web_fetch"


@pytest.mark.parametrize(
    "url",
    [
        "", "pages.test", "ftp://pages.test/", "file:///etc/passwd", "http://", "http:///x", "http://u:pass@pages.test/",
        "http://pages.test\\@other.test/", "http://pages.test /", "http://pages.test/\n", "http://pages.test:99999/",
        "http://[::1/", "http://bücher.example/", "http://a..b%00/", "http://a..b/", "http://.b/",
        f"http://{'a' * 64}.test/", "http://" + "a" * 9_000, 5, None, ["http://pages.test"],
    ],
)  # fmt: skip
async def test_what_is_no_address_of_the_web_is_refused(fetch: Fetch, url: Any) -> None:
    kind, message = error_of(await fetch(url))
    assert kind == "InvalidInput"
    assert "pass" not in message


async def test_a_name_that_is_not_there_is_a_failure(fetch: Fetch) -> None:
    assert error_of(await fetch("http://nowhere.test/?token=abc")) == (
        "ConnectionFailed", "nowhere.test cannot be reached ([Errno -2] Name or service not known); check the address",
    )  # fmt: skip


async def test_the_certificate_is_that_of_the_name_and_not_of_the_address(
    server: Server, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [require("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=pages.test", "-addext", "subjectAltName=DNS:pages.test",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    port = secure.sockets[0].getsockname()[1]
    server.put("/", "there", "text/plain")
    kind, message = error_of(await fetch(f"https://pages.test:{port}/"))
    assert (kind, "is not trusted (self-signed certificate)" in message) == ("ConnectionFailed", True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert (await fetch(f"https://pages.test:{port}/")).success
    assert error_of(await fetch(f"https://other.test:{port}/"))[0] == "ConnectionFailed"
    secure.close()


# proxies


async def test_the_proxy_of_the_environment_is_used(
    server: Server, fetch: Fetch, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:p%40ss@127.0.0.1:{server.port}")
    server.put("http://example.com/x", "through it", "text/plain")
    assert inside((await fetch("http://example.com/x")).output["content"]) == "through it"
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in server.seen[0]
    assert names.asked == []
    assert error_of(await fetch("http://localhost/"))[0] == "Refused"
    monkeypatch.setenv("NO_PROXY", "pages.test")
    server.put("/", "without it", "text/plain")
    assert inside((await fetch(server.url())).output["content"]) == "without it"


async def test_a_proxy_of_another_kind_is_a_failure_that_does_not_show_its_password(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret-of-mine@127.0.0.1:1")
    kind, message = error_of(await fetch("http://example.com/"))
    assert kind == "ProxyError"
    assert "secret" not in message


@pytest.mark.parametrize("address", ["http://ann:S3CRETpw#x@127.0.0.1:1", "http://ann:S3CRETpw@127.0.0.1:99999"])
async def test_a_proxy_whose_address_cannot_be_read_is_told_without_its_password(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", address)
    kind, message = error_of(await fetch("http://example.com/"))
    assert (kind, "S3CRET" in message) == ("ProxyError", False)
    assert message.startswith("HTTP_PROXY is no address of a proxy that can be read; a person has to mend it")


async def test_the_exceptions_of_the_system_are_looked_at_beside_the_event_loop(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def bypass(host: str) -> bool:
        loop.call_soon_threadsafe(asked.set)
        return not goes_on.wait(30)

    monkeypatch.setattr(urllib_request, "proxy_bypass", bypass)
    with Proxy(does="403 Forbidden") as proxy:
        monkeypatch.setattr(urllib_request, "getproxies", lambda: {"https": proxy.url})
        fetching = asyncio.create_task(fetch("https://example.com/"))
        await asked.wait()
        goes_on.set()
        assert error_of(await fetching)[0] == "ProxyError"


async def test_a_variable_that_a_request_does_not_use_stops_none(
    fetch: Fetch, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("ALL_PROXY", "ftp://127.0.0.1:1")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    server.put("http://example.com/x", "through it", "text/plain")
    assert inside((await fetch("http://example.com/x")).output["content"]) == "through it"


@pytest.mark.parametrize(
    ("does", "kind", "told"),
    [
        (
            "407 Proxy Authentication Required",
            "ProxyError",
            "HTTPS_PROXY answers 407 Proxy Authentication Required; it",
        ),
        ("403 Forbidden", "ProxyError", "HTTPS_PROXY answers 403 Forbidden; ask who runs it"),
        (CLOSING, "ConnectionFailed", "example.com cannot be reached through the proxy 127.0.0.1"),
    ],
)
async def test_what_a_proxy_refuses_is_told_as_its_own(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch, does: str, kind: str, told: str
) -> None:
    with Proxy(does=does) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        found, message = error_of(await fetch("https://example.com/"))
    assert (found, told in message) == (kind, True), message


# mounting


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"alow": []}, "alow: unknown key; did you mean 'allow'?"),
        (
            {"allow": ["https://example.com"]},
            "allow: 'https://example.com' is no host; write one as docs.example.com, without",
        ),
        ({"internal": ["localhost:80"]}, "internal: 'localhost:80' is no host"),
        ({"deny": "example.com"}, "deny: Input should be a valid list"),
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"max_bytes": 0}, "max_bytes: Input should be greater than or equal to 1"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"tool-web: {message}")):
        await mount(ModuleCoordinator(session_id="test"), config)
    with pytest.raises(ValueError, match="tool-web"):
        check_config(config)


def test_the_schema_of_the_configuration_describes_every_key() -> None:
    properties = config_schema()["properties"]
    assert "internal" in properties
    assert all(about["description"] for about in properties.values())


def test_mounting_loads_nothing_that_fetches() -> None:
    code = """
import asyncio, sys
import amplifier_core.models, amplifier_core.testing
from amplifier_core import ModuleCoordinator
before = set(sys.modules)
from amplifier_tool_web import mount
coordinator = ModuleCoordinator(session_id="test")
asyncio.run(mount(coordinator))
print(sorted(name for name in set(sys.modules) - before if not name.startswith("amplifier_tool_web.tool")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['amplifier_tool_web']"
