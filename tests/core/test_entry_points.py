"""Entry points, and the distributions that they are of."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from amplifier_core.entry_points import Distribution, find_entry_points

if TYPE_CHECKING:
    from pathlib import Path

    from tests.core.conftest import Site

GROUP = "tests.of.entry.points"


def test_entry_points_come_sorted_by_name_and_none_is_imported(site: Site) -> None:
    site.install("dist-one", {GROUP: {"zeta": "dist_one:z", "alpha": "dist_one:a"}}, {"dist_one.py": "1 / 0"})
    site.install("dist-two", {GROUP: {"mid": "dist_two"}, "tests.of.others": {"beta": "dist_two"}}, {})
    assert [(entry.name, entry.value) for entry in find_entry_points(GROUP)] == [
        ("alpha", "dist_one:a"),
        ("mid", "dist_two"),
        ("zeta", "dist_one:z"),
    ]
    assert [entry.value for entry in find_entry_points(GROUP, "mid")] == ["dist_two"]
    assert find_entry_points(GROUP, "absent") == []


def test_a_distribution_has_a_name_and_a_version(site: Site) -> None:
    site.install("dist-one", {GROUP: {"alpha": "dist_one"}}, {}, version="2.1rc1")
    [entry] = find_entry_points(GROUP)
    assert entry.dist == Distribution("dist-one", "2.1rc1")
    assert str(entry.dist) == "dist-one 2.1rc1"


@pytest.mark.parametrize(
    ("metadata", "dist"),
    [
        ("", Distribution("dist_one", "1.0")),
        (
            "Metadata-Version: 2.1\r\nName:  spaced \r\nVersion: 1\r\n\r\nName: no header\r\n",
            Distribution("spaced", "1"),
        ),
        ("Name: nameless-version\n\nVersion 3 is out\n", Distribution("nameless-version")),
    ],
)
def test_odd_metadata_is_no_error(site: Site, metadata: str, dist: Distribution) -> None:
    site.install("dist-one", {GROUP: {"alpha": "dist_one"}}, {})
    (site.folder / "dist_one-1.0.dist-info" / "METADATA").write_text(metadata, newline="")
    [entry] = find_entry_points(GROUP)
    assert entry.dist == dist


def test_the_folder_that_a_killed_pip_leaves_behind_is_no_second_registration(site: Site) -> None:
    site.install("dist-one", {GROUP: {"alpha": "dist_one"}}, {})
    folder = site.folder / "dist_one-1.0.dist-info"
    shutil.copytree(folder, site.folder / "~ist_one-1.0.dist-info")
    assert [entry.name for entry in find_entry_points(GROUP)] == ["alpha"]
    shutil.rmtree(folder)
    assert find_entry_points(GROUP) == []


def test_a_half_removed_distribution_is_named_after_its_folder(site: Site) -> None:
    site.install("dist-one", {GROUP: {"alpha": "dist_one"}}, {})
    (site.folder / "dist_one-1.0.dist-info" / "METADATA").unlink()
    [entry] = find_entry_points(GROUP)
    assert entry.dist == Distribution("dist_one", "1.0")


@pytest.mark.parametrize(("heading", "is_told"), [("console_scripts", False), ("amplifier.modules", True)])
@pytest.mark.parametrize("damage", ["# André\n".encode("latin-1"), b"cut\n"], ids=["encoding", "cut"])
@pytest.mark.parametrize("beside", ["folders", "an archive"])
def test_entry_points_that_cannot_be_read_hide_no_others(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
    heading: str, is_told: bool, damage: bytes, beside: str,
) -> None:  # fmt: skip
    if beside == "an archive":
        with ZipFile(site.folder / "other.zip", "w"):
            monkeypatch.setattr(sys, "path", [*sys.path, str(site.folder / "other.zip")])
    site.install("dist-one", {GROUP: {"alpha": "dist_one"}}, {})
    site.install("dist-two", {heading: {"beta": "dist_two"}}, {})
    file = site.folder / "dist_two-1.0.dist-info" / "entry_points.txt"
    file.write_bytes(file.read_bytes() + damage)
    assert [entry.name for entry in find_entry_points(GROUP)] == ["alpha"]
    told = [record.getMessage() for record in caplog.records if str(file.parent) in record.getMessage()]
    assert bool(told) is (is_told and beside == "folders")


def test_of_two_folders_about_a_distribution_the_first_on_the_path_counts(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("Dist.one", {GROUP: {"alpha": "dist_one"}}, {})
    behind = tmp_path / "behind"
    shutil.copytree(site.folder, behind)
    for folder in behind.glob("*-info"):
        folder.rename(behind / "dist_one-2.0.dist-info")
    monkeypatch.setattr(sys, "path", [*sys.path, str(behind)])
    [entry] = find_entry_points(GROUP)
    assert entry.dist == Distribution("Dist.one", "1.0")


def test_the_owners_of_entry_points_are_found_without_the_standard_library_s_parsers() -> None:
    code = (
        "import sys; from amplifier_core.entry_points import *; "
        "print(*(entry.dist for entry in find_entry_points('amplifier'))); "
        "print(*{'email.parser', 'importlib.metadata'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    dists, heavy = done.stdout.splitlines()
    assert "amplifier" in dists
    assert heavy == ""


def test_a_half_removed_version_hides_no_whole_one(site: Site) -> None:
    (site.folder / "dist_one-0.9.dist-info").mkdir()
    site.install("dist-one", {GROUP: {"alpha": "dist_one"}}, {})
    [entry] = find_entry_points(GROUP)
    assert entry.dist == Distribution("dist-one", "1.0")


def test_an_egg_of_the_path_and_no_other_folder_has_entry_points(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("dist-one", {GROUP: {"alpha": "dist_one"}}, {})
    about = site.folder / "dist_one-1.0.dist-info"
    (site.folder / "dist_one-info").mkdir()
    assert [entry.name for entry in find_entry_points(GROUP)] == ["alpha"]
    egg = tmp_path / "dist_one-1.0-py3.egg"
    shutil.copytree(about, egg / "EGG-INFO")
    (egg / "EGG-INFO" / "METADATA").rename(egg / "EGG-INFO" / "PKG-INFO")
    shutil.rmtree(about)
    monkeypatch.setattr(sys, "path", [*sys.path, str(egg)])
    assert [entry.name for entry in find_entry_points(GROUP)] == ["alpha"]


def test_beside_an_archive_a_half_removed_distribution_hides_no_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ZipFile(site.folder / "other.zip", "w"):
        monkeypatch.setattr(sys, "path", [*sys.path, str(site.folder / "other.zip")])
    for dist in ("dist-one", "dist-two"):
        site.install(dist, {GROUP: {dist: "dist_one"}}, {})
    (site.folder / "dist_two-1.0.dist-info" / "METADATA").unlink()
    assert [entry.name for entry in find_entry_points(GROUP)] == ["dist-one", "dist-two"]
