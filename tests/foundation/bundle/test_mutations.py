"""Damage real bundles in every way that comes to mind: each is a bundle, or is told what is wrong and where.

`make mutations COUNT=100000` does more of it and judges the time too; `SEED` chooses others. One that fails is named by
its number: `CASE=4711` does that one alone.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from amplifier_core.errors import BundleError, BundleNotFoundError
from amplifier_foundation.bundle import Bundle, BundleProblemsError, references
from amplifier_foundation.bundle.check import problems_of
from amplifier_foundation.bundle.load import read_bundle
from amplifier_foundation.documents.positions import Positions
from amplifier_foundation.documents.yaml_reader import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amplifier_foundation.documents.problems import Problem

CORPUS = Path(__file__).parent / "corpus"
MAINS = sorted(
    min(folder.rglob("bundle.*"), key=lambda path: (len(path.parts), path))
    for folder in CORPUS.iterdir()
    if folder.is_dir()
)
COUNT = int(os.environ.get("COUNT", "300"))
SEED = int(os.environ.get("SEED", "20261121"))
PART = 2_500
CASES = [int(os.environ["CASE"])] if "CASE" in os.environ else range(COUNT)
PARTS = [CASES[start : start + PART] for start in range(0, len(CASES), PART)]
IS_CAMPAIGN = COUNT > PART
TIME_AT_MOST = 30.0
"""Times reading the largest bundle of the corpus as it is, in CPU time of the same run."""
MESSAGE_AT_MOST = 6_000
"""Characters of one problem, the path of 64 keys that it stands at included."""


class Slowest(NamedTuple):
    """The case that took longest, and its CPU seconds."""

    seconds: float = 0.0
    number: int = -1


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the corpus, with nothing fetched: an address that comes about by accident is somebody's."""

    def refuse(source: str, *, public_only: bool) -> Path:
        raise BundleNotFoundError(f"{source!r}: nothing is fetched here")

    monkeypatch.setattr(references, "_fetch", refuse)
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    shutil.copytree(CORPUS, tmp_path / "corpus")
    monkeypatch.chdir(tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.mark.parametrize("main", MAINS, ids=lambda main: str(main.relative_to(CORPUS).parts[0]))
def test_a_bundle_of_the_corpus_is_right_as_it_is(main: Path, corpus: Path) -> None:
    warnings = {problem.code for problem in read_bundle(corpus / main.relative_to(CORPUS)).problems}
    assert warnings <= {"AMP104", "AMP106", "AMP108"}


@pytest.mark.parametrize("cases", PARTS, ids=lambda cases: f"{cases[0]}-{cases[-1]}")
def test_a_damaged_bundle_is_a_bundle_or_told_where_it_is_broken(cases: Sequence[int], corpus: Path) -> None:
    slowest, loaded, limit = Slowest(), 0, TIME_AT_MOST * _calibration(corpus)
    for number in cases:
        seconds, is_bundle = _try(number, corpus)
        slowest, loaded = max(slowest, Slowest(seconds, number)), loaded + is_bundle
    print(  # noqa: T201
        f"{len(cases)} damaged, {loaded} load all the same; the slowest, {slowest.number}, took "
        f"{slowest.seconds * 1e3:.1f} ms of CPU time, allowed are {limit * 1e3:.1f} ms"
    )
    assert not IS_CAMPAIGN or slowest.seconds <= limit, slowest


def _try(number: int, corpus: Path) -> tuple[float, bool]:
    """Damage one file of one bundle and read that bundle; return the CPU seconds, and whether it is a bundle still."""
    rng = random.Random(f"{SEED}-{number}")
    main = corpus / rng.choice(MAINS).relative_to(CORPUS)
    target = main if rng.random() < 0.75 else rng.choice(_texts(main))
    whole = target.read_bytes()
    target.write_bytes(damaged(rng, whole))
    try:
        start = process_time()
        problems, is_bundle = _read(main)
        seconds = process_time() - start
        for problem in problems:
            _check(problem)
    except Exception as error:
        error.add_note(f"CASE={number}: {target.relative_to(corpus)}")
        raise
    finally:
        target.write_bytes(whole)
    return seconds, is_bundle


def _texts(main: Path) -> list[Path]:
    """Return the files around a bundle that are read with it."""
    found = sorted(path for path in main.parent.rglob("*") if path.suffix in (".md", ".yaml", ".yml"))
    return [path for path in found if path.is_file()]


def _read(main: Path) -> tuple[Sequence[Problem], bool]:
    try:
        bundle = read_bundle(main)
    except BundleProblemsError as error:
        assert error.problems
        return error.problems, False
    except BundleError as error:
        assert _is_one_line(str(error))
        return [], False
    assert isinstance(bundle, Bundle)
    assert not [problem for problem in problems_of(bundle) if problem.severity == "error"]
    return bundle.problems, True


def _check(problem: Problem) -> None:
    """Hold one problem against the file that it names: it must stand in it, and on one line of a terminal."""
    lines = _lines(Path(problem.file).read_bytes())
    assert 1 <= problem.line <= len(lines), problem
    assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1, problem
    assert _is_one_line(str(problem)), problem
    assert len(str(problem)) <= MESSAGE_AT_MOST, problem


def _is_one_line(text: str) -> bool:
    return text.isprintable() and text != ""


def _lines(raw: bytes) -> list[str]:
    """Return the lines of a file as an editor counts them; a byte that is no text is one character."""
    text = raw.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _calibration(corpus: Path) -> float:
    """Return the CPU seconds that the largest bundle takes that nothing is remembered of."""
    largest = max((corpus / main.relative_to(CORPUS) for main in MAINS), key=lambda path: path.stat().st_size)
    whole = largest.read_bytes()
    taken = []
    for number in range(15):
        largest.write_bytes(whole + b"." * number)
        start = process_time()
        _read(largest)
        taken.append(process_time() - start)
    return median(taken)


# ways to damage a file

TOKEN = re.compile(rb"[\w./*-]+|[^\w\s]")
SCALAR = re.compile(rb"(?<=: )[^\s{}\[\],#|>][^\n{}\[\],#]*")
KEY = re.compile(rb"[A-Za-z_]+(?=:)")
SPECIALS = [text.encode() for text in (
    "&a ", "*a ", "&a", "<<: *a\n", "<<: {a: 1}\n", "!!python/object/apply:os.system ", "!!int ", "!!str ", "!x ", "! ",
    "\t", "\ufeff", "\r\n", "\r", "\0", "\x07", "\x85", "\u2028", "\u2029", "\ufffe", "\U0010ffff", "\u202e", "é",
    "? ", ": ", ":", "- ", " - ", "|\n", ">\n", "|2-\n", "%YAML 1.2\n", "%TAG ! x\n", "---\n", "...\n", "\n---\n", "#",
    "'", '"', "@", "`", "{", "}", "[", "]", ",", "\\", '"\\0"', '"\\ud800"', '"\\e[2J"', '"\\x41\\u2028"', "~", "null",
    "../../../../../x.md", "~nobody-of-this-name/x.md", "/dev/null", "file://elsewhere/x.md", "http://[", "a:b:c", "::",
    "[" * 3_000, "{a: " * 3_000, "- " * 3_000, "? " * 3_000, "[" * 3_000 + "]" * 3_000, "9" * 5_000, "0x" + "f" * 5_000,
    "-.inf", ".nan", "1e999", "1.7e+999", "2026-02-31", "12:99", "0b", "0o8", "09", "+", "on", "No", "=", "<<", "..",
    "x" * 300, "x" * 5_000, "x/" * 3_000, "{a: 1, a: 2}", "{1: 2}", "? [a]\n: b\n", "a: b: c",
)] + [b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf5\x80\x80\x80", b"\xef\xbb\xbf", b"\x00\x00"]  # fmt: skip
OTHER_TYPES: list[Any] = [
    None, True, 0, -1, 10**400, 1.5, -0.0, "", "x", " ", "\n", "\0", "\x1b[2J", "a:b", "x" * 5_000, "é", [], {}, [None],
    [[]], [{}], {"": None}, {"x": []}, {"module": 1}, {"include": {}}, ["x", "x"], {"a": {"b": {"c": [1, {"d": 2}]}}},
]  # fmt: skip


def damaged(rng: random.Random, raw: bytes) -> bytes:
    """Return `raw` with one to three things done to it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        raw = rng.choice(WAYS)(rng, raw)
    return raw


def _flip(rng: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw or b" ")
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _span(rng: random.Random, raw: bytes) -> tuple[int, int]:
    start = rng.randrange(len(raw) + 1)
    return start, min(len(raw), start + rng.choice((1, 2, 5, 30, 200)))


def _delete(rng: random.Random, raw: bytes) -> bytes:
    start, end = _span(rng, raw)
    return raw[:start] + raw[end:]


def _duplicate(rng: random.Random, raw: bytes) -> bytes:
    start, end = _span(rng, raw)
    return raw[:end] + raw[start:end] * rng.choice((1, 1, 3, 100)) + raw[end:]


def _truncate(rng: random.Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _insert(rng: random.Random, raw: bytes) -> bytes:
    spot = rng.choice([match.start() for match in TOKEN.finditer(raw)] or [0])
    return raw[:spot] + rng.choice(SPECIALS) + raw[spot:]


def _begin(rng: random.Random, raw: bytes) -> bytes:
    return rng.choice(SPECIALS) + raw


def _replace_scalar(rng: random.Random, raw: bytes) -> bytes:
    return _replaced(rng, raw, SCALAR, rng.choice(SPECIALS))


def _stretch(rng: random.Random, raw: bytes) -> bytes:
    long = rng.choice((b"x", b"x ", b"./", b"9", b"&", b"\\", b"- ", b"{}, ", b"sk-", "é".encode())) * rng.choice(
        (300, 30_000)
    )
    return _replaced(rng, raw, rng.choice((SCALAR, KEY)), long)


def _replaced(rng: random.Random, raw: bytes, pattern: re.Pattern[bytes], text: bytes) -> bytes:
    found = list(pattern.finditer(raw))
    if not found:
        return raw + text
    match = rng.choice(found)
    return raw[: match.start()] + text + raw[match.end() :]


def _swap(rng: random.Random, raw: bytes) -> bytes:
    tokens = list(TOKEN.finditer(raw))
    if len(tokens) < 2:
        return raw[::-1]
    first, second = sorted(rng.sample(tokens, 2), key=lambda match: match.start())
    between = raw[first.end() : second.start()]
    return raw[: first.start()] + second[0] + between + first[0] + raw[second.end() :]


def _swap_lines(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _indent(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    start = rng.randrange(len(lines))
    for number in range(start, min(len(lines), start + rng.choice((1, 1, 3)))):
        bare = lines[number].lstrip(b" ")
        lines[number] = rng.choice((b"", b" ", b"   ", b"\t", b"\xc2\xa0", b" " * 400)) + bare
    return b"\n".join(lines)


def _other_ends(rng: random.Random, raw: bytes) -> bytes:
    return raw.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x00\n", "\u2028".encode(), "\x85".encode())))


def _mistype(rng: random.Random, raw: bytes) -> bytes:
    keys = list(KEY.finditer(raw))
    if not keys:
        return raw
    key = rng.choice(keys)
    spot = rng.randrange(len(key[0]))
    typo = rng.choice((b"", rng.choice(b"abcxyz_").to_bytes(1, "big"), key[0][spot : spot + 1] * 2))
    return raw[: key.start()] + key[0][:spot] + typo + key[0][spot + 1 :] + raw[key.end() :]


def _retype(rng: random.Random, raw: bytes) -> bytes:
    """Put something of another kind in the place of a value, wherever in the tree that is."""
    before, front, after = _parts(raw)
    try:
        data, _ = read_yaml(front, Positions(""))
    except Exception:  # it was damaged before
        return raw
    holders = list(_holders(data))
    if not holders:
        return raw
    holder, key = rng.choice(holders)
    holder[key] = rng.choice(OTHER_TYPES)
    return before + yaml.safe_dump(data, sort_keys=False, allow_unicode=True).encode() + after


def _parts(raw: bytes) -> tuple[bytes, str, bytes]:
    match = re.fullmatch(rb"(---\n)(.*?^)(---\n.*)", raw, re.S | re.M)
    before, front, after = match.groups() if match else (b"", raw, b"")
    return before, front.decode(errors="replace"), after


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, each in inner:
        yield value, key
        yield from _holders(each)


WAYS: list[Callable[[random.Random, bytes], bytes]] = [
    _flip, _delete, _duplicate, _truncate, _insert, _insert, _begin, _replace_scalar, _replace_scalar, _stretch, _swap,
    _swap_lines, _indent, _other_ends, _mistype, _retype, _retype, _retype,
]  # fmt: skip
