"""Everything wrong with a bundle is told at once: its text, its schema, its names, what it includes and runs."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle import check_bundle
from amplifier_foundation.documents.positions import format_path, parse_path


async def told(path: Any, **options: Any) -> list[str]:
    return [str(each).partition(". ")[0] for each in await check_bundle(path, load_plugins(environ={}), **options)]


async def test_mistakes_of_all_phases_are_told_at_once(write: Any) -> None:
    write("tools: 5\nhooks: [{module: hooks-nobody}]\n", name="base.md", bundle="base")
    write("tools: [{modul: x}, {module: tool-nowhere}]\n", name="worker.md", bundle="worker")
    path = write(
        "includes: [./base.md, ./gone.md]\n"
        "tools:\n"
        "  - {module: tool-filesystem, confg: {}}\n"
        "  - {modul: tool-emit}\n"
        "  - {module: tool-nobody}\n"
        "  - {module: tool-filesystem, instance_id: two, config: {allow_wrte: true}}\n"
        "background_sessions:\n"
        "  - {name: a, pool_sizes: 3}\n"
        "  - {name: b, bundle: ./worker.md, triggers: [{type: timer, config: {interval: often}}, {type: nobody}]}\n"
        "tols: []\n"
    )
    assert [": ".join(each.split(": ")[:2]) for each in await told(path)] == [
        "bundle.md:5:31: error[AMP102] tools[0].confg",
        "bundle.md:6:5: error[AMP101] tools[1].module",
        "bundle.md:6:6: error[AMP102] tools[1].modul",
        "bundle.md:10:15: error[AMP102] background_sessions[0].pool_sizes",
        "bundle.md:12:1: warning[AMP106] tols",
        "base.md:3:8: error[AMP103] tools",
        "bundle.md:3:23: error[AMP111] includes[1]",
        "bundle.md:7:14: error[AMP110] tools[2].module",
        "base.md:4:18: error[AMP110] hooks[0].module",
        "bundle.md:11:96: error[AMP110] background_sessions[1].triggers[1].type",
        "bundle.md:8:58: error[AMP114] tools[3].config.allow_wrte",
        "bundle.md:11:70: error[AMP112] background_sessions[1].triggers[0].config.interval",
        "worker.md:3:9: error[AMP101] tools[0].module",
        "worker.md:3:10: error[AMP102] tools[0].modul",
        "worker.md:3:30: error[AMP110] tools[1].module",
    ]


@pytest.mark.parametrize(
    ("front", "codes"),
    [
        ("bundle: {nmae: a}\ntools: [{module: tool-nobody}]\n", ["AMP101", "AMP102", "AMP110"]),
        ("tools: [{module: tool-nobody}]\n", ["AMP101", "AMP110"]),
        ("bundle: {name: a}\nproviders: 5\ntools: [{module: tool-emit}, {module: tool-emit}]\n", ["AMP103", "AMP105"]),
        ("bundle: {name: a}\ntools: [{module: tool-x, source: ./gone.py}]\n", ["AMP108"]),
        ("bundle: {name: a}\nsession: {orchestrator: {module: loop-x, source: ./gone.py}}\n", ["AMP108"]),
        ("bundle: {name: a}\nagents: {b: 5, c: {tools: [{}]}}\nx: &y 1\n", ["AMP106", "AMP204", "AMP103", "AMP101"]),
        ("bundle: {name: a\n", ["AMP203"]),
        ("- a\n", ["AMP212"]),
    ],
)
async def test_what_cannot_be_used_takes_nothing_else_with_it(front: str, codes: list[str], folder: Any) -> None:
    (folder / "bundle.md").write_text(f"---\n{front}---\nHelp.\n")
    problems = await check_bundle("bundle.md", load_plugins(environ={}))
    assert sorted(each.code for each in problems) == sorted(codes)
    assert all(each.line for each in problems)


@pytest.mark.parametrize("path", [("a", 0, "b"), ("a b", "c.d", 12), ("x",), (), ("tools", 3), ('q"\\', "é")])
def test_a_path_as_text_is_read_back(path: Any) -> None:
    assert parse_path(format_path(path)) == path
