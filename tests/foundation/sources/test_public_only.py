"""What a fetched bundle names is fetched from public addresses alone: those that were checked are connected to."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.sources import SourceCache, SourceNotFound, SourceRefused, connecting

from .conftest import GitLog, Repository, Server, left_in

PUBLIC = "93.184.216.34"
NEAR = "192.168.7.7"
Serve = Callable[..., Server]
Answers = list[str]


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Has the public address and the near one answer here; returns every address that is connected to."""
    real, addresses = socket.create_connection, list[str]()

    def connect(address: tuple[str, int], *arguments: Any) -> socket.socket:
        addresses.append(address[0])
        return real(("127.0.0.1", address[1]) if address[0] in (PUBLIC, NEAR) else address, *arguments)

    monkeypatch.setattr(socket, "create_connection", connect)
    return addresses


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Answers], None]:
    """Has a name stand for one address after another, the last one for good."""
    real, known = socket.getaddrinfo, dict[str, Answers]()

    def look_up(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host in known:
            answers = known[host]
            host = answers.pop(0) if len(answers) > 1 else answers[0]
        return real(host, port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known.__setitem__


@pytest.fixture
def web(tmp_path: Path) -> Path:
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "bundle.md").write_text("one")
    return folder


SPELLINGS = (
    "127.0.0.1",
    "0x7f.1",
    "2130706433",
    "0177.0.0.1",
    "localhost",
    "localhost.",
    "[::ffff:127.0.0.1]",
    "[::1]",
)


@pytest.mark.parametrize("host", SPELLINGS)
@pytest.mark.parametrize("scheme", ["http", "zip+http", "git+http"])
def test_this_machine_is_not_asked_however_it_is_spelled(
    cache: SourceCache, web: Path, serve: Serve, dialled: list[str], host: str, scheme: str
) -> None:
    server = serve(web)
    with pytest.raises(SourceRefused, match=r"on this machine or its own network\. Only a bundle of your own may name"):
        cache.fetch(f"{scheme}://{host}:{server.server_address[1]}/bundle.md", public_only=True)
    assert (dialled, server.asked, left_in(cache.folder)) == ([], [], [])


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "[fe80::1]", "[fd00::1]"])
def test_nor_are_the_networks_around_it(cache: SourceCache, dialled: list[str], address: str) -> None:
    for uri in (f"http://{address}/bundle.md", f"git+ssh://git@{address}/org/repo"):
        with pytest.raises(SourceRefused, match="on this machine or its own network"):
            cache.fetch(uri, public_only=True)
    assert dialled == []


@pytest.mark.parametrize(
    "uri", ["http://inside.example/bundle.md", "git+http://inside.example/r", "git+ssh://inside.example/r"]
)
def test_nor_by_a_name_that_stands_for_it(
    cache: SourceCache, dialled: list[str], resolve: Callable[[str, Answers], None], uri: str
) -> None:
    resolve("inside.example", ["127.0.0.1"])
    with pytest.raises(SourceRefused, match=r"leads to inside.example, on this machine"):
        cache.fetch(uri, public_only=True)
    assert dialled == []


@pytest.mark.parametrize("uri", ["git+file:///repo", "zip+file:///archive.zip"])
def test_nor_are_its_files(cache: SourceCache, uri: str) -> None:
    with pytest.raises(SourceRefused, match="is on this machine. Only a bundle of your own may name files"):
        cache.fetch(uri, public_only=True)


def test_a_second_answer_for_a_name_is_never_asked_for(
    cache: SourceCache, web: Path, serve: Serve, dialled: list[str], resolve: Callable[[str, Answers], None]
) -> None:
    server = serve(web)
    resolve("twice.example", [PUBLIC, "127.0.0.1"])
    uri = f"http://twice.example:{server.server_address[1]}/bundle.md"
    assert cache.fetch(uri, public_only=True).read_text() == "one"
    assert dialled == [PUBLIC]
    with pytest.raises(SourceRefused, match="leads to twice.example"):
        cache.fetch(uri, refresh=True, public_only=True)
    assert len(server.asked) == 1


@pytest.mark.parametrize("public_only", [True, False])
def test_a_public_server_redirects_nobody_to_this_machine(
    cache: SourceCache,
    web: Path,
    serve: Serve,
    dialled: list[str],
    resolve: Callable[[str, Answers], None],
    public_only: bool,
) -> None:
    outside, inside = serve(web), serve(web)
    resolve("public.example", [PUBLIC])
    resolve("inside.example", ["127.0.0.1"])
    port = inside.server_address[1]
    for target in (f"http://127.0.0.1:{port}/bundle.md", f"http://inside.example:{port}/bundle.md"):
        uri = f"http://public.example:{outside.server_address[1]}/to?{target}"
        with pytest.raises(SourceRefused, match="on this machine or its own network"):
            cache.fetch(uri, public_only=public_only)
    assert (inside.asked, set(dialled)) == ([], {PUBLIC})


def test_who_names_this_machine_may_be_redirected_on_it(cache: SourceCache, web: Path, serve: Serve) -> None:
    first, second = serve(web), serve(web)
    assert cache.fetch(f"http://{first.address}/to?http://{second.address}/bundle.md").read_text() == "one"


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_server_of_the_network_redirects_nobody_to_this_machine(
    cache: SourceCache, web: Path, serve: Serve, dialled: list[str], host: str
) -> None:
    near, inside = serve(web), serve(web)
    target = f"http://{host}:{inside.server_address[1]}/bundle.md"
    with pytest.raises(SourceRefused, match="on this machine or its own network"):
        cache.fetch(f"http://{NEAR}:{near.server_address[1]}/to?{target}")
    assert (inside.asked, dialled) == ([], [NEAR])


def test_a_server_of_the_network_redirects_to_another_one(
    cache: SourceCache, web: Path, serve: Serve, dialled: list[str]
) -> None:
    first, second, here = serve(web), serve(web), serve(web)
    near = f"http://{NEAR}:{first.server_address[1]}/to?http://{NEAR}:{second.server_address[1]}/bundle.md"
    assert cache.fetch(f"http://{here.address}/to?{near}").read_text() == "one"
    assert dialled == ["127.0.0.1", NEAR, NEAR]


def test_a_server_behind_a_proxy_redirects_nobody_to_this_machine(
    cache: SourceCache, web: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, inside = serve(web), serve(web)
    monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(SourceRefused, match="leads to 127.0.0.1, on this machine"):
        cache.fetch(f"http://server.example/to?http://{inside.address}/bundle.md")
    assert (len(proxy.asked), inside.asked) == (1, [])


def test_git_connects_to_the_address_that_was_checked(
    cache: SourceCache,
    repository: Repository,
    serve: Serve,
    resolve: Callable[[str, Answers], None],
    monkeypatch: pytest.MonkeyPatch,
    git_log: GitLog,
) -> None:
    server = serve(repository.folder)
    monkeypatch.setattr(connecting, "is_internal_address", lambda address: False)
    resolve("pinned.example", ["127.0.0.1"])  # git, a process of its own, resolves it in no other way
    uri = f"git+http://pinned.example:{server.server_address[1]}/.git"
    assert (cache.fetch(uri, public_only=True) / "bundle.md").read_text() == "one"
    assert any("http.followRedirects=false" in call for call in git_log.calls)


def test_git_is_not_redirected_to_this_machine(
    cache: SourceCache,
    repository: Repository,
    serve: Serve,
    dialled: list[str],
    resolve: Callable[[str, Answers], None],
) -> None:
    outside, inside = serve(repository.folder), serve(repository.folder)
    resolve("public.example", [PUBLIC])
    uri = f"git+http://public.example:{outside.server_address[1]}/to?http://{inside.address}/.git"
    with pytest.raises(SourceRefused, match="leads to 127.0.0.1, on this machine"):
        cache.fetch(uri, public_only=True)
    assert inside.asked == []


def test_ssh_connects_to_the_address_that_was_checked(
    cache: SourceCache, tmp_path: Path, resolve: Callable[[str, Answers], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve("public.example", [PUBLIC])
    log, ssh = tmp_path / "ssh.log", tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$*" > {log}\nexit 1\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    with pytest.raises(SourceNotFound):
        cache.fetch("git+ssh://git@public.example/org/repo", public_only=True)
    assert f"-o HostName={PUBLIC} -o HostKeyAlias=public.example -o ProxyCommand=none" in log.read_text()
