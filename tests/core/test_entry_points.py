"""Entry points, and the distributions that they are of."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from amplifier_core.entry_points import Distribution, find_entry_points

if TYPE_CHECKING:
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
        ("", Distribution()),
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
