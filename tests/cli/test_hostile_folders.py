"""Folders of strangers: whatever they plant, none of it runs before somebody trusts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from amplifier_foundation.cli import invoke
from amplifier_foundation.settings import write_setting

pytestmark = pytest.mark.slow

CANARY = "canary"
"""The environment variable with the folder for files of planted code."""
CODE = f"""
import os
from pathlib import Path
Path(os.environ["{CANARY}"], str(os.getpid())).touch()


async def mount(coordinator, config):
    Path(os.environ["{CANARY}"], "mounted").touch()


def preload():
    mount


def pytest_configure():
    mount
"""
SHELL = f'#!/bin/sh\ntouch "${CANARY}/shell"\n'
SETUP = "from setuptools import setup\n" + CODE
PLAYBOOK = "providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]"
BACKGROUND = "background_sessions: [{name: waits, triggers: [{module: trigger-manual}]}]"


class Folder(NamedTuple):
    """A hostile folder: what it plants, by file; `links` are links by name."""

    name: str
    files: dict[str, str]
    links: dict[str, str] = {}  # noqa: RUF012 - never changed


def bundle(*lines: str, background: bool = True) -> str:
    """Return a bundle that `run` and `up` would run."""
    named = any(line.startswith("providers") for line in lines)
    rest = [*([] if named else [PLAYBOOK]), *lines, *([BACKGROUND] if background else [])]
    return "\n".join(["---", "bundle: {name: hostile}", *rest, "---", "You are here.", ""])


def with_source(section: str, module: str, source: str, *files: str) -> dict[str, str]:
    return {"bundle.md": bundle(f"{section}: [{{module: {module}, source: {source}}}]"), **dict.fromkeys(files, CODE)}


def package(name: str) -> str:
    return f"code/amplifier_module_{name}/__init__.py"


def _make_folders() -> Iterator[Folder]:
    for section, module in (("hooks", "hooks-x"), ("tools", "tool-x"), ("providers", "provider-x")):
        yield Folder(f"{section} in a file", with_source(section, module, "./x.py", "x.py"))
        yield Folder(
            f"{section} in a package", with_source(section, module, "./code", package(module.replace("-", "_")))
        )
        yield Folder(
            f"{section} in a nested folder",
            with_source(
                section,
                module,
                ".",
                f"amplifier-module-{module}/__init__.py",
                f"{module.replace('-', '_')}/__init__.py",
            ),
        )
        yield Folder(
            f"{section} by an installed name",
            with_source(
                section,
                {"hooks": "hooks-logging", "tools": "tool-filesystem", "providers": "provider-playbook"}[section],
                "./x.py",
                "x.py",
            ),
        )
    for part in ("orchestrator", "context"):
        text = bundle(f"session: {{{part}: {{module: own-{part}, source: ./x.py}}}}")
        yield Folder(f"a {part} in a file", {"bundle.md": text, "x.py": CODE})
        text = bundle(f"session: {{{part}: own-{part}, {part}_source: ./x.py}}")
        yield Folder(f"the source of a {part}", {"bundle.md": text, "x.py": CODE})
    agents = "agents: {a: {description: b, instruction: c, %s: [{module: x-y, source: ./x.py}]}}"
    for section in ("hooks", "tools", "providers"):
        yield Folder(f"an agent with {section}", {"bundle.md": bundle(agents % section), "x.py": CODE})
    agent = "---\nmeta: {name: a, description: b}\ntools: [{module: x-y, source: ./x.py}]\n---\nHelp.\n"
    yield Folder("an agent's file", {"bundle.md": bundle("agents: {include: [a]}"), "agents/a.md": agent, "x.py": CODE})
    included = "bundle: {name: base}\nhooks: [{module: hooks-x, source: ./x.py}]\n"
    yield Folder("an include", {"bundle.md": bundle("includes: [./base.yaml]"), "base.yaml": included, "x.py": CODE})
    yield Folder(
        "an include below", {"bundle.md": bundle("includes: [./b]"), "b/bundle.yaml": included, "b/x.py": CODE}
    )
    yield Folder(
        "an include by a link",
        {"bundle.md": bundle("includes: [./b]"), "real/bundle.yaml": included, "real/x.py": CODE},
        {"b": "real"},
    )
    yield Folder(
        "an include of an include",
        {
            "bundle.md": bundle("includes: [./a.yaml]"),
            "a.yaml": "bundle: {name: a}\nincludes: [./base.yaml]\n",
            "base.yaml": included,
            "x.py": CODE,
        },
    )
    yield Folder(
        "a linked bundle",
        {"real.md": bundle("hooks: [{module: hooks-x, source: ./x.py}]"), "x.py": CODE},
        {"bundle.md": "real.md"},
    )
    yield Folder(
        "a linked source",
        {"bundle.md": bundle("hooks: [{module: hooks-x, source: ./x.py}]"), "real.py": CODE},
        {"x.py": "real.py"},
    )
    yield Folder(
        "a bundle in YAML",
        {"bundle.yaml": "bundle: {name: hostile}\nhooks: [{module: hooks-x, source: ./x.py}]\n", "x.py": CODE},
    )
    worker = bundle("hooks: [{module: hooks-x, source: ./x.py}]", background=False)
    for name in ("./worker.md", "worker.md"):
        text = bundle(f"background_sessions: [{{name: w, bundle: {name}}}]", background=False)
        yield Folder(f"a background session of {name}", {"bundle.md": text, "worker.md": worker, "x.py": CODE})
    field = (
        "session: {orchestrator: {module: loop-basic, config: {background_sessions: [{name: w, bundle: ./worker.md}]}}}"
    )
    yield Folder(
        "a background session of the field",
        {"bundle.md": bundle(field, background=False), "worker.md": worker, "x.py": CODE},
    )
    for module in ("hooks-logging", "loop-basic", "provider-playbook", "tool-filesystem", "context-simple"):
        settings = json.dumps({"overrides": {module: {"source": "./x.py"}}})
        text = bundle(
            "tools: [tool-filesystem]".replace("tool-", "{module: tool-").replace("m]", "m}]"),
            "hooks: [{module: hooks-logging}]",
        )
        yield Folder(
            f"an override of {module}", {"bundle.md": text, ".amplifier/settings.yaml": settings, "x.py": CODE}
        )
    yield Folder(
        "a local override",
        {
            "bundle.md": bundle(),
            ".amplifier/settings.local.yaml": json.dumps({"overrides": {"provider-playbook": {"source": "./x.py"}}}),
            "x.py": CODE,
        },
    )
    yield Folder(
        "a bundle of settings",
        {
            "theirs.md": bundle("hooks: [{module: hooks-x, source: ./x.py}]"),
            ".amplifier/settings.yaml": "bundle: ./theirs.md\n",
            "x.py": CODE,
        },
    )
    yield Folder(
        "a named bundle of settings",
        {
            "theirs.md": bundle("hooks: [{module: hooks-x, source: ./x.py}]"),
            "bundle.md": bundle("includes: [base]"),
            ".amplifier/settings.yaml": "bundles: {base: ./theirs.md}\n",
            "x.py": CODE,
        },
    )
    yield Folder(
        "a storage of settings",
        {
            "bundle.md": bundle(),
            ".amplifier/settings.yaml": "storage: {name: storage-jsonl, config: {folder: ./taken}}\n",
        },
    )
    for name in (
        "sitecustomize.py",
        "usercustomize.py",
        "conftest.py",
        "setup.py",
        "json.py",
        "click.py",
        "asyncio.py",
        "yaml.py",
        "amplifier_core/__init__.py",
        "amplifier_foundation/__init__.py",
        "amplifier_provider_playbook/__init__.py",
        "amplifier_module_loop_basic/__init__.py",
    ):
        yield Folder(name, {"bundle.md": bundle(), name: SETUP if name == "setup.py" else CODE})
    yield Folder("x.pth", {"bundle.md": bundle(), "x.pth": "import x\n", "x.py": CODE})
    entry = {
        "h-1.dist-info/METADATA": "Name: h\nVersion: 1\n",
        "h-1.dist-info/entry_points.txt": "[amplifier]\nh = x\n[amplifier.modules]\nloop-basic = x:mount\n",
    }
    yield Folder("entry points", {"bundle.md": bundle(), **entry, "x.py": CODE})
    yield Folder("a module folder", {"bundle.md": bundle(), "amplifier-module-loop-basic/__init__.py": CODE})
    yield Folder(
        ".env",
        {
            "bundle.md": bundle(),
            ".env": "PYTHONPATH=.\nAMPLIFIER_TRUST=1\nAMPLIFIER_MODULES=.\n",
            "amplifier-module-loop-basic/__init__.py": CODE,
        },
    )
    yield Folder(".envrc", {"bundle.md": bundle(), ".envrc": SHELL})
    config = "[core]\n\tfsmonitor = ./x.sh\n\thooksPath = .\n\tpager = ./x.sh\n"
    git = {
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/config": config,
        ".git/objects/x": "",
        ".git/refs/x": "",
        "x.sh": SHELL,
    }
    yield Folder("git's fsmonitor", {"bundle.md": bundle(), **git})
    yield Folder(
        "git's hooks",
        {"bundle.md": bundle(), **git, ".git/hooks/post-checkout": SHELL, ".git/hooks/reference-transaction": SHELL},
    )
    yield Folder(
        ".gitattributes",
        {
            "bundle.md": bundle(),
            **git,
            ".gitattributes": "* filter=x diff=x\n",
            ".git/config": config + '[filter "x"]\n\tsmudge = ./x.sh\n\tclean = ./x.sh\n',
        },
    )
    yield Folder(
        "a mention", {"bundle.md": bundle().replace("You are here.", "@x.py @./x.sh"), "x.py": CODE, "x.sh": SHELL}
    )
    yield Folder("a context", {"bundle.md": bundle("context: {include: [./x.md]}"), "x.md": "@x.py\n", "x.py": CODE})
    yield Folder("workflows", {"bundle.md": bundle("workflows: {w: {tasks: [{run: ./x.sh}]}}"), "x.sh": SHELL})
    yield Folder(
        "a trusted look",
        {
            "bundle.md": bundle("hooks: [{module: hooks-x, source: ./x.py}]"),
            "x.py": CODE,
            "trust.json": json.dumps({"trusted": {"bundle.md": {"uid": 0, "files": {}}}}),
        },
    )
    yield Folder(
        "bytecode",
        {
            "bundle.md": bundle("hooks: [{module: hooks-x, source: ./code}]"),
            package("hooks_x"): CODE,
            "code/amplifier_module_hooks_x/__pycache__/__init__.cpython-311.pyc": "x",
        },
    )
    yield Folder(
        "an editor's tasks",
        {
            "bundle.md": bundle(),
            ".vscode/tasks.json": json.dumps({"tasks": [{"command": "./x.sh", "runOptions": {"runOn": "folderOpen"}}]}),
            "x.sh": SHELL,
        },
    )


FOLDERS = list(_make_folders())
COMMANDS = (
    ["run", "hello"],
    ["run", "-b", "bundle.md", "--json", "hello"],
    ["up", "--once"],
    ["up"],
    ["up", "--dry-run"],
    ["bundle", "validate"],
    ["bundle", "show"],
    ["bundle", "tree"],
    ["trigger", "list"],
    ["trigger", "simulate"],
    ["session", "list"],
    ["ps"],
    ["permission", "list"],
    ["service", "install", "--print"],
    ["trust", "--list"],
)
LEAD = """---
bundle: {name: lead}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: '^ask (?P<who>.+)'}, call: {tool: delegate, input: {agent: "{who}", instruction: "do it"}}}
        - {when: {tool: delegate}, say: "It said: {result}"}
tools: [{module: tool-delegate}]
background_sessions: [{name: own}]
---
You lead.
"""


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "canaries"
    folder.mkdir()
    monkeypatch.setenv(CANARY, str(folder))
    return folder


def plant(folder: Path, hostile: Folder) -> None:
    for name, text in hostile.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
    for name, target in hostile.links.items():
        (folder / name).symlink_to(target)


def test_there_are_sixty() -> None:
    assert len(FOLDERS) >= 60
    assert len({each.name for each in FOLDERS}) == len(FOLDERS)


@pytest.mark.parametrize("hostile", FOLDERS, ids=lambda each: each.name)
def test_nothing_of_a_strangers_folder_runs(
    hostile: Folder,
    home: Path,
    project: Path,
    canaries: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    lead = tmp_path / "own" / "lead.md"
    lead.parent.mkdir()
    lead.write_text(LEAD)
    write_setting("user", "permissions.allow", ["delegate(**)"])
    assert invoke(["trust", "-y", str(lead)]) == 0
    plant(project, hostile)
    capsys.readouterr()
    before, is_here = set(sys.path), (project / "bundle.md").exists() or (project / ".amplifier").exists()
    theirs = [str(project / name) for name in ("bundle.md", "bundle.yaml", "theirs.md") if (project / name).exists()]
    own = [["run", "-b", str(lead), f"ask {path}"] for path in theirs]
    for command in (*COMMANDS, *own, ["up", "--once", str(lead)], ["trigger", "list", "-b", str(lead)]):
        invoke(command)
        out, err = capsys.readouterr()
        assert not list(canaries.iterdir()), command
        assert "Traceback" not in err, command
        if command[0] == "run" and (is_here or command in own):
            assert "amplifier trust" in out + err, (command, out, err)
    assert not (project / "taken").exists()
    assert set(sys.path) == before


BY_PYTHON = [
    each
    for each in FOLDERS
    if set(each.files)
    & {"sitecustomize.py", "usercustomize.py", "json.py", "click.py", "asyncio.py", "amplifier_core/__init__.py"}
    or each.name in ("entry points", "x.pth", ".env", "git's fsmonitor")
]


@pytest.mark.parametrize("hostile", BY_PYTHON, ids=lambda each: each.name)
def test_nothing_of_it_runs_in_the_program_itself(
    hostile: Folder, home: Path, project: Path, canaries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(project, hostile)
    environment = {name: value for name, value in os.environ.items() if name != "AMPLIFIER_TRUST"}
    program = Path(sys.executable).with_name("amplifier")
    for arguments in (["run", "hello"], ["ps"], ["up", "--detach"]):
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment
        )
        assert "Traceback" not in done.stderr
    assert not list(canaries.iterdir())


def test_the_canaries_sing_once_they_are_trusted(
    home: Path, project: Path, canaries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    plant(project, FOLDERS[0])
    invoke(["run", "--trust", "hello"])
    assert {"mounted"} <= {each.name for each in canaries.iterdir()}
