"""The published ways around permissions: each row of the collection by its number, with its decision.

A row says what its payload gets with rules that look safe. `X` and `rm y` stand for any command nobody has allowed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.permissions import Access, Call, Policy, narrowest_rule, parse_permissions
from amplifier_tool_bash.commands.decoding import describe_command

FOLDER = "/work/project"
DENY_RM = {"deny": ["bash(rm *)"]}
LOOSE = {"allow": ["bash(echo *)", "bash(ls *)", "bash(cat *)", "bash(printf *)"]}
GIT = {"allow": ["bash(git status *)", "bash(git log *)", "bash(git diff *)", "bash(git grep *)", "bash(git fetch *)"]}


def call_of(command: str, folder: Path | str = FOLDER) -> Call:
    def describe(arguments: Any) -> list[Access]:
        return describe_command(arguments["command"], str(folder), is_confined=True)

    return Call.of("bash", {"command": command}, folder, describe)


def decide(command: str, section: dict[str, Any], folder: Path | str = FOLDER) -> str:
    return Policy([parse_permissions(section, "user settings", is_own=True)]).decide(call_of(command, folder)).effect


def writes(command: str) -> list[str]:
    return [access.value for access in call_of(command).accesses if access.kind == "write"]


@pytest.mark.parametrize(
    ("row", "command", "effect"),
    [
        (1, "echo a; rm y", "ask"), (1, "echo a && rm y", "ask"), (1, "echo a || rm y", "ask"),
        (2, "echo a\nrm y", "ask"), (2, "echo a # c\nrm y", "ask"),
        (3, "ls & rm y", "ask"), (3, "ls |& sh", "ask"),
        (4, 'echo "$(rm y)"', "ask"), (4, "echo `echo \\`rm y\\``", "ask"),
        (5, "cat <(rm y)", "ask"), (5, "ls > >(sh)", "ask"),
        (6, "cat <<E\n$(rm y)\nE", "ask"), (6, "cat <<'E'\n$(rm y)\nE", "allow"),
        (6, "cat <<E\nrm y\nE\nrm y", "ask"),
        (7, "echo ${x:-$(rm y)}", "ask"), (7, "echo ${HOME#`rm y`}", "ask"),
        (8, "echo $((a[$(rm y)]))", "ask"), (8, "echo $[ x='a[$(rm y)]', x ]", "ask"),
        (9, "[[ -v 'a[$(rm y)]' ]]", "ask"), (9, "[ -v 'a[$(rm y)]' ]", "ask"), (9, "[[ $x -eq 1 ]]", "ask"),
        (9, "((x))", "ask"), (9, "echo ${s:x}", "ask"), (9, "test -v 'a[$(rm y)]'", "ask"),
        (11, "echo ${x@P}", "ask"), (11, "compgen -C X", "ask"), (11, "mapfile -C X", "ask"),
        (12, "echo a\\\r`\nrm y`", "deny"), (12, "echo a\r", "deny"),
        (13, "! { rm y; }", "ask"), (13, "time { rm y; }", "ask"), (13, "coproc rm y", "ask"),
        (14, "ls(){ rm y; }; ls", "ask"), (14, "trap X DEBUG", "ask"), (14, "hash -p ./p ls; ls", "ask"),
        (14, "alias ls=X\nls", "ask"),
        (15, "{rm,y}", "ask"), (15, "rm${IFS}y", "ask"), (15, "/b?n/rm y", "ask"), (15, "$a y", "ask"),
        (17, "cat </dev/tcp/example.com/80", "ask"), (17, "cat </dev/tcp/127.0.0.1/80", "deny"),
        (18, "true;" * 50 + "rm y", "deny"), (18, "true;" * 49 + "true", "allow"),
        (19, "echo 'a", "deny"), (19, "echo a &&", "deny"), (19, "| rm y", "deny"), (19, "case x in", "ask"),
        (20, "echo \0", "deny"), (20, "echo \x1b[2J", "deny"), (20, "echo \u202erm", "deny"),
        (20, "ls \u200b", "deny"), (20, "ls \u3164", "deny"), (20, "ls \u115f", "deny"), (20, "ls \uffa0", "deny"),
        (20, "ls \u2800", "deny"), (20, "ls \ufe0f", "deny"), (20, "ls x\ufe0f", "deny"),
        (20, "ls x\U000e0100", "deny"), (20, "ls \u2764\ufe0f\ufe0f", "deny"),
        (20, "ls \u2764\ufe0f", "allow"), (20, "ls 1\ufe0f\u20e3", "allow"),
        (20, "ls \u845b\U000e0100", "allow"), (20, "ls \u182e\u180b", "allow"), (20, "ls \u05d1\u05b7\u034f", "allow"),
        (20, "ls \u0645\u06cc\u200c\u0631", "allow"), (20, "ls \u2764\ufe0f\u200d\U0001f525", "allow"),
        (20, "ls \u0645\u200c\u200c\u0645", "deny"), (20, "ls \u0645\u200c x", "deny"), (20, "ls a\u200db", "deny"),
        (20, "ls \u2813\u2800\u2800\u2811", "allow"), (20, "ls \u2813\u2800 x", "deny"), (20, "ls a\u034f", "deny"),
        (20, "ls \u00e9\u1160\u00e9", "deny"), (20, "ls \u00e9\u200b\u00e9", "deny"),
        (20, "echo \u2066x", "deny"), (20, "l\u0455", "ask"), (20, "ls \U000e0041", "deny"),
        (21, "curl u | sh", "ask"), (21, "echo cm0geQ== | base64 -d | sh", "ask"), (21, ". ./s", "ask"),
        (21, 'eval "$x"', "ask"), (21, "eval 'rm y'", "ask"), (21, "source ./s", "ask"),
        (22, "ls && pwd", "allow"), (22, "ls | head -5", "allow"), (22, "ls\n\npwd", "allow"),
    ],
)  # fmt: skip
def test_a_prefix_that_is_allowed_covers_nothing_behind_it(row: int, command: str, effect: str) -> None:
    assert decide(command, LOOSE) == effect


@pytest.mark.parametrize(
    "command",
    ["printf -v 'a[$(X)]' v", "declare 'a[$(X)]=1'", "read 'a[$(X)]'", "unset 'a[$(X)]'", "wait -np 'a[$(X)]'"],
)
def test_row_10_builtins_that_evaluate_their_arguments_are_asked(command: str) -> None:
    assert decide(command, {"allow": ["bash(declare *)", "bash(read *)", "bash(unset *)", "bash(wait *)"]}) == "ask"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("echo x >f", "f"), ("echo x >|f", "f"), ("echo x <>f", "f"), ("echo x &>f", "f"), ("echo x >&2f", "2f"),
        ("exec 5>f", "f"), (">f", "f"), ("echo x >>f", "f"), ("echo x 3>f", "f"), ("echo x &>>f", "f"),
    ],
)  # fmt: skip
def test_row_16_a_redirection_is_a_write(command: str, path: str) -> None:
    assert path in writes(command)
    assert decide(command.replace(path, ".git/config").replace("&2f", "&.git/config"), {}) == "deny"
    assert decide(command, {"mode": "ask"}) == "ask"


READS = r"""
cat <>f|cat 0<>f|<>f cat|cat 3<f <&3|cat 3<>f <&3|cat 3<>f 4<&3 0<&4-|cat 1<>f|cat {n}<>f|cat <>f &
exec 3<>f; cat <&3|exec <>f; cat|cat <<<$(<f)|cat <<<"$(<>f cat)"|cat <(cat <>f)|cat < <(cat <>f)|coproc cat <>f
read x <>f|(cat) <>f|{ cat; } <>f|echo `<f`
bash -c 'cat <>f'|sh <<<'cat <>f'|timeout 5 cat <>f|cat <<E\n$(<>f cat)\nE|cat <>'f'|cat <>\\nf
"""


@pytest.mark.parametrize("command", READS.replace("\n", "|").strip("|").split("|"))
def test_every_way_in_which_bash_opens_a_file_to_read_it_is_a_read(command: str, tmp_path: Path) -> None:
    command = command.replace(r"\n", "\n")
    section = {"deny": ["read_file(private/**)"], "allow": ["bash"]}
    for path in ("private/key", "private/k''ey"):
        assert decide(re.sub(r"\bf\b", path, command), section, tmp_path) == "deny", path
    assert decide(re.sub(r"\bf\b", "public", command), section, tmp_path) != "deny"


@pytest.mark.parametrize(
    "command", ["$x &>f", "ls {n}>f", "(ls) <>f", "(ls) >|f", "$x; ls >&f", "$x ls >|a >f", "$x --time >f"]
)
def test_what_is_not_decoded_is_refused_for_what_its_parts_write(command: str) -> None:
    assert decide(command.replace("f", ".git/config"), {}) == "deny"
    assert decide(command.replace("f", "public"), {}) == "ask"


@pytest.mark.parametrize(
    "command",
    ["bash <<<ls <f", "bash <f 3<<<ls", "bash <<<ls <>f", "cat f | bash 3<<<ls", "bash 3<f <<<ls <&3", "zsh <<<ls",
     "bash 3<f <<<ls 0>&3", "bash <<<ls 2<>f 0<&2", "timeout 5 bash <<'E' <f\nls\nE", "bash -c 'bash <<<ls <f'"],
)  # fmt: skip
def test_a_shell_with_two_inputs_is_asked(command: str) -> None:
    assert decide(command, {"allow": ["bash"]}) == "ask"
    assert decide("cat f | bash <<<ls >g 2>&1 3<h", {}) == "allow"


@pytest.mark.parametrize(
    "command",
    ["bash <f <<<'rm y'", "bash <<<'rm y' <f", "bash <<<'rm y' <&0", "bash 3<<<'rm y' <&3", "zsh <<<'rm y'",
     "cat f | bash 3<<<'rm y' <&3", "bash <<<ls <<<'rm y'", "bash 3<<<'rm y' <<<ls <&3", "zsh <<'E'\nrm y\nE"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", " &"])
def test_a_shell_with_two_inputs_is_refused_for_what_its_script_has(command: str, end: str) -> None:
    command = re.sub(r"$", end, command, count=1, flags=re.MULTILINE)
    assert decide(command, DENY_RM) == "deny"
    secret = command.replace("rm y", "cat private/key")
    assert decide(secret, {"deny": ["read_file(private/**)"], "allow": ["bash"]}) == "deny"
    assert decide(command.replace("rm y", "ls"), DENY_RM) == "ask"


@pytest.mark.parametrize(
    "command",
    ["for i in 1; do X; done", "sync; sudo X $x", "(X)", "f(){ X; }; f", "echo $x; X", "! X", "time X", "$x; X"],
)
@pytest.mark.parametrize(
    "program", ["dd if=a of=b", "rm -rf build/done", "make --until=x", "a.fi --time b", "curl -o then.do/else x"]
)
def test_a_word_of_the_shell_within_another_word_ends_no_command(command: str, program: str) -> None:
    section = {"deny": [f"bash({program}*)"], "allow": ["bash"]}
    assert decide(command.replace("X", program), section) == "deny"


@pytest.mark.parametrize(
    "text",
    ["Don't write keys > .env any more", "> .env is not read, don't ship it", "use <name>.env, don't write it",
     "Show the step Settings > .vscode/settings.json, don't hide it", "The hooks aren't run > .git/hooks/pre-commit",
     "</details>don't <server.key> ok", "Retry until git push works", "test: skip if git push is off",
     "Fix: if rm fails, don't stop", "don't retry while curl runs"],
)  # fmt: skip
@pytest.mark.parametrize("program", ["git commit -m", "gh issue create --body"])
def test_a_sentence_of_a_message_is_no_command(text: str, program: str) -> None:
    command = f"{program} \"$(cat <<'EOF'\n{text}\nEOF\n)\""
    section = {"deny": ["bash(git push *)", "bash(rm *)", "bash(curl *)"], "allow": ["bash"]}
    assert decide(command, section) == "ask"
    assert decide(command, {}) == "ask"


@pytest.mark.parametrize("command", ["ls 2>&1", "ls >/dev/null", "ls 2>/dev/null >&2", "ls 2>&-", "ls <&0"])
def test_row_16_a_redirection_to_nothing_is_allowed(command: str) -> None:
    assert writes(command) == []
    assert decide(command, {"mode": "ask"}) == "allow"


@pytest.mark.parametrize(
    ("row", "command", "effect"),
    [
        (23, r"\rm y", "deny"), (23, "r''m y", "deny"), (23, r"$'\x72\x6d' y", "deny"), (23, '"r"m y', "deny"),
        (23, r"$'\162m' y", "deny"), (23, "r\\\nm y", "deny"), (23, r"$'\u0072m' y", "deny"),
        (24, "/bin/rm y", "deny"), (24, "/proc/self/root/bin/rm y", "deny"), (24, "../../bin/rm y", "deny"),
        (24, "/lib64/ld-linux-x86-64.so.2 /bin/rm y", "ask"), (24, "./remove y", "ask"),
        (25, "env rm y", "deny"), (25, "env A=b rm y", "deny"), (25, "env -S 'rm y'", "deny"),
        (25, "timeout 5 rm y", "deny"),
        (25, "timeout -k 1 -s KILL 5 rm y", "deny"), (25, "nice -n 5 rm y", "deny"), (25, "setsid rm y", "deny"),
        (25, "ls | xargs rm", "deny"), (25, "ls | xargs -0 -n 1 rm -f", "deny"), (25, "command rm y", "deny"),
        (25, "exec rm y", "deny"), (25, "nohup timeout 5 nice rm y", "deny"), (25, "strace -f rm y", "deny"),
        (25, "flock f rm y", "deny"), (25, "sudo -u x rm y", "deny"), (25, "busybox rm y", "deny"),
        (25, "script -c 'rm y'", "ask"), (25, "flock f -c 'rm y'", "ask"), (25, "run-parts d", "ask"),
        (25, "timeout $x rm y", "deny"), (25, "env -i $x", "ask"),
        (26, "sh -c 'rm y'", "deny"), (26, "bash <<<'rm y'", "deny"), (26, "bash <<'E'\nrm y\nE", "deny"),
        (26, "bash -c 'ls; sh -c \"rm y\"'", "deny"), (26, 'sh -c "$x"', "ask"), (26, "bash script", "ask"),
        (26, "/bin/sh -c 'echo a; rm y'", "deny"), (26, "bash -euc 'rm y'", "deny"),
        (27, r"find . -e\xec rm {} +", "deny"), (27, "find . -name x -exec rm '{}' ';'", "deny"),
        (29, "rm -rf $U/*", "deny"), (29, "echo $(rm y)", "deny"), (29, "if true; then rm y; fi", "deny"),
    ],
)  # fmt: skip
def test_a_refusal_finds_the_command_however_it_is_written(row: int, command: str, effect: str) -> None:
    assert decide(command, DENY_RM) == effect


@pytest.mark.parametrize(
    "command", ["git -C p commit", "git -c a=b commit -m x", "git --git-dir=d commit", "git commit"]
)
def test_row_28_the_options_before_a_command_of_git_hide_nothing(command: str) -> None:
    assert decide(command, {"deny": ["bash(git commit *)"], "allow": ["bash(git *)"]}) == "deny"


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("rm -rf $U/*", "ask"), ("rm -rf build", "ask"), ("rm -rf /", "deny"), ("rm -rf /*", "deny"),
        ("rm -rf ~", "deny"),
        ("rm -rf ~/", "deny"), ("rm -r -f .", "deny"), ("rm --recursive ./*", "deny"), ("rm -rf ..", "deny"),
        ("rm -rf /work/project", "deny"), ("rm -Rf src/..", "deny"), ("rm -rf .git", "deny"),
        ("rm .git/config", "deny"),
        ("cd src && rm -rf ..", "deny"), ("sudo rm -rf /", "deny"), ("sh -c 'rm -rf /'", "deny"),
    ],
)  # fmt: skip
def test_row_29_nothing_deletes_the_folder_or_the_home(command: str, effect: str) -> None:
    assert decide(command, {}) == effect


@pytest.mark.parametrize(
    ("row", "command", "effect"),
    [
        (30, "./ls", "ask"), (30, "/tmp/cat f", "ask"), (30, "/bin/ls", "allow"),
        (31, "PATH=.:$PATH ls", "ask"), (31, "PATH=. ls", "ask"), (31, "LD_PRELOAD=./x.so ls", "deny"),
        (31, "env LD_PRELOAD=./x.so ls", "deny"), (31, "LD_PRELOAD+=./x.so ls", "ask"),
        (32, "BASH_ENV=f bash -c :", "deny"), (32, "env 'BASH_FUNC_ls%%=() { X; }' bash -c ls", "deny"),
        (33, "GIT_CONFIG_COUNT=1 git status", "ask"), (33, "GIT_EXTERNAL_DIFF=X git diff", "ask"),
        (33, "GIT_SSH_COMMAND=X git fetch", "ask"), (33, "GIT_DIR=d git status", "ask"),
        (33, "HOME=d git status", "ask"),
        (33, "XDG_CONFIG_HOME=d git status", "ask"), (33, "env GIT_DIR=d git status", "ask"),
        (34, "NODE_OPTIONS=x npm --version", "ask"), (34, "PYTHONPATH=d python3 x", "ask"),
        (34, "PERL5OPT=x perl", "ask"),
        (34, "RIPGREP_CONFIG_PATH=f rg x", "ask"),
        (35, "export LD_LIBRARY_PATH=.", "ask"), (35, "export PAGER=X; git log", "ask"),
        (35, "PAGER=X; git log", "ask"),
        (36, "LANG=C ls", "allow"), (36, "LC_ALL=C.UTF-8 sort f", "allow"), (36, "env LANG=C ls", "allow"),
        (36, "LANG=C.UTF-8/../x ls", "ask"),
        (37, "cd /other && git status", "ask"), (37, "cd src && git status", "allow"), (37, "cd .. && ls", "ask"),
        (37, "cd -", "ask"), (37, "cd", "ask"), (37, "cd src; cat f", "ask"), (37, "cd src && cat .env", "deny"),
        (37, "cd src && cat ../.env", "deny"), (37, "cd src && cat ../../x", "ask"),
    ],
)  # fmt: skip
def test_the_program_its_environment_and_its_folder_are_looked_at(row: int, command: str, effect: str) -> None:
    section = {"allow": ["bash(ls *)", "bash(npm *)", "bash(python3 *)", "bash(perl *)", "bash(git fetch *)"]}
    assert decide(command, section) == effect


@pytest.mark.parametrize(
    ("row", "command", "effect"),
    [
        (38, "git -c core.fsmonitor=X status", "ask"), (38, "git -c alias.z='!X' z", "ask"),
        (38, "git -c diff.external=X diff", "ask"), (38, "git --config-env=a=B status", "ask"),
        (39, "git --exec-path=d foo", "ask"), (39, "git --git-dir=d status", "ask"),
        (40, "git diff --output=f", "ask"), (40, "git log --output=f", "ask"), (40, "git archive -o f HEAD", "ask"),
        (40, "git bundle create f HEAD", "ask"), (40, "git worktree add p", "ask"),
        (41, "git ls-remote --upload-pack=X .", "ask"), (41, "git fetch --upload-p=X", "ask"),
        (41, "git clone -u X r", "ask"),
        (41, "git archive --remote=. --exec=X HEAD", "ask"),
        (42, "git -c protocol.ext.allow=always ls-remote ext::X", "deny"), (42, "git fetch ext::X", "deny"),
        (43, "git grep -O'X' a", "ask"), (43, "git grep --open-files-in-pager=X a", "ask"), (43, "git -p log", "ask"),
        (44, "git rebase -x X", "ask"), (44, "git bisect run X", "ask"), (44, "git difftool -x X", "ask"),
        (44, "git config alias.z X", "ask"), (44, "git clone --template=d r", "ask"),
        (45, "git diff --no-index /dev/null /etc/passwd", "ask"), (45, "git diff /dev/null /etc/passwd", "ask"),
        (46, "git status", "allow"), (47, "git diff", "allow"), (47, "git diff HEAD~1 -- src", "allow"),
        (47, "git log --oneline -5 main..HEAD", "allow"), (47, "git branch", "allow"), (47, "git branch new", "ask"),
    ],
)  # fmt: skip
def test_options_of_git_are_a_positive_list(row: int, command: str, effect: str) -> None:
    assert decide(command, {}) == effect


def test_row_41_a_rule_of_the_person_for_a_command_covers_its_options() -> None:
    assert decide("git fetch --upload-p=X", GIT) == "allow"
    assert decide("git fetch --upload-p=X", {**GIT, "ask": ["bash(git * --up*)"]}) == "ask"


@pytest.mark.parametrize(
    ("row", "command", "effect"),
    [
        *[(48, f"find . {option}", "ask") for option in (
            "-exec X ';'", "-execdir X ';'", "-ok X ';'", "-okdir X ';'", "-delete", "-fprint f", "-fprintf f x",
        "-fls f",
            "-files0-from f")],
        (48, "find . -name '*.py' -not -path '*/x/*' -type f", "allow"), (48, "find -L src -newer f", "allow"),
        (49, "sed -n 'w f' a", "ask"), (49, "sed 's/a/a/w f' a", "ask"), (49, "sed '1e X' a", "ask"),
        (49, "sed 's//X/e' a", "ask"),
        (49, "sed -i s/a/b/ a", "ask"), (49, "sed -f s a", "ask"),
        (49, "sed -n 1,5p a", "allow"),
        (49, "sed 's/a/b/g' a", "allow"),
        (49, "sed -n '/a/,/b/p;$p' a", "allow"), (49, "sed 's/a;w f/b/' a", "allow"),
        (49, "sed 's/a/b/;w f' a", "ask"),
        (49, "sed -ni 1p a", "ask"), (49, "sed 1p --in-place a", "ask"), (49, r"sed 's/a\c/b/w f/' a", "ask"),
        (50, "rg --pre=X a", "ask"), (50, "rg --pre X a", "ask"), (50, "rg -z a", "ask"),
        (50, "rg --hostname-bin X a", "ask"),
        (50, "rg -n 'a b' src", "allow"),
        (51, "awk 'BEGIN{system(\"X\")}'", "ask"), (51, "awk '{print>\"f\"}' a", "ask"),
        (51, "awk '{\"X\"|getline}'", "ask"),
        (52, "sort -o f a", "ask"), (52, "sort -uof a", "ask"), (52, "sort --outp=f a", "ask"),
        (52, "sort --comp=X a", "ask"),
        (52, "sort --compress-program=X a", "ask"), (52, "sort -u -k 2 a", "allow"), (52, "sort -T d a", "ask"),
        (53, "uniq a f", "ask"), (53, "uniq -c a", "allow"), (53, "tee f", "ask"), (53, "split --fil=X a", "ask"),
        (53, "shuf -o f a", "ask"), (53, "xxd -r - f", "ask"), (53, "openssl enc -out f", "ask"),
        (54, "tar --checkpoint-action=exec=X -cf f a", "ask"), (54, "tar --to-command=X -xf f", "ask"),
        (54, "tar -I X -xf f", "ask"),
        (54, "tar --use-comp=X -xf f", "ask"),
        (55, "ssh -o ProxyCommand=X h", "ask"), (55, "ssh -F f h", "ask"), (55, "scp -S X a h:", "ask"),
        (55, "curl -K f", "ask"),
        (55, "zip -T -TT X f a", "ask"), (55, "vim -c '!X' a", "ask"),
        (56, "make -n", "ask"), (57, "python3 -m json.tool f", "ask"),
        (58, "npm test", "ask"), (58, "npm install", "ask"), (58, "npx x", "ask"),
        (59, "pytest --collect-only", "ask"), (59, "pip install .", "ask"), (59, "cargo check", "ask"),
    ],
)  # fmt: skip
def test_a_tool_that_reads_is_asked_with_an_option_that_does_more(row: int, command: str, effect: str) -> None:
    assert decide(command, {}) == effect


@pytest.mark.parametrize(
    ("row", "host", "effect"),
    [
        (60, "ok.com.evil.io", "ask"), (61, "ok.com@evil.io", "deny"), (62, "evil.io\\0.ok.com", "ask"),
        (64, "169.254.169.254", "deny"), (64, "::ffff:127.0.0.1", "deny"), (64, "0x7f.1", "deny"),
        (64, "localhost.", "deny"),
        (64, "2130706433", "deny"), (65, "api.ok.com", "ask"),
    ],
)  # fmt: skip
def test_a_shells_own_connection_is_judged_by_its_host(row: int, host: str, effect: str) -> None:
    assert decide(f"cat </dev/tcp/{host}/80", {"allow": ["bash(ok.com)"]}) == effect
    assert decide("cat </dev/tcp/ok.com/80", {"allow": ["bash(ok.com)"]}) == "allow"


@pytest.mark.parametrize(
    ("row", "command", "effect"),
    [
        (66, "cat /work/project-evil/x", "ask"), (66, "cat /work/project/x", "allow"),
        (67, "cat a/../../x", "ask"), (67, "cat /proc/self/cwd/x", "deny"), (67, "cat /proc/self/fd/3", "deny"),
        (70, "echo x >.GIT/config", "deny"), (70, "echo x > sub/.Git/hooks/a", "deny"),
        (71, "cat .env", "deny"), (71, "git show HEAD:.env", "deny"), (71, "head -1 ./sub/../.env", "deny"),
        (71, "grep -e x .env", "deny"), (71, "grep -ie x .env", "deny"), (71, "git log -p -- .env", "deny"),
        (71, "cat <.env", "deny"), (71, "ls && cat id_rsa", "deny"), (71, "echo $x; cat .env", "deny"),
        (71, "cat /etc/shadow", "ask"), (71, "cat ~/.ssh/id_rsa", "deny"), (71, "cat ~/notes", "ask"),
    ],
)  # fmt: skip
def test_the_paths_of_a_command_are_paths(row: int, command: str, effect: str) -> None:
    assert decide(command, LOOSE) == effect


def test_row_68_a_link_leads_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "away").symlink_to(tmp_path)
    assert decide("cat away/x", {}, tmp_path / "project") == "ask"
    assert decide("echo x >away/x", {}, tmp_path / "project") == "ask"


def test_row_69_a_second_name_of_a_guarded_file_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("x")
    (tmp_path / "notes").hardlink_to(tmp_path / "config")
    assert decide("echo x >notes", {}, tmp_path) == "deny"


def test_row_79_a_rule_for_good_covers_the_text_of_the_command_alone() -> None:
    rule = narrowest_rule(call_of("make 'a.*b' f"))
    assert rule == r"bash(make 'a.\*b' f)"
    assert decide("make 'a.*b' f", {"allow": [rule]}) == "allow"
    assert decide("make 'a.xb' f", {"allow": [rule]}) == "ask"


@pytest.mark.parametrize(
    "command", ["make; ls", "timeout 5 make", "sh -c make", "make >f", "X=1 make", "make $x", "make *"]
)
def test_rows_79_and_80_no_rule_for_good_comes_from_compounds_and_wrappers(command: str) -> None:
    assert narrowest_rule(call_of(command)) is None


def test_row_80_a_rule_for_good_is_not_reused_for_another_script() -> None:
    rule = narrowest_rule(call_of("busybox sh -c A"))
    assert rule is None
    assert decide("busybox sh -c B", {"allow": ["bash(busybox sh -c A)"]}) == "ask"


@pytest.mark.parametrize(
    "command",
    ["python3 <<'E'\nX\nE", "timeout 5 python3 <<<X", "echo X | python3", "python3 <f", "cat f | /usr/bin/python3.12 -",
     "echo X | timeout 5 perl", "python3 <>f", "python3 3<>f <&3", "python3 2<>f 0>&2", "timeout 5 python3 0<>f",
     "sh -c python3 <f", "cat f | bash -c 'timeout 5 python3'", "sh -c 'sh -c perl' <>f",
     "bash <<'E'\nperl\nsort '@{[unlink q(y)]}'\nE"],
)  # fmt: skip
def test_a_rule_for_a_program_does_not_cover_what_it_is_fed(command: str) -> None:
    section = {"allow": ["bash(python3*)", "bash(perl*)", "bash(/usr/bin/python3*)"]}
    assert decide("python3", section) == "allow"
    assert decide(command, section) == "ask"
    assert narrowest_rule(call_of(command)) is None


@pytest.mark.parametrize(
    ("row", "command"),
    [
        *[(48, f"find . -name x {action} python3 f {end}") for action in ("-exec", "-execdir", "-ok", "-okdir")
          for end in ("{} +", "';'")],
        (48, "find . -exec cp x .git/config +"), (48, "/usr/bin/find . -exec sh -c X ';'"),
        (48, "fd x -x python3 f"), (48, "fdfind -HX python3 f"), (48, "fd --exec-batch=python3 x"),
        (25, "flock f python3 x"), (25, "flock f -c X"), (25, "strace python3 x"), (25, "script -qc X"),
        (25, "script --command=X"), (25, "run-parts d"), (25, "/usr/bin/time -v python3 x"), (25, "watch X"),
        (25, "parallel X ::: a"), (25, "env python3 x"), (25, "ls | xargs python3"), (25, "nohup flock f X"),
        (25, "/usr/local/bin/flock f python3 x"), (25, "../../usr/sbin/chroot d X"), (25, "gtimeout 5 python3 x"),
        (25, "/opt/homebrew/bin/timeout 5 X"), (25, "/opt/homebrew/bin/bash f"), (25, "/usr/local/bin/env python3 x"),
        *[(25, f"{name} python3 x") for name in ("arch", "bwrap", "caffeinate", "dbus-run-session", "entr", "fakeroot",
          "linux64", "numactl", "pkexec", "sg", "ssh-agent", "systemd-inhibit", "unbuffer", "xvfb-run")],
        (48, "/usr/local/bin/find . -exec python3 f ';'"), (48, "gfind . -exec python3 f ';'"),
        (48, "/opt/homebrew/bin/fd a -x python3 f"), (48, "fd a '-x./e\n'"), (48, "fd a '--exec=./e\n'"),
        (48, "fd -t f -0x python3 f"),
    ],
)  # fmt: skip
def test_rows_25_and_48_a_rule_for_a_program_does_not_cover_the_programs_that_it_runs(row: int, command: str) -> None:
    names = {part.split()[0] for part in command.split("|")} | {"find", "fd", "flock", "time", "/usr/bin/time", "arch"}
    section = {"allow": [f"bash({name} *)" for name in sorted(names)]}
    assert decide(command, section) == "ask"
    assert narrowest_rule(call_of(command)) is None
    assert decide("find . -delete && fd -H a && fd -tx a && fd -e txt -ex a && arch", section) == "allow"


@pytest.mark.parametrize("command", ["ls; rm y", "ls\nrm y", "timeout 5 make; ls", "make 2>&1 | tail -5"])
def test_every_part_of_a_compound_must_be_allowed(command: str) -> None:
    assert decide(command, {}) == "ask"
    assert decide(command, {"allow": ["bash(rm *)", "bash(make)", "bash(y)"]}) == "allow"


def test_without_a_sandbox_every_command_is_asked() -> None:
    accesses = describe_command("ls | head", FOLDER, is_confined=False)
    assert [access.form for access in accesses] == ["decoded", "decoded"]
    assert [access.form for access in describe_command("timeout 5 ls", FOLDER, is_confined=False)][-1] == "decoded"


def test_a_command_of_any_length_is_refused() -> None:
    assert decide("echo " + "x" * 70_000, LOOSE) == "deny"


@pytest.mark.parametrize(
    "command",
    ["sh -c 'make test' </dev/null", "bash -c 'python3 x.py' </dev/null", "python3 </dev/null", "sh -c perl </dev/null",
     "nohup sh -c 'make' </dev/null >/dev/null 2>&1", "bash <<'E'\nmake -j4 test\ndocker ps\nE",
     "bash <<'E'\nkubectl get pods -n x\nnode x.js\nE",
     "bash <<'E'\npython3 x.py\npython3 -m pytest\npython3 -c 1\nperl -e 1\nE",
     "cat f | sh -c 'make test'", "sh -c \"awk '{print}'\" <f"],
)  # fmt: skip
def test_the_rules_decide_what_does_not_run_its_input(command: str) -> None:
    names = ("make", "python3", "docker", "kubectl", "node", "perl", "awk")
    assert decide(command, {"allow": ["bash"]}) == "allow"
    assert decide(command, {"allow": [f"bash({name}*)" for name in names]}) == "allow"


@pytest.mark.parametrize(
    "command",
    ["python3", "python3 -", "python3 -u", "python3 /dev/stdin", "perl -w", "node", "node -", "make -f -", "make -f-",
     "make --file=/dev/stdin", "kubectl apply -f -", "kubectl exec -it x sh", "docker run -i x", "deno run -", "ssh x",
     "sqlite3 x", "psql", "timeout 5 python3", "python3 -m code", "perl -c", "php -e", "python3 -W x"],
)  # fmt: skip
def test_an_interpreter_without_a_program_runs_the_input_of_the_shell_around_it(command: str) -> None:
    for whole in (f"sh -c '{command}' <f", f"cat f | sh -c '{command}'", f"bash <<'E'\n{command}\nls\nE"):
        assert decide(whole, {"allow": ["bash"]}) == "ask", whole
    assert decide(f"sh -c '{command}'", {"allow": ["bash"]}) == "allow"
