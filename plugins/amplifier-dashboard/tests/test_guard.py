"""Who is let in, and who is not: other sites, other names, other browsers, and guesses."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, wait
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from socket import create_connection
from ssl import create_default_context
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest

from amplifier_core.events import SessionEvent
from amplifier_dashboard import application
from amplifier_dashboard.config import PageConfigError, read_config
from amplifier_dashboard.pages import Act, Reply
from amplifier_dashboard.server import PortTaken
from amplifier_dashboard.signing import Signer
from tests.programs import require

from .conftest import LIVE, Served, home_of, opened, served_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.client import HTTPResponse

    from playwright.sync_api import Browser, Page

    from amplifier_dashboard.desk import Desk
    from amplifier_dashboard.pages import Place

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_a_key_that_is_being_written_is_not_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, may_write = Event(), Event()
    make, remove = secrets.token_bytes, Path.unlink

    def make_slowly(count: int) -> bytes:
        if not writes.is_set():
            writes.set()
            may_write.wait(30)
        return make(count)

    def remove_when_it_is_written(path: Path, missing_ok: bool = False) -> None:
        may_write.set()
        wait([first])
        remove(path, missing_ok)

    monkeypatch.setattr(secrets, "token_bytes", make_slowly)
    monkeypatch.setattr(Path, "unlink", remove_when_it_is_written)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Signer, tmp_path)
        assert writes.wait(30)
        second = pool.submit(Signer, tmp_path)
        wait([second], timeout=0.3)  # it waits for the first one
        may_write.set()
        assert first.result().form_token("x") == second.result().form_token("x")


class Client:
    """A browser without a screen: it keeps its cookie, and sends the headers it is given."""

    def __init__(self, address: str, cookie: str = "", root: str = "") -> None:
        self.place = urlsplit(address)
        self.cookie, self.root = cookie, root

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> HTTPResponse:
        """Return the answer, read."""
        connection = HTTPConnection(str(self.place.hostname), self.place.port, timeout=120)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, self.root + path, body, {**({"Cookie": self.cookie} if self.cookie else {}), **told})
        answer = connection.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        connection.close()
        if given := answer.headers.get("Set-Cookie"):
            self.cookie = given.partition(";")[0]
            self.root = given.partition("Path=")[2].partition(";")[0]
        return answer

    def enter(self, link: str) -> HTTPResponse:
        """Open a link."""
        return self.ask("GET", f"{urlsplit(link).path}?{urlsplit(link).query}")

    def form_token(self) -> str:
        """Return the token in the page."""
        text: str = self.ask("GET", "/").text  # type: ignore[attr-defined]
        return text.partition('data-form-token="')[2].partition('"')[0]


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """What the act at `/act` was given, each time."""
    done: list[Mapping[str, str]] = []

    async def act(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
        done.append(form)
        return Reply("Done.")

    monkeypatch.setattr(application, "find_acts", lambda: [Act("/act", act)])
    return done


@pytest.fixture
def served(acts: Any, tmp_path: Path) -> Iterator[Served]:
    with served_page(tmp_path) as served:
        yield served


@pytest.fixture
def known(served: Served) -> Client:
    """A browser that is let in."""
    client = Client(served.address)
    assert client.enter(served.link).status == 303
    return client


def test_a_link_lets_one_browser_in_once_and_stays_in_no_address(served: Served) -> None:
    link, first, second = served.link, Client(served.address), Client(served.address)
    assert first.ask("GET", "/").status == 401
    answer = first.enter(link)
    assert (answer.status, answer.headers["Location"]) == (303, f"{first.root}/")
    cookie = answer.headers["Set-Cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/~"))
    assert first.ask("GET", "/").status == 200
    assert second.enter(link).status == 401
    assert first.enter(link).status == 303  # who opens it again is known
    assert second.enter(f"{served.address}/?token=forged.9999999999.00").status == 401
    assert second.ask("GET", "/", Cookie=f"amplifier-{second.place.port}=forged.9999999999.00").status == 401


def test_a_link_is_good_once_for_servers_that_share_a_folder(tmp_path: Path) -> None:
    folder, now = tmp_path / "page", time.time()
    link = Signer(folder).make_link(now)
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda _: Signer(folder).take_link(link, now), range(64)))
    assert taken.count(True) == 1


def test_a_folder_that_is_removed_ends_all_logins_and_new_links_are_good(tmp_path: Path) -> None:
    folder, now = tmp_path / "page", time.time()
    signer = Signer(folder)
    cookie = signer.make_cookie(now)
    shutil.rmtree(folder)
    assert not signer.is_cookie(cookie, now)
    assert signer.take_link(Signer(folder).make_link(now), now)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_browser_stays_known_when_the_server_starts_anew_and_not_at_another_port(tmp_path: Path) -> None:
    with served_page(tmp_path) as before:
        client = Client(before.address)
        client.enter(before.link)
        port = client.place.port
    with served_page(tmp_path, port=port) as after:
        assert Client(after.address, client.cookie, client.root).ask("GET", "/").status == 200
    with served_page(tmp_path) as other:
        assert Client(other.address, client.cookie, client.root).ask("GET", "/").status == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:{port}",
        "",
        "127.0.0.2",
        "localhost:80@evil.example",
        "localhost:80.evil.example",
    ],
)
def test_a_request_for_another_name_is_refused(known: Client, host: str) -> None:
    assert known.ask("GET", "/", Host=host.format(port=known.place.port)).status == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:8080"])
def test_a_tunnel_may_begin_at_any_port_of_this_machine(known: Client, host: str) -> None:
    assert known.ask("GET", "/", Host=host).status == 200  # a browser names no port 80


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/live?page=/", "/static/live.js"])
def test_another_site_reads_nothing(known: Client, path: str, headers: dict[str, str]) -> None:
    assert known.ask("GET", path, **headers).status == 403


def test_a_link_on_another_site_opens_the_page(served: Served, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "issue.html").write_text(f'<a href="{served.address}/?project=here">the page</a>', encoding="utf-8")
    with opened(browser, served.link, expected="401") as page:
        home = home_of(page)
        page.goto((tmp_path / "issue.html").as_uri())
        page.click("a")
        page.wait_for_selector(LIVE)
        assert page.url == f"{home}/?project=here"


def test_a_browser_that_comes_from_another_site_is_asked_to_come_again(known: Client) -> None:
    stranger = Client(known.place.geturl())
    answer: Any = stranger.ask("GET", "/?q=1", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert (answer.status, 'http-equiv="refresh"' in answer.text) == (200, True)
    assert 'rel="icon"' in answer.text  # else the browser asks for one, and is told that there is none
    assert stranger.ask("GET", "/?q=1", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="navigate").status == 401


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1"])
def test_a_form_of_another_site_does_nothing(known: Client, acts: list[Any], origin: str) -> None:
    body = urlencode({"form_token": known.form_token()})
    assert known.ask("POST", "/act", body, **FORM, Origin=origin).status == 403
    assert acts == []


def test_a_form_needs_the_token_of_its_browser(served: Served, known: Client, acts: list[Any]) -> None:
    other = Client(served.address)
    other.enter(served.link)
    for token in ("", "0" * 64, other.form_token()):
        assert known.ask("POST", "/act", urlencode({"form_token": token, "a": "b"}), **FORM).status == 403
    assert known.ask("POST", "/act", urlencode({"form_token": known.form_token(), "a": "b"}), **FORM).status == 303
    assert acts == [{"a": "b"}]
    assert Client(served.address).ask("POST", "/act", "", **FORM).status == 401


def test_a_form_that_is_too_large_is_refused(known: Client, acts: list[Any]) -> None:
    body = urlencode({"form_token": known.form_token(), "a": "x" * 2**21})
    assert known.ask("POST", "/act", body, **FORM).status == 413
    pieces = (body[at : at + 65536].encode() for at in range(0, len(body), 65536))
    assert known.ask("POST", "/act", pieces, **FORM).status == 413
    assert acts == []


def test_a_page_for_reading_changes_nothing(tmp_path: Path, acts: list[Any]) -> None:
    with served_page(tmp_path, read_only=True) as served:
        client = Client(served.address)
        client.enter(served.link)
        answer = client.ask("POST", "/act", urlencode({"form_token": client.form_token()}), **FORM)
        assert (answer.status, acts) == (403, [])


@pytest.mark.parametrize("path", ["/", "/static/live.js", "/no-such-page", "/live?page=/no"])
def test_every_answer_forbids_scripts_of_others(known: Client, path: str) -> None:
    for client in (known, Client(known.place.geturl())):
        policy = client.ask("GET", path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


def test_a_password_lets_in_and_guesses_end_soon(tmp_path: Path) -> None:
    with served_page(tmp_path, password="open sesame") as served:
        client = Client(served.address)
        page: Any = client.ask("GET", "/sessions/x")
        assert (page.status, 'type="password"' in page.text) == (401, True)
        assert client.ask("POST", "/login", "password=wrong", **FORM).status == 401
        assert client.ask("POST", "/login", "password=open+sesame", **FORM, Origin="http://evil.example").status == 403
        assert client.ask("POST", "/login", "password=open+sesame", **FORM).status == 303
        assert client.ask("GET", "/").status == 200
        guesser = Client(served.address)
        answers = [guesser.ask("POST", "/login", f"password={n}", **FORM).status for n in range(6)]
        assert answers == [401, 401, 401, 401, 429, 429]  # one was wrong before
        assert guesser.ask("POST", "/login", "password=open+sesame", **FORM).status == 429


@pytest.mark.parametrize("path", ["//evil.example/", "/%2Fevil.example/", "///evil.example/"])
def test_a_link_leads_to_no_other_site(served: Served, path: str) -> None:
    client, token = Client(served.address), urlsplit(served.link).query
    for _ in range(2):  # it lets in, then it was used
        assert client.ask("GET", f"{path}?{token}").headers["Location"] == f"{client.root}/evil.example/"


BROKEN = b'--x\r\nContent-Disposition: form-data; name="password"\r\n\r\n\\ud800\r\n--x--\r\n'
"""A form with a character that no text has."""


def test_a_stranger_causes_no_failure(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    stranger = Client(served.address)
    assert stranger.ask("POST", "/act", "", Origin="http://[").status == 403
    kind = "multipart/form-data; boundary=x; charset=raw_unicode_escape"
    for body, its_kind in ((BROKEN, kind), (b"abc", "multipart/form-data; boundary=x"), (BROKEN, f"{kind}, undefined")):
        assert stranger.ask("POST", "/login", body, Content_Type=its_kind).status == 415
    place = stranger.place
    with create_connection((place.hostname, place.port)) as gone:
        kind = FORM["Content-Type"]
        head = f"POST /login HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: {kind}\r\nContent-Length: 9\r\n\r\n"
        gone.sendall(head.encode())
    assert stranger.ask("GET", "/").status == 401
    assert [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")] == []


def test_a_failure_is_a_sentence_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
        raise ZeroDivisionError("sk-ant-REDACTED")

    monkeypatch.setattr(application, "find_acts", lambda: [Act("/act", fail)])
    with served_page(tmp_path) as served:
        client = Client(served.address)
        client.enter(served.link)
        answer: Any = client.ask("POST", "/act", urlencode({"form_token": client.form_token()}), **FORM)
    assert (answer.status, "ZeroDivisionError" in answer.text) == (500, True)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "aaaaaaaa" not in answer.text + caplog.text
    assert "Traceback" not in caplog.text


def test_without_a_password_no_password_lets_in(served: Served) -> None:
    assert Client(served.address).ask("POST", "/login", "password=", **FORM).status == 401


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"host": "0.0.0.0"}, "password"),
        ({"host": "192.0.2.1", "password": "p"}, "tls_cert"),
        ({"host": "0.0.0.0", "password": "p", "insecure": True}, "names"),
        ({"host": "example.org"}, "host"),
        ({"tls_cert": "a"}, "tls_cert"),
        ({"port": 70000}, "port"),
        ({"prot": 1}, "prot"),
    ],
)
def test_a_page_for_others_needs_a_password_and_tls(config: dict[str, Any], key: str) -> None:
    with pytest.raises(PageConfigError, match=f"dashboard: {key}: ") as caught:
        read_config(config)
    assert ("--password-env NAME" in str(caught.value)) == (key == "password")


@pytest.mark.parametrize(
    ("key", "hint"),
    [("prot", "did you mean 'port'?"), ("x", "known are host, insecure, names, password, port, read_only")],
)
def test_an_unknown_key_is_told_with_those_that_there_are(key: str, hint: str) -> None:
    with pytest.raises(PageConfigError) as caught:
        read_config({key: 1})
    assert str(caught.value).startswith(f"dashboard: {key}: unknown key; {hint}")


def test_a_certificate_makes_it_https(tmp_path: Path) -> None:
    openssl = require("openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        key,
        "-out",
        cert,
        *subject,
    ]
    subprocess.run(made, check=True, capture_output=True)
    with served_page(tmp_path, tls_cert=str(cert), tls_key=str(key), password="p") as served:
        assert served.address.startswith("https://")
        port = urlsplit(served.address).port
        connection = HTTPSConnection("localhost", port, context=create_default_context(cafile=str(cert)))
        connection.request("POST", "/login", "password=p", FORM)
        answer = connection.getresponse()
        assert (answer.status, "Secure" in answer.headers["Set-Cookie"]) == (303, True)
        connection.close()


def test_a_port_that_is_taken_is_an_error_with_the_remedy(served: Served, tmp_path: Path) -> None:
    port = urlsplit(served.address).port
    with pytest.raises(PortTaken, match="--port"), served_page(tmp_path, port=port):
        pass


def test_what_the_store_holds_is_text(served: Served, page: Page) -> None:
    served.run(served.store.emit(SessionEvent("<img src=x onerror=alert(1)>", {})))
    page.goto(f"{home_of(page)}/log")
    page.wait_for_selector("#events li:has-text('<img src=x')")
    assert page.locator("#events img").count() == 0
    page.reload()
    page.wait_for_selector(LIVE)
    assert page.locator("#events img").count() == 0
