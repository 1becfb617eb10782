"""The table of sections, and all that is made from it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle, PreparedBundle, load_bundle_sync
from amplifier_foundation.bundle.json_schema import bundle_schema
from amplifier_foundation.bundle.model import Bundle as SeedsBundle
from amplifier_foundation.bundle.origins import SHOWN
from amplifier_foundation.bundle.schema import AgentFile, BundleFile
from amplifier_foundation.bundle.sections import SECTIONS

NAMES = [each.name for each in SECTIONS]


def test_every_section_is_a_field_of_the_bundle_and_a_key_of_the_schema() -> None:
    assert set(NAMES) <= {each.name for each in fields(Bundle)}
    assert ["bundle", *NAMES] == list(BundleFile.model_fields)
    assert ["bundle", *NAMES] == list(bundle_schema()["properties"])


def test_a_section_of_an_agent_has_the_type_that_it_has_in_a_bundle() -> None:
    of_both = AgentFile.model_fields.keys() & BundleFile.model_fields.keys() - {"agents"}
    assert of_both == {"session", "providers", "tools", "hooks", "context", "spawn", "permissions", "instruction"}
    for name in of_both:
        assert AgentFile.model_fields[name].annotation == BundleFile.model_fields[name].annotation


def test_the_mount_plan_and_what_is_shown_are_named_in_the_table() -> None:
    assert [each.name for each in SECTIONS if each.is_mounted] == [
        "session", "providers", "tools", "hooks", "agents", "spawn",
    ]  # fmt: skip
    assert list(SHOWN) == [
        "session", "providers", "tools", "hooks", "agents", "spawn", "budget", "permissions", "context",
        "background_sessions",
    ]  # fmt: skip


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_what_is_merged_is_shared_with_neither_bundle(section: Any, write: Any) -> None:
    front = (
        "session: {metadata: {a: [1]}}\nproviders: [{module: p, config: {a: [1]}}]\ntools: [{module: t, config: {}}]\n"
        "hooks: [{module: h}]\nagents: {x: {tools: [{module: y}]}}\nspawn: {timeout: 5}\nbudget: {usd: 5}\n"
        "permissions: {deny: [write_file]}\n"
        "context: {c: b.md}\nbackground_sessions: [{name: s}]\nworkflows: {w: [1]}\nincludes: []\n"
    )
    one = load_bundle_sync(write(front, "Instruction."))
    both = Bundle("base").compose(one)
    value = getattr(both, section.name)
    assert value or section.name == "includes"
    assert not isinstance(value, list | dict) or value is not getattr(one, section.name)
    again = section.build(section.dump(value)) if section.name != "background_sessions" else value
    assert {str(each) for each in again} == {str(each) for each in value}


def test_the_seeds_import_paths_lead_to_the_bundle() -> None:
    assert (Bundle, PreparedBundle.__name__) == (SeedsBundle, "PreparedBundle")
