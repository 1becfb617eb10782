"""The tree of bundles that include each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import BundleNotFoundError
from amplifier_foundation.bundle import load
from amplifier_foundation.bundle.includes import IncludedBundle, include_tree
from amplifier_foundation.documents.document import Document, read_document


def lines(node: IncludedBundle, depth: int = 0) -> list[str]:
    mark = " again" if node.repeated else f" ! {node.problem}" if node.problem else ""
    own = f"{'  ' * depth}{node.name or node.source} {node.file}{mark}"
    return [own, *(line for each in node.includes for line in lines(each, depth + 1))]


def test_each_bundle_stands_below_the_one_that_includes_it_and_is_followed_once(write: Any) -> None:
    write("", name="sub/base.md", bundle="base")
    write("includes: [./base.md]\n", name="sub/mid.md", bundle="mid")
    tree = include_tree(write("includes: [./sub/mid.md, top:sub/base]\n", bundle="top"))
    assert lines(tree) == ["top bundle.md", "  mid sub/mid.md", "    base sub/base.md", "  base sub/base.md again"]
    assert tree.is_whole()
    assert tree.as_dict()["includes"][0]["includes"][0]["name"] == "base"


def test_the_bundle_around_its_parts_is_read_once_for_all_of_them(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def read_and_note(path: Path) -> Document:
        read.append(path.name)
        return read_document(path)

    monkeypatch.setattr(load, "read_document", read_and_note)
    for number in range(20):
        write("", name=f"inc/part{number}.md", bundle=f"part{number}")
    tree = include_tree(write(f"includes: {[f'./inc/part{number}.md' for number in range(20)]}\n", bundle="top"))
    assert len(tree.includes) == 20
    assert read.count("bundle.md") == 2, "itself, and what is around its parts"


def test_what_is_broken_is_told_in_its_place(write: Any, folder: Any) -> None:
    write("includes: [./bundle.md]\n", name="circle.md", bundle="circle")
    write("tools: 5\n", name="wrong.md", bundle="wrong")
    tree = include_tree(write("includes: [./circle.md, ./wrong.md, ./missing.md, nobody:x]\n"))
    assert lines(tree) == [
        "demo bundle.md",
        "  circle circle.md",
        "    demo bundle.md ! includes itself",
        "  ./wrong.md wrong.md ! wrong.md:3:8: error[AMP103] tools: must be a list, not a whole number",
        f"  ./missing.md  ! missing.md: no such file or folder; searched in {folder}",
        "  nobody:x  ! no bundle is registered as 'nobody'. Known: demo. Use its path instead",
    ]
    assert not tree.is_whole()


def test_names_of_the_registry_are_found(write: Any) -> None:
    named = write("", name="elsewhere/bundle.md", bundle="elsewhere")
    tree = include_tree("me", registry={"me": write("includes: [far]\n"), "far": named})
    assert lines(tree) == ["demo bundle.md", "  elsewhere elsewhere/bundle.md"]


def test_a_bundle_that_is_not_there_is_an_error(folder: Any) -> None:
    with pytest.raises(BundleNotFoundError):
        include_tree("missing.md")
