"""Bundles as people have them: every kind loads and validates, whatever of it is not installed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle import check_bundle, load_bundle_sync
from amplifier_foundation.bundle.origins import origin

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_foundation.bundle import Bundle

FOUNDATION = {
    "foundation/bundle.md": """\
---
bundle:
  name: foundation
  version: 1.0.0
  description: What other bundles are put on top of
includes:
  - bundle: foundation:behaviors/sessions
  - bundle: foundation:behaviors/logging.yaml
session:
  debug: true
  raw_debug: true
  orchestrator:
    module: loop-streaming
    source: git+https://example.org/amplifier-module-loop-streaming@main
    config: {extended_thinking: true}
  context:
    module: context-simple
    source: git+https://example.org/amplifier-module-context-simple@main
    config: {max_tokens: 300000, compact_threshold: 0.8, auto_compact: true}
tools:
  - module: tool-filesystem
    source: git+https://example.org/amplifier-module-tool-filesystem@main
  - module: tool-bash
    source: git+https://example.org/amplifier-module-tool-bash@main
agents:
  include: [foundation:zen-architect, foundation:bug-hunter]
context:
  include: [foundation:context/shared/base.md]
---

@foundation:context/shared/base.md

---

You help people. Write to them@example.org, and see @missing.md.
""",
    "foundation/behaviors/sessions.yaml": """\
bundle: {name: behavior-sessions, version: 1.0.0, description: Names sessions}
includes:
  - bundle: foundation:behaviors/status
agents: {include: [foundation:zen-architect]}
context: {include: [foundation:context/shared/base.md]}
""",
    "foundation/behaviors/status.md": """\
---
bundle:
  name: behavior-status
hooks:
  - module: hooks-status-context
    source: git+https://example.org/amplifier@main#subdirectory=modules/hooks-status-context
    config: {include_git: true, include_datetime: true}
---
""",
    "foundation/behaviors/logging.yaml": """\
bundle:
  name: behavior-logging
  version: 1.0.0
hooks:
  - module: hooks-logging
    source: git+https://example.org/amplifier-module-hooks-logging@main
    config:
      mode: session-only
      session_log_template: ~/.amplifier/projects/{project}/sessions/{session_id}/events.jsonl
""",
    "foundation/agents/zen-architect.md": """\
---
meta:
  name: zen-architect
  description: |
    Use PROACTIVELY for code planning.

    <example>
    user: 'Add a cache'
    assistant: 'I'll ask zen-architect first: it plans.'
    </example>
tools:
  - module: tool-filesystem
    source: git+https://example.org/amplifier-module-tool-filesystem@main
provider_preferences:
  - {provider: anthropic, model: claude-opus-*}
  - {provider: openai, model: "gpt-[0-9]*"}
model_role: [reasoning, general]
agents: none
---
You plan. @foundation:context/shared/base.md
""",
    "foundation/agents/bug-hunter.md": """\
---
meta: {name: bug-hunter, description: Hunts}
agents: [zen-architect]
session: {orchestrator: {module: loop-streaming, config: {max_iterations: 30}}}
---
You hunt.
""",
    "foundation/context/shared/base.md": "Be brief.\n",
}

USERS = {
    "bundle.md": """\
---
bundle: {name: my-bundle, version: 1.0.0, description: Mine, namespace_root: .}
includes:
  - bundle: foundation                 # registered name
  - bundle: my-bundle:behaviors/y      # namespace:path
providers:
  - module: provider-anthropic
    source: git+https://example.org/amplifier-module-provider-anthropic@main
    config: {default_model: claude-x, api_key: "${ANTHROPIC_API_KEY}", priority: 1}
  - module: provider-anthropic
    id: second
    config: {default_model: claude-y}
tools:
  - module: tool-bash
    config: {allowed_commands: [git]}
  - module: tool-delegate
    config: {features: {self_delegation: {enabled: true, max_depth: 3}}}
agents:
  include: [my-bundle:writer]
  inline-name: {description: Says little, tools: [{module: tool-filesystem}]}
context: {notes: ./notes.md}
spawn: {exclude_tools: [tool-delegate]}
---
# Who you are

See @my-bundle:notes.md, @notes.md and @~/never-there.md.
""",
    "behaviors/y.yml": "bundle: {name: y}\nsession: {raw: true}\n",
    "agents/writer.md": "---\nmeta: {name: writer, description: Writes}\nagents: all\n---\nYou write.\n",
    "notes.md": "Notes.\n",
}

FOREMAN = {
    "bundle.md": """\
---
bundle:
  name: foreman
  version: 2.0.0

background_sessions:
  - name: coding-workers
    bundle: foreman:workers/coding-worker
    pool_size: 3
    triggers:
      - module: trigger-session-event
        config:
          event_names: ["issue:created", "issue:unblocked"]
    on_complete_emit: work:completed
    on_error_emit: work:failed

  - name: test-runner
    bundle: foreman:workers/testing-worker
    triggers:
      - module: trigger-session-event
        config:
          event_names: ["work:completed"]
      - module: trigger-file-watcher
        config:
          patterns: ["tests/**/*.py"]
          debounce_ms: 5000
    on_complete_emit: tests:completed
---
""",
    "workers/coding-worker.md": "---\nbundle: {name: coding-worker}\ntools: [{module: tool-filesystem}]\n---\nCode.\n",
    "workers/testing-worker/bundle.yaml": "bundle: {name: testing-worker}\ninstruction: Test.\n",
}

ORCHESTRATED = """\
---
bundle: {name: foreman, version: 1.0.0}
session:
  orchestrator:
    module: orchestrator-foreman
    source: ./modules/orchestrator-foreman
    config:
      worker_pools:
        - {name: coding-pool, worker_bundle: "git+https://example.org/w@main", max_concurrent: 3, route_types: [coding]}
      routing: {default_pool: coding-pool, rules: [{if_metadata_type: [bug], then_pool: coding-pool}]}
      background_sessions:
        - name: watcher
          bundle: ./workers/watcher.md
          triggers: [{type: file_change, config: {patterns: ["*.py"]}}, {type: timer, config: {interval_seconds: 60}}]
          instruction_template: "Handle this event: {event_summary}"
          pool_size: 2
          start_on_parent_start: true
          stop_on_parent_stop: true
          restart_on_failure: true
          max_restarts: 3
  context: {module: context-simple}
---
"""

KINDS: dict[str, str] = {
    "no body": "---\nbundle: {name: a}\n---\n",
    "a byte order mark and DOS lines": "\ufeff---\r\nbundle:\r\n  name: a\r\n---\r\nHello.\r\n",
    "a comment first": "---\n# yaml-language-server: $schema=bundle.schema.json\nbundle: {name: a}\n---\n",
    "empty sections": "---\nbundle: {name: a}\nincludes:\ntools: []\nhooks:\nagents: {}\ncontext:\nspawn: {}\n---\n",
    "a version that is a number": "---\nbundle: {name: a, version: 1.10}\n---\n",
    "modules by name alone": "---\nbundle: {name: a}\nsession: {orchestrator: loop-x, context: context-y}\n---\n",
    "a source of its own key": (
        "---\nbundle: {name: a}\nsession: {orchestrator: loop-x, orchestrator_source: 'git+https://example.org/x'}\n---\n"
    ),
    "includes as text": "---\nbundle: {name: a}\nincludes: [./b.yaml]\n---\n",
    "two instances": (
        "---\nbundle: {name: a}\nproviders: [{module: provider-x, instance_id: a}, {module: provider-x, id: b}]\n---\n"
    ),
    "workflows": "---\nbundle: {name: a}\nworkflows: {release: {steps: [build]}}\n---\n",
    "sections of later": "---\nbundle: {name: a}\nmodes: {plan: {tools: []}}\nskills: [x]\n---\n",
    "rules in the body": "---\nbundle: {name: a}\n---\nOne.\n\n---\n\nTwo.\n",
}


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")


async def told(path: Path | str, registry: dict[str, Any] | None = None) -> set[tuple[str, str]]:
    """Return the code and kind of each problem that checking a bundle finds."""
    problems = await check_bundle(path, load_plugins(environ={}), registry=registry)
    return {(problem.severity, problem.code) for problem in problems}


@pytest.fixture
def mine(folder: Path) -> Bundle:
    put(folder, {**FOUNDATION, **USERS})
    return load_bundle_sync("bundle.md", registry={"foundation": folder / "foundation"})


async def test_a_bundle_on_top_of_a_registered_one_has_all_of_both(mine: Bundle, folder: Path) -> None:
    assert mine.problems == []
    assert (mine.name, mine.session["raw"], mine.session["raw_debug"]) == ("my-bundle", True, True)
    assert mine.session["orchestrator"]["module"] == "loop-streaming"
    assert [tool["module"] for tool in mine.tools] == ["tool-filesystem", "tool-bash", "tool-delegate"]
    assert mine.tools[1]["config"] == {"allowed_commands": ["git"]}
    assert [hook["module"] for hook in mine.hooks] == ["hooks-status-context", "hooks-logging"]
    assert [provider["config"]["default_model"] for provider in mine.providers] == ["claude-x", "claude-y"]
    assert sorted(mine.agents) == [
        "foundation:bug-hunter", "foundation:zen-architect", "inline-name", "my-bundle:writer",
    ]  # fmt: skip
    assert mine.agents["foundation:zen-architect"]["model_role"] == ["reasoning", "general"]
    assert {path.name for path in mine.context.values()} == {"base.md", "notes.md"}
    found = await told("bundle.md", {"foundation": folder / "foundation"})
    assert found == {("error", "AMP110"), ("warning", "AMP108"), ("warning", "AMP114")}  # it mentions @missing.md


def test_a_value_of_a_bundle_far_below_is_told_with_its_line(mine: Bundle) -> None:
    assert str(origin(mine, ("hooks", 0, "config", "include_git"))) == "foundation/behaviors/status.md:7:27"
    assert str(origin(mine, ("context", "foundation:context/shared/base.md"))) == "foundation/bundle.md:28:12"


async def test_the_system_prompt_has_the_files_that_are_mentioned_once(mine: Bundle, folder: Path) -> None:
    from amplifier_foundation.bundle.prompt import SystemPrompt

    text = await SystemPrompt(mine, folder)()
    assert text.startswith("# Who you are")
    assert (text.count("<context_file"), text.count("Be brief."), text.count("Notes.")) == (2, 1, 1)


async def test_a_foreman_that_names_its_workers_by_its_own_name_is_valid(folder: Path) -> None:
    put(folder, FOREMAN)
    assert await told("bundle.md") == {("warning", "AMP115")}
    assert await told("foreman:bundle", {"foreman": folder}) == {("warning", "AMP115")}
    workers = [config.bundle for config in load_bundle_sync("bundle.md").background_sessions]
    assert workers == [str(folder / "workers" / name) for name in ("coding-worker", "testing-worker")]


async def test_background_sessions_of_an_orchestrators_config_are_the_bundles(folder: Path) -> None:
    worker = "---\nbundle: {name: watcher}\n---\n"
    code = "async def mount(coordinator, config=None): ...\n"
    put(folder, {"bundle.md": ORCHESTRATED, "workers/watcher.md": worker})
    put(folder, {"modules/orchestrator-foreman/__init__.py": code})
    bundle = load_bundle_sync("bundle.md")
    [watcher] = bundle.background_sessions
    assert [trigger.module for trigger in watcher.triggers] == ["trigger-file-watcher", "trigger-timer"]
    assert bundle.session["orchestrator"]["config"]["routing"]["default_pool"] == "coding-pool"
    assert await told("bundle.md") == {("warning", "AMP115")}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_way_to_write_a_bundle_loads(kind: str, folder: Path) -> None:
    put(folder, {"bundle.md": KINDS[kind], "b.yaml": "bundle: {name: b}\n"})
    assert load_bundle_sync(".").name == "a"
    warnings = {("warning", code) for code in ("AMP106", "AMP115", "AMP120")}
    assert await told("bundle.md") <= {*warnings, ("error", "AMP110")}
