"""The text of a bundle is checked before it is saved, and saved only over what was read."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import BundleLoadError, BundleNotFoundError
from amplifier_foundation.operations.acting import Actor, read_acts
from amplifier_foundation.operations.bundle_texts import (
    BundleTextChanged,
    read_bundle_text,
    save_bundle_text,
    validate_text,
)

if TYPE_CHECKING:
    from pathlib import Path

ANN = Actor("ann", "dashboard")
TEXT = """---
bundle: {name: shop}
providers: [{module: provider-playbook, config: {otherwise: {say: "ok"}}}]
background_sessions:
  - {name: orders, instruction: "order"}
---
Sell. See @stock.md.
"""


@pytest.fixture
def file(home: Path, project: Path) -> Path:
    path = project / "bundle.md"
    path.write_text(TEXT, encoding="utf-8")
    return path


def places(problems: Any) -> list[tuple[str, int, int]]:
    return [(each.code, each.line, each.column) for each in problems]


def test_a_text_is_checked_as_if_it_were_saved(file: Path, plugins: Any) -> None:
    assert places(validate_text(file, TEXT, plugins)) == [("AMP108", 7, 11)]
    (file.parent / "stock.md").write_text("Apples.")
    assert validate_text(file, TEXT, plugins) == []
    wrong = TEXT.replace('name: orders, instruction: "order"', "name: orders, pool_sizes: 2")
    assert places(validate_text(file, wrong, plugins)) == [("AMP102", 5, 20)]
    assert places(validate_text(file, wrong.replace("}}}]", ""), plugins))[0][:2] == ("AMP203", 4)
    moved = "\n".join([*wrong.splitlines()[:-1], "", "Sell. See @nothing.md.", ""])
    assert ("AMP108", 8, 11) in places(validate_text(file, moved, plugins))
    assert file.read_text() == TEXT


def test_a_text_that_is_not_saved_fetches_nothing(file: Path, plugins: Any) -> None:
    text = TEXT.replace("providers:", "includes: ['git+https://127.0.0.1:9/nobody@main']\nproviders:")
    [problem] = [each for each in validate_text(file, text, plugins) if each.code == "AMP111"]
    assert problem.severity == "warning"
    assert "not fetched" in problem.message


async def test_a_saved_text_is_whole_recorded_and_keeps_the_file_as_it_is(store: Any, file: Path) -> None:
    file.write_bytes(TEXT.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    link = file.parent / "link.md"
    link.symlink_to(file)
    read = read_bundle_text(link)
    saved = await save_bundle_text(store, ANN, link, read.text.replace("\r\n", "\n") + "More.\n", read.digest)
    assert file.read_bytes() == TEXT.replace("\n", "\r\n").encode() + b"More.\r\n"
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o640)
    assert read_bundle_text(file.parent) == saved
    [act] = await read_acts(store, str(file))
    assert (act.data["act"], act.data["by"], act.project) == ("bundle.save", "ann", str(file.parent))
    assert (act.data["digest_before"], act.data["digest"]) == (read.digest, saved.digest)


async def test_a_file_that_somebody_else_changed_is_not_replaced(store: Any, file: Path) -> None:
    read = read_bundle_text(file)
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(BundleTextChanged, match="Read it again"):
        await save_bundle_text(store, ANN, file, TEXT, read.digest)
    assert file.read_text() == "mine"
    assert await read_acts(store, str(file)) == []


async def test_of_many_that_save_at_once_one_is_first(store: Any, file: Path) -> None:
    read = read_bundle_text(file)
    saving = [save_bundle_text(store, ANN, file, f"{TEXT}{number}\n", read.digest) for number in range(8)]
    done = await asyncio.gather(*saving, return_exceptions=True)
    [saved] = [each for each in done if not isinstance(each, BundleTextChanged)]
    assert not isinstance(saved, BaseException)
    assert read_bundle_text(file) == saved


async def test_what_is_no_file_with_text_is_refused(store: Any, file: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleNotFoundError):
        read_bundle_text(tmp_path / "absent.md")
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(BundleLoadError, match="not a file"):
        read_bundle_text(tmp_path / "pipe.md")
    file.write_bytes(b"\xff")
    with pytest.raises(BundleLoadError, match="UTF-8"):
        read_bundle_text(file)
