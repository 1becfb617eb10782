"""What is decoded is what a real bash makes of it; everything else is not decoded."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_tool_bash.commands.decoding import describe_command
from amplifier_tool_bash.commands.parsing import SimpleCommand, TooManyCommands, parse
from amplifier_tool_bash.commands.reading import find_read_paths
from amplifier_tool_bash.commands.words import Opaque, Unfinished, Word
from tests.programs import require

COUNT = int(os.environ.get("COUNT", "4000"))
SEED = os.environ.get("SEED", "20261123")
PIECES = (
    "a", "b", " ", "  ", "\t", "'", '"', "\\", "\\\n", "$'", r"\n", r"\x41", r"\101", r"\u00e9", "$x", "$(", ")",
    "`", "~",
    "~/", "=", "x=", "#", " #", ";", "&&", "||", "|", "\n", "&", "{", "}", "{}", "{a,b}", "*", "?", "[", "]", "!",
    "/", "-",
    "<", ">", ">>", "2>&1", "</dev/null", "<<'E'\na\nE\n", "<<E\na\nE\n", "<<<", "é", ":", ",", "@", "%", "+",
    "^", "HEAD~1",
)  # fmt: skip


def decoded(text: str) -> list[SimpleCommand] | None:
    try:
        return parse(text)
    except (Opaque, Unfinished, TooManyCommands):
        return None


def words_in_bash(texts: list[str], folder: Path) -> list[list[str] | None]:
    """Return the words that bash makes of each text; None for a text that it cannot read.

    Each text is the arguments of a function in a shell of its own, so that nothing else is run.
    """
    script = r"""
set -f; export HOME; show() { printf '%s\0' "$#" "$@"; }
while IFS= read -r -d '' text; do
    (eval "show $text") 2>/dev/null || printf 'failed\0'
    printf 'end\0'
done
"""
    done = subprocess.run(
        [require("bash"), "--noprofile", "--norc", "-c", script],
        input=b"".join(text.encode() + b"\0" for text in texts), capture_output=True, cwd=folder, check=True,
    )  # fmt: skip
    answers: list[list[str] | None] = [[]]
    for word in done.stdout.decode().split("\0")[:-1]:
        last = answers[-1]
        if word == "end":
            answers.append([])
        elif last is not None:
            last.append(word)
    return answers[:-1]


def test_the_words_of_a_command_are_those_of_bash(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    safe = [piece for piece in PIECES if piece not in (";", "&&", "||", "|", "\n", "&", "<", ">", ">>", "<<<")]
    safe = [piece for piece in safe if not piece.startswith(("<", "2>"))]
    texts: dict[str, list[str]] = {}
    for _ in range(COUNT):
        text = "".join(chance.choices(safe, k=chance.randint(1, 9)))
        commands = decoded(f"show {text}")
        if commands is not None and len(commands) == 1:
            texts[text] = [word.text for word in commands[0].words[1:]]
    assert len(texts) > COUNT / 20
    for (text, words), found in zip(texts.items(), words_in_bash(list(texts), tmp_path), strict=True):
        assert found == [str(len(words)), *words], (SEED, text)


def test_commands_are_those_that_bash_runs(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    checked = 0
    for _ in range(COUNT // 4):
        names = [chance.choice(("one", "two", "three")) for _ in range(chance.randint(1, 4))]
        joins = chance.choices(("&&", ";", "\n", " # note ' \n", " \\\n&& ", "\n\n", "; \n"), k=len(names))
        text = "".join(
            f"{name} {chance.choice(('', 'a', repr('b c')))} {join}" for name, join in zip(names, joins, strict=True)
        )
        commands = decoded(text)
        if commands is None:
            continue
        checked += 1
        assert [command.words[0].text for command in commands] == names, text
    assert checked > COUNT / 16


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_no_shell_runs_a_command_that_is_not_decoded(shell: str, tmp_path: Path) -> None:
    chance, checked = random.Random(SEED), 0
    pieces = (
        "one", "two", "one ", " two", " ", " ", "a", "&", "&&", "||", "|", ";", "\n", ">", "<", ">>", "2>", "&>", ">&",
        "<&", "<>", ">|", "<<<", "<<'E'\na\nE\n", "<<-E\n", "\nE\n", "'", '"', "\\", "#", "-", "1", "12",
        "/dev/null", "~", "=",
        "!", "x=", "{}", "{", "}", "time ", "if ", "é",
    )  # fmt: skip
    define = "".join(f"{name}() {{ printf '%s\\036' {name} \"$@\" END >>$LOG; }}\n" for name in ("one", "two"))
    log = tmp_path / "log"
    for number in range(COUNT // 10):
        text = "one " + "".join(chance.choices(pieces, k=chance.randint(1, 7)))
        try:
            commands = parse(text, is_bash=shell == "bash")
        except (Opaque, Unfinished, TooManyCommands):
            continue
        (tmp_path / str(number)).mkdir()
        subprocess.run(
            [require(shell), "-c", f"{define}\n{text}\nwait"], stdin=subprocess.DEVNULL, capture_output=True,
            cwd=tmp_path / str(number), env={**os.environ, "LOG": str(log)},
        )  # fmt: skip
        ran = log.read_text().split("\x1eEND\x1e")[:-1] if log.exists() else []
        log.unlink(missing_ok=True)
        known = ["\x1e".join(word.text for word in command.words) for command in commands]
        assert set(ran) <= set(known), text
        checked += bool(ran)
    assert checked > COUNT / 200


def test_what_bash_cannot_read_is_never_decoded(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    texts = []
    for _ in range(COUNT):
        text = "echo " + "".join(chance.choices(PIECES, k=chance.randint(1, 8)))
        if decoded(text) is not None:
            texts.append(text)
    script = "while IFS= read -r -d '' text; do bash -n -c \"$text\" 2>/dev/null; printf '%s\\0' $?; done"
    done = subprocess.run(
        [require("bash"), "-c", script],
        input="".join(f"{each}\0" for each in texts[:400]),
        text=True,
        capture_output=True,
    )
    codes = done.stdout.split("\0")[:-1]
    assert [text for text, code in zip(texts, codes, strict=False) if code != "0"] == []


@pytest.mark.parametrize(
    ("text", "operators"),
    [
        ("cat <a >b 2>>c", ["<", ">", ">>"]), ("cat 2>&1", [">&"]), ("cat <<-'E'\n\ta\n\tE\nls", ["<<"]),
        ("cat <<'A' <<'B'\n1\nA\n2\nB", ["<<", "<<"]), ("cat <<<'a b'", ["<<<"]), ("a 2>f3", [">"]),
    ],
)  # fmt: skip
def test_redirections_are_read(text: str, operators: list[str]) -> None:
    assert [each.operator for each in parse(text)[0].redirections] == operators


def test_the_text_of_a_here_document_is_that_of_its_command() -> None:
    first, second = parse("cat <<'A' | sort <<'B'\n$x `y`\nA\nz\nB\n")
    assert (first.redirections[0].target, second.redirections[0].target) == ("$x `y`\n", "z\n")
    assert parse("sh <<E\n\tls\nE\npwd")[1].words[0].text == "pwd"


@pytest.mark.parametrize(
    "text",
    ["a $x", "a `b`", "a $(b)", "(a)", "a &", "a <(b)", "{ a; }", "a {b,c}", "f() { a; }", "if a; then b; fi",
    "for x in a; do b; done",
     "while a; do b; done", "case a in b) c;; esac", "[[ a ]]", "((a))", "x=(a)", "x+=a b", "! a", "time a",
     "coproc a", "a |& b",
     "$'\\cx'", "$'\\x80'", "$'\\0'", '$"a"', "a ~b", "a x=~", "/b?n/a", "*", "cat <<E\n$x\nE", "cat <<E\na",
     "cat <$x", "cat >*",
     "'' a", "select x in a; do b; done", "function f { a; }", "a;;b"],
)  # fmt: skip
def test_other_grammar_is_not_decoded(text: str) -> None:
    with pytest.raises(Opaque):
        parse(text)


@pytest.mark.parametrize(
    "text", ["'", '"', "a \\", "$'a", "a &&", "a |", "a ||", "; a", "&& a", "a && && b", "a >", "a <"]
)
def test_a_command_without_an_end_is_told_apart(text: str) -> None:
    with pytest.raises(Unfinished):
        parse(text)


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("cat a b", ["a", "b"]), ("grep x a", ["a"]), ("grep -e x a", ["x", "a"][1:]), ("grep -rn x", []),
        ("rg x src", ["src"]),
        ("ls -la", []), ("head -5 a", ["a"]), ("head -n 5 a", ["a"]), ("head -n5 a", ["a"]),
        ("find a b -name '*.py'", ["a", "b"]),
        ("git show HEAD:a/b", ["a/b"]), ("git log -n 5 -- a", ["a"]), ("cat -- -x", ["-x"]),
        ("sed -n 1p a b", ["a", "b"]),
        ("test -f a", ["a"]), ("[ -d a ]", ["a"]), ("echo a", []), ("cat -", []), ("sort -k 2 -t , a", ["a"]),
        ("stat -c %s a", ["a"]),
        ("git --no-pager diff --stat", []), ("git stash list", []), ("diff -u a b", ["a", "b"]),
        ("jq .a f", ["f"]), ("env", []),
    ],
)  # fmt: skip
def test_the_paths_that_a_command_reads_are_found(command: str, paths: list[str]) -> None:
    found = find_read_paths(parse(command)[0].words)
    assert found is not None
    assert set(found) >= set(paths)


@pytest.mark.parametrize(
    ("command", "path"),
    [("cat *", "."), ("cat src/*.py", "src"), ("cat /etc/*", "/etc"), ("ls a/b*/c", "a"), ("ls /*", "/")],
)
def test_a_pattern_reads_the_folder_before_it(command: str, path: str) -> None:
    assert find_read_paths(parse(command)[0].words) == [path]


@pytest.mark.parametrize("command", ["sort *", "grep x *", "find *", "sed 1p *", "cat -*", "grep *"])
def test_a_pattern_that_may_become_an_option_is_asked(command: str) -> None:
    assert find_read_paths(parse(command)[0].words) is None


def test_every_command_of_the_list_is_there_or_asks_for_nothing() -> None:
    for name in ("bash", "python3", "make", "tee", "awk", "xargs", "dd", "cp", "mv", "ln", "chmod", "curl", "node"):
        assert find_read_paths([Word(name)]) is None


def test_decoded_words_are_quoted_as_a_shell_reads_them() -> None:
    [access] = describe_command(r"""make "a b" c\;d $'\t' é""", "/p", is_confined=True)
    assert (access.form, access.value) == ("decoded", "make 'a b' 'c;d' '\t' 'é'")
    assert shlex.split(access.value) == ["make", "a b", "c;d", "\t", "é"]


@pytest.mark.parametrize(
    ("command", "writes"), [("echo hi >&٣", ["٣"]), ("echo hi >&12", ["12"]), ("echo hi 2>&1", []), ("a ٣>b", ["b"])]
)
def test_a_descriptor_is_one_digit(command: str, writes: list[str]) -> None:
    accesses = describe_command(command, "/p", is_confined=True)
    assert [access.value for access in accesses if access.kind == "write"] == writes


@pytest.mark.parametrize("command", ["uniq f 99999999999>/dev/null", "a 12>f", "a 1\\\n>f", "a > 2>b"])
def test_a_number_that_may_be_a_word_is_not_decoded(command: str) -> None:
    with pytest.raises(Opaque):
        parse(command)


@pytest.mark.parametrize(
    "command",
    ["uniq a*", "uniq - f", "uniq f٣ g", "grep a* f", "strings @f", "head -² f", "printf '12345%n' HOME",
     "printf %n 'a[b]'", "printf '%5.*ln' a", "printf -v a b"],
)  # fmt: skip
def test_a_reading_command_with_operands_that_write_is_asked(command: str) -> None:
    assert find_read_paths(parse(command)[0].words) is None


@pytest.mark.parametrize("command", [r"printf 'a%%b %s\n' c", "printf '%-5d|%05.2f' 1 2", "uniq -c f"])
def test_a_reading_command_with_plain_operands_is_not(command: str) -> None:
    assert find_read_paths(parse(command)[0].words) is not None


@pytest.mark.parametrize(
    "command",
    ["sed -n 's/[/]/g;/w sub/p' f", "sed '/[/]/w sub/p' f", "sed 's/[^]/]/w sub/' f", "sh -c 'echo &>/dev/null rm y'",
     "dash -c 'ls &>>f touch y'", "sh -c 'cat <<<x'", "bash -c -x 'rm y'", "sh -c -- 'rm y'", "bash -c +x 'rm y'",
     "zsh -c ls", "ksh -c ls", "cat 2>&-private/key", "cat <&-''private", "LANG=zh_CN.GBK ls",
     "LC_ALL=ja_JP.SJIS bash -c ls"],
)  # fmt: skip
def test_what_programs_read_in_another_way_is_asked(command: str) -> None:
    accesses = describe_command(command, "/p", is_confined=True)
    assert {access.form for access in accesses} & {"decoded", "opaque"}


@pytest.mark.parametrize(
    "command", ["bash -c -x 'rm y'", "sh -c -- 'rm y'", "zsh -c 'noglob rm y'", "sh -c 'echo &>/dev/null rm y'",
     "sh -c 'echo &>> f rm y'", "sh -c 'X=1 >f <g rm y &>f'"]
)  # fmt: skip
def test_a_refusal_finds_a_command_behind_options_of_a_shell(command: str) -> None:
    accesses = describe_command(command, "/p", is_confined=True)
    assert any(access.value.startswith("rm y") for access in accesses), accesses


def test_a_digit_before_a_redirection_of_all_output_is_a_word() -> None:
    [command] = parse("cat 1&>/dev/null")
    assert [word.text for word in command.words] == ["cat", "1"]


@pytest.mark.parametrize(
    "command",
    ["true | cd sub && cat f", "cd sub | true && cat f", "echo sub | xargs cd && cat f", "setsid -f cd sub && cat f",
     "timeout 5 cd sub && cat f", "command cd sub && cat f", "/usr/bin/cd sub && cat f", "true || cd sub && cat f",
     "LANG=C cd sub && cat f", "cd sub >/dev/null && cat f", "cd sub; cat f", "cd '' && cat f"],
)  # fmt: skip
def test_only_a_plain_cd_changes_the_folder(command: str) -> None:
    accesses = describe_command(command, "/p", is_confined=True)
    assert "opaque" in {access.form for access in accesses}


@pytest.mark.parametrize("command", ["cd sub && cat f | head -1", "ls && cd sub && cat f", "sh -c 'cd sub && cat f'"])
def test_what_follows_a_plain_cd_reads_there(command: str) -> None:
    accesses = describe_command(command, "/p", is_confined=True)
    assert ("read", "sub/f") in {(access.kind, access.value) for access in accesses}
    assert "opaque" not in {access.form for access in accesses}


@pytest.mark.parametrize(
    "command",
    [f"sed -n '1{' ' * 64_000}x' f", f"sed -n '1{' ' * 16_000}x' f", "sudo " * 13_000, "sudo " * 3_000, "env " * 16_000,
     "env " * 4_000, "find . " + "-exec " * 10_000, "find . " + "-exec " * 2_000, "sudo " * 14 + "a" * 15_000,
     f"printf '{'%0' * 8_000}'", "sed -n '" + "1," * 8_000 + "' f", "cat " + "*a" * 8_000, "timeout 1 " * 1_000,
     "echo " + "'a'" * 20_000, "sudo sudo sudo;" * 49, "ls '" + "x" * 16_000 + "' $x"],
)  # fmt: skip
def test_no_command_takes_long_to_decode(command: str) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "from amplifier_tool_bash.commands.decoding import describe_command\n"
        "accesses = describe_command(sys.stdin.read(), '/p', is_confined=True)\n"
        "assert accesses"
    )
    subprocess.run([sys.executable, "-c", code], input=command, text=True, check=True)


def test_a_refusal_finds_a_command_within_a_long_one() -> None:
    accesses = describe_command(f"echo {'x' * 20_000}; rm y", "/p", is_confined=True)
    assert accesses[0].form == "opaque"
    assert "rm y" in [access.value for access in accesses]


def test_wrappers_within_wrappers_are_decoded_to_a_depth() -> None:
    accesses = describe_command("nice " * 5 + "rm y", "/p", is_confined=True)
    assert ("rm y", "decoded") in [(access.value, access.form) for access in accesses]
    assert describe_command("nice " * 30 + "rm y", "/p", is_confined=True)[0].form == "opaque"
