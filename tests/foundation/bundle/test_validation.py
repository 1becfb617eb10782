"""What may stand in a bundle, and how it is told what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import BundleValidationError
from amplifier_foundation.bundle import CODES, InvalidBundle, load_bundle_sync, problems_of
from amplifier_foundation.bundle.background_config import BackgroundSessionConfig, trigger_module

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("front", "line"),
    [
        ("tools: [{modul: tool-x}]\n", "3:10: error[AMP102] tools[0].modul: unknown key; did you mean 'module'?"),
        ("tools: [{modul: tool-x}]\n", "3:9: error[AMP101] tools[0].module: this key is required"),
        ("tools: [tool-x]\n",
         "3:9: error[AMP103] tools[0]: must be a mapping such as {module: …, config: …}, not text"),
        ("tools: {module: x}\n", "3:8: error[AMP103] tools: must be a list, not a mapping"),
        ("tools: [{module: ../x}]\n",
         "3:18: error[AMP104] tools[0].module: must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"),
        ("tools: [{module: x, config: []}]\n", "3:29: error[AMP103] tools[0].config: must be a mapping, not a list"),
        ("session: {orchestrator: 5}\n",
         "3:25: error[AMP103] session.orchestrator: must be a module's name, "
         "or a mapping such as {module: …, config: …}"),
        ("session: {loop: x}\n",
         "3:11: error[AMP102] session.loop: unknown key; known here: orchestrator, context, orchestrator_source, "
         "context_source, injection_budget_per_turn, injection_size_limit, mount_timeout, provider_preferences, "
         "persistence, budget, redact, limits, reload_context, raw, debug, "
         "raw_debug, metadata"),
        ("session: {persistence: often}\n",
         "3:24: error[AMP104] session.persistence: must be 'message', 'turn' or 'end'"),
        ("includes: [{bundel: x}]\n", "3:13: error[AMP102] includes[0].bundel: unknown key; did you mean 'bundle'?"),
        ("agents: {a: x}\n", "3:13: error[AMP103] agents.a: must be a mapping, not text"),
        ("context: {a: 1}\n", "3:14: error[AMP103] context.a: must be text, not a whole number"),
        ("background_sessions: [{name: a b}]\n",
         "3:30: error[AMP104] background_sessions[0].name: must match [A-Za-z0-9][A-Za-z0-9_-]{0,63}"),
        ("background_sessions: [{name: a, pool_size: 0}]\n",
         "3:44: error[AMP104] background_sessions[0].pool_size: must be at least 1"),
        ("background_sessions: [{name: a, pool_size: '3'}]\n",
         "3:44: error[AMP103] background_sessions[0].pool_size: must be a whole number, not text"),
        ("background_sessions: [{name: a, timeout: 0}]\n",
         "3:42: error[AMP104] background_sessions[0].timeout: must be more than 0"),
        ("background_sessions: [{name: a, triggers: [{type: timer, module: trigger-timer}]}]\n",
         "3:44: error[AMP104] background_sessions[0].triggers[0]: 'type' and 'module' have the same meaning; "
         "keep one of them"),
        ("background_sessions: [{name: a, triggers: [{config: {}}]}]\n",
         "3:44: error[AMP101] background_sessions[0].triggers[0].module: this key is required"),
        ("background_sessions: [{name: a, instruction: x, instruction_template: y}]\n",
         "3:23: error[AMP104] background_sessions[0]: give 'instruction' or 'instruction_template', not both"),
        ("background_sessions: [{name: a, bundle: ~no-one-here/b.md}]\n",
         "3:41: error[AMP108] background_sessions[0].bundle: '~no-one-here/b.md' is in the home folder of"),
        ('background_sessions: [{name: "a\\n\\e[1m"}, {name: "a\\n\\e[1m"}]\n',
         r"3:50: error[AMP105] background_sessions[1].name: 'a\n\x1b[1m' stands here twice, first at bundle.md:3:30"),
        ("background_sessions: [{name: a, colour: 3}]\n",
         "3:33: error[AMP102] background_sessions[0].colour: unknown key; known here: "),
        ("background_sessions: [{name: a, iff: x}]\n",
         "3:33: error[AMP102] background_sessions[0].iff: unknown key; did you mean 'if'?"),
        ("session: {orchestrator: {module: loop-x, config: {background_sessions: [{name: a, pool: 3}]}}}\n",
         "3:83: error[AMP102] session.orchestrator.config.background_sessions[0].pool: unknown key; did you mean "
         "'pool_size'?"),
        ("background_sessions: [{name: a}, {name: b}, {name: a}]\n",
         "3:52: error[AMP105] background_sessions[2].name: 'a' stands here twice, first at bundle.md:3:30"),
        ("tools: [{module: x}, {module: x, instance_id: b}, {module: x}]\n",
         "3:60: error[AMP105] tools[2].module: 'x' stands here twice, first at bundle.md:3:18; "
         "give each an 'instance_id' of its own"),
        ('tools: [{module: x, "a\\nb": 1}]\n',
         '3:21: error[AMP102] tools[0]["a\\nb"]: unknown key; known here: module'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_by_key_and_line(problems: Any, front: str, line: str) -> None:
    found = problems(f"---\nbundle: {{name: demo}}\n{front}---\n")
    assert any(problem.startswith(f"bundle.md:{line}") for problem in found), found


def test_all_of_a_file_is_told_at_once_from_top_to_bottom(problems: Any) -> None:
    found = problems(
        "---\nbundle: {version: 1}\ntols: []\ntools:\n  - module: a\n    confg: {}\nbackground_sessions:\n"
        "  - name: w\n    pool_sizes: 3\n    triggers: timer\n---\n"
    )
    assert found == [
        "bundle.md:2:9: error[AMP101] bundle.name: this key is required",
        "bundle.md:3:1: warning[AMP106] tols: unknown section; did you mean 'tools'? It is ignored",
        "bundle.md:6:5: error[AMP102] tools[0].confg: unknown key; did you mean 'config'?",
        "bundle.md:9:5: error[AMP102] background_sessions[0].pool_sizes: unknown key; did you mean 'pool_size'?",
        "bundle.md:10:15: error[AMP103] background_sessions[0].triggers: must be a list, not text",
    ]


def test_a_bundle_without_a_name_is_told_so(problems: Any) -> None:
    assert problems("---\n---\nHello\n") == ["bundle.md:2:1: error[AMP101] bundle: this key is required"]


@pytest.mark.parametrize("name", ["a:b", "a/b", "''", "' a'", "'a\\b'", '"a\\nb"'])
def test_a_name_that_cannot_stand_before_a_path_is_refused(problems: Any, name: str) -> None:
    assert "AMP104" in problems(f"---\nbundle: {{name: {name}}}\n---\n")[0]


def test_values_are_never_shown(problems: Any) -> None:
    found = problems(
        "---\nbundle: {name: a}\nproviders:\n  - module: 'sk-secret:1'\n    instance_id: [sk-secret]\n"
        "    config: sk-secret\n---\n"
    )
    assert len(found) == 3
    assert "sk-secret" not in "".join(found)


def test_an_unknown_section_is_a_warning_and_an_error_when_strict(write: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = write("recipes: {a: 1}\n")
    warning = "bundle.md:3:1: warning[AMP106] recipes: unknown section. It is ignored"
    assert [str(problem) for problem in load_bundle_sync(path).problems] == [warning]
    assert caplog.messages == [warning]
    with pytest.raises(BundleValidationError, match="error\\[AMP106\\]"):
        load_bundle_sync(path, strict=True)


def test_sections_without_content_are_as_good_as_absent(write: Any) -> None:
    bundle = load_bundle_sync(
        write("tools:\nhooks:\nagents:\ncontext:\nsession:\nspawn:\nbackground_sessions:\nincludes:\n")
    )
    assert bundle.to_mount_plan() == {}
    assert bundle.background_sessions == []


def test_validating_returns_every_problem_and_logs_none(write: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = write("recipes: {}\ntools: 5\n")
    assert [(problem.code, problem.severity) for problem in problems_of(path)] == [
        ("AMP106", "warning"),
        ("AMP103", "error"),
    ]
    assert caplog.messages == []


def test_validating_a_changed_bundle_finds_what_was_done_to_it(write: Any) -> None:
    bundle = load_bundle_sync(write("recipes: {}\ntools: [{module: tool-x}]\n"))
    assert [problem.code for problem in problems_of(bundle)] == ["AMP106"]
    bundle.tools.append({"modul": "x"})
    assert [str(problem) for problem in problems_of(bundle)] == [
        "bundle: error[AMP101] tools[1].module: this key is required",
        "bundle: error[AMP102] tools[1].modul: unknown key; did you mean 'module'?",
    ]


def test_a_problem_is_json(write: Any) -> None:
    assert problems_of(write("tools: 5\n"))[0].as_dict() == {
        "code": "AMP103",
        "severity": "error",
        "path": "tools",
        "file": "bundle.md",
        "line": 3,
        "column": 8,
        "message": "must be a list, not a whole number",
    }


def test_an_error_shows_fifty_problems_and_keeps_all(write: Any) -> None:
    path = write("tools: [" + "{}," * 60 + "]\n")
    with pytest.raises(InvalidBundle) as caught:
        load_bundle_sync(path)
    assert len(caught.value.problems) == 60
    assert str(caught.value).splitlines()[50:] == ["… and 10 more"]


def test_every_code_that_is_used_is_in_the_table() -> None:
    import re
    from pathlib import Path

    import amplifier_foundation

    folder = Path(amplifier_foundation.__file__).parent
    modules = [*folder.glob("bundle/*.py"), *folder.glob("documents/*.py")]
    used = {code for module in modules for code in re.findall(r'"(AMP\d{3})",', module.read_text())}
    assert used == set(CODES)


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        ("timer", "trigger-timer"),
        ("file_change", "trigger-file-watcher"),
        ("file_watcher", "trigger-file-watcher"),
        ("session_event", "trigger-session-event"),
        ("manual", "trigger-manual"),
        ("issue_event", "trigger-issue"),
    ],
)
def test_the_type_of_a_trigger_is_another_spelling_of_its_module(kind: str, module: str) -> None:
    assert trigger_module(kind) == module
    config = BackgroundSessionConfig.model_validate({"name": "a", "triggers": [{"type": kind, "config": None}]})
    assert [(trigger.module, trigger.config) for trigger in config.triggers] == [(module, {})]


def test_both_spellings_of_background_sessions_load(write: Any) -> None:
    bundle = load_bundle_sync(
        write(
            "background_sessions:\n  - {name: a, bundle: b, triggers: [{module: trigger-timer}]}\n"
            "session:\n  orchestrator:\n    module: loop-x\n    config:\n      depth: 1\n"
            "      background_sessions:\n        - {name: c, bundle: d, triggers: [{type: timer}],"
            " instruction_template: 'Do {event_summary}'}\n"
        )
    )
    assert [(config.name, config.triggers[0].module) for config in bundle.background_sessions] == [
        ("a", "trigger-timer"),
        ("c", "trigger-timer"),
    ]
    assert bundle.session == {"orchestrator": {"module": "loop-x", "config": {"depth": 1}}}


def test_one_name_in_both_spellings_is_an_error_with_both_lines(problems: Any) -> None:
    found = problems(
        "---\nbundle: {name: demo}\nsession: {orchestrator: {module: l, config: {background_sessions: [{name: a}]}}}\n"
        "background_sessions:\n  - name: a\n---\n"
    )
    assert len(found) == 1
    assert "bundle.md:5:11" in found[0]
    assert "bundle.md:3:75" in found[0]


def test_a_background_session_has_the_defaults_that_are_promised() -> None:
    promised = {
        "name": "a",
        "bundle": None,
        "instruction": None,
        "instruction_template": None,
        "triggers": [],
        "pool_size": 1,
        "on_complete_emit": None,
        "on_error_emit": None,
        "start_on_parent_start": True,
        "stop_on_parent_stop": True,
        "restart_on_failure": True,
        "max_restarts": 3,
        "restart_window": 60.0,
        "timeout": 1800.0,
        "max_attempts": 5,
        "max_depth": 8,
    }
    assert promised.items() <= BackgroundSessionConfig(name="a").model_dump().items()


def test_importing_bundles_imports_neither_yaml_nor_pydantic() -> None:
    import subprocess
    import sys

    code = "import sys, amplifier_foundation.bundle; print({'yaml', 'pydantic', 'asyncio'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_a_file_of_the_field_loads(folder: Path) -> None:
    (folder / "bundle.md").write_text(FIELD)
    bundle = load_bundle_sync(folder)
    assert {problem.code for problem in bundle.problems} == {"AMP108"}
    assert [tool["module"] for tool in bundle.tools] == ["tool-filesystem"]
    assert bundle.session["raw"] is True
    assert bundle.agents["my-bundle:bug-hunter"] == {"name": "my-bundle:bug-hunter"}
    assert bundle.agents["inline"] == {"description": "x", "tools": []}
    assert bundle.spawn == {"exclude_tools": ["tool-delegate"]}


FIELD = """---
bundle: {name: my-bundle, version: 1.0.0, description: Something, namespace_root: .}
session:
  raw: true
  orchestrator: {module: loop-basic, source: git+https://github.com/org/repo@main, config: {}}
  context: {module: context-simple, source: git+https://github.com/org/repo@main}
providers: [{module: provider-anthropic, source: git+https://github.com/org/repo@main, config: {default_model: m}}]
tools: [{module: tool-filesystem, source: git+https://github.com/org/repo@main}]
agents: {include: ["my-bundle:bug-hunter"], inline: {description: x, tools: []}}
spawn: {exclude_tools: [tool-delegate]}
---
You are an assistant. See @my-bundle:context/a.md.
"""
