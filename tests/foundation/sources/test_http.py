"""Single files from web servers, well-behaved and not."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from amplifier_foundation.sources import SourceCache, SourceNotFound, SourceRefused
from tests.programs import require

from .conftest import Server, left_in

Answer = Callable[..., str]
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def web(tmp_path: Path) -> Path:
    folder = tmp_path / "web"
    (folder / "private").mkdir(parents=True)
    (folder / "bundle.md").write_text("one")
    (folder / "my bündle.md").write_text("named")
    (folder / "private" / "bundle.md").write_text("private")
    return folder


@pytest.fixture
def answer() -> Iterator[Answer]:
    """Starts a server that answers one request with the given bytes; `slowly` repeats the last of them without end."""
    over, threads = Event(), list[Thread]()

    def start(*parts: bytes, slowly: bool = False) -> str:
        server = socket.create_server(("127.0.0.1", 0))

        def run() -> None:
            with server, server.accept()[0] as connection, suppress(OSError):
                connection.recv(65536)
                for part in parts:
                    connection.sendall(part)
                while slowly and not over.wait(0.01):
                    connection.sendall(parts[-1])

        threads.append(Thread(target=run))
        threads[-1].start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/bundle.md"

    yield start
    over.set()
    for thread in threads:
        thread.join()


def test_a_file_keeps_its_name(cache: SourceCache, web: Path, serve: Callable[..., Server]) -> None:
    address = serve(web).address
    path = cache.fetch(f"http://{address}/bundle.md?raw=1")
    assert (path.name, path.read_text(), path.parent.parent) == ("bundle.md", "one", cache.folder)
    assert cache.fetch(f"http://{address}/my%20b%C3%BCndle.md").name == "my bündle.md"
    assert cache.fetch(f"http://{address}/my bündle.md").read_text() == "named"


def test_a_file_is_fetched_once_and_again_when_asked_for(
    cache: SourceCache, web: Path, serve: Callable[..., Server]
) -> None:
    server = serve(web)
    uri = f"http://{server.address}/bundle.md"
    path = cache.fetch(uri)
    (web / "bundle.md").write_text("two")
    assert (cache.fetch(uri), path.read_text(), len(server.asked)) == (path, "one", 1)
    assert (cache.fetch(uri, refresh=True), path.read_text(), len(server.asked)) == (path, "two", 2)
    (web / "bundle.md").unlink()
    with pytest.raises(SourceNotFound, match=r"/bundle.md: does not exist \(HTTP 404\). Check the address"):
        cache.fetch(uri, refresh=True)
    assert path.read_text() == "two"


def test_redirects_are_followed_and_take_no_password_along(
    cache: SourceCache, web: Path, serve: Callable[..., Server]
) -> None:
    first, second = serve(web), serve(web)
    uri = f"http://ada:secret@{first.address}/to?http://{second.address}/bundle.md"
    assert cache.fetch(uri).read_text() == "one"
    assert [(path, signed is not None) for path, signed in first.asked] == [(first.asked[0][0], True)]
    assert second.asked == [("/bundle.md", None)]


@pytest.mark.parametrize("target", ["/to?/to?/to?/to?/to?/to?/bundle.md", "file:///etc/passwd"])
def test_redirects_without_end_or_to_elsewhere_are_not_followed(
    cache: SourceCache, web: Path, serve: Callable[..., Server], target: str
) -> None:
    with pytest.raises(SourceNotFound, match=r"redirects too often, or to nowhere \(HTTP 302\)"):
        cache.fetch(f"http://{serve(web).address}/to?{target}")
    assert left_in(cache.folder) == []


def test_redirects_lead_to_web_addresses_alone(cache: SourceCache, web: Path, serve: Callable[..., Server]) -> None:
    with pytest.raises(SourceRefused, match="redirects to another scheme than http or https. Use another address"):
        cache.fetch(f"http://{serve(web).address}/to?ftp://127.0.0.1/x")
    assert left_in(cache.folder) == []


def test_who_signs_in_by_the_address_is_let_in_and_the_password_is_nowhere(
    cache: SourceCache, web: Path, serve: Callable[..., Server]
) -> None:
    address = serve(web).address
    with pytest.raises(SourceNotFound, match=r"asks for a sign-in \(HTTP 401\). Use git\+https or git\+ssh"):
        cache.fetch(f"http://{address}/private/bundle.md?key=secret")
    path = cache.fetch(f"http://ada:pass%20word@{address}/private/bundle.md?key=secret")
    assert path.read_text() == "private"
    [entry] = cache.entries()
    assert entry.uri == f"http://***@{address}/private/bundle.md?***"
    [facts] = cache.folder.glob("*.json")
    assert not {"secret", "pass%20word", "pass word"} & set(facts.read_text().split('"'))
    assert "secret" not in str(path)


def test_a_web_page_is_not_taken_for_a_file(cache: SourceCache, answer: Answer) -> None:
    page = answer(HEAD + b"Content-Type: text/html; charset=utf-8\r\nContent-Length: 6\r\n\r\n<html>")
    with pytest.raises(SourceRefused, match=r"is a web page, not a file. Use the address of the file itself"):
        cache.fetch(page)


@pytest.mark.parametrize("announced", [True, False])
def test_a_file_that_is_too_large_is_refused(cache: SourceCache, answer: Answer, announced: bool) -> None:
    limit = 4 * 1024**2
    length = f"Content-Length: {limit + 1}\r\n".encode() if announced else b""
    with pytest.raises(SourceRefused, match="/bundle.md: is larger than 4 MiB. Use a smaller one"):
        cache.fetch(answer(HEAD + length + b"\r\n", b"x" * (limit + 1)))
    assert list(cache.folder.iterdir()) == []


def test_a_file_of_just_the_limit_is_taken(cache: SourceCache, web: Path, serve: Callable[..., Server]) -> None:
    (web / "bundle.md").write_bytes(b"x" * 4 * 1024**2)
    assert cache.fetch(f"http://{serve(web).address}/bundle.md").stat().st_size == 4 * 1024**2


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (HEAD + b"Content-Length: 10\r\n\r\nhalf", "ended after 4 of 10 bytes. Try again"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n8\r\nhalf", "cannot be reached"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n", "cannot be reached"),
        (b"", "cannot be reached .Remote end closed connection without response"),
        (b"no http at all\r\n\r\n", "cannot be reached"),
        (HEAD + b"X: y\r\n" * 200 + b"\r\n", "cannot be reached .got more than 100 headers"),
        (HEAD + b"X: " + b"y" * 70_000, "cannot be reached"),
        (b"HTTP/1.1 503 Later\r\n\r\n", r"the server cannot answer now \(HTTP 503\). Try again later"),
        (b"HTTP/1.1 403 No\r\n\r\n", r"denies access \(HTTP 403\)"),
    ],
)
def test_a_broken_answer_is_told_and_nothing_half_stays(
    cache: SourceCache, answer: Answer, sent: bytes, message: str
) -> None:
    with pytest.raises(SourceNotFound, match=message) as caught:
        cache.fetch(answer(sent))
    assert "\n" not in str(caught.value)
    assert list(cache.folder.iterdir()) == []


@pytest.mark.parametrize(
    "parts",
    [(HEAD, b"X: y\r\n"), (HEAD + b"\r\n", b"x"), (HEAD + b"Content-Length: 100000\r\n\r\n", b"x"), (b"H", b"T")],
    ids=["headers", "body", "announced body", "first line"],
)
def test_an_answer_that_drips_in_is_given_up_in_time(
    tmp_path: Path, answer: Answer, parts: tuple[bytes, bytes]
) -> None:
    cache = SourceCache(tmp_path / "cache", timeout=0.3)
    with pytest.raises(SourceNotFound, match=r"was not fetched within 0.3 s|got more than 100 headers"):
        cache.fetch(answer(*parts, slowly=True))
    assert list(cache.folder.iterdir()) == []


def test_a_server_that_never_answers_is_given_up(silent: socket.socket, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"was not fetched within 0.2 s\. Try again"):
        SourceCache(tmp_path / "cache", timeout=0.2).fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/bundle.md")


def test_nobody_there_is_told(cache: SourceCache, silent: socket.socket) -> None:
    port = silent.getsockname()[1]
    silent.close()
    with pytest.raises(
        SourceNotFound, match=r"cannot be reached \(Connection refused\). Check the address and the network"
    ):
        cache.fetch(f"http://127.0.0.1:{port}/bundle.md")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("https://host", "names no file. Write https://host/bundle.md"),
        ("https://host/folder/..", "names no file"),
        ("https:///bundle.md", "names no file"),
        ("https://ada@/bundle.md", "names no file"),
        ("https://host/a%2f..", "names no file"),
        ("https://host/a%00", "names no file"),
        (f"https://host/{'x' * 256}", "names no file"),
        ("https://host/bundle.md#subdirectory=x", "is one file and has no subdirectory. Use git"),
        ("http://127.0.0.1:port/bundle.md", "cannot be requested|cannot be reached"),
    ],
)
def test_what_cannot_be_asked_for_is_told(cache: SourceCache, uri: str, message: str) -> None:
    with pytest.raises((SourceRefused, SourceNotFound), match=message):
        cache.fetch(uri)
    assert left_in(cache.folder) == []


@pytest.fixture
def secure(serve: Callable[..., Server], web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that speaks TLS, with a certificate that this process trusts."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [require("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    server = serve(web)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return f"localhost:{server.server_address[1]}"


def test_https_is_spoken(cache: SourceCache, secure: str) -> None:
    assert cache.fetch(f"https://{secure}/bundle.md").read_text() == "one"
    assert cache.fetch(f"https://{secure}/to?/bundle.md").read_text() == "one"


def test_https_is_not_led_on_to_http(cache: SourceCache, secure: str, web: Path, serve: Callable[..., Server]) -> None:
    plain = serve(web)
    with pytest.raises(SourceRefused, match="redirects to another scheme than https. Use another address"):
        cache.fetch(f"https://{secure}/to?http://{plain.address}/bundle.md")
    assert plain.asked == []


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(
    cache: SourceCache, secure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    with pytest.raises(SourceNotFound, match="cannot be reached: the certificate is not trusted.*SSL_CERT_FILE"):
        cache.fetch(f"https://{secure}/bundle.md")
