"""How sources are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_foundation.sources import ParsedURI, normalize_path, parse_uri, redact_uris

COMMIT = "0123456789ABCDEF0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("uri", "parsed", "kinds"),
    [
        (
            "git+https://host/org/repo@main#subdirectory=a/b",
            ParsedURI("git+https", "host", "/org/repo", "main", "a/b"),
            "git",
        ),
        ("git+https://host/org/repo", ParsedURI("git+https", "host", "/org/repo", "main", is_default_ref=True), "git"),
        (
            "git+ssh://git@host:22/org/repo@feature/x",
            ParsedURI("git+ssh", "git@host:22", "/org/repo", "feature/x"),
            "git",
        ),
        ("git+file:///srv/repo@v1", ParsedURI("git+file", "", "/srv/repo", "v1"), "git"),
        ("git+git@host:org/repo", ParsedURI("git", "", "git@host:org/repo"), "git"),
        (
            "GIT+HTTPS://host/r#egg=x&subdirectory=a%20b",
            ParsedURI("git+https", "host", "/r", "main", "a b", is_default_ref=True),
            "git",
        ),
        ("zip+https://host/a.zip#subdirectory=in", ParsedURI("zip+https", "host", "/a.zip", subpath="in"), "zip"),
        ("zip+file:///a/b.zip", ParsedURI("zip+file", "", "/a/b.zip"), "zip"),
        ("https://host/x.md?raw=1", ParsedURI("https", "host", "/x.md?raw=1"), "http"),
        ("http://host:80/x.md", ParsedURI("http", "host:80", "/x.md"), "http"),
        ("file:///a%20b", ParsedURI("file", "", "/a b"), "file"),
        ("file:///a#subdirectory=b", ParsedURI("file", "", "/a", subpath="b"), "file"),
        ("/abs/with#hash", ParsedURI("file", "", "/abs/with#hash"), "file"),
        ("/abs#subdirectory=b", ParsedURI("file", "", "/abs", subpath="b"), "file"),
        ("./rel", ParsedURI("file", "", "./rel"), "file"),
        ("../rel", ParsedURI("file", "", "../rel"), "file"),
        ("~/x", ParsedURI("file", "", "~/x"), "file"),
        (".", ParsedURI("file", "", "."), "file"),
        ("C:\\bundles\\a.md", ParsedURI("file", "", "C:\\bundles\\a.md"), "file"),
        ("d:/bundles#subdirectory=b", ParsedURI("file", "", "d:/bundles", subpath="b"), "file"),
        ("my-bundle", ParsedURI("", "", "my-bundle"), "package"),
        ("my-bundle:behaviors/y", ParsedURI("", "", "my-bundle", subpath="behaviors/y"), "package"),
        ("package/inside", ParsedURI("", "", "package", subpath="inside"), "package"),
        ("", ParsedURI("", "", ""), "package"),
    ],
)
def test_every_form_is_taken_apart(uri: str, parsed: ParsedURI, kinds: str) -> None:
    found = parse_uri(uri)
    assert found == parsed
    assert [kind for kind in ("git", "zip", "http", "file", "package") if getattr(found, f"is_{kind}")] == [kinds]


@pytest.mark.parametrize(
    "uri", ["git+", "zip+", "://", "git+://", "#", "@", "\0", "git+https://", "a\nb:c", "http://[x"]
)
def test_no_text_makes_parsing_fail(uri: str) -> None:
    assert isinstance(parse_uri(uri), ParsedURI)


def test_a_whole_commit_pins_a_source_and_nothing_else_does() -> None:
    assert parse_uri(f"git+https://host/r@{COMMIT}").commit == COMMIT.lower()
    for ref in ("main", COMMIT[:12], COMMIT + "0"):
        assert parse_uri(f"git+https://host/r@{ref}").commit == ""
    assert parse_uri(f"zip+https://host/r@{COMMIT}").commit == ""


@pytest.mark.parametrize(
    ("uri", "safe"),
    [
        ("git+https://ada:secret@host/r@main", "git+https://***@host/r@main"),
        ("git+https://ghp_secret@host/r", "git+https://***@host/r"),
        ("https://ada:s@cret@host/x.md", "https://***@host/x.md"),
        ("git+ssh://git@host/r", "git+ssh://git@host/r"),
        ("git+ssh://git:secret@host/r", "git+ssh://***@host/r"),
        ("https://host/x.md?token=secret&a=b#c", "https://host/x.md?***#c"),
        ("fatal: unable to access 'https://ada:secret@host/r/'", "fatal: unable to access 'https://***@host/r/'"),
        ("git+https://host/r@main", "git+https://host/r@main"),
        ("red \x1b[31m", "red \N{REPLACEMENT CHARACTER}[31m"),
    ],
)
def test_what_is_shown_holds_no_secret_and_moves_no_cursor(uri: str, safe: str) -> None:
    assert redact_uris(uri) == safe


def test_an_address_without_a_ref_says_main_and_means_the_default_branch() -> None:
    source = parse_uri("git+https://host/org/repo")
    assert (source.ref, source.written_ref, str(source)) == ("main", "", "git+https://host/org/repo")
    assert parse_uri("git+https://host/org/repo@main").written_ref == "main"


def test_a_parsed_source_is_safe_to_show() -> None:
    source = parse_uri("git+https://ada:secret@host/r@main#subdirectory=a")
    assert str(source) == "git+https://***@host/r@main#subdirectory=a"
    assert "secret" not in repr(source)
    assert source.url == "https://ada:secret@host/r"
    assert [str(parse_uri(uri)) for uri in ("a:b", "a", "./x", "/x#subdirectory=y")] == [
        "a:b",
        "a",
        "./x",
        "/x#subdirectory=y",
    ]


def test_paths_are_made_absolute_from_the_folder_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    real = tmp_path.resolve()
    assert normalize_path("a/../b", Path("/folder")) == Path("/folder/b")
    assert normalize_path(Path("b")) == real / "b"
    assert normalize_path("~/b", Path("/folder")) == real / "b"
    assert normalize_path("file:///a%20b") == Path("/a b")
    with pytest.raises(ValueError, match=r"U\+0000"):
        normalize_path("a\0b")
