"""How bundles are merged, by hand and through includes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import BundleDependencyError, BundleValidationError
from amplifier_foundation.bundle import (
    Bundle,
    deep_merge,
    load_bundle,
    load_bundle_sync,
    merge_module_lists,
    problems_of,
)
from amplifier_foundation.bundle.includes import include_tree
from amplifier_foundation.bundle.prompt import SystemPrompt
from amplifier_foundation.documents.positions import Place
from amplifier_foundation.documents.problems import warning_at


def bundle(name: str, **sections: Any) -> Bundle:
    return Bundle.from_dict({"bundle": {"name": name}, **sections}, Path.cwd())


def test_deep_merge_joins_lists_once_and_shares_nothing() -> None:
    base = {"a": {"x": 1, "l": [1, {"k": 1}]}, "b": 1}
    override = {"a": {"y": 2, "l": [{"k": 1}, 2]}, "b": {"c": 3}}
    merged = deep_merge(base, override)
    assert merged == {"a": {"x": 1, "y": 2, "l": [1, {"k": 1}, 2]}, "b": {"c": 3}}
    merged["a"]["l"][1]["k"] = 9
    merged["b"]["c"] = 9
    assert (base["a"], override["b"]) == ({"x": 1, "l": [1, {"k": 1}]}, {"c": 3})


def test_module_lists_merge_by_module_and_instance_in_the_order_first_seen() -> None:
    base: list[dict[str, Any]] = [{"module": "p", "instance_id": "one", "config": {"a": 1}}, {"module": "t"}]
    override: list[dict[str, Any]] = [
        {"module": "u"},
        {"module": "p", "instance_id": "two"},
        {"module": "p", "id": "one", "config": {"b": 2}},
    ]
    assert merge_module_lists(base, override) == [
        {"module": "p", "instance_id": "one", "id": "one", "config": {"a": 1, "b": 2}},
        {"module": "t"},
        {"module": "u"},
        {"module": "p", "instance_id": "two"},
    ]


def random_bundle(chance: random.Random, folder: Path) -> Bundle:
    def some(*values: Any) -> Any:
        return chance.choice(values)

    entries = [
        {
            "module": some("m", "n"),
            "config": {some("a", "b"): [chance.randint(0, 2)]},
            some("stand_in", "sandbox"): True,
        }
        for _ in range(chance.randint(0, 2))
    ]
    session = {
        some("orchestrator", "context"): some("x", {"module": "x", "config": {some("a", "b"): 1}}, {"module": "y"}),
        some("orchestrator_source", "provider_preferences"): some(["p"], ["q"]),
    }
    name = some("one", "two", "three")
    return Bundle(
        name,
        description=some("", "A", "B"),
        session=session,
        tools=entries,
        permissions={"mode": some("auto", "ask", None), "deny": [some("s", "t")]},
        spawn={"timeout": some(None, 1, 2), "exclude_tools": some([], ["a"], ["b"])},
        agents={some("x", "y"): {"description": some("A", "B")}},
        context={some("file", "one:file"): folder / some("a", "b")},
        instruction=some(None, "", "A", "B"),
        base_path=some(None, folder),
        source_base_paths={name: folder / some("a", "b")},
        _pending_context={some("file", "other", "two:file"): f"{some('one', 'two')}:c.md"},
        problems=[warning_at(Place("f"), "AMP100", some("A", "B"))],
    )


def test_many_bundles_at_once_are_the_same_as_one_after_the_other(tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(300):
        first, *others = [random_bundle(chance, tmp_path) for _ in range(chance.randint(2, 6))]
        in_turn = first
        for other in others:
            in_turn = in_turn.compose(other)
        at_once = first.compose(*others)
        assert at_once == in_turn
        assert list(map(id, at_once.layers)) == list(map(id, in_turn.layers))


def test_the_later_bundle_wins_and_neither_is_changed() -> None:
    base = bundle(
        "base", session={"orchestrator": "loop-a", "metadata": {"x": 1}}, tools=[{"module": "t"}], instruction="A"
    )
    top = bundle("top", session={"metadata": {"y": 2}}, tools=[{"module": "t", "config": {"k": 1}}])
    both = base.compose(top)
    assert both.name == "top"
    assert both.instruction == "A"
    assert both.to_mount_plan() == {
        "session": {"orchestrator": "loop-a", "metadata": {"x": 1, "y": 2}},
        "tools": [{"module": "t", "config": {"k": 1}}],
    }
    assert (base.tools, top.session) == ([{"module": "t"}], {"metadata": {"y": 2}})


def test_another_orchestrator_takes_nothing_of_the_former_ones_config() -> None:
    base = bundle("base", session={"orchestrator": {"module": "loop-a", "config": {"only_a": 1}}})
    top = bundle("top", session={"orchestrator": {"module": "loop-b", "config": {"b": 2}}})
    assert base.compose(top).session["orchestrator"] == {"module": "loop-b", "config": {"b": 2}}


def test_a_background_session_of_the_same_name_replaces_the_keys_that_it_gives() -> None:
    triggers = [{"type": "timer", "config": {"interval": 60}}]
    base = bundle("base", background_sessions=[{"name": "a", "pool_size": 2, "triggers": triggers}, {"name": "b"}])
    top = bundle("top", background_sessions=[{"name": "c"}, {"name": "a", "pool_size": 5, "if": "data.x == 1"}])
    sessions = base.compose(top).background_sessions
    assert [(config.name, config.pool_size, len(config.triggers), config.condition) for config in sessions] == [
        ("a", 5, 1, "data.x == 1"),
        ("b", 1, 0, None),
        ("c", 1, 0, None),
    ]
    above = bundle("above", background_sessions=[{"name": "a", "triggers": [], "if": None}])
    first = base.compose(top).compose(above).background_sessions[0]
    assert (first.pool_size, first.triggers, first.condition) == (5, [], None)
    assert base.background_sessions[0].pool_size == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"instruction": "one"}, {"instruction_template": "{data}"}),
        ({"instruction_template": "{data}"}, {"instruction": "one"}),
        ({"instruction": "one", "runner": "subprocess"}, {"workflow": "review"}),
        ({"workflow": "review"}, {"instruction": "one"}),
    ],
)
def test_one_task_of_a_background_session_takes_the_place_of_another(before: Any, after: Any) -> None:
    base, top = (
        bundle(name, background_sessions=[{"name": "a", **keys}]) for name, keys in (("b", before), ("t", after))
    )
    [config] = base.compose(top).background_sessions
    assert config.model_dump(exclude_unset=True) == {"name": "a", **after}


def test_keys_of_two_bundles_that_cannot_stand_together_are_an_error() -> None:
    base = bundle("base", background_sessions=[{"name": "a", "workflow": "review"}])
    top = bundle("top", background_sessions=[{"name": "a", "runner": "subprocess"}])
    with pytest.raises(BundleValidationError) as caught:
        base.compose(top)
    assert str(caught.value) == (
        "background_sessions: 'a' of two bundles: 'runner' has no meaning beside 'workflow': its tasks have their own"
    )


def test_a_mount_plan_is_a_copy() -> None:
    one = bundle("one", tools=[{"module": "t", "config": {"k": [1]}}])
    one.to_mount_plan()["tools"][0]["config"]["k"].append(2)
    assert one.tools == [{"module": "t", "config": {"k": [1]}}]


def test_data_that_is_wrong_is_refused_without_lines() -> None:
    with pytest.raises(BundleValidationError) as caught:
        Bundle.from_dict({"bundle": {"name": "x"}, "tools": [{"module": "t", "confg": {}}]})
    assert str(caught.value) == "bundle: error[AMP102] tools[0].confg: unknown key; did you mean 'config'?"


def test_data_of_a_program_stays_its_own() -> None:
    data: dict[str, Any] = {"bundle": {"name": "x"}, "tools": [{"module": "t", "config": None}]}
    made = Bundle.from_dict(data)
    assert made.tools == [{"module": "t"}]
    assert data["tools"] == [{"module": "t", "config": None}]
    assert len(made.digest) == 64


async def test_an_included_bundle_lies_under_the_one_that_includes_it(write: Any, folder: Path) -> None:
    (folder / "base").mkdir()
    write("tools: [{module: t, config: {a: 1}}]\nsession: {orchestrator: loop-x}\n", "Base.", "base/bundle.md", "base")
    write("tools: [{module: u}]\n", "", "extra.yaml.md", "extra")
    top = write("includes:\n  - bundle: ./base\n  - extra.yaml.md\ntools: [{module: t, config: {a: 2}}]\n")
    loaded = await load_bundle(top)
    assert (loaded.name, loaded.instruction, loaded.includes) == ("demo", "Base.", ["./base", "extra.yaml.md"])
    assert loaded.tools == [{"module": "t", "config": {"a": 2}}, {"module": "u"}]
    assert loaded.base_path == folder
    assert set(loaded.origins) == {str(folder / "base/bundle.md"), str(folder / "extra.yaml.md"), str(top)}
    with (folder / "base/bundle.md").open("a") as base:
        base.write("More.")
    assert load_bundle_sync(top).digest != loaded.digest


async def test_includes_are_only_listed_when_asked(write: Any) -> None:
    loaded = await load_bundle(write("includes: [./missing]\n"), auto_include=False)
    assert loaded.includes == ["./missing"]


def test_an_included_bundle_may_be_named_by_namespace_or_by_registration(write: Any, folder: Path) -> None:
    write("tools: [{module: own}]\n", "", "behaviors/y.md", "y")
    write("tools: [{module: shared}]\n", "", "lib/bundle.md", "shared")
    write("tools: [{module: inner}]\n", "", "lib/behaviors/z.md", "z")
    top = write("includes: ['demo:behaviors/y', shared, 'shared:behaviors/z']\n")
    loaded = load_bundle_sync(top, registry={"shared": folder / "lib"})
    assert [tool["module"] for tool in loaded.tools] == ["own", "shared", "inner"]
    assert load_bundle_sync("shared:behaviors/z", registry={"shared": str(folder / "lib/bundle.md")}).name == "z"


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ("./missing.md", "missing.md: no such file or folder"),
        ("git+ftp://token@host/x", "git+ftp://***@host/x: "),
        ("foundation", "foundation: no such file or folder in {folder}, and no bundle is registered as 'foundation'. "
                       "Register one with: amplifier bundle add foundation BUNDLE"),
        ("demo:behavior/x", "the folder of the bundle 'demo' has no 'behavior/x'"),
        ("demo:bundl", "the folder of the bundle 'demo' has no 'bundl'; did you mean 'bundle'?"),
        ("foundation:x", "no bundle is registered as 'foundation'. Known: demo. Use its path instead"),
        ("demos:x", "no bundle is registered as 'demos'; did you mean 'demo'? Known: demo. Use its path instead"),
    ],
)  # fmt: skip
def test_a_missing_include_is_told_with_its_line(write: Any, folder: Path, include: str, message: str) -> None:
    path = write(f"includes:\n  - bundle: {include}\n")
    with pytest.raises(BundleDependencyError) as caught:
        load_bundle_sync(path)
    assert str(caught.value).startswith(f"bundle.md:4:5: error[AMP111] includes[0]: {message.format(folder=folder)}")
    assert "token" not in str(caught.value)
    assert [problem.code for problem in problems_of(path)] == ["AMP111"]


def test_everything_wrong_with_what_is_included_is_told_at_once(write: Any, folder: Path) -> None:
    write("tools: 5\n", name="a/bundle.md", bundle="a")
    path = write("includes: [./gone.md, ./a, 'git+https://', ./a]\nhook: []\n")
    with pytest.raises(BundleDependencyError) as caught:
        load_bundle_sync(path)
    assert str(caught.value).splitlines() == [
        "bundle.md:4:1: warning[AMP106] hook: unknown section; did you mean 'hooks'? It is ignored",
        f"bundle.md:3:12: error[AMP111] includes[0]: gone.md: no such file or folder; searched in {folder}",
        "a/bundle.md:3:8: error[AMP103] tools: must be a list, not a whole number",
        "bundle.md:3:28: error[AMP111] includes[2]: git+https://: names no repository. Write git+https://host/org/repo",
    ]


def test_what_is_broken_far_below_is_read_once_however_many_lead_to_it(write: Any) -> None:
    write("tools: 5\n", name="n0.md")
    for number in range(1, 25):
        write(f"includes: [./n{number - 1}.md, ./n{number - 1}.md]\n", name=f"n{number}.md")
    with pytest.raises(BundleValidationError) as caught:
        load_bundle_sync("n24.md")
    assert str(caught.value) == "n0.md:3:8: error[AMP103] tools: must be a list, not a whole number"


def test_what_a_bundle_includes_may_name_files_of_that_bundle_whatever_is_registered(write: Any, folder: Path) -> None:
    write("includes: [outer:behaviors/y]\n", bundle="outer")
    write("includes: [outer:behaviors/z]\ncontext: {include: [outer:a.md]}\n", name="behaviors/y.md", bundle="y")
    write("hooks: [{module: hooks-z}]\n", name="behaviors/z.md", bundle="z")
    write(name="other/bundle.md", bundle="outer")
    (folder / "a.md").write_text("A.")
    bundle = load_bundle_sync("bundle.md", registry={"outer": folder / "other"})
    assert [hook["module"] for hook in bundle.hooks] == ["hooks-z"]
    assert list(bundle.context.values()) == [folder / "a.md"]
    tree = include_tree("bundle.md", registry={"outer": folder / "other"})
    assert [tree.name, tree.includes[0].name, tree.includes[0].includes[0].name] == ["outer", "y", "z"]


def test_a_part_of_a_bundle_knows_that_bundle_by_its_name(write: Any, folder: Path) -> None:
    write(name="lib/bundle.md", bundle="lib, namespace_root: ./files")
    write("hooks: [{module: hooks-z}]\n", name="lib/files/z.md", bundle="z")
    write("includes: [lib:z]\ncontext: {include: [lib:a.md]}\n", name="lib/behaviors/deep/y.md", bundle="y")
    (folder / "lib" / "files" / "a.md").write_text("A.")
    part = load_bundle_sync("lib/behaviors/deep/y.md", strict=True)
    assert [hook["module"] for hook in part.hooks] == ["hooks-z"]
    assert part.context == {"lib:a.md": folder / "lib" / "files" / "a.md"}
    write("includes: [./lib/behaviors/deep/y.md]\n", bundle="outer")
    assert load_bundle_sync("bundle.md", strict=True).context == part.context
    (folder / "lib" / "behaviors" / ".git").mkdir()
    with pytest.raises(BundleDependencyError, match="no bundle is registered as 'lib'"):
        load_bundle_sync("lib/behaviors/deep/y.md")


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("lib:../secret.md", "error[AMP107] context.include: leads out of the bundle's folder lib"),
        ("lib:link.md", "error[AMP107] context.include: leads out of the bundle's folder lib"),
        ("lib:gone.md", "warning[AMP108] context.include: lib/gone.md does not exist"),
        ("lob:a.md", "warning[AMP108] context.include: no bundle 'lob' is included"),
    ],
)
def test_a_context_of_another_bundle_that_cannot_be_had_is_told(
    reference: str, problem: str, write: Any, folder: Path
) -> None:
    write(name="lib/bundle.md", bundle="lib")
    (folder / "secret.md").write_text("secret")
    (folder / "lib" / "link.md").symlink_to(folder / "secret.md")
    write(f"includes: [./lib]\ncontext:\n  include: ['{reference}']\n")
    assert [str(each) for each in problems_of("bundle.md")] == [f"bundle.md:5:12: {problem}"]


def test_no_name_leads_out_of_its_bundle(write: Any, folder: Path) -> None:
    write(name="outside.md", bundle="outside")
    path = write(
        "includes: ['demo:../outside.md']\n"
        "background_sessions: [{name: a, bundle: 'demo:../outside.md', triggers: []}]\n",
        name="in/bundle.md",
    )
    with pytest.raises(BundleDependencyError, match="'demo:../outside.md' leads out of the folder of 'demo': in"):
        load_bundle_sync(path)
    [config] = load_bundle_sync(path, auto_include=False).background_sessions
    assert config.bundle == "demo:../outside.md"


def test_a_circle_of_includes_is_printed(write: Any) -> None:
    write("includes: [./b.md]\n", name="a.md", bundle="a")
    write("includes: [./c.md]\n", name="b.md", bundle="b")
    write("includes: [./b.md]\n", name="c.md", bundle="c")
    with pytest.raises(BundleDependencyError) as caught:
        load_bundle_sync("a.md")
    assert str(caught.value) == (
        "c.md:3:12: error[AMP111] includes[0]: bundles include each other: b.md -> c.md -> b.md. "
        "Remove one of these includes"
    )


def test_a_row_of_includes_has_an_end(write: Any) -> None:
    for number in range(40):
        write(f"includes: [./b{number + 1}.md]\n", name=f"b{number}.md", bundle=f"b{number}")
    with pytest.raises(BundleDependencyError, match="more than 32 bundles"):
        load_bundle_sync("b0.md")


def test_a_bundle_included_on_a_billion_ways_is_loaded_once(write: Any) -> None:
    for number in range(30):
        write(f"includes: [./b{number + 1}.md, ./b{number + 1}.md]\n", name=f"b{number}.md", bundle=f"b{number}")
    write("tools: [{module: t}]\ntols: 1\n", name="b30.md", bundle="b30")
    loaded = load_bundle_sync("b0.md")
    assert loaded.tools == [{"module": "t"}]
    assert [problem.code for problem in loaded.problems] == ["AMP106"]


def test_what_is_wrong_in_an_included_bundle_is_told_with_its_own_line(write: Any) -> None:
    write("tols: 1\ntools: 5\n", name="base.md", bundle="base")
    path = write("includes: [./base.md]\n")
    assert [str(problem) for problem in problems_of(path)] == [
        "base.md:3:1: warning[AMP106] tols: unknown section; did you mean 'tools'? It is ignored",
        "base.md:4:8: error[AMP103] tools: must be a list, not a whole number",
    ]


def test_paths_stay_relative_to_the_bundle_that_wrote_them(write: Any, folder: Path) -> None:
    write(
        "context: {include: ['base:rules.md'], notes: notes.md}\nbackground_sessions:\n"
        "  - {name: w, bundle: ./worker}\n  - {name: v, bundle: 'base:workers/v'}\n  - {name: o, bundle: other}\n",
        name="base/bundle.md",
        bundle="base",
    )
    (folder / "base/rules.md").write_text("Rules")
    (folder / "base/notes.md").write_text("Notes")
    loaded = load_bundle_sync(write("includes: [./base]\ncontext: {include: ['base:late.md']}\n"))
    assert loaded.context == {
        "base:rules.md": folder / "base/rules.md",
        "base:notes": folder / "base/notes.md",
        "base:late.md": folder / "base/late.md",
    }
    assert loaded.resolve_context_path("base:notes") == folder / "base/notes.md"
    assert [config.bundle for config in loaded.background_sessions] == [
        str(folder / "base/worker"),
        str(folder / "base/workers/v"),
        "other",
    ]


async def test_no_context_and_no_mention_brings_secrets_into_a_prompt(write: Any, folder: Path) -> None:
    for name in (".env", "id_rsa", "rules.md"):
        (folder / name).write_text(f"text of {name}, @id_rsa")
    loaded = load_bundle_sync(write("context: {include: [.env, rules.md]}\n"))
    prompt = await SystemPrompt(loaded, folder)()
    assert "text of rules.md" in prompt
    assert "text of .env" not in prompt and "text of id_rsa" not in prompt


def test_a_program_gives_background_sessions_as_mappings_and_they_are_checked(folder: Path) -> None:
    made = Bundle(
        "made",
        base_path=folder,
        background_sessions=[{"name": "a", "bundle": "./w.md", "triggers": [{"type": "timer"}]}],  # type: ignore[list-item]
    )
    [config] = made.background_sessions
    assert (config.triggers[0].module, config.bundle) == ("trigger-timer", str(folder / "w.md"))
    assert made.compose(Bundle("top", background_sessions=[config])).background_sessions == [config]
    with pytest.raises(BundleValidationError, match=r"background_sessions\[0\].pool: unknown key; did you mean 'pool"):
        Bundle("made", background_sessions=[{"name": "a", "pool": 2}])  # type: ignore[list-item]


def test_an_entry_that_is_no_mapping_is_refused_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"^override\[1\]: a module must be a mapping, not str$"):
        merge_module_lists([{"module": "a"}], [{"module": "b"}, "c"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^base\[0\]: a module must be a mapping, not NoneType$"):
        merge_module_lists([None], [])  # type: ignore[list-item]
