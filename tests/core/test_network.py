"""The variables of the network: read in one place, and told without their values."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_core.network import NetworkMisconfigured, check_certificates, explain_certificate, read_proxies
from amplifier_core.utils.secrets import redact_text
from tests.proxies import VARIABLES


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(
    "address",
    [
        "http://ann:S3CRETpw#x@127.0.0.1:8080",
        "http://ann:S3CRETpw/x@127.0.0.1:8080",
        "http://ann:12345/678901@127.0.0.1:8080",
        "ann:S3CRETpw?x@127.0.0.1:8080",
        "http://ann:S3CRETpw@127.0.0.1:99999",
        "http://ann:S3CRETpw@[::1",
        "http://:8080",
        "ftp://ann:S3CRETpw@127.0.0.1:21",
    ],
)
def test_an_address_that_cannot_be_read_is_told_by_the_name_of_its_variable(
    name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, address)
    with pytest.raises(NetworkMisconfigured, match=f"^{name} is ") as caught:
        read_proxies().find("https", "corp.test")
    assert not any(part in str(caught.value) for part in ("ann", "S3CRETpw", "12345", "127.0.0.1"))


@pytest.mark.parametrize(
    ("address", "server", "user", "password"),
    [
        ("proxy.corp:3128", "proxy.corp:3128", "", ""),
        ("http://[::1]:3128/", "[::1]:3128", "", ""),
        ("http://ann:p%23%40ss@proxy.corp", "proxy.corp", "ann", "p#@ss"),
        ("ann:p@ss@proxy.corp:1", "proxy.corp:1", "ann", "p@ss"),
    ],
)
def test_an_address_is_read_as_programs_write_it(
    address: str, server: str, user: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", address)
    proxy = read_proxies().find("https", "corp.test")
    assert proxy is not None
    assert (proxy.server, proxy.user, proxy.password, proxy.variable) == (server, user, password, "ALL_PROXY")
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    read_again = read_proxies().find("https", "corp.test")
    assert read_again == proxy._replace(variable="HTTPS_PROXY")


def test_an_address_counts_for_the_requests_that_use_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://ann:pw#x@127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "ftp://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "in.test")
    assert str(read_proxies().find("https", "corp.test")) == "the proxy 127.0.0.1:1 of HTTPS_PROXY"
    assert read_proxies().find("http", "in.test") is None
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:7890/")  # as GNOME writes it
    found = read_proxies().find("ftp", "corp.test")
    assert found is not None
    assert found.url == "socks5://127.0.0.1:7890"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"])
def test_this_machine_is_asked_without_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert read_proxies().find("http", host) is None


@pytest.mark.parametrize(
    ("exceptions", "asked_without"),
    [
        ("corp.test", ["corp.test", "a.corp.test"]),
        (".corp.test, other", ["corp.test", "a.corp.test"]),
        ("*.corp.test", ["corp.test", "a.corp.test"]),
        ("corp.test:443", ["corp.test", "a.corp.test"]),
        ("corp.test:80", []),
        ("corp.test/,http://10.1.2.3:443/", ["corp.test", "a.corp.test", "10.1.2.3"]),
        ("localhost,[fc00::1]", ["fc00::1"]),
        ("fc00::1", ["fc00::1"]),
        ("[fc00::1]:443,10.0.0.0/8", ["fc00::1", "10.1.2.3"]),
        ("[fc00::1]:80", []),
        ("fd00::/8", ["fd00::1"]),
        ("*.corp,[fd00::1]:443", ["fd00::1"]),
        ("[,:::,10.0.0.0/99,]", []),
        ("*", ["corp.test", "a.corp.test", "badcorp.test", "fc00::1", "fd00::1", "10.1.2.3"]),
    ],
)
def test_an_exception_is_read_as_curl_reads_it(
    exceptions: str, asked_without: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", exceptions)
    proxies = read_proxies()
    hosts = ["corp.test", "a.corp.test", "badcorp.test", "fc00::1", "fd00::1", "10.1.2.3"]
    assert [host for host in hosts if proxies.find("https", host) is None] == asked_without


@pytest.mark.parametrize("exception", ["bücher.test", "xn--bcher-kva.test", "*.BÜCHER.test"])
@pytest.mark.parametrize("host", ["bücher.test", "xn--bcher-kva.test"])
def test_an_exception_may_be_in_letters_of_any_language(
    exception: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", exception)
    assert read_proxies().find("https", host) is None
    assert read_proxies().find("https", "buecher.test") is not None


@pytest.mark.parametrize("address", ["http://ann:{}@127.0.0.1:1", "ann:{}@127.0.0.1:1"])
def test_the_password_of_a_proxy_is_hidden_whole_and_in_pieces(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", address.format("S3CRETpw#f0llowing"))
    for text in ("Invalid port: 'S3CRETpw'", "in S3CRETpw#f0llowing", "Unsupported proxy syntax in 'ann:S3CRETpw'"):
        assert "S3CRET" not in redact_text(text)
    monkeypatch.setenv("https_proxy", address.format("S3CRET%23pw"))
    assert "S3CRET" not in redact_text("it was S3CRET#pw")


@pytest.mark.parametrize("address", ["http://{}@proxy.test:1", "http://{}:@proxy.test:1", "{}@proxy.test"])
def test_a_token_in_place_of_the_user_of_a_proxy_is_hidden_but_no_name(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", address.format("a1b2c3d4e5f6a7b8"))
    assert redact_text("it is a1b2c3d4e5f6a7b8") == "it is [REDACTED]"
    monkeypatch.setenv("https_proxy", address.format("annemiller"))
    assert redact_text("/home/annemiller/x") == "/home/annemiller/x"


def test_a_missing_file_of_certificates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_certificates()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(NetworkMisconfigured, match=r"SSL_CERT_FILE=.*ca\.pem holds no .*\. Correct or unset"):
        check_certificates()


def test_an_untrusted_certificate_is_explained_by_the_variable_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1006)"
    problem, remedy = explain_certificate(text.format("unable to get local issuer certificate")) or ("", "")
    assert problem == "the certificate is not trusted (unable to get local issuer certificate)"
    assert "set SSL_CERT_FILE to a file" in remedy
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/ca.pem")
    assert (explain_certificate(text.format("self-signed certificate")) or ("", ""))[1].endswith(
        "REQUESTS_CA_BUNDLE does not count here"
    )
    assert "SSL_CERT_FILE" not in str(explain_certificate(text.format("certificate has expired")))
    assert explain_certificate("Connection refused") is None
