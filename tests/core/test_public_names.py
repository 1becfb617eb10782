"""What the kernel offers by name, and what asking for it costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import amplifier_core
from amplifier_core import events, interfaces

PUBLISHED_EVENTS = [
    "session:start",
    "session:end",
    "session:fork",
    "session:resume",
    "prompt:submit",
    "prompt:complete",
    "plan:start",
    "plan:end",
    "provider:request",
    "provider:response",
    "provider:retry",
    "provider:error",
    "provider:throttle",
    "provider:tool_sequence_repaired",
    "provider:resolve",
    "llm:request",
    "llm:response",
    "content_block:start",
    "content_block:delta",
    "content_block:end",
    "thinking:delta",
    "thinking:final",
    "tool:pre",
    "tool:post",
    "tool:error",
    "context:pre_compact",
    "context:post_compact",
    "context:compaction",
    "context:include",
    "orchestrator:complete",
    "execution:start",
    "execution:end",
    "user:notification",
    "artifact:write",
    "artifact:read",
    "policy:violation",
    "approval:required",
    "approval:granted",
    "approval:denied",
    "cancel:requested",
    "cancel:completed",
    "module:on_session_ready_failed",
    "module:load_failed",
]


def for_type_checkers() -> dict[str, str]:
    """Return the names that type checkers see, each with the module it comes from."""
    tree = ast.parse(Path(amplifier_core.__file__).read_text())
    return {
        name.name: node.module or ""
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


def test_the_list_of_public_names_is_sorted_and_has_no_name_twice() -> None:
    assert amplifier_core.__all__ == sorted(set(amplifier_core.__all__))


def test_what_is_imported_lazily_is_what_type_checkers_see_and_what_is_listed() -> None:
    assert for_type_checkers() == amplifier_core._HOME_OF
    assert set(amplifier_core._HOME_OF) == set(amplifier_core.__all__)
    assert set(amplifier_core.__all__) <= set(dir(amplifier_core))


@pytest.mark.parametrize("name", amplifier_core.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    home = importlib.import_module(f"amplifier_core.{amplifier_core._HOME_OF[name]}")
    assert getattr(amplifier_core, name) is getattr(home, name)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'amplifier_core' has no attribute 'Agent'"):
        amplifier_core.Agent  # noqa: B018 - looking it up is the test
    with pytest.raises(ImportError):
        importlib.import_module("amplifier_core.agent")


def imported_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `statement`, beyond those it begins with."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [("import amplifier_core", "amplifier_core"), ("import amplifier_core.hookspecs", "pluggy")],
)
def test_importing_the_kernel_imports_nothing_heavy(statement: str, wanted: str) -> None:
    imported = imported_by(statement)
    assert wanted in imported
    assert imported & {"pydantic", "pydantic_core", "asyncio", "sqlite3"} == set()


def test_a_name_that_is_asked_for_brings_only_what_it_needs() -> None:
    assert (
        imported_by("from amplifier_core import Transcript, ForkRefused") & {"pydantic", "asyncio", "pluggy"} == set()
    )
    assert "pydantic" in imported_by("from amplifier_core import HookResult")


@pytest.mark.parametrize("event", PUBLISHED_EVENTS)
def test_every_published_event_has_a_constant_of_its_name(event: str) -> None:
    assert getattr(events, event.upper().replace(":", "_")) == event
    assert event in events.ALL_EVENTS


def test_every_upper_case_name_beside_the_list_is_an_event_of_the_list() -> None:
    names = {value for name, value in vars(events).items() if name.isupper() and name != "ALL_EVENTS"}
    assert names == set(events.ALL_EVENTS)


def test_no_event_is_listed_twice() -> None:
    assert len(events.ALL_EVENTS) == len(set(events.ALL_EVENTS))


def test_published_protocols_are_those_for_isinstance_and_those_that_are_not() -> None:
    """`Tool` and `Orchestrator` have inherited members, and isinstance breaks on those on Python 3.11."""
    for protocol in (interfaces.Tool, interfaces.Orchestrator):
        with pytest.raises(TypeError, match="runtime"):
            isinstance(object(), protocol)
    for checkable in (interfaces.Provider, interfaces.ContextManager, interfaces.HookHandler):
        assert not isinstance(object(), checkable)
