"""From what names a source to where it is."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from amplifier_core.errors import BundleLoadError, BundleNotFoundError
from amplifier_foundation.sources import (
    ParsedURI,
    ResolvedSource,
    SimpleSourceResolver,
    SourceHandlerProtocol,
    SourceNotFound,
    SourceRefused,
    SourceResolverProtocol,
    default_cache,
    resolve_source,
)

from .conftest import GitLog, Repository, Server


async def test_a_repository_is_fetched_and_its_root_known(
    repository: Repository, tmp_path: Path, git_log: GitLog
) -> None:
    resolver: SourceResolverProtocol = SimpleSourceResolver(tmp_path / "cache")
    found = await resolver.resolve(f"{repository.uri}#subdirectory=behaviors/x.yaml")
    assert found.active_path == found.source_root / "behaviors" / "x.yaml"
    assert found.source_root.parent == tmp_path / "cache"
    assert found.is_subdirectory
    whole = await resolver.resolve(repository.uri)
    assert (whole.active_path, whole.is_subdirectory) == (found.source_root, False)
    assert git_log.fetches == 1


async def test_without_a_folder_the_default_cache_is_used(repository: Repository) -> None:
    found = await SimpleSourceResolver().resolve(repository.uri)
    assert found.active_path == default_cache().get(repository.uri)


async def test_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "my bundle"
    (folder / "deep").mkdir(parents=True)
    (folder / "bundle.md").write_text("one")
    resolver = SimpleSourceResolver(tmp_path / "cache", base_path=tmp_path)
    for uri in ("./my bundle/bundle.md", str(folder / "bundle.md"), f"file://{tmp_path}/my%20bundle/bundle.md"):
        assert await resolver.resolve(uri) == ResolvedSource(folder / "bundle.md", folder)
    assert await resolver.resolve("./my bundle") == ResolvedSource(folder, folder)
    assert await resolver.resolve(f"{folder}#subdirectory=deep") == ResolvedSource(folder / "deep", folder)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("uri", "kind", "message"),
    [
        ("./missing", SourceNotFound, "./missing: no such file or folder. Check the path"),
        ("file://host/x", SourceRefused, "is a path of another machine"),
        ("~nobody-here/x", SourceRefused, "home folder of an unknown user"),
        ("./a\0b", SourceRefused, r"U\+0000"),
        (".#subdirectory=../x", SourceRefused, "leads out of the source"),
        (".#subdirectory=x", SourceNotFound, "has no such file or folder"),
        ("my-bundle", SourceNotFound, "my-bundle: is a name, not a place. Use a path, or a URL such as git"),
        ("my-bundle:behaviors/y", SourceNotFound, "is a name, not a place"),
        ("s3://bucket/x", SourceRefused, "cannot be fetched"),
    ],
)
async def test_what_is_nowhere_is_told(tmp_path: Path, uri: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        await SimpleSourceResolver(tmp_path / "cache", base_path=tmp_path).resolve(uri)


def test_the_errors_are_those_of_bundles() -> None:
    assert issubclass(SourceNotFound, BundleNotFoundError)
    assert issubclass(SourceRefused, BundleLoadError)


async def test_handlers_that_were_added_come_first_the_last_one_before_the_others(tmp_path: Path) -> None:
    asked: list[tuple[str, ParsedURI, Path]] = []

    class Handler:
        def __init__(self, name: str, scheme: str) -> None:
            self.name, self.scheme = name, scheme

        def can_handle(self, parsed: ParsedURI) -> bool:
            return parsed.scheme == self.scheme

        async def resolve(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource:
            asked.append((self.name, parsed, cache_dir))
            return ResolvedSource(tmp_path, tmp_path)

    handlers: list[SourceHandlerProtocol] = [Handler("one", "s3"), Handler("two", "s3"), Handler("three", "ftp")]
    resolver = SimpleSourceResolver(tmp_path / "cache")
    for handler in handlers:
        resolver.add_handler(handler)
    assert (await resolver.resolve("s3://bucket/x")).active_path == tmp_path
    assert asked == [("two", ParsedURI("s3", "bucket", "/x"), tmp_path / "cache")]
    assert (await resolver.resolve(str(tmp_path))).active_path == tmp_path
    assert len(asked) == 1


def test_one_file_of_a_web_server_has_a_folder_of_its_own(tmp_path: Path, serve: Callable[..., Server]) -> None:
    (tmp_path / "bundle.md").write_text("one")
    server = serve(tmp_path)
    found = resolve_source(f"http://{server.address}/bundle.md")
    assert (found.active_path.name, found.source_root) == ("bundle.md", found.active_path.parent)
    (tmp_path / "bundle.md").write_text("two")
    assert resolve_source(f"http://{server.address}/bundle.md", refresh=True).active_path.read_text() == "two"


@pytest.mark.parametrize("scheme", ["git+http", "http"])
async def test_cancelling_ends_the_fetch(silent: socket.socket, tmp_path: Path, git_log: GitLog, scheme: str) -> None:
    resolver = SimpleSourceResolver(tmp_path / "cache")
    with ThreadPoolExecutor() as pool:  # whose end waits for the fetch
        asyncio.get_running_loop().set_default_executor(pool)
        task = asyncio.create_task(resolver.resolve(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/bundle.md"))
        connection, _ = await asyncio.to_thread(silent.accept)
        task.cancel()
        with connection, pytest.raises(asyncio.CancelledError):
            await task
    assert list((tmp_path / "cache").iterdir()) == []


def test_importing_sources_imports_nothing_that_a_start_would_wait_for() -> None:
    heavy = {"asyncio", "pydantic", "subprocess", "ssl", "http.client", "zipfile", "yaml", "tempfile"}
    code = f"import sys, amplifier_foundation.sources; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
