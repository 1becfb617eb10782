"""Every key of the schema given what it does not take, every key misspelt, and files that no editor writes."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from amplifier_core import load_plugins
from amplifier_foundation.bundle import BundleProblemsError, InvalidBundle, check_bundle, load_bundle_sync
from amplifier_foundation.bundle.load import read_bundle
from amplifier_foundation.bundle.schema import AgentFile, BundleFile, Listed
from amplifier_foundation.documents import document as documents_module
from amplifier_foundation.documents.document import read_document
from amplifier_foundation.documents.positions import KeyPath, format_path
from amplifier_foundation.documents.problems import error_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_foundation.documents.problems import Problem

# every key of the schema


class Key(NamedTuple):
    """One key that may be written: where, what it takes, and what its mapping cannot be without."""

    path: KeyPath
    annotation: Any
    beside: dict[str, Any]


NEEDED = {
    "BundleFile": {"bundle": {"name": "demo"}},
    "AgentFile": {"meta": {"name": "demo"}},
    "BundleSection": {"name": "demo"},
    "ModuleEntry": {"module": "tool-x"},
    "ProviderEntry": {"module": "provider-x"},
    "ToolEntry": {"module": "tool-x"},
    "Include": {"bundle": "./x"},
    "BackgroundSessionConfig": {"name": "demo"},
    "TrackerConfig": {"name": "issue"},
    "TriggerConfig": {"module": "trigger-timer"},
}
WRITTEN_AS_TEXT = {("bundle", "name"), ("bundle", "version")}
"""Where a number is text."""
SIZES = ("memory", "file_size", "output")
"""What is written as `5`, or as `5 MB`."""
WRONG: dict[Any, list[Any]] = {
    str: [5, 1.5, True, [], {}],
    int: ["5", 1.5, True, [], {}],
    float: ["5", True, [], {}],
    bool: ["true", 0, [], {}],
    list: ["x", 5, False, {"a": 1}],
    dict: ["x", 5, True, [1]],
}


def kinds_of(annotation: Any) -> list[Any]:
    """Return the types that a key takes, null left out, without their `Annotated`."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for each in get_args(annotation) for kind in kinds_of(each)]
    return [] if annotation is type(None) else [annotation]


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def keys_of(model: type[BaseModel], path: KeyPath = ()) -> Iterator[Key]:
    for name, field in ((field.alias or name, field) for name, field in model.model_fields.items()):
        yield Key((*path, name), field.annotation, NEEDED.get(model.__name__, {}))
        for kind in kinds_of(field.annotation):
            yield from _inside(kind, (*path, name))


def _inside(kind: Any, path: KeyPath) -> Iterator[Key]:
    if is_model(kind):
        yield from keys_of(kind, path)
    elif get_origin(kind) is list:
        for item in kinds_of(get_args(kind)[0]):
            yield Key((*path, 0), item, {})
            yield from _inside(item, (*path, 0))


def wrong_for(key: Key) -> list[Any]:
    kinds = kinds_of(key.annotation)
    if Any in kinds:
        return []
    if key.path in WRITTEN_AS_TEXT:
        return [True, [], {}]
    if key.path[-1] in SIZES:
        return [1.5, True, [], {}]
    plain = [_plain(kind) for kind in kinds]
    named = key.path[-1] in ("orchestrator", "context", "tracker", "worktree") or (
        len(key.path) > 1 and key.path[-2:] == ("includes", 0)
    )
    taken = {type(value) for kind in plain for value in _right(kind)} | ({str} if named else set())
    candidates = [value for kind in plain for value in WRONG[kind]]
    return [value for value in candidates if type(value) not in taken and not (taken == {float, int} and value == 0)]


def _plain(kind: Any) -> Any:
    origin = get_origin(kind) or kind
    return str if origin is Literal else dict if is_model(kind) else origin


def _right(kind: Any) -> list[Any]:
    return {str: [""], int: [0], float: [0.0, 0], bool: [True], list: [[]], dict: [{}]}[kind]


def document_with(model: type[BaseModel], path: KeyPath, value: Any) -> dict[str, Any]:
    """Return the smallest document that is right but for `value` at `path`."""
    whole: dict[str, Any] = json.loads(json.dumps(NEEDED[model.__name__]))
    holder: Any = whole
    beside = {key.path[:-1]: key.beside for key in (BUNDLE_KEYS if model is BundleFile else AGENT_KEYS)}
    for depth, part in enumerate(path[:-1], 1):
        empty: Any = [] if isinstance(path[depth], int) else dict(beside.get(path[:depth], {}))
        if isinstance(part, int):
            holder.append(empty)
            holder = holder[0]
        else:
            holder = holder.setdefault(part, empty)
    if isinstance(holder, list):
        holder.append(value)
    else:
        holder[path[-1]] = value
    return whole


def problems_with(data: Any, folder: Path) -> list[Problem]:
    (folder / "bundle.yaml").write_text(json.dumps(data), encoding="utf-8")
    try:
        return read_bundle(folder / "bundle.yaml").problems
    except BundleProblemsError as error:
        return list(error.problems)


def agent_problems_with(data: Any, folder: Path) -> list[Problem]:
    (folder / "agents").mkdir(exist_ok=True)
    (folder / "agents" / "a.md").write_text(f"---\n{json.dumps(data)}\n---\nYou work.\n", encoding="utf-8")
    return problems_with({"bundle": {"name": "demo"}, "agents": {"include": ["a"]}}, folder)


BUNDLE_KEYS, AGENT_KEYS = list(keys_of(BundleFile)), list(keys_of(AgentFile))


def test_the_walk_finds_the_keys_at_every_depth() -> None:
    paths = {key.path for key in BUNDLE_KEYS}
    assert {
        ("bundle", "tags", 0),
        ("session", "orchestrator", "module"),
        ("tools", 0, "config"),
        ("background_sessions", 0, "triggers", 0, "name"),
        ("agents", "include", 0),
    } <= paths


@pytest.mark.parametrize("key", BUNDLE_KEYS, ids=lambda key: format_path(key.path))
def test_a_key_of_a_bundle_refuses_what_is_of_another_kind(key: Key, folder: Path) -> None:
    _refuses(key, [problems_with(document_with(BundleFile, key.path, value), folder) for value in wrong_for(key)])


@pytest.mark.parametrize("key", AGENT_KEYS, ids=lambda key: format_path(key.path))
def test_a_key_of_an_agent_refuses_what_is_of_another_kind(key: Key, folder: Path) -> None:
    _refuses(key, [agent_problems_with(document_with(AgentFile, key.path, value), folder) for value in wrong_for(key)])


def _refuses(key: Key, answers: list[list[Problem]]) -> None:
    assert answers or key.path == ("workflows",)
    for problems in answers:
        [*_, problem] = [problem for problem in problems if problem.severity == "error"]
        assert problem.code in ("AMP103", "AMP104")
        assert problem.path == format_path(key.path)
        assert problem.line >= 1


def test_a_value_that_may_be_of_several_kinds_is_told_all_of_them_at_once(folder: Path) -> None:
    data = {"meta": {"name": "a"}, "agents": 5, "model_role": True, "provider_preferences": [5]}
    assert [problem.message for problem in agent_problems_with(data, folder)] == [
        "must be 'all' or 'none' or a list, not a whole number",
        "must be text or a list, not true or false",
        "must be a mapping, not a whole number",
    ]
    [problem] = agent_problems_with({"meta": {"name": "a"}, "agents": ["a", 5]}, folder)
    assert (problem.path, problem.message) == ("agents[1]", "must be text, not a whole number")


# every key misspelt


def misspelt(word: str) -> set[str]:
    """Return `word` with one letter dropped, doubled, or in the place of the next."""
    spots = range(len(word))
    dropped = {word[:spot] + word[spot + 1 :] for spot in spots}
    doubled = {word[:spot] + word[spot] + word[spot:] for spot in spots}
    swapped = {word[:spot] + word[spot + 1] + word[spot] + word[spot + 2 :] for spot in spots[:-1] if len(word) > 3}
    return (dropped | doubled | swapped) - {word}


def named_keys(keys: list[Key]) -> list[Key]:
    """Return those that stand among known ones: what else is in an open section is a name of its own."""
    return [key for key in keys if isinstance(key.path[-1], str) and key.path[-1] != "include"]


@pytest.mark.parametrize("key", named_keys(BUNDLE_KEYS), ids=lambda key: format_path(key.path))
def test_a_misspelt_key_of_a_bundle_is_answered_with_the_right_word(key: Key, folder: Path) -> None:
    _are_answered(key, problems_with(document_with_typos(BundleFile, key), folder))


@pytest.mark.parametrize("key", named_keys(AGENT_KEYS), ids=lambda key: format_path(key.path))
def test_a_misspelt_key_of_an_agent_is_answered_with_the_right_word(key: Key, folder: Path) -> None:
    _are_answered(key, agent_problems_with(document_with_typos(AgentFile, key), folder))


def document_with_typos(model: type[BaseModel], key: Key) -> dict[str, Any]:
    """Return the smallest document that has every misspelling of a key in the place of the key."""
    first, *others = sorted(misspelt(str(key.path[-1])))
    whole = document_with(model, (*key.path[:-1], first), None)
    holder: Any = whole
    for part in key.path[:-1]:
        holder = holder[part]
    holder.update(dict.fromkeys(others))
    return whole


def _are_answered(key: Key, problems: list[Problem]) -> None:
    told = {problem.path: problem.message for problem in problems if "unknown" in problem.message}
    for typo in misspelt(str(key.path[-1])):
        assert f"did you mean '{key.path[-1]}'?" in told[format_path((*key.path[:-1], typo))]


ROOT = Path(__file__).parents[3]
[EXAMPLE] = [
    text
    for text in re.findall(
        r"^```markdown\n(.*?)^```$", (ROOT / "amplifier_foundation" / "README.md").read_text("utf-8"), re.M | re.S
    )
    if "name: notes" in text
]
FRONT = "\n".join(line.partition(" #")[0] for line in EXAMPLE.split("\n---\n")[0].splitlines())
NO_KEYS = {"changed", "said", "file_path"}
"""Words of texts, and what is handed to a tool: any key may be."""
EXAMPLE_KEYS = [match for match in re.finditer(r"\b[a-z_]+(?=:(\s|$))", FRONT, re.M) if match[0] not in NO_KEYS]


@pytest.mark.parametrize("key", EXAMPLE_KEYS, ids=lambda key: f"{key[0]}-{key.start()}")
async def test_a_mistyped_key_of_the_readmes_example_is_told_with_its_line(key: re.Match[str], folder: Path) -> None:
    word, line = key[0], FRONT.count("\n", 0, key.start()) + 1
    typo = f"{word}z"
    text = f"{FRONT[: key.start()]}{typo}{FRONT[key.end() :]}\n---\nYou look after notes.\n"
    (folder / "bundle.md").write_text(text, encoding="utf-8")
    problems = await check_bundle("bundle.md", load_plugins())
    [told] = [problem for problem in problems if f"did you mean '{word}'?" in problem.message]
    assert told.line == line
    assert typo in str(told)


def test_the_readmes_example_has_the_keys_that_are_mistyped() -> None:
    assert [key[0] for key in EXAMPLE_KEYS] == [
        "bundle", "name", "version", "providers", "module", "config", "rules", "when", "user", "call", "tool", "input",
        "when", "tool", "say", "otherwise", "say", "tools", "module", "background_sessions", "name",
        "triggers", "module", "config", "patterns", "debounce_ms", "pool_size", "on_complete_emit",
    ]  # fmt: skip


# files that no editor writes


def test_a_file_of_a_hundred_megabytes_is_refused_without_being_read(problems: Any, folder: Path) -> None:
    with (folder / "bundle.md").open("wb") as file:
        file.write(b"---\nbundle: {name: demo}\n---\n")
        file.truncate(100 * 1024 * 1024)
    with pytest.raises(BundleProblemsError) as caught:
        load_bundle_sync("bundle.md")
    assert str(caught.value) == "bundle.md:1:1: error[AMP209] larger than 4 MiB"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"\xef\xbb\xbf---\nbundle:\n  name: \xff\n---\n", "3:9: error[AMP210] byte 0xff is not UTF-8"),
        (b"\xef\xbb---\n", "1:1: error[AMP210] byte 0xef is not UTF-8"),
        (b"---\r\nbundle:\r\n  name: \xe9\r\n---\r\n", "3:9: error[AMP210] byte 0xe9 is not UTF-8"),
        (b"---\rbundle:\r  name: \xe9\r---\r", "3:9: error[AMP210] byte 0xe9 is not UTF-8"),
        (b"---\nbundle: {name: a}\nx: '\xed\xa0\x80'\n---\n", "3:5: error[AMP210] byte 0xed is not UTF-8"),
        (b"---\rbundle:\r  nmae: demo\r---\r", "3:3: error[AMP102] bundle.nmae"),
        (b"\xef\xbb\xbf---\r\nbundle:\r\n\tname: demo\r\n---\r\n", "3:1: error[AMP214] a tab"),
        ("---\nbundle: {name: a\u2028b, nmae: c}\n---\n".encode(), "2:21: error[AMP102] bundle.nmae"),
        ("---\nbundle:\n  name: a\x85  nmae: c\n  tags: [\n---\n".encode(), "5:1: error[AMP203]"),
        (b"---\nbundle: {name: a}\nspawn: {x: 0x" + b"f" * 2000 + b"}\n---\n", "3:12: error[AMP213] spawn.x: not a"),
        (b"---\nbundle: {name: a}\ncontext: {x: " + b"y" * 5000 + b"}\n---\n", "3:14: warning[AMP108] context.x: "),
        (b'---\nbundle: {name: a}\nagents: {include: ["a\\0b"]}\n---\n', "3:20: error[AMP107] agents.include[0]: "),
        (b"---\nbundle: {name: a}\nagents: {include: [" + b"y" * 5000 + b"]}\n---\n", "3:20: warning[AMP108] agents."),
        (
            b"---\nbundle: {name: a}\ntools: [{module: x, source: ./" + b"y" * 5000 + b"}]\n---\n",
            "3:29: error[AMP108] ",
        ),
    ],
    ids=range(14),
)
def test_what_is_odd_in_a_file_is_told_where_its_editor_shows_it(folder: Path, content: bytes, line: str) -> None:
    (folder / "bundle.md").write_bytes(content)
    with pytest.raises(BundleProblemsError) as caught:
        read_bundle("bundle.md", strict="warning" in line)
    told = str(caught.value).splitlines()
    assert any(each.startswith(f"bundle.md:{line.replace('warning', 'error')}") for each in told), told


def test_what_yaml_says_of_the_end_of_a_file_stands_in_the_file(folder: Path) -> None:
    (folder / "bundle.yaml").write_text("bundle: {name: a}\ninstruct")
    with pytest.raises(BundleProblemsError) as caught:
        read_bundle("bundle.yaml")
    assert str(caught.value).startswith("bundle.yaml:2:9: error[AMP203] ")


def test_a_long_message_loses_its_middle(folder: Path) -> None:
    (folder / "bundle.md").write_text(f"---\nbundle: {{name: a}}\ncontext: {{x: {'y' * 100_000}}}\n---\n")
    [problem] = read_bundle("bundle.md").problems
    assert len(problem.message) < 2_100
    assert problem.message.endswith("y does not exist")


def test_a_path_of_a_million_folders_is_not_followed(folder: Path) -> None:
    (folder / "bundle.md").write_text(f"---\nbundle: {{name: a}}\ncontext: {{x: {'../y/' * 400_000}z}}\n---\n")
    [problem] = read_bundle("bundle.md").problems
    assert problem.message.endswith("z does not exist")


def test_a_secret_is_looked_for_in_a_text_that_almost_is_one_everywhere(folder: Path) -> None:
    (folder / "bundle.md").write_text(f"---\nbundle: {{name: a, description: '{'a-' * 400_000}://'}}\n---\n")
    assert read_bundle("bundle.md").problems == []


def test_thousands_of_unknown_sections_are_told_as_a_hundred(folder: Path) -> None:
    (folder / "bundle.md").write_text(
        "---\nbundle: {name: a}\n" + "".join(f"toolz{number}: 1\n" for number in range(20_000)) + "---\n"
    )
    assert len(read_bundle("bundle.md").problems) == 100


def test_a_key_as_long_as_a_book_is_not_compared_with_words(folder: Path) -> None:
    (folder / "bundle.md").write_text(f"---\nbundle: {{name: a, {'x' * 900}: 1}}\n---\n")
    with pytest.raises(InvalidBundle, match="unknown key; known here: name, version"):
        read_bundle("bundle.md")


# what is read once


def test_a_file_that_stays_as_it_is_is_parsed_once(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("tools: [{module: tool-x}]\nspawn: {only: [here]}\n")
    first = read_document(path)
    parsed: list[Path] = []
    monkeypatch.setattr(documents_module, "_parse", lambda document, raw: parsed.append(document.path))
    assert read_document(path).data == first.data
    assert parsed == []
    path.write_text(path.read_text() + "More.\n")
    assert read_document(path).data is None
    assert parsed == [path]


def test_what_one_reader_does_to_a_document_no_other_one_sees(write: Any) -> None:
    path = write("tools: [{module: tool-x, config: {a: [1]}}]\n")
    document = read_document(path)
    assert document.data is not None
    document.data["tools"][0]["config"]["a"].append(2)
    document.problems.append(error_at(document.positions.at(()), "AMP101", "mine"))
    again = read_document(path)
    assert again.data == {"bundle": {"name": "demo"}, "tools": [{"module": "tool-x", "config": {"a": [1]}}]}
    assert again.problems == []


def test_a_broken_file_is_told_again_as_it_was_told(problems: Any) -> None:
    first = problems("---\nbundle: {name: a\n---\n")
    assert problems("---\nbundle: {name: a\n---\n") == first != []


def test_one_text_is_told_by_the_name_of_each_file_that_holds_it(problems: Any) -> None:
    assert problems("bundle: {nmae: a}\n", "a.yaml")[0].startswith("a.yaml:1:")
    assert problems("bundle: {nmae: a}\n", "b.yaml")[0].startswith("b.yaml:1:")
    assert problems("bundle: {nmae: a}\n", "b.md")[0].startswith("b.md:1:1: error[AMP201]")


def test_only_so_much_is_kept(folder: Path) -> None:
    kept = documents_module._Kept(documents=2, size=10_000)
    documents = [documents_module.Document(documents_module.Positions("x")) for _ in range(4)]
    for number, document in enumerate(documents[:3]):
        kept.put((str(number), "", ""), document, 10)
    assert [kept.get((str(number), "", "")) for number in range(3)] == [None, *documents[1:3]]
    kept.put(("3", "", ""), documents[3], 9_985)
    assert [kept.get((str(number), "", "")) for number in (1, 2, 3)] == [None, documents[2], documents[3]]
    kept.put(("4", "", ""), documents[0], 10_001)
    assert [kept.get((str(number), "", "")) for number in range(5)] == [None] * 5


def test_bundles_are_read_by_several_threads_at_once(write: Any) -> None:
    paths = [write(f"tools: [{{module: tool-{number}}}]\n", name=f"{number}.md") for number in range(12)]
    found: list[list[str]] = []

    def read() -> None:
        found.append([read_bundle(path).tools[0]["module"] for _ in range(5) for path in paths])

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[f"tool-{number}" for _ in range(5) for number in range(12)]] * 6


def test_an_open_section_takes_any_name() -> None:
    assert [model.__name__ for model in Listed.__subclasses__()] == ["ContextSection", "AgentsSection"]
