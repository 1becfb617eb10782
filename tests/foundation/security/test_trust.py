"""The store of trust: what it keeps, what it reads again, and whom nobody asks."""

from __future__ import annotations

import importlib
import json
import os
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from amplifier_core.importing import import_from_path
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import load_bundle
from amplifier_foundation.security import NotTrusted, load_trusted, trust, trust_files, trust_ledger
from amplifier_foundation.security.trust import inspect_bundle, show_place, trust_content
from amplifier_foundation.security.trust_files import Seen, find_code, path_of, read_seen
from amplifier_foundation.security.trust_ledger import MAX_TEXTS, Entry, Ledger, find_problem
from amplifier_foundation.spawning.conversation import converse

BUNDLE = """---
bundle: {name: greeter}
providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]
hooks: [{module: hooks-own, source: ./own.py}]
---
You greet.
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    (tmp_path / "own.py").write_text("async def mount(coordinator, config): return None\n")
    return path_of(tmp_path / "bundle.md")


def refuse(*_: object) -> NoReturn:
    raise AssertionError("it is read again")


def test_an_unchanged_file_is_not_read_again(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust_files, "SETTLED", -1.0)
    trust_content(inspect_bundle(place, {}))
    monkeypatch.setattr(trust_ledger, "read_seen", refuse)
    assert find_problem(Ledger(), place) is None
    Path(place).touch()
    with pytest.raises(AssertionError, match="read again"):
        find_problem(Ledger(), place)


def test_a_young_file_is_read_until_its_time_can_tell(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust_files, "SETTLED", 3600.0)
    trust_content(inspect_bundle(place, {}))
    entry = Ledger().find(place)
    assert entry is not None
    assert {seen.stamp for seen in entry.files.values()} == {None}
    monkeypatch.setattr(trust_files, "SETTLED", -1.0)
    assert find_problem(Ledger(), place) is None
    monkeypatch.setattr(trust_ledger, "read_seen", refuse)
    assert find_problem(Ledger(), place) is None


def test_what_was_shown_is_trusted_and_not_what_came_meanwhile(place: str) -> None:
    content = inspect_bundle(place, {})
    (Path(place).parent / "own.py").write_text("import evil\n")
    trust_content(content)
    with pytest.raises(NotTrusted, match=r"has changed since it was trusted \(own.py\)"):
        load_trusted(place)


def test_code_that_is_gone_is_told_as_gone(place: str) -> None:
    trust_content(inspect_bundle(place, {}))
    guard, own = load_trusted(place).guard, Path(place).parent / "own.py"
    assert guard is not None
    own.unlink()
    told = rf"^own.py is gone, which {re.escape(show_place(place))} uses. Bring it back; .* with: amplifier trust \S+$"
    with pytest.raises(NotTrusted, match=told):
        guard.check_code(own)


def test_texts_beyond_a_megabyte_are_not_kept(place: str, home: Path) -> None:
    own = Path(place).parent / "own.py"
    own.write_text("#" * (MAX_TEXTS + 1))
    trust_content(inspect_bundle(place, {}))
    assert Ledger().texts(place) == {place: BUNDLE}
    [kept] = (home / "trust").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_bytes(zlib.compress(b"{")[:-1])
    assert Ledger().texts(place) == {}


def test_two_that_trust_at_once_lose_nothing(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: Ledger().put(f"/place/{at}", Entry(0, {"/file": Seen("digest")})), range(24)))
    assert len(Ledger().places()) == 24
    assert json.loads((home / "trust.json").read_bytes())["version"] == 1


def test_another_owner_is_a_change(place: str) -> None:
    trust_content(inspect_bundle(place, {}))
    entry = Ledger().find(place)
    assert entry is not None
    Ledger().put(place, entry._replace(uid=entry.uid + 1))
    assert find_problem(Ledger(), place) == [place]
    Path(place).write_text(f"{BUNDLE}\n")
    assert find_problem(Ledger(), place) == [place]


def test_code_behind_links_and_in_circles_is_found(tmp_path: Path) -> None:
    code, other = tmp_path / "code", tmp_path / "other"
    for folder in (code / "inner", code / ".git", code / "node_modules", other):
        folder.mkdir(parents=True)
        (folder / "x.py").touch()
    (code / "linked").symlink_to(other)
    (code / "circle").symlink_to(code)
    (code / "x.so").touch()
    (code / "data.json").touch()
    (code / "gone.py").symlink_to("nowhere")
    found = sorted(os.path.relpath(path, code) for path in find_code(code))
    assert found == ["gone.py", "inner/x.py", "linked/x.py", "x.so"]
    assert read_seen(str(code / "gone.py")).digest == trust_files.MISSING
    os.mkfifo(code / "pipe.py")
    assert read_seen(str(code / "pipe.py")).digest == trust_files.MISSING


async def test_a_program_that_loads_a_bundle_is_not_asked(place: str, store: DurableStore, plugins: Plugins) -> None:
    turn = await converse(await load_bundle(place), "hello", store, plugins)
    assert turn.output == "hi"


def test_a_bundle_of_an_installed_package_needs_no_trust(place: str) -> None:
    assert load_trusted(place, installed=[str(Path(place).parent)]).guard is None


def test_a_bundle_that_is_not_fetched_is_refused_where_nothing_may_be_fetched() -> None:
    with pytest.raises(NotTrusted, match=r"with: amplifier trust git\+https://example.org/x"):
        load_trusted("git+https://example.org/x", fetches=False)


def test_the_variable_is_one_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, is_checked in (("1", False), ("true", True), ("", True)):
        monkeypatch.setenv("AMPLIFIER_TRUST", value)
        assert trust.is_checked() is is_checked


@pytest.mark.parametrize("changed", ["own.py", "own/__init__.py", "own/said.py", "own/more/deep.py", "own/new.py"])
def test_code_that_changes_between_the_look_at_it_and_its_import_is_not_run(changed: str, tmp_path: Path) -> None:
    for name in ("own", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "own" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "own" / "__init__.py").write_text("async def mount(coordinator, config): return None\n")
    parts = [tmp_path / "own" / "said.py", tmp_path / "elsewhere" / "deep.py", tmp_path / "own.py"]
    for each in parts:
        each.write_text("async def mount(coordinator, config): return None\n")
    code = tmp_path / changed.split("/")[0]
    source = f"./{code.name}"
    (tmp_path / "bundle.md").write_text(BUNDLE.replace("./own.py", source))
    place = path_of(tmp_path / "bundle.md")
    trust_content(inspect_bundle(place, {}))
    guard = load_trusted(place).guard
    assert guard is not None
    guard.check_code(code)
    module = import_from_path("hooks-own", code)
    if code.is_dir():
        importlib.import_module(f"{module.__name__}.said")
    guard.check_code(code)
    (tmp_path / changed).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    problem = "uses files that were not trusted" if changed == "own/new.py" else "has changed since it was trusted"
    with pytest.raises(NotTrusted, match=f"{problem}.*{changed.rpartition('/')[2]}"):
        name = import_from_path("hooks-own", code).__name__
        importlib.import_module(f"{name}.{changed.removeprefix('own/').removesuffix('.py').replace('/', '.')}")
    assert not (tmp_path / "ran").exists()
    (tmp_path / changed).write_text("TEXT = 'trusted'\n")
    trust_content(inspect_bundle(place, {}))
    guard.check_code(code)
    import_from_path("hooks-own", code)
