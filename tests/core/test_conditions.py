"""Conditions on data: what they say, what is refused and where, and texts that nobody would write."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from amplifier_core.conditions import DEEPEST, LONGEST, Condition, ConditionError, facts_of
from amplifier_core.errors import AmplifierError
from amplifier_core.triggers import TriggerEvent, TriggerType

DATA: dict[str, Any] = {
    "name": "work:completed",
    "empty": "",
    "data": {
        "exit_code": 1,
        "ratio": 0.5,
        "ok": True,
        "nothing": None,
        "labels": ["bug", "urgent"],
        "files": [{"path": "src/a.py", "size": 10}, {"path": "b.md", "size": 0}],
        "exit-code": 2,
        "in": "a word of the language",
    },
}


def holds(text: str) -> bool:
    return Condition.parse(text).holds(DATA)


@pytest.mark.parametrize(
    "text",
    [
        "name == 'work:completed'",
        'name == "work:completed"',
        "name != 'other'",
        "data.exit_code == 1",
        "data.exit_code == 1.0",
        "data.exit_code >= 1 and data.exit_code <= 1",
        "data.exit_code > -1",
        "data.ratio < 1e0",
        "'a' < 'b'",
        "data.ok",
        "data.ok == true",
        "not data.nothing",
        "data.nothing == null",
        "data.missing == null and data.missing.deeper.0 == null",
        "'bug' in data.labels",
        "'docs' not in data.labels",
        "not 'docs' in data.labels",
        "'work' in name",
        "'exit_code' in data",
        "'missing' not in data",
        "name in ['work:completed', 'work:failed']",
        "data.labels == ['bug', 'urgent']",
        "data.exit_code in [0, data.files.0.size, 1]",
        "data.files.0.path == 'src/a.py'",
        "data.files.0.size > data.files.1.size",
        "data.exit-code == 2",
        "data.in == 'a word of the language'",
        "data.files.1 == data.files.1",
        "false or true and true",
        "true or true and false",
        "not false and true",
        "not (true and false)",
        "(((true)))",
        "[] == []",
        "[1]",
        r"'it\'s' == " '"it\'s"',
        "  \n name\t==\n'work:completed'  ",
    ],
)
def test_a_condition_that_is_true(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "name == 'other'",
        "empty",
        "[]",
        "0",
        "null",
        "true and false",
        "data.exit_code == true",
        "data.ok == 1",
        "data.exit_code == '1'",
        "data.exit_code < '2'",
        "data.exit_code > '0'",
        "data.missing < 1 or data.missing >= 1",
        "data.labels < data.labels",
        "data.labels == 'bug'",
        "data.labels == ['bug']",
        "1 in name",
        "1 in 1",
        "1 in data",
        "1 in ['1', true]",
        "data.files.2.path",
        "data.files.-1",
        "data.files.0.path.0",
        "data.labels.first",
        "name.__class__",
        "data.labels.__len__ or data.__class__.__mro__",
        "data.labels.append or name.upper or data.items",
        "data.files.99999999999999999999",
    ],
)
def test_a_condition_that_is_false(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a value, not the end"),
        ("  ", 1, "expected a value, not the end"),
        ("name ==", 8, "expected a value, not the end"),
        ("name = 'a'", 6, "unexpected '='; equal is =="),
        ("name && data", 6, "unexpected '&'; write 'and'"),
        ("a || b", 3, "unexpected '|'; write 'or'"),
        ("!a", 1, "unexpected '!'; write 'not'"),
        ("name == 'work", 9, "the text that begins here has no closing '"),
        ("name.upper()", 11, "expected 'and', 'or' or the end, not '('"),
        ("data['key']", 5, "expected 'and', 'or' or the end, not '['"),
        ("a == 1 == 2", 8, "comparisons are not chained: join them with 'and'"),
        ("(a", 3, "expected ')', not the end"),
        ("a)", 2, "expected 'and', 'or' or the end, not ')'"),
        ("[1 2]", 4, "expected ',', not '2'"),
        ("[1,", 4, "expected a value, not the end"),
        ("a not b", 7, "expected 'in', not 'b'"),
        ("and", 1, "expected a value, not 'and'"),
        ("a or or b", 6, "expected a value, not 'or'"),
        ("a.", 2, "unexpected '.'"),
        ("1 + 1", 3, "unexpected '+'"),
        ("1.2.3", 1, "unexpected '1'"),
        ("lambda: 0", 7, "unexpected ':'"),
        ("a if b else c", 3, "expected 'and', 'or' or the end, not 'if'"),
        ("x" * (LONGEST + 1), LONGEST + 1, f"at most {LONGEST} characters"),
        ("(" * (DEEPEST + 1), DEEPEST + 1, f"nested deeper than {DEEPEST}"),
        ("not " * (DEEPEST + 1) + "a", 4 * DEEPEST + 1, f"nested deeper than {DEEPEST}"),
        ("[" * 900, DEEPEST + 1, f"nested deeper than {DEEPEST}"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_column(text: str, column: int, message: str) -> None:
    with pytest.raises(ConditionError) as caught:
        Condition.parse(text)
    assert (caught.value.column, message in str(caught.value)) == (column, True), str(caught.value)
    assert str(caught.value).startswith(f"column {column}: ")
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, AmplifierError)


def test_a_caret_stands_below_what_is_wrong() -> None:
    with pytest.raises(ConditionError) as caught:
        Condition.parse("name\n= 'a'")
    assert caught.value.caret == "name = 'a'\n     ^"


def test_a_condition_names_the_paths_that_it_reads() -> None:
    text = "data.a.0 == 1 and not (name in [data.b, 'data.c'] or data.a.0) and true"
    assert Condition.parse(text).paths() == ("data.a.0", "name", "data.b")


def test_as_deep_as_is_allowed_is_read_and_answered() -> None:
    assert Condition.parse("(" * DEEPEST + "true" + ")" * DEEPEST).holds({})
    assert Condition.parse("not " * DEEPEST + "true").holds({})


def test_values_that_are_nested_without_end_are_answered() -> None:
    endless: list[Any] = []
    endless.append(endless)
    other: list[Any] = []
    other.append(other)
    assert not Condition.parse("a == b").holds({"a": endless, "b": other})


def test_the_facts_of_an_event_are_what_an_if_is_asked_of() -> None:
    event = TriggerEvent(
        TriggerType.FILE_CHANGE, "trigger-file-watcher", data={"n": 1}, file_path="src/a.py", change_type="modified"
    )
    facts = facts_of(event)
    assert Condition.parse("type == 'file_change' and file_path == 'src/a.py' and data.n == 1").holds(facts)
    assert Condition.parse("change_type == 'modified' and event_name == null and depth == 0").holds(facts)
    assert facts["timestamp"] == event.timestamp.isoformat()


WORDS = (
    *("and", "or", "not", "in", "true", "false", "null", "name", "data", "data.files.0.path", "data.labels", "x.y"),
    *("==", "!=", "<", "<=", ">", ">=", "(", ")", "[", "]", ",", ".", "=", "!", "'", '"', "\\", "'bug'", '"a\\""'),
    *("0", "1", "-1", "1.5", "1e999", "9" * 400, "__class__", "a-b", "é", "\n", "\0", "\ud800", "lambda", "{}", "#"),
)


def generated(random: Random) -> str:
    if random.random() < 0.5:
        return random.choice((" ", "")).join(random.choices(WORDS, k=random.randrange(30)))
    return expression(random, 4)


def expression(random: Random, depth: int) -> str:
    kind = random.randrange(7) if depth else 6
    if kind < 2:
        return f"{expression(random, depth - 1)} {('and', 'or')[kind]} {expression(random, depth - 1)}"
    if kind == 2:
        return f"not ({expression(random, depth - 1)})"
    if kind < 5:
        sign = random.choice(("==", "!=", "<", "<=", ">", ">=", "in", "not in"))
        return f"({expression(random, depth - 1)} {sign} {expression(random, depth - 1)})"
    if kind == 5:
        return f"[{', '.join(operand(random) for _ in range(random.randrange(4)))}]"
    return operand(random)


OPERANDS = ("name", "data.files.0.size", "data.labels", "data", "1", "-2.5", "'bug'", "null", "true", "[1]")


def operand(random: Random) -> str:
    return random.choice(OPERANDS)


def test_whatever_is_written_it_is_answered_or_refused() -> None:
    random = Random(7)
    answers: list[bool | None] = []
    for _ in range(5_000):
        text = generated(random)
        try:
            condition = Condition.parse(text)
        except ConditionError as error:
            assert 1 <= error.column <= len(text) + 1
            answers.append(None)
        else:
            answers.append(condition.holds(DATA))
            assert condition.holds(DATA) is answers[-1]
    assert {answers.count(answer) > 200 for answer in (True, False, None)} == {True}


@pytest.mark.parametrize("piece", ["a or ", "not ", "1 in ", "'", "\\'", "((", "[[],", "-", "1.", " \n", "a.a- ", "<="])
def test_the_longest_texts_are_no_more_than_read_once(piece: str) -> None:
    text = (piece * LONGEST)[:LONGEST]
    with pytest.raises(ConditionError):
        Condition.parse(text)


@pytest.mark.parametrize("value", [None, True, False, 0, 1, 1.0, 2.5, "", "1", "x", [], [1], [True], {}, {"a": 1}])
def test_an_item_of_a_long_list_is_found_as_by_a_comparison(value: object) -> None:
    for items in ([value] * 50_000, [1] * 50_000, [True] * 50_000, ["1"] * 50_000, [None], [[1.0]], [{"a": 1.0}]):
        data = {"data": {"value": value, "body": items, "first": items[0]}}
        equal = Condition.parse("data.value == data.first").holds(data)
        assert Condition.parse("data.value in data.body").holds(data) == equal, (value, items[0])
