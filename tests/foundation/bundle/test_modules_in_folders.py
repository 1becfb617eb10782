"""The configuration of modules in the folders of `AMPLIFIER_MODULES` is checked as that of installed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_core.plugins import Plugins
from amplifier_foundation.bundle.check import check_bundle

MODULE = """
from .sibling import SIZES


def check_config(config):
    if config.get("size") not in SIZES:
        raise ValueError(f"tool-sized: size: must be one of {', '.join(SIZES)}, not {config.get('size')!r}")


async def mount(coordinator, config):
    pass
"""
BUNDLE = """---
bundle: {name: sized}
tools:
  - module: tool-sized
    config:
      size: huge
---
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "modules" / "amplifier-module-tool-sized" / "amplifier_module_tool_sized"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(MODULE, encoding="utf-8")
    (folder / "sibling.py").write_text('SIZES = ("small", "large")\n', encoding="utf-8")
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    monkeypatch.setenv("AMPLIFIER_MODULES", f"{tmp_path / 'absent'}:{tmp_path / 'modules'}")
    return folder


async def test_a_wrong_configuration_is_told_with_its_line(package: Path, tmp_path: Path, plugins: Plugins) -> None:
    found = [str(problem) for problem in await check_bundle(tmp_path / "bundle.md", plugins)]
    (told,) = [each for each in found if "AMP114" in each]
    assert "bundle.md:6:7: error[AMP114] tools[0].config.size: tool-sized: size: must be one of small, large" in told


@pytest.mark.parametrize("code", ["import nowhere_at_all", "def mount("])
async def test_a_module_that_cannot_be_imported_is_no_problem_of_its_configuration(
    package: Path, tmp_path: Path, plugins: Plugins, code: str
) -> None:
    (package / "__init__.py").write_text(code, encoding="utf-8")
    assert not any("AMP114" in str(problem) for problem in await check_bundle(tmp_path / "bundle.md", plugins))
