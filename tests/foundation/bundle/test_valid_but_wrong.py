"""What fits the schema and could never work: code, mentioned files, triggers, templates and conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle import BundleProblemsError, check_bundle, load_bundle_sync

PROVIDER = "providers: [{module: provider-playbook}]\n"


async def told(path: Any) -> list[str]:
    return [str(each) for each in await check_bundle(path, load_plugins(environ={}))]


@pytest.mark.parametrize("source", ["/", "//", "/..", "./../../../../../../../../../../.."])
def test_the_root_of_the_file_system_is_no_module(source: str, write: Any) -> None:
    with pytest.raises(BundleProblemsError, match=r"AMP10[78]\] tools\[0\].source: (is the root of|leads out of)"):
        load_bundle_sync(write(f"tools: [{{module: tool-x, source: '{source}'}}]\n"))


async def test_a_folder_without_the_modules_package_is_refused(write: Any, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "good" / "amplifier-module-tool-y" / "amplifier_module_tool_y").mkdir(parents=True)
    (folder / "good" / "amplifier-module-tool-y" / "amplifier_module_tool_y" / "__init__.py").write_text("x = 1\n")
    path = write(
        f"{PROVIDER}tools:\n  - {{module: tool-x, source: ./empty}}\n  - {{module: tool-y, source: ./good}}\n"
        "agents: {a: {tools: [{module: tool-z, source: ./good}]}}\n"
    )
    assert await told(path) == [
        "bundle.md:5:30: error[AMP108] tools[0].source: "
        "empty has no package amplifier_module_tool_x with an __init__.py",
        "bundle.md:7:47: error[AMP108] agents.a.tools[0].source: "
        "good has no package amplifier_module_tool_z with an __init__.py",
    ]


async def test_code_with_a_syntax_error_is_told_and_none_of_it_runs(write: Any, folder: Path) -> None:
    (folder / "t.py").write_text("raise SystemExit\ndef mount(:\n    pass\n")
    (folder / "p").mkdir()
    (folder / "p" / "__init__.py").write_text("x = '\\d' is 1\n")
    (folder / "p" / "part.py").write_text("if True:\nx = 1\n")
    path = write(
        f"{PROVIDER}session: {{context: context-p, context_source: ./p}}\ntools: [{{module: tool-t, source: ./t.py}}]\n"
    )
    assert await told(path) == [
        "bundle.md:4:47: error[AMP117] session.context_source: p/part.py:2:1: "
        "expected an indented block after 'if' statement on line 1",
        "bundle.md:5:34: error[AMP117] tools[0].source: t.py:2:11: invalid syntax",
    ]


async def test_a_file_that_an_instruction_mentions_and_is_missing_is_told_with_its_line(
    write: Any, folder: Path
) -> None:
    (folder / "agents").mkdir()
    (folder / "notes.md").write_text("Notes.")
    (folder / "agents" / "one.md").write_text("---\nmeta: {name: one}\n---\nSee @notes.md and @nowhere.md.\n")
    path = write(
        f"{PROVIDER}agents: {{include: [one]}}\n", "\nSee @notes.md, @nots.md and\n@demo:b.md. Ask me@example.org.\n"
    )
    assert await told(path) == [
        "bundle.md:7:16: warning[AMP108] @nots.md: nots.md: no such file; did you mean 'notes.md'?",
        "bundle.md:8:1: warning[AMP108] @demo:b.md: b.md: no such file; did you mean 'bundle.md'?",
        "agents/one.md:4:19: warning[AMP108] @nowhere.md: nowhere.md: no such file; did you mean 'notes.md'?",
    ]


def test_an_empty_list_of_triggers_is_told(write: Any) -> None:
    bundle = load_bundle_sync(write("background_sessions:\n  - {name: a, triggers: []}\n  - {name: b}\n"))
    assert [str(each) for each in bundle.problems] == [
        "bundle.md:4:25: warning[AMP104] background_sessions[0].triggers: no trigger is listed: only "
        "`amplifier trigger fire` wakes it. List one, or remove the key"
    ]


def test_retries_is_retry_mistyped(problems: Any) -> None:
    found = problems("---\nbundle: {name: a}\nbackground_sessions: [{name: a, retries: 3}]\n---\n")
    assert found[0].endswith("unknown key; did you mean 'retry'?")


BACKGROUND = f"""{PROVIDER}background_sessions:
  - name: a
    instruction_template: "{{template}}"
    if: "{{condition}}"
    key: "{{key}}"
    triggers:
"""
TIMER = "      - {type: timer, config: {interval: 60}}\n"
FILES = "      - {type: file_change, config: {patterns: ['*.py']}}\n"
MANUAL = "      - {type: manual}\n"


@pytest.mark.parametrize(
    ("triggers", "template", "condition", "key", "wrong"),
    [
        (TIMER, "{tick} {source} {event_data} {{x}}", "data.tick != 3 and depth < 2", "{interval}", []),
        (TIMER, "{tik}", "depth == 0", "{tick}", ["6:27: no trigger provides 'tik'; did you mean 'tick'?"]),
        (TIMER, "{tick}", "data.tik > 1", "{tick}", ["7:9: no trigger provides 'tik'; did you mean 'tick'?"]),
        (TIMER, "{tick}", "tick > 1", "{tick}", ["7:9: unknown name 'tick'; did you mean 'data.tick'?"]),
        (TIMER, "{tick}", "dept > 1", "{tick}", ["7:9: unknown name 'dept'; did you mean 'depth'?"]),
        (TIMER, "{file_path}", "depth == 0", "{tick}", [
            "6:27: no trigger provides 'file_path'; known here: at, cron, data, event_data, event_summary, interval, "
            "scheduled, source, tick",
        ]),
        (TIMER + FILES, "{file_path}", "data.path == 'x'", "{path}", []),
        (TIMER + MANUAL, "{anything}", "data.anything == 1", "{anything}", []),
        (TIMER, "{tick} {a-b} { 1", "depth == 0", "{tick}", [
            "6:27: a brace without a name stays as it is; write a name, as in {file_path}, or double the brace",
        ]),
    ],
)  # fmt: skip
async def test_names_in_templates_and_conditions_are_those_of_the_triggers(
    triggers: str, template: str, condition: str, key: str, wrong: list[str], write: Any
) -> None:
    text = BACKGROUND.replace("{template}", template).replace("{condition}", condition).replace("{key}", key)
    found = [
        each.split("] ")[0].split(": ")[0] + ": " + each.split(": ", 2)[2]
        for each in await told(write(text + triggers))
    ]
    assert [each.removeprefix("bundle.md:") for each in found] == wrong


async def test_a_trigger_with_a_template_of_its_own_is_checked_alone(write: Any) -> None:
    own = "      - {type: timer, config: {interval: 5}, instruction_template: 'at {file_path}'}\n"
    text = BACKGROUND.replace("{template}", "{file_path}").replace("{condition}", "depth == 0").replace("{key}", "x")
    [problem] = await told(write(text + own + FILES))
    assert problem.startswith(
        "bundle.md:10:68: error[AMP116] background_sessions[0].triggers[0].instruction_template: "
    )


async def test_a_typo_of_a_runner_or_of_a_type_of_trigger_suggests_the_near_name_and_no_package(write: Any) -> None:
    found = await told(
        write(
            f"{PROVIDER}background_sessions:\n  - name: a\n    runner: subproces\n"
            "    triggers: [{type: file_chnge}, {type: isue_event}, {module: trigger-timr}]\n"
            "agents: {b: {runner: subproces}}\n"
            "workflows: {f: {steps: [{id: c, agent: b, prompt: d, runner: subproces}]}}\n"
        )
    )
    hints = [each.split("; ")[1].split(" Installed: ")[0] for each in found]
    assert hints == [
        "did you mean 'file_change'?",
        "did you mean 'issue_event'?",
        "did you mean 'trigger-timer'?",
        *["did you mean 'runner-subprocess'?"] * 3,
    ]
    assert [each.split(":")[1:3] for each in found][3:] == [["6", "13"], ["8", "22"], ["9", "62"]]
    assert not [each for each in found if "pip install" in each or "bundle install" in each]
