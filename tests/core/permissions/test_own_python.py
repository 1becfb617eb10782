"""The Python that runs the program is not written by a session; folders of editable installs are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from amplifier_core.permissions import Call, Policy, find_own_python
from tests.programs import make_environment

if TYPE_CHECKING:
    from pathlib import Path

DECIDE = """
import json, sys
from amplifier_core.permissions import Call, Policy, parse_permissions
folder, section, tool, *paths = sys.argv[1:]
policy = Policy([parse_permissions(json.loads(section), "user settings", is_own=True)])
print(json.dumps([policy.decide(Call.of(tool, {"path": path}, folder)).effect for path in paths]))
"""
PACKAGES = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
OWN = ["bin/amplifier", "pyvenv.cfg", f"{PACKAGES}/late.py", f"{PACKAGES}/new.dist-info/entry_points.txt"]


def decide(python: str, folder: Path, *paths: str, tool: str = "write_file", **section: list[str]) -> set[str]:
    """Return how a program of this Python decides about paths."""
    command = [python, "-c", DECIDE, str(folder), json.dumps(section), tool, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("name", [".venv", "deep/env", "."])
def test_the_environment_of_the_program_is_read_and_not_written(tmp_path: Path, name: str) -> None:
    python, inside = make_environment(tmp_path / name), [f"{name}/{each}" for each in OWN]
    for path in inside:
        assert decide(python, tmp_path, path) == {"deny"}, path
    absolute = [str(tmp_path / each) for each in inside]
    assert decide(python, tmp_path, *(each.replace("bin", "BIN") for each in absolute)) == {
        "deny"
    }  # on a case-blind disk
    assert decide(python, tmp_path / "other", *absolute) == {"deny"}
    assert decide(python, tmp_path, *inside, tool="read_file") == {"allow"}
    assert decide(python, tmp_path, "src/a.py", "lib/a.py", "binary") == {"allow"}
    assert decide(sys.executable, tmp_path, *inside) == {"allow"}  # it is another environment


def test_the_environment_is_known_through_links(tmp_path: Path) -> None:
    (tmp_path / "real" / "work").mkdir(parents=True)
    (tmp_path / "way").symlink_to("real")
    make_environment(tmp_path / "real" / "env")
    (tmp_path / "real" / "work" / ".venv").symlink_to("../env")
    for top in (tmp_path / "way" / "work", tmp_path / "real" / "work"):
        for python in (tmp_path / "way" / "work", tmp_path / "real" / "work"):
            assert decide(f"{python}/.venv/bin/python", top, ".venv/bin/x", f"{top}/.venv/bin/x") == {"deny"}
        assert decide(f"{tmp_path}/real/env/bin/python", top.parent, "env/bin/x", "work/.venv/bin/x") == {"deny"}


def test_a_rule_of_the_person_opens_the_environment(tmp_path: Path) -> None:
    python, inside = make_environment(tmp_path / ".venv"), [f".venv/{each}" for each in OWN]
    assert decide(python, tmp_path, *inside, allow=["write_file"]) == {"deny"}
    assert decide(python, tmp_path, *inside, allow=["write_file(.venv/**)"]) == {"allow"}


def test_the_sources_of_this_checkout_are_written() -> None:
    top = os.path.realpath(f"{os.path.dirname(__file__)}/../../..")  # noqa: PTH120 - as the permissions see it
    call = Call.of("write_file", {"path": "amplifier_core/session.py"}, top)
    assert Policy().decide(call).effect == "allow"
    decision = Policy().decide(Call.of("write_file", {"path": f"{find_own_python(top)[0]}/x"}, top))
    assert decision.reason.endswith("the Python that runs this program obeys it")
