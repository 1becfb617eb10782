"""Names in a bundle, and what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.hookspecs import hookimpl
from amplifier_core.plugins import Plugins, load_plugins
from amplifier_foundation.bundle import Bundle, check_bundle, check_names, load_bundle_sync

if TYPE_CHECKING:
    from pathlib import Path

INSTALLED = {"loop-basic", "context-simple", "provider-playbook", "tool-filesystem"}


def test_a_bundle_of_what_is_installed_has_no_problem(write: Any) -> None:
    bundle = load_bundle_sync(
        write(
            "providers: [{module: provider-playbook}]\ntools: [{module: tool-filesystem}]\n"
            "background_sessions: [{name: a, triggers: [{type: timer}]}]\n"
        )
    )
    assert check_names(bundle, {"trigger-timer"}, INSTALLED) == []


def test_an_unknown_name_answers_with_what_is_installed_and_how_to_get_it(write: Any) -> None:
    bundle = load_bundle_sync(
        write(
            "session: {orchestrator: loop-basik}\nproviders: [{module: provider-playbok}]\n"
            "hooks:\n  - module: hooks-x\n"
            "background_sessions:\n  - name: a\n    triggers:\n      - {type: timer}\n      - module: trigger-tmer\n"
        )
    )
    assert [str(problem) for problem in check_names(bundle, {"trigger-timer"}, INSTALLED)] == [
        "bundle.md:3:25: error[AMP110] session.orchestrator: unknown orchestrator 'loop-basik'; did you mean "
        "'loop-basic'? Installed: loop-basic.",
        "bundle.md:4:22: error[AMP110] providers[0].module: unknown provider 'provider-playbok'; did you mean "
        "'provider-playbook'? Installed: provider-playbook.",
        "bundle.md:6:13: error[AMP110] hooks[0].module: unknown hook 'hooks-x'. Installed: none. "
        "Name its package beside it ('package: NAME'), and run: amplifier bundle install",
        "bundle.md:11:17: error[AMP110] background_sessions[0].triggers[1].module: unknown trigger 'trigger-tmer'; "
        "did you mean 'trigger-timer'? Installed: trigger-timer.",
    ]


def test_the_loop_that_stands_in_must_be_installed_too() -> None:
    bundle = Bundle.from_dict({"bundle": {"name": "x"}})
    assert [problem.path for problem in check_names(bundle, (), ())] == ["session.orchestrator", "session.context"]


def test_a_module_that_the_bundle_brings_needs_no_installation(write: Any, folder: Path) -> None:
    (folder / "t.py").write_text("")
    bundle = load_bundle_sync(
        write("tools: [{module: tool-t, source: ./t.py}, {module: tool-u, source: 'git+https://host/u'}]\n")
    )
    assert [problem.path for problem in check_names(bundle, (), INSTALLED)] == ["tools[1].module"]


def test_what_only_an_agent_names_is_a_warning_where_it_stands(write: Any, folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "filed.md").write_text("---\nmeta: {name: filed}\ntools:\n  - module: tool-gone\n---\n")
    bundle = load_bundle_sync(
        write(
            "agents:\n  include: [filed]\n  inline:\n    session: {orchestrator: loop-gone}\n"
            "    tools: [{module: tool-filesystem}, {module: tool-y, source: 'git+https://host/y'}]\n"
        )
    )
    assert [str(problem) for problem in check_names(bundle, (), INSTALLED)] == [
        "agents/filed.md:4:13: warning[AMP109] tools[0].module: unknown tool 'tool-gone'. Installed: tool-filesystem. "
        "Name its package beside it ('package: NAME'), and run: amplifier bundle install",
        "bundle.md:6:29: warning[AMP109] agents.inline.session.orchestrator: unknown orchestrator 'loop-gone'. "
        "Installed: loop-basic. Name its package beside it ('package: NAME'), and run: amplifier bundle install",
        "bundle.md:7:49: warning[AMP109] agents.inline.tools[1].module: unknown tool 'tool-y'. "
        "Installed: tool-filesystem. Install it with: amplifier bundle install",
    ]


async def test_checking_a_file_checks_the_bundles_that_its_background_sessions_run(write: Any) -> None:
    class Timer:
        watch = stop = None  # neither is called

        def configure(self, config: Any) -> None:
            if config:
                raise ValueError("it takes no configuration")

    class TimerPlugin:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-timer", Timer)

    plugins = Plugins()
    plugins.register(TimerPlugin())
    write("tools: 5\n", name="broken.md", bundle="broken")
    write("background_sessions: [{name: a, triggers: [{type: cron}]}]\n", name="worker/bundle.md", bundle="worker")
    path = write(
        "background_sessions:\n"
        "  - {name: a, bundle: ./worker, triggers: [{type: timer}, {type: timer, config: {x: 1}}]}\n"
        "  - {name: b, bundle: broken.md}\n  - {name: c, bundle: ./missing}\n  - {name: d, bundle: 'elsewhere:x'}\n"
    )
    found = [problem for problem in await check_bundle(path, plugins) if not problem.path.startswith("session")]
    assert [(problem.file, problem.line, problem.code, problem.path) for problem in found] == [
        ("bundle.md", 4, "AMP112", "background_sessions[0].triggers[1].type"),
        ("worker/bundle.md", 2, "AMP115", "providers"),
        ("worker/bundle.md", 3, "AMP110", "background_sessions[0].triggers[0].type"),
        ("broken.md", 3, "AMP103", "tools"),
        ("bundle.md", 6, "AMP108", "background_sessions[2].bundle"),
        ("bundle.md", 7, "AMP108", "background_sessions[3].bundle"),
    ]


async def test_an_error_of_a_trigger_that_is_not_written_for_people_has_the_name_of_its_class(write: Any) -> None:
    class Careless:
        watch = stop = None  # neither is called

        def configure(self, config: Any) -> None:
            config["k"]

    class CarelessPlugin:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-careless", Careless)

    plugins = Plugins()
    plugins.register(CarelessPlugin())
    path = write("background_sessions: [{name: a, triggers: [{module: trigger-careless}]}]\n")
    messages = [each.message for each in await check_bundle(path, plugins) if each.code == "AMP112"]
    place = f"{__file__}:{Careless.configure.__code__.co_firstlineno + 1}"
    assert messages == [f"trigger-careless: KeyError: 'k' ({place})"]


async def test_a_key_mistyped_in_the_configuration_of_an_installed_module_is_told_where_it_stands(
    write: Any, folder: Path
) -> None:
    (folder / "own.py").write_text("raise SystemExit('nobody imports this')\n")
    path = write(
        "providers:\n  - module: provider-playbook\n    config:\n      rules:\n"
        "        - {when: {usr: '^hi'}, say: hello}\n"
        "tools:\n"
        "  - {module: tool-filesystem, config: {allow_wrte: true}}\n"
        "  - {module: tool-emit, config: {allow: 5}}\n"
        "  - {module: tool-delegate, source: ./own.py, config: {anything: 5}}\n",
    )
    assert [str(problem) for problem in await check_bundle(path, load_plugins(environ={}))] == [
        "bundle.md:7:19: error[AMP114] providers[0].config.rules[0].when.usr: "
        "provider-playbook: rules[0].when.usr: unknown key; did you mean 'user'?",
        "bundle.md:9:40: error[AMP114] tools[0].config.allow_wrte: "
        "tool-filesystem: allow_wrte: unknown key; did you mean 'allow_write'?",
        "bundle.md:10:34: error[AMP114] tools[1].config.allow: tool-emit: allow: Input should be a valid list",
    ]


async def test_an_unknown_key_in_the_configuration_of_a_provider_is_a_warning(write: Any) -> None:
    path = write(
        "providers:\n  - {module: provider-openai, config: {temperature: 0.5}}\n"
        "  - {module: provider-ollama, config: {effort: high, thinking: high}}\n"
    )
    assert [
        str(problem).partition("; known are ")[0] for problem in await check_bundle(path, load_plugins(environ={}))
    ] == [
        "bundle.md:4:40: warning[AMP114] providers[0].config.temperature: "
        "provider-openai: temperature: unknown key without effect",
        "bundle.md:5:40: warning[AMP114] providers[1].config.effort: "
        "provider-ollama: effort: unknown key without effect",
    ]


async def test_a_key_that_the_configuration_of_a_module_lacks_is_told_where_it_belongs(write: Any) -> None:
    path = write("providers: [{module: provider-playbook, config: {rules: [{say: hello}]}}]\n")
    assert [str(problem) for problem in await check_bundle(path, load_plugins(environ={}))] == [
        "bundle.md:3:58: error[AMP114] providers[0].config.rules[0]: "
        "provider-playbook: rules[0].when: this key is required",
    ]


async def test_two_webhooks_of_one_address_are_told(write: Any) -> None:
    path = write(
        "providers: [{module: provider-playbook}]\nbackground_sessions:\n"
        "  - {name: a, triggers: [{type: webhook, config: {path: /b}}]}\n"
        "  - {name: b, triggers: [{type: webhook, config: {port: 8788}}, {type: webhook, config: {port: 0}}]}\n"
        "  - name: c\n    triggers:\n      - {type: webhook, config: {path: /b}}\n"
        "      - {type: webhook, config: {path: /b, port: 0}}\n"
    )
    assert [str(problem) for problem in await check_bundle(path, load_plugins(environ={}))] == [
        "bundle.md:9:16: error[AMP112] background_sessions[2].triggers[0].type: /b at 127.0.0.1, port 8787, "
        "is taken by 'a'; give one of them another `path`"
    ]


async def test_every_wrong_key_of_a_trigger_is_told_at_once(write: Any) -> None:
    path = write(
        "providers: [{module: provider-playbook}]\n"
        "background_sessions:\n  - name: a\n    triggers:\n      - module: trigger-webhook\n"
        "        config:\n          port: 70000\n          path: x\n          hots: [y]\n"
    )
    assert [str(problem) for problem in await check_bundle(path, load_plugins(environ={}))] == [
        f"bundle.md:{line}:11: error[AMP112] background_sessions[0].triggers[0].config.{key}: "
        f"trigger-webhook: {key}: {told}"
        for line, key, told in (
            (11, "hots", "unknown key; did you mean 'hosts'?"),
            (10, "path", "must match ^/[A-Za-z0-9._~/-]{0,255}$"),
            (9, "port", "must be at most 65535"),
        )
    ]


NO_PROVIDER = "warning[AMP115] providers: the bundle has no provider: its sessions have no model to ask. "


@pytest.mark.parametrize(
    ("front", "body", "worker", "told"),
    [
        ("", "You help.", "", ["bundle.md:2:1"]),
        ("providers: []\n", "You help.", "", ["bundle.md:3:1"]),
        ("background_sessions: [{name: a}]\n", "", "", ["bundle.md:2:1"]),
        ("providers: [{module: provider-playbook}]\n", "You help.", "", []),
        ("hooks: [{module: hooks-logging}]\n", "", "", []),
        ("background_sessions: [{name: a, bundle: ./w.md}]\n", "Lead.", "", ["w.md:2:1"]),
        ("background_sessions: [{name: a, bundle: ./w.md}]\n", "", "providers: [{module: provider-playbook}]\n", []),
        ("providers: [{module: provider-playbook}]\nbackground_sessions: [{name: a, bundle: ./w.md}]\n", "", "", []),
    ],
)
async def test_a_bundle_whose_sessions_have_no_provider_of_their_own_or_to_inherit_is_warned_about(
    front: str, body: str, worker: str, told: list[str], write: Any
) -> None:
    write(worker, name="w.md", bundle="worker")
    problems = await check_bundle(write(front, body), load_plugins(environ={}))
    assert [str(problem) for problem in problems] == [
        f"{place}: {NO_PROVIDER}Add one under 'providers'" for place in told
    ]
