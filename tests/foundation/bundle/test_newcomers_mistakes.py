"""What a newcomer gets wrong in a bundle: each mistake is told with its place, and the remedy that is told works."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle import check_bundle

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
---
bundle:
  name: demo
providers:
  - module: provider-playbook
    config: {otherwise: {say: "You said: {prompt}"}}
tools:
  - module: tool-filesystem
background_sessions:
  - name: reviewer
    triggers:
      - type: file_change
        config:
          patterns: ["*.py"]
---
You review.
"""
TRIGGER = 'file_change\n        config:\n          patterns: ["*.py"]'
ABOVE_TRIGGERS = "    triggers:\n"
PROVIDER = GOOD[GOOD.index("providers:") : GOOD.index("tools:")]


class Mistake(NamedTuple):
    """A text of the good bundle, the wrong one in its place, and what is told about it.

    `cure` is the text that the told remedy puts in place of the wrong one; None: it follows from the message alone.
    """

    right: str
    wrong: str
    place: str
    message: str
    cure: str | None = None


def before(line: str, more: str, cure: str | None = None) -> tuple[str, str, str | None]:
    """Return the good and the wrong text for a line that is added before another, and the cured text."""
    return line, f"{more}\n{line}", cure if cure is None else f"{cure}\n{line}" if cure else line


def add(line: str, more: str, place: str, message: str, cure: str | None = None) -> Mistake:
    right, wrong, cured = before(line, more, cure)
    return Mistake(right, wrong, place, message, cured)


TOP = "providers:\n"
TOP_CONFIG = "config: {otherwise"
MISTAKES = {
    "a typo of a section": Mistake("tools:", "tols:", "7:1", "unknown section; did you mean 'tools'?"),
    "a typo of a key of the bundle": Mistake("  name: demo", "  nam: demo", "3:3", "did you mean 'name'?"),
    "a typo of a key of a background session": add(
        ABOVE_TRIGGERS, "    pool_sizes: 2", "11:5", "did you mean 'pool_size'?"
    ),
    "a typo of a key of a trigger": Mistake("        config:", "        confg:", "13:9", "did you mean 'config'?"),
    "a typo of a key of a trigger's config": Mistake("patterns:", "paterns:", "14:11", "did you mean 'patterns'?"),
    "a typo of a key of a provider's config": Mistake("otherwise:", "otherwize:", "6:14", "did you mean 'otherwise'?"),
    "a text for a number": add(
        ABOVE_TRIGGERS, "    pool_size: two", "11:16", "must be a whole number, not text", "    pool_size: 2"
    ),
    "a text for a list": Mistake(
        "tools:\n  - module: tool-filesystem", "tools: x", "7:8", "must be a list, not text", "tools: []"
    ),
    "a name for a module": Mistake(
        "  - module: tool-filesystem",
        "  - tool-filesystem",
        "8:5",
        "must be a mapping such as {module: …, config: …}",
        "  - {module: tool-filesystem, config: {}}",
    ),
    "an unquoted pattern": Mistake('["*.py"]', "[*.py]", "14:22", 'quote it: patterns: ["*.py"]'),
    "an unquoted pattern in a line": Mistake('["*.py"]', "\n            - *.py", "15:15", 'quote it: - "*.py"'),
    "a colon in a text": add(
        PROVIDER, "  description: Reviews: all", "4:16", 'quote it: description: "Reviews: all"'
    ),
    "an @ at the beginning": add(ABOVE_TRIGGERS, "    instruction: @x", "11:18", 'quote it: instruction: "@x"'),
    "a tab": Mistake("    triggers:", "\ttriggers:", "11:1", "a tab; YAML is indented with spaces", "    triggers:"),
    "an unclosed quote": Mistake(
        '["*.py"]', '["*.py]', "15:1", "the closing quote is missing (scanning a quoted scalar that begins in line 14)",
        '["*.py"]',
    ),
    "an unclosed brace": Mistake(
        '{prompt}"}}', '{prompt}"}', "7:1", "',' or '}' is missing (parsing a flow mapping that begins in line 6)",
        '{prompt}"}}',
    ),
    "no end of the front matter": Mistake("\n---\nYou", "\nYou", "1:1", "write a line '---' after it", "\n---\nYou"),
    "no beginning of the front matter": Mistake(
        "---\nbundle:", "bundle:", "1:1", "make '---' the first line", "---\nbundle:"
    ),
    "a name that stands twice": Mistake(
        "---\nYou", "  - name: reviewer\n---\nYou", "15:11", "'reviewer' stands here twice, first at bundle.md:10:11",
        "  - name: another\n---\nYou",
    ),
    "a key that stands twice": add(
        "tools:", "providers: []", "7:1", "this key stands here twice; first at bundle.md:4:1", ""
    ),
    "no provider": Mistake(PROVIDER, "", "2:1", "has no provider", "providers: [{module: provider-playbook}]\n"),
    "a mentioned file that is missing": Mistake(
        "You review.", "See @bundl.md.", "16:5", "no such file; did you mean 'bundle.md'?", "See @bundle.md."
    ),
    "a worker's bundle that is missing": add(
        ABOVE_TRIGGERS, "    bundle: ./wrker.md", "11:13", "wrker.md: no such file", "    bundle: ./worker.md"
    ),
    "a tool with a syntax error": Mistake(
        "tool-filesystem", "tool-x\n    source: ./bad.py", "9:13", "bad.py:1:11: invalid syntax",
        "tool-x\n    source: ./good.py",
    ),
    "a tool's file that is missing": Mistake(
        "tool-filesystem", "tool-x\n    source: ./god.py", "9:13", "god.py does not exist",
        "tool-x\n    source: ./good.py",
    ),
    "an unknown trigger": Mistake(
        TRIGGER, "telepathy", "12:15", "unknown trigger 'trigger-telepathy'. Installed: trigger-file-watcher, ",
        "trigger-manual",
    ),
    "an unknown tool": Mistake(
        "tool-filesystem", "tool-filesytem", "8:13", "unknown tool 'tool-filesytem'; did you mean 'tool-filesystem'?"
    ),
    "an unknown orchestrator": add(
        "tools:", "session: {orchestrator: loop-basik}", "7:25", "did you mean 'loop-basic'?"
    ),
    "an unknown runner": add(
        ABOVE_TRIGGERS, "    runner: runner-inproces", "11:13", "did you mean 'runner-inprocess'?"
    ),
    "an unknown name in a template": add(
        ABOVE_TRIGGERS, '    instruction_template: "Review {file_pth}"', "11:27", "did you mean 'file_path'?",
        '    instruction_template: "Review {file_path}"',
    ),
    "an unclosed brace in a template": add(
        ABOVE_TRIGGERS, '    instruction_template: "Review {file_path"', "11:27", "or double the brace",
        '    instruction_template: "Review {{file_path"',
    ),
    "a wrong cron expression": Mistake(
        TRIGGER, 'timer\n        config: {cron: "0 25 * * *"}', "13:18", "hour must be 0-23, got 25",
        'timer\n        config: {cron: "0 23 * * *"}',
    ),
    "a wrong duration": add(
        ABOVE_TRIGGERS, "    timeout: 5 minuts", "11:14", "text such as '15m'", "    timeout: 15m"
    ),
    "a negative pool": add(ABOVE_TRIGGERS, "    pool_size: -1", "11:16", "must be at least 1", "    pool_size: 1"),
    "a webhook with a path that is none": Mistake(
        TRIGGER, "webhook\n        config: {path: hook}", "13:18", "path", "webhook\n        config: {path: /hook}"
    ),
    "a secret in the bundle": Mistake(
        f"provider-playbook\n    {TOP_CONFIG}",
        "provider-openai\n    config: {api_key: sk-proj-0123456789abcdefghijklmnopqrstuv}\n    # {",
        "6:23", "write secret://NAME", "provider-openai\n    config: {api_key: secret://NAME}\n    # {",
    ),
    "an empty list of triggers": Mistake(
        f"triggers:\n      - type: {TRIGGER}", "triggers: []", "11:15", "List one, or remove the key",
        "triggers: [{type: manual}]",
    ),
    "a type and a module": Mistake(
        "type: file_change", "type: file_change\n        module: trigger-file-watcher", "12:9", "keep one of them",
        "module: trigger-file-watcher",
    ),
    "includes in a circle": add(
        TOP, "includes: [./circle.md]", "3:12", "bundle.md -> circle.md -> bundle.md. Remove one of these includes", ""
    ),
    "an include that is missing": add(
        TOP, "includes: [./wrker.md]", "4:12", "wrker.md: no such file", "includes: [./worker.md]"
    ),
    "a body and an instruction": add(TOP, "instruction: You.", "4:1", "keep one of the two", ""),
    "an agent that is missing": add(
        TOP, "agents: {include: [helper]}", "4:20", "agents/helper.md does not exist", "agents: {}"
    ),
    "an unknown agent in a workflow": add(
        TOP, "workflows: {f: {steps: [{id: a, agent: sel, prompt: x}]}}", "4:40", "'sel'; did you mean 'self'?",
        "workflows: {f: {steps: [{id: a, agent: self, prompt: x}]}}",
    ),
    "an unknown step in a workflow": add(
        TOP, "workflows: {f: {steps: [{id: a, agent: self, prompt: x}, {id: c, agent: self, prompt: x, fork: b}]}}",
        "4:63", "task 'c': there is no task 'b' to fork",
        "workflows: {f: {steps: [{id: a, agent: self, prompt: x}, {id: c, agent: self, prompt: x, fork: a}]}}",
    ),
    "a typo of a key of a step": add(
        TOP, "workflows: {f: {steps: [{id: a, agnt: self, prompt: x}]}}", "4:33", "did you mean 'agent'?"
    ),
    "a wrong budget": add(TOP, "budget: {usd: -5}", "4:15", "must be more than 0", "budget: {usd: 5}"),
    "a wrong period of a budget": add(
        TOP, "budget: {usd: 5, per: week}", "4:23", "must be 'day'", "budget: {usd: 5, per: day}"
    ),
    "a wrong rule": add(
        TOP, 'permissions: {deny: ["write_file(x"]}', "4:22", "Write a tool, or tool(pattern)",
        'permissions: {deny: ["write_file(x)"]}',
    ),
    "a wrong mode": add(
        TOP, "permissions: {mode: yolo}", "4:21", "must be 'read-only', 'ask' or 'auto'", "permissions: {mode: ask}"
    ),
}  # fmt: skip


@pytest.fixture
def beside(folder: Path) -> Path:
    """A folder with the files that bundles name."""
    (folder / "bad.py").write_text("def mount(:\n")
    (folder / "good.py").write_text("async def mount(coordinator, config): ...\n")
    (folder / "worker.md").write_text("---\nbundle: {name: worker}\nproviders: [{module: provider-playbook}]\n---\n")
    (folder / "circle.md").write_text("---\nbundle: {name: circle}\nincludes: [./bundle.md]\n---\n")
    return folder


async def told(folder: Path, text: str) -> list[str]:
    (folder / "bundle.md").write_text(text, encoding="utf-8")
    return [str(each) for each in await check_bundle("bundle.md", load_plugins(environ={}))]


def follow(problem: str, text: str) -> str:
    """Return the text with what the message says to write at its place."""
    _, line, column, rest = problem.split(":", 3)
    lines = text.split("\n")
    wrong, at = lines[int(line) - 1], int(column) - 1
    quoted, meant = re.search(r"quote it: (.*)", rest), re.search(r"did you mean '([^']+)'\?", rest)
    if quoted:
        kept = wrong[: len(wrong) - len(wrong.lstrip())]
        lines[int(line) - 1] = kept + quoted[1]
    elif meant:
        lines[int(line) - 1] = wrong[:at] + re.sub(r"^[\w-]+", meant[1], wrong[at:])
    return "\n".join(lines)


async def test_the_good_bundle_is_good(beside: Path) -> None:
    assert await told(beside, GOOD) == []


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
async def test_a_mistake_is_told_with_its_place_and_a_remedy_that_works(mistake: Mistake, beside: Path) -> None:
    assert GOOD.count(mistake.right) == 1
    text = GOOD.replace(mistake.right, mistake.wrong)
    problems = await told(beside, text)
    [problem] = [each for each in problems if mistake.message in each]
    assert re.match(rf"\w+\.md:{mistake.place}: (error|warning)\[AMP\d\d\d\]", problem), problem
    cured = follow(problem, text) if mistake.cure is None else GOOD.replace(mistake.right, mistake.cure)
    assert cured != text
    assert [each for each in await told(beside, cured) if "AMP119" not in each] == []


async def test_all_mistakes_of_all_kinds_are_told_at_once(beside: Path) -> None:
    kinds = [
        "a name for a module",
        "a typo of a key of a provider's config",
        "a typo of a key of a background session",
        "a typo of a key of a trigger's config",
        "an include that is missing",
        "a wrong budget",
        "an unknown agent in a workflow",
        "a wrong mode",
        "a mentioned file that is missing",
    ]
    text = GOOD
    for kind in kinds:
        text = text.replace(MISTAKES[kind].right, MISTAKES[kind].wrong)
    problems = await told(beside, text)
    assert [kind for kind in kinds if not any(MISTAKES[kind].message in each for each in problems)] == []
    assert len(problems) == len(kinds)
