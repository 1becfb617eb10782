"""Where the module under test is found, from the folder of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_core.validation.locating import declared_type, module_near, modules_in, type_of_name

ENTRY = '[project]\nname = "x"\n\n[project.entry-points."amplifier.modules"]\n{entries}\n'
DECLARED = '__amplifier_module_type__ = "{type}"\n'


def lay_out(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("amplifier-module-provider-anthropic", "provider"),
        ("amplifier_module_tool_bash", "tool"),
        ("amplifier-module-hooks-logging", "hook"),
        ("amplifier-module-hook-logging", "hook"),
        ("amplifier-module-loop-streaming", "orchestrator"),
        ("amplifier-module-orchestrator-x", "orchestrator"),
        ("amplifier_context_simple", "context"),
        ("amplifier-loop-basic", "orchestrator"),
        ("tool-x", "tool"),
        ("amplifier-module-gizmo-x", None),
        ("amplifier_core", None),
        ("toolbox", None),
        ("tests", None),
    ],
)
def test_a_name_says_the_type_by_its_prefix(name: str, kind: str | None) -> None:
    assert type_of_name(name) == kind


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('__amplifier_module_type__ = "tool"', "tool"),
        ("import x\n\n__amplifier_module_type__: Final = 'hook'  # why", "hook"),
        ('"""Set __amplifier_module_type__ = "tool"."""', None),
        ("    __amplifier_module_type__ = 'tool'", None),
        ("", None),
    ],
)
def test_a_module_says_its_type_in_its_source(source: str, kind: str | None, tmp_path: Path) -> None:
    lay_out(tmp_path, {"x/__init__.py": source, "y.py": source})
    assert declared_type(tmp_path / "x") == kind
    assert declared_type(tmp_path / "y.py") == kind


def test_a_source_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"\xff\xfe\x00")
    assert declared_type(tmp_path / "x.py") is None
    assert declared_type(tmp_path / "not_there") is None


FOUND = [
    pytest.param(
        {
            "p/amplifier_module_tool_x/__init__.py": "",
            "p/pyproject.toml": ENTRY.format(entries='tool-x = "amplifier_module_tool_x:mount"'),
        },
        "p/tests/unit",
        "p/amplifier_module_tool_x",
        "tool",
        id="by its entry point",
    ),
    pytest.param(
        {"p/src/shout/__init__.py": "", "p/pyproject.toml": ENTRY.format(entries='tool-x = "shout:mount"')},
        "p/tests",
        "p/src/shout",
        "tool",
        id="in src, its type from the name of the entry point",
    ),
    pytest.param(
        {
            "p/shout.py": DECLARED.format(type="hook"),
            "p/pyproject.toml": ENTRY.format(entries='tool-x = "shout:mount"'),
        },
        "p/tests",
        "p/shout.py",
        "hook",
        id="a file, its type declared",
    ),
    pytest.param(
        {"p/amplifier_module_loop_x/__init__.py": "", "p/pyproject.toml": "[project]\nname = 'p'"},
        "p/tests",
        "p/amplifier_module_loop_x",
        "orchestrator",
        id="by its folder, without an entry point",
    ),
    pytest.param(
        {"p/src/amplifier_module_loop_x/__init__.py": ""},
        "p/tests",
        "p/src/amplifier_module_loop_x",
        "orchestrator",
        id="by its folder in src",
    ),
    pytest.param(
        {"amplifier-context-x/amplifier_context_x/__init__.py": ""},
        "amplifier-context-x/tests",
        "amplifier-context-x/amplifier_context_x",
        "context",
        id="named as ours are",
    ),
    pytest.param(
        {"amplifier-module-tool-x/amplifier_module_odd/__init__.py": ""},
        "amplifier-module-tool-x",
        "amplifier-module-tool-x/amplifier_module_odd",
        "tool",
        id="its type from the project's folder",
    ),
    pytest.param(
        {"amplifier_module_tool_x/__init__.py": DECLARED.format(type="provider")},
        "tests",
        "amplifier_module_tool_x",
        "provider",
        id="what it declares counts before its name",
    ),
    pytest.param(
        {"amplifier_tool_x/__init__.py": "", "amplifier_tool_x/tests/__init__.py": ""},
        "amplifier_tool_x/tests",
        "amplifier_tool_x",
        "tool",
        id="from tests within the package",
    ),
    pytest.param(
        {"p/pyproject.toml": "[project\nname =", "p/amplifier_tool_x/__init__.py": ""},
        "p",
        "p/amplifier_tool_x",
        "tool",
        id="whatever its pyproject.toml holds",
    ),
    pytest.param(
        {"p/pyproject.toml": ENTRY.format(entries='tool-x = "gone:mount"'), "p/amplifier_tool_x/__init__.py": ""},
        "p",
        "p/amplifier_tool_x",
        "tool",
        id="when its entry point leads nowhere",
    ),
]


@pytest.mark.parametrize(("files", "start", "path", "kind"), FOUND)
def test_a_module_is_found(files: dict[str, str], start: str, path: str, kind: str, tmp_path: Path) -> None:
    lay_out(tmp_path, {"pyproject.toml": "[project]\nname = 'around'", **files})
    (tmp_path / start).mkdir(parents=True, exist_ok=True)
    found = module_near(tmp_path / start)
    assert found is not None
    assert (found.path.relative_to(tmp_path), found.type) == (Path(path), kind)


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[project]\nname = 'other'"},
        {"pyproject.toml": "[project]\nname = 'amplifier'", "amplifier_core/__init__.py": ""},
        {"pyproject.toml": "project = 5", "tests/x.py": ""},
        {"pyproject.toml": "", "amplifier_tool_x/readme.txt": "no package"},
        {"setup.py": ""},
        {".git/HEAD": ""},
    ],
)
def test_no_module_is_found_in_another_project_nor_above_it(files: dict[str, str], tmp_path: Path) -> None:
    lay_out(tmp_path, {"amplifier_module_tool_above/__init__.py": ""})
    lay_out(tmp_path / "other", files)
    (tmp_path / "other" / "tests").mkdir(exist_ok=True)
    assert module_near(tmp_path / "other" / "tests") is None


def test_of_several_modules_the_wanted_type_comes_first(tmp_path: Path) -> None:
    project = tmp_path / "amplifier-module-tool-b"
    entries = "\n".join(
        f'{name} = "amplifier_module_{name.replace("-", "_")}:mount"' for name in ("hooks-a", "tool-a", "tool-b")
    )
    lay_out(project, {"pyproject.toml": ENTRY.format(entries=entries)})
    for name in ("hooks_a", "tool_a", "tool_b"):
        lay_out(project, {f"amplifier_module_{name}/__init__.py": ""})
    assert len(modules_in(project)) == 3
    assert [
        str(getattr(module_near(project, wanted), "path", None)).rpartition("amplifier_module_")[2]
        for wanted in ("hook", "tool", None, "context")
    ] == ["hooks_a", "tool_b", "tool_b", "tool_b"]
