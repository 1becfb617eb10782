"""Random rules and calls: the policy agrees with a second, naive evaluator."""

from __future__ import annotations

import fnmatch
import os
import random
import re
from typing import Any

import pytest

from amplifier_core.permissions import Access, Call, Policy, parse_permissions
from amplifier_core.permissions.calls import Kind
from amplifier_core.permissions.policy import EFFECTS
from amplifier_core.permissions.protected import fold
from amplifier_core.permissions.rules import Rule, RuleGroup, describe_pattern

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("COUNT", "10000"))
SEED = os.environ.get("SEED", "20261122")
NAMES = ("src", "docs", "a.py", "b.txt", ".git", "config", ".env")
TOOLS = ("read_file", "write_file", "edit_file", "bash", "fetch", "emit")
ARGUMENTS = {
    "read_file": "path",
    "write_file": "path",
    "edit_file": "path",
    "bash": "command",
    "fetch": "url",
    "emit": "event",
}
WORDS = ("git", "status", "push", "ls")
HOSTS = ("ok.com", "api.ok.com", "evil.io")
ORDER = ("allow", "ask", "deny")


def random_value(chance: random.Random, tool: str) -> str:
    kind = ARGUMENTS[tool]
    if kind == "path":
        return "/".join(chance.choices(NAMES, k=chance.randint(1, 3)))
    if kind == "command":
        return " ".join(chance.choices(WORDS, k=chance.randint(1, 3)))
    return chance.choice(HOSTS) if kind == "url" else f"review:{chance.choice(('done', 'failed'))}"


def random_section(chance: random.Random) -> dict[str, Any]:
    section: dict[str, Any] = {}
    if chance.random() < 0.5:
        section["mode"] = chance.choice(("read-only", "ask", "auto"))
    for effect in ORDER:
        rules = []
        for _ in range(chance.randint(0, 4)):
            tool = chance.choice(TOOLS)
            value = random_value(chance, tool)
            shape = chance.random()
            pattern = value if shape < 0.5 else f"{value.split('/')[0].split()[0]}*" if shape < 0.75 else None
            rules.append(tool if pattern is None else f"{tool}({pattern})")
        if rules:
            section[effect] = rules
    return section


def naive_default(tool: str, value: str) -> str:
    parts = value.split("/")
    if tool in ("write_file", "edit_file") and (".git" in parts or parts[-1] == ".env"):
        return "protected"
    if tool == "read_file" and parts[-1] == ".env":
        return "protected"
    return {"bash": "ask", "fetch": "ask"}.get(tool, "allow")


def naive_fits(rule: str, tool: str, value: str, effect: str) -> bool:
    name, _, pattern = rule.removesuffix(")").partition("(")
    is_for_all = name == "write_file" and tool == "edit_file" and pattern and effect != "allow"
    if name != tool and not is_for_all:
        return False
    if not pattern:
        return True
    if "*" in pattern and ARGUMENTS[tool] == "path" and "/" in value[len(pattern) - 1 :]:
        return False  # `*` stays within a name
    return fnmatch.fnmatchcase(value, pattern.replace("[", "[[]"))


def naive_decision(sections: list[dict[str, Any]], tool: str, value: str) -> str:
    strictest, lifted = "allow", False
    for place, section in enumerate(sections):
        fitting = [
            (effect, rule)
            for effect in ORDER
            for rule in section.get(effect, ())
            if naive_fits(rule, tool, value, effect)
        ]
        if fitting:
            effect = max((effect for effect, _ in fitting), key=ORDER.index)
            if place == 0 and effect == "allow":  # the person's own; a protected file must be named
                first = next(rule for at, rule in fitting if at == "allow")
                lifted = naive_default(tool, value) != "protected" or "(" in first
        elif section.get("mode") in ("read-only", "ask") and tool != "read_file":
            effect = "deny" if section["mode"] == "read-only" else "ask"
        else:
            continue
        strictest = max(strictest, effect, key=ORDER.index)
    default = naive_default(tool, value)
    default = "deny" if default == "protected" else default
    return strictest if lifted else max(strictest, default, key=ORDER.index)


def test_random_policies_agree_with_a_naive_evaluator() -> None:
    chance = random.Random(SEED)
    seen = dict.fromkeys(ORDER, 0)
    for number in range(COUNT):
        sections = [random_section(chance) for _ in range(chance.randint(1, 3))]
        policy = Policy(
            parse_permissions(section, f"layer {place}", is_own=place == 0) for place, section in enumerate(sections)
        )
        for _ in range(3):
            tool = chance.choice(TOOLS)
            value = random_value(chance, tool)
            decided = policy.decide(Call.of(tool, {ARGUMENTS[tool]: value}, "/work/project")).effect
            assert decided == naive_decision(sections, tool, value), (SEED, number, sections, tool, value)
            seen[decided] += 1
    assert min(seen.values()) > COUNT / 10, seen


GLOBS = ("a", "b", "a", "/", "/", "*", "**", "**/", "/**", "?", "[ab]", "[!a]", r"\*")


def naive_glob(pieces: list[str], value: str) -> bool:
    """Compare a path with a pattern piece by piece, each way that there is."""
    if not pieces:
        return not value
    first, rest = pieces[0], pieces[1:]
    if first == "/**" and not rest:
        return value == "" or value.startswith("/")
    if first == "**":
        return any(naive_glob(rest, value[at:]) for at in range(len(value) + 1))
    if first == "**/":
        starts = [0, *(at + 1 for at, sign in enumerate(value) if sign == "/")]
        return any(naive_glob(rest, value[at:]) for at in starts)
    if first == "*":
        return any(naive_glob(rest, value[at:]) for at in range(len(value.partition("/")[0]) + 1))
    fits = {"?": "ab*", "[ab]": "ab", "[!a]": "b*", r"\*": "*"}.get(first, first)
    return bool(value) and value[0] in fits and naive_glob(rest, value[1:])


def test_random_patterns_of_paths_agree_with_a_naive_comparison() -> None:
    chance = random.Random(SEED)
    seen = {True: 0, False: 0}
    for _ in range(COUNT):
        pattern = "".join(chance.choices(GLOBS, k=chance.randint(1, 8)))
        if re.search(r"[^/]\*\*/", pattern):
            continue  # within a name, `**/` is something else
        pieces = re.findall(r"/\*\*$|\*\*/|\*\*|\*|\?|\[[^\]/]+\]|\\.|.", pattern)
        regex = re.compile(describe_pattern(pattern, "read", folds=chance.random() < 0.5))
        for _ in range(5):
            value = "".join(chance.choices("aab//*", k=chance.randint(0, 8)))
            fits = regex.fullmatch(value) is not None
            assert fits == naive_glob(pieces, value), (pattern, value)
            seen[fits] += 1
    assert min(seen.values()) > COUNT / 10, seen


PIECES = ("a", "b", "A.b", "/", "*", "**/", "/**", "?", "[ab]", "[!a-]", r"\*", r"\[", *"(|- .ßÉ~", " *")
KINDS: tuple[Kind, ...] = ("read", "write", "command", "host", "event", "other")


def test_the_first_of_many_rules_that_fits_decides_as_if_each_were_compared() -> None:
    chance = random.Random(SEED)
    fitting = 0
    for _ in range(COUNT // 100):
        kind, effect = chance.choice(KINDS), chance.choice(EFFECTS)
        texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 4))) for _ in range(chance.choice((1, 5, 40)))]
        rules = [Rule(effect, "tool", chance.choice((None, *[text] * 30))) for text in texts]
        group = RuleGroup(effect, rules, kind)
        folds = kind == "host" or (effect != "allow" and kind in ("read", "write"))
        for _ in range(20):
            value = "".join(chance.choices("aAbB./ -*[(|~ß", k=chance.randint(0, 4)))
            access = Access(kind, value, form="decoded")
            compared = fold(value) if folds else value
            regexes = [describe_pattern(rule.pattern, kind, folds=folds) for rule in rules]
            fits = [re.fullmatch(regex, compared, re.DOTALL) is not None for regex in regexes]
            expected = rules[fits.index(True)] if any(fits) else None
            assert group.find(access) is expected, (value, expected)
            fitting += expected is not None
    assert fitting > COUNT // 100
