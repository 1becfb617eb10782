"""Bundles in a company's network: through its proxy, with its certificates, and their faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.sources import SourceCache, SourceNotFound, SourceRefused
from tests.proxies import CLOSING, VARIABLES, Proxy, SecureServer

from .conftest import Repository, Server


@pytest.fixture(autouse=True)
def _own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "GIT_SSL_CAINFO"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "HTTP_PROXY"])
def test_a_file_is_fetched_through_the_proxy(
    cache: SourceCache, serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    web = tmp_path / "web"
    web.mkdir()
    (web / "bundle.md").write_text("one")
    port = int(serve(web).address.rpartition(":")[2])
    with Proxy(("127.0.0.1", port)) as proxy:
        monkeypatch.setenv(variable, proxy.url.replace("://", "://ann:p%23ss@"))
        assert cache.fetch("http://corp.test/bundle.md").read_text() == "one"
        assert proxy.asked[0].startswith("GET http://corp.test/")
        assert proxy.signed == ["Basic YW5uOnAjc3M="]


def test_a_file_is_fetched_through_a_tunnel(
    cache: SourceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecureServer(tmp_path) as server, Proxy(server.address) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url.replace("://", "://ann:p%23ss@"))
        with pytest.raises(SourceNotFound, match="certificate is not trusted .*set SSL_CERT_FILE"):
            cache.fetch("https://corp.test/bundle.md")
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        assert cache.fetch("https://corp.test/bundle.md").read_text() == "there"
        assert proxy.signed == ["Basic YW5uOnAjc3M="] * 2


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (
            "407 Proxy Authentication Required",
            r"\(407 Proxy Authentication Required\)\. Put your user and password before",
        ),
        ("403 Forbidden", r"\(403 Forbidden\)\. Check HTTPS_PROXY and the network"),
        (CLOSING, r"\. Check HTTPS_PROXY and the network"),
    ],
)
def test_a_fault_of_the_proxy_names_it(
    cache: SourceCache, monkeypatch: pytest.MonkeyPatch, does: str, told: str
) -> None:
    with Proxy(does=does) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        told = f"cannot be reached through the proxy 127.0.0.1:{proxy.port} of HTTPS_PROXY .*{told}"
        with pytest.raises(SourceNotFound, match=told):
            cache.fetch("https://corp.test/bundle.md")


@pytest.mark.parametrize("scheme", ["https", "git+https"])
def test_a_proxy_whose_address_cannot_be_read_is_told_without_its_password(
    cache: SourceCache, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:S3CRETpw#x@127.0.0.1:1")
    with pytest.raises(SourceRefused, match="HTTPS_PROXY is no address of a proxy") as caught:
        cache.fetch(f"{scheme}://corp.test/bundle.md")
    assert "S3CRET" not in str(caught.value)


def test_a_variable_that_a_request_does_not_use_stops_none(
    cache: SourceCache, repository: Repository, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = serve(repository.folder.parent).address
    unused = {"ALL_PROXY": "ftp://127.0.0.1:1", "HTTPS_PROXY": "http://a:b#c@127.0.0.1:1", "NO_PROXY": "127.0.0.1"}
    for name, value in (unused | {"SSL_CERT_FILE": "/nonexistent.pem"}).items():
        monkeypatch.setenv(name, value)
    assert cache.fetch(f"http://{address}/repo/bundle.md").read_text() == "one"
    assert (cache.fetch(f"git+http://{address}/repo/.git") / "bundle.md").read_text() == "one"


def test_the_proxy_of_gits_own_settings_counts_before_an_unreadable_one(
    cache: SourceCache,
    repository: Repository,
    serve: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Proxy(serve(repository.folder.parent).server_address) as proxy:
        settings = tmp_path / "gitconfig"
        settings.write_text(f"[http]\n\tproxy = {proxy.url}\n")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
        monkeypatch.setenv("HTTP_PROXY", "http://ann:S3CRETpw#x@127.0.0.1:1")
        assert (cache.fetch("git+http://corp.test/repo/.git") / "bundle.md").read_text() == "one"


def test_git_trusts_the_certificates_of_the_environment_unless_it_has_others(
    cache: SourceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecureServer(tmp_path) as server, Proxy(server.address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(SourceNotFound, match=r"certificate.*set SSL_CERT_FILE to a file"):
            cache.fetch("git+https://corp.test/a.git")
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        with pytest.raises(SourceNotFound, match="git says"):  # it is no repository
            cache.fetch("git+https://corp.test/a.git")
        count = len(server.asked)
        assert count > 0
        settings = tmp_path / "gitconfig"
        settings.write_text('[http "https://corp.test"]\n\tsslCAInfo = /nonexistent.pem\n')
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
        with pytest.raises(SourceNotFound, match="git says"):
            cache.fetch("git+https://corp.test/a.git")
        assert len(server.asked) == count
