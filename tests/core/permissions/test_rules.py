"""Rules, and the published ways around them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.permissions import (
    Access,
    Call,
    PermissionRuleError,
    PermissionsError,
    Policy,
    narrowest_rule,
    parse_permissions,
    parse_rule,
)


def decide(section: dict[str, Any], tool: str, folder: Path | str = "/work/project", **arguments: Any) -> str:
    policy = Policy([parse_permissions(section, "user settings", is_own=True)])
    return policy.decide(Call.of(tool, arguments, folder)).effect


@pytest.mark.parametrize(
    ("rule", "path", "fits"),
    [
        ("read_file(src/**)", "src/a/b.py", True),
        ("read_file(src/**)", "src", True),
        ("read_file(src/**)", "src-evil/a.py", False),
        ("read_file(src/**)", "./src/../src/a.py", True),
        ("read_file(src/**)", "src/../other/a.py", False),
        ("read_file(src/*)", "src/a/b.py", False),
        ("read_file(**/*.py)", "a.py", True),
        ("read_file(**/*.py)", "a/b/c.py", True),
        ("read_file(a?.txt)", "ab.txt", True),
        ("read_file(a[0-9].txt)", "a7.txt", True),
        ("read_file(a[!0-9].txt)", "a7.txt", False),
        (r"read_file(a\*.txt)", "a*.txt", True),
        (r"read_file(a\*.txt)", "ab.txt", False),
        ("read_file(/work/project/src/**)", "/elsewhere/src/a", False),
        ("read_file(/elsewhere/**)", "/elsewhere/src/a", True),
        ("read_*(src/**)", "src/a", True),
        ("*", "src/a", True),
    ],
)
def test_a_rule_fits_paths(rule: str, path: str, fits: bool) -> None:
    [access] = Call.of("read_file", {"path": path}, "/work/project").accesses
    parsed = parse_rule("deny", rule)
    assert (parsed.names("read_file") and parsed.fits(access)) is fits


@pytest.mark.parametrize(
    ("rule", "path", "fits"),
    [
        ("read_file(x**/y)", "x/a/y", True),
        ("read_file(x**/y)", "xy", True),
        ("read_file(*x**/y)", "ax/b/y", True),
        ("read_file(*x**/y)", "axx/y", True),
        ("read_file(**/x*/**/y)", "a/xb/y", True),
        ("read_file(**/*.x/**)", "a/b.x", True),
        ("read_file(a[!b]c)", "a/c", False),
    ],
)
def test_folders_begin_in_the_middle_of_a_name_too(rule: str, path: str, fits: bool) -> None:
    assert (decide({"deny": [rule]}, "read_file", path=path) == "deny") is fits


@pytest.mark.parametrize(
    "pattern",
    [f"{'*a' * 12}*b", f"{'**a' * 12}**b", f"{'**/a/' * 12}b", f"{'*a**/' * 12}b", f"{'**/*a*a/' * 8}b"],
)
@pytest.mark.parametrize("value", ["a" * 4000, "a/" * 2000])
@pytest.mark.parametrize("effect", ["deny", "allow"])
def test_a_pattern_of_many_stars_takes_no_longer_than_others(pattern: str, value: str, effect: str) -> None:
    section = {effect: [f"{tool}({pattern})" for tool in ("read_file", "bash", "fetch", "emit")]}
    assert decide(section, "read_file", path=value) == "allow"
    assert decide(section, "bash", command=value) == "ask"
    assert decide(section, "fetch", url=f"https://{value[:250]}.com") == "ask"
    assert decide(section, "emit", event=value) == "allow"


@pytest.mark.parametrize("text", ["", "  ", "(x)", "a b", "a(b", "a()", "a( )", 7, None, ["a"], "a(b)c"])
def test_what_is_no_rule_is_refused_with_the_remedy(text: object) -> None:
    with pytest.raises(PermissionRuleError, match=r"^not a rule: .* Write a tool, or tool\(pattern\), such as"):
        parse_rule("ask", text)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("ask", "must be a mapping with mode, deny, ask, allow, not str"),
        ({"modes": "ask"}, "unknown key 'modes'. Known: mode, deny, ask, allow"),
        ({"mode": "yolo"}, "permissions.mode: must be one of read-only, ask, auto, not 'yolo'"),
        ({"deny": "bash"}, "permissions.deny: must be a list of rules, not str"),
        ({"deny": ["bash", "rm -rf"]}, r"permissions.deny\[1\]: not a rule: 'rm -rf'"),
    ],
)
def test_an_unreadable_section_is_no_empty_one(section: Any, message: str) -> None:
    with pytest.raises(PermissionsError, match=message):
        parse_permissions(section, "user settings")


@pytest.mark.parametrize(
    ("path", "effect"),
    [
        ("src/a.py", "allow"),
        (".git/hooks/pre-commit", "deny"),
        (".git", "deny"),
        ("sub/.git/config", "deny"),
        (".GIT/config", "deny"),  # a case-blind disk
        ("a/../.git/config", "deny"),
        (".amplifier/settings.yaml", "deny"),
        ("bundle.md", "deny"),
        ("deep/Bundle.md", "deny"),
        (".vscode/tasks.json", "deny"),
        (".envrc", "deny"),
        ("x/sitecustomize.py", "deny"),
        ("lib/site-packages/any.pth", "deny"),
        ("Dist-Packages/any.PTH", "deny"),
        ("x/model.pth", "allow"),
        ("site-packages/x/model.pth", "allow"),
        ("site-packages", "allow"),
        ("any.code-workspace", "deny"),
        ("lib/Bundle.yaml", "deny"),
        (".config/fish/config.fish", "deny"),
        (".config/fish/conf.d/x.fish", "deny"),
        ("home/.config/nvim/init.lua", "deny"),
        (".config/systemd/user/x.service", "deny"),
        (".config/autostart/x.desktop", "deny"),
        (".config/environment.d/x.conf", "deny"),
        ("Library/LaunchAgents/x.plist", "deny"),
        (".config/app/settings.json", "allow"),
        ("config/fish/config.txt", "allow"),
        ("sub/.hg/hgrc", "deny"),
        (".hg/store/data", "allow"),
        (".jj/repo/config.toml", "deny"),
        (".jj/repo/store/type", "allow"),
        ("repo/config.toml", "allow"),
        (".Cargo/Config.toml", "deny"),
        (".cargo/registry/x", "allow"),
        ("Cargo.toml", "allow"),
        (".gitea/workflows/x.yml", "deny"),
        (".travis.yml", "deny"),
        ("lefthook.yml", "deny"),
        (".cshrc", "deny"),
        (".kshrc", "deny"),
        (".inputrc", "deny"),
        (".vim/plugin/x.vim", "deny"),
        (".tmux.conf", "deny"),
        (".xprofile", "deny"),
        (".gdbinit", "deny"),
        (".mise.toml", "deny"),
        (".opencode/x.json", "deny"),
        (".windsurf/rules", "deny"),
        ("\u0641\u0627\u0631\u0633\u06cc\u200c\u0647\u0627.txt", "allow"),
        ("\U0001f469\u200d\U0001f4bb.md", "allow"),
        (".g\u200cit/config", "deny"),  # a disk that ignores what joins letters
        ("/etc/passwd", "ask"),
        ("../other/x", "ask"),
        ("/work/project-evil/x", "ask"),  # the folder's name is only the beginning
        ("/proc/self/cwd/src/a.py", "deny"),
        ("/proc/self/fd/3", "deny"),
        ("a\0b", "deny"),
        ("a\u202eb", "deny"),
        ("a\nb", "deny"),
    ],
)
def test_what_programs_obey_is_not_written(path: str, effect: str) -> None:
    assert decide({}, "write_file", path=path, content="x") == effect


@pytest.mark.parametrize(
    ("path", "effect"),
    [
        ("a.py", "allow"), (".env", "deny"), (".env.production", "deny"), (".env.example", "allow"),
        (".ENV", "deny"), ("keys/server.pem", "deny"), (".ssh/config", "deny"), ("id_rsa", "deny"),
        ("id_ed25519_sk", "deny"), ("..env.swp", "deny"), (".env~", "deny"), (".e\u200dnv", "deny"),
        (".docker/config.json", "deny"), ("config.json", "allow"), (".config/gh/hosts.yml", "deny"),
        (".vault-token", "deny"), (".cargo/credentials.toml", "deny"),
        ("prod.env", "deny"), ("deploy/Prod.env~", "deny"), ("example.env", "allow"), ("prod.example.env", "allow"),
        ("app.env.ts", "allow"), ("environment", "allow"), (".my.cnf", "deny"), (".s3cfg", "deny"),
        ("a.jks", "deny"), ("a.ppk", "deny"), (".password-store/x/y.gpg", "deny"), ("gcloud/config.py", "allow"),
        (".config/gcloud/credentials.db", "deny"), (".config/gcloud", "deny"), (".config/other", "allow"),
        (".terraform.d/credentials.tfrc.json", "deny"), (".terraform.d/plugins/x", "allow"),
        (".git/config", "allow"), ("bundle.md", "allow"), ("/etc/passwd", "ask"),
    ],
)  # fmt: skip
def test_secrets_are_not_read(path: str, effect: str) -> None:
    assert decide({}, "read_file", path=path) == effect


@pytest.mark.parametrize(
    ("url", "effect"),
    [
        ("https://ok.com/x", "allow"),
        ("https://api.ok.com", "ask"),
        ("https://ok.com.evil.io", "ask"),
        ("https://ok.com@evil.io", "deny"),
        ("https://evil.io/#ok.com", "ask"),
        ("https://evil.io\\@ok.com", "deny"),
        ("https://evil.io\0.ok.com", "deny"),
        ("http://169.254.169.254/latest", "deny"),
        ("http://[::ffff:127.0.0.1]/", "deny"),
        ("http://0x7f.1/", "deny"),
        ("http://[::127.0.0.1]/", "deny"),
        ("http://[fec0::1]/", "deny"),
        ("http://168.63.129.16/", "deny"),
        ("http://2130706433/", "deny"),
        ("http://localhost./", "deny"),
        ("http://10.1.2.3/", "deny"),
        ("http://[::1]:80/", "deny"),
        ("OK.COM", "allow"),
        ("", "deny"),
    ],
)
def test_a_host_is_a_host_and_not_a_text(url: str, effect: str) -> None:
    assert decide({"allow": ["fetch(ok.com)"]}, "fetch", url=url) == effect


@pytest.mark.parametrize(
    "url",
    ["http://①②⑦.0.0.1", "http://127。0。0。1", "http://ⓔxample.com", "http://%31%32%37.0.0.1", "http://straße.de"],
)
def test_a_host_that_programs_read_differently_is_refused(url: str) -> None:
    assert decide({"allow": ["fetch"]}, "fetch", url=url) == "deny"


def test_a_rule_about_a_host_beyond_ascii_holds_for_its_ascii_name() -> None:
    assert decide({"deny": ["fetch(*.BÜCHER.de)"], "allow": ["fetch"]}, "fetch", url="x.xn--bcher-kva.de") == "deny"
    assert decide({"deny": ["fetch(bücher.de)"], "allow": ["fetch"]}, "fetch", url="http://bucher.de") == "allow"
    assert decide({"allow": ["fetch"]}, "fetch", url="http://[2606:4700::1111]:80/") == "allow"


@pytest.mark.parametrize("name", ["filePath", "FilePath", "file-path", "PATH"])
def test_the_usual_names_of_arguments_count_in_any_spelling(name: str) -> None:
    assert decide({}, "save_note", **{name: ".git/config"}) == "deny"


def test_a_host_with_a_star_is_all_below_it() -> None:
    for url, effect in (("https://a.b.ok.com", "allow"), ("https://ok.com", "allow"), ("https://notok.com", "ask")):
        assert decide({"allow": ["fetch(*.ok.com)"]}, "fetch", url=url) == effect


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("git status", "allow"),
        ("git status --short src", "allow"),
        ("git push", "ask"),
        ("git status; rm -rf x", "ask"),
        ("git status && ls", "ask"),
        ("git status\nrm x", "ask"),
        ("git status | sh", "ask"),
        ("git status $(rm x)", "ask"),
        ("git status `rm x`", "ask"),
        ("git status > .git/config", "ask"),
        ("GIT_DIR=x git status", "ask"),
        ("git status --short *", "ask"),
        ("git statusx", "ask"),
        ("git status\0", "deny"),
        ("git status \u200b", "deny"),
    ],
)
def test_a_command_is_allowed_only_when_it_is_plain(command: str, effect: str) -> None:
    assert decide({"allow": ["bash(git status *)"]}, "bash", command=command) == effect


@pytest.mark.parametrize(
    "path",
    [
        *(".g\u206ait/config", ".git\u00ad/config", "x\ud800", "\udfff/x", "a\u180eb", "a\U000e0041"),
        *("a\u3164", "a\u115fb", "a\u1160", "\uffa0", "a\u2800b"),
    ],
)
def test_a_path_that_hides_a_character_or_is_no_name_is_refused(path: str) -> None:
    for tool in ("write_file", "read_file"):
        [access] = Call.of(tool, {"path": path}, "/work/project").accesses
        assert access.problem == "it has control or invisible characters"


@pytest.mark.parametrize(
    "path", ["\u2764\ufe0f.md", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.md", "\u845b\U000e0100.md"]
)
def test_a_name_may_have_what_forms_its_letters_and_emoji(path: str) -> None:
    assert decide({}, "write_file", path=path) == "allow"


def test_the_home_of_nobody_is_a_name_as_any_other(tmp_path: Path) -> None:
    [access] = Call.of("write_file", {"path": "~nobody-at-all/x"}, tmp_path).accesses
    assert (access.value, access.problem) == ("~nobody-at-all/x", "")
    assert (
        decide({"deny": ["write_file(~nobody-at-all/**)"]}, "write_file", tmp_path, path="~nobody-at-all/x") == "deny"
    )


def test_a_link_leads_where_it_leads(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / ".git").mkdir(parents=True)
    outside.mkdir()
    (project / "away").symlink_to(outside)
    (project / "inner").symlink_to(project / ".git")
    (project / "loop").symlink_to(project / "loop")
    assert decide({}, "write_file", project, path="away/x") == "ask"
    assert decide({}, "write_file", project, path="inner/config") == "deny"
    assert decide({}, "write_file", project, path="loop/x") == "allow"  # nothing can be written through it
    assert decide({"allow": ["write_file(away/**)"]}, "write_file", project, path="away/x") == "ask"


@pytest.mark.parametrize(
    ("tool", "path", "effect"),
    [
        ("write_file", "hk/../config", "deny"),
        ("write_file", "src/hk/../../config", "allow"),
        ("write_file", "hk/../missing/x", "deny"),
        ("read_file", "deep/../key.txt", "deny"),
        ("read_file", "deep/..", "deny"),
        ("read_file", "src/../private/key.txt", "deny"),
        ("read_file", "src/../a.txt", "allow"),
        ("write_file", "src/../missing/../a.txt", "allow"),
        ("write_file", "a..b", "allow"),
        ("read_file", "proc/cwd/../a.txt", "deny"),
    ],
)
def test_the_way_back_from_a_link_is_none_to_what_is_denied(tool: str, path: str, effect: str, tmp_path: Path) -> None:
    for folder in (".git/hooks", "private/deep", "src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "private" / "key.txt").write_text("x")
    (tmp_path / "hk").symlink_to(".git/hooks")
    (tmp_path / "src" / "hk").symlink_to("../.git/hooks")
    (tmp_path / "deep").symlink_to("private/deep")
    (tmp_path / "proc").symlink_to("/proc/self")
    policy = Policy([parse_permissions({"deny": ["*(private/**)"]}, "user settings", is_own=True)])
    assert policy.decide(Call.of(tool, {"path": path}, tmp_path)).effect == effect


def test_a_working_folder_below_a_link_is_a_folder_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "real" / "work").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    call = Call.of("read_file", {"path": "src/../a.txt"}, tmp_path / "link" / "work")
    assert [access.value for access in call.accesses] == ["a.txt"]


def test_a_second_name_of_a_file_is_no_way_to_write_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    os.link(tmp_path / ".git" / "config", tmp_path / "notes.txt")
    assert decide({}, "write_file", tmp_path, path="notes.txt") == "deny"
    assert decide({}, "read_file", tmp_path, path="notes.txt") == "allow"


def test_only_a_rule_of_the_person_that_names_it_allows_a_protected_file() -> None:
    own = {"allow": ["write_file(.git/config)"]}
    assert decide(own, "write_file", path=".git/config") == "allow"
    assert decide(own, "write_file", path=".git/hooks/x") == "deny"
    for broad in ("*", "write_file", "write_file(**)", "write_file(*)"):
        assert decide({"allow": [broad]}, "write_file", path=".git/config") == "deny"
        assert decide({"allow": [broad]}, "write_file", path="../x") == ("ask" if broad.endswith("(*)") else "allow")
    call = Call.of("write_file", {"path": ".git/config"}, "/work/project")
    for source in ("project settings", "bundle 'x'"):
        assert Policy([parse_permissions(own, source)]).decide(call).effect == "deny"


def test_a_layer_only_tightens_and_a_child_has_what_all_have() -> None:
    own = parse_permissions({"allow": ["bash(ls *)"]}, "user settings", is_own=True)
    project = parse_permissions({"allow": ["bash(rm *)"], "deny": ["bash(ls -l)"]}, "project settings")
    child = parse_permissions({"mode": "read-only", "allow": ["write_file(out/**)"]}, "bundle 'child'")
    policy = Policy([own, project])
    calls = {text: Call.of("bash", {"command": text}, "/p") for text in ("ls", "ls -l", "rm x")}
    assert {text: policy.decide(call).effect for text, call in calls.items()} == {
        "ls": "allow", "ls -l": "deny", "rm x": "ask",
    }  # fmt: skip
    below = policy.below(child)
    assert {text: below.decide(call).effect for text, call in calls.items()} == dict.fromkeys(calls, "deny")
    assert below.decide(Call.of("write_file", {"path": "out/a"}, "/p")).effect == "allow"
    assert below.decide(Call.of("write_file", {"path": "a"}, "/p")).effect == "deny"
    assert below.decide(Call.of("read_file", {"path": "a"}, "/p")).effect == "allow"


@pytest.mark.parametrize(
    ("rule", "tool", "path", "effect"),
    [
        ("write_file(migrations/**)", "edit_file", "migrations/1.sql", "deny"),
        ("write_file(migrations/**)", "edit_notebook", "migrations/1.ipynb", "deny"),
        ("write_file(migrations/**)", "mcp_files_move", "migrations/1.sql", "deny"),
        ("write_file(migrations/**)", "read_file", "migrations/1.sql", "allow"),
        ("write_file(migrations/**)", "edit_file", "src/1.sql", "allow"),
        ("read_file(private/**)", "grep", "private/a", "deny"),
        ("read_file(private/**)", "edit_file", "private/a", "allow"),
        ("edit_file(private/**)", "write_file", "private/a", "allow"),
        ("write_file", "edit_file", "a", "allow"),
    ],
)
def test_what_write_file_and_read_file_are_refused_no_tool_may(rule: str, tool: str, path: str, effect: str) -> None:
    assert decide({"deny": [rule]}, tool, path=path) == effect
    assert decide({"ask": [rule]}, tool, path=path) == ("ask" if effect == "deny" else effect)
    assert decide({"mode": "ask", "allow": [rule]}, tool, path=path) != "deny"


def test_what_write_file_is_allowed_another_tool_is_not() -> None:
    section = {"mode": "ask", "allow": ["write_file(src/**)"]}
    assert decide(section, "write_file", path="src/a") == "allow"
    assert decide(section, "edit_file", path="src/a") == "ask"


def test_the_strictest_access_of_a_call_counts() -> None:
    section = {"deny": ["move(secret/**)"]}
    assert decide(section, "move", source_path="a", destination="b") == "allow"
    assert decide(section, "move", source_path="a", destination="secret/b") == "deny"
    assert decide(section, "move", paths=["a", {"to": "secret/b"}]) == "deny"


def test_a_server_is_asked_for_and_a_rule_holds_for_what_was_asked() -> None:
    call = Call.of("mcp__docs__search", {"q": "x"}, "/p", lambda arguments: [Access("server", "3fa9c1d2e4b5")])
    assert Policy().decide(call)[:2] == ("ask", "tools of servers are asked for")
    assert narrowest_rule(call) == "mcp__docs__search(3fa9c1d2e4b5)"
    for rule, effect in (("mcp__docs__search(3fa9c1d2e4b5)", "allow"), ("mcp__docs__search(000000000000)", "ask")):
        assert Policy().with_own(parse_rule("allow", rule)).decide(call).effect == effect


def test_a_tool_says_itself_what_its_arguments_are() -> None:
    policy = Policy()
    call = Call.of("deploy", {"where": "example.com", "read_me": ".env"}, "/p", {"where": "host", "read_me": "read"})
    assert [access.kind for access in call.accesses] == ["host", "read"]
    assert policy.decide(call).effect == "deny"


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("write_file", {"path": "a/b.txt"}, "write_file(a/b.txt)"),
        ("write_file", {"path": "a*[b].txt"}, r"write_file(a\*\[b\].txt)"),
        ("bash", {"command": "git status"}, "bash(git status)"),
        ("bash", {"command": "git status; rm x"}, None),
        ("bash", {"command": "FOO=1 make"}, None),
        ("fetch", {"url": "https://ok.com/a?b"}, "fetch(ok.com)"),
        ("move", {"source_path": "a", "destination": "b"}, None),
        ("fetch", {"url": "http://127.0.0.1"}, None),
        ("refresh", {}, "refresh"),
        ("count_words", {"text": "x"}, None),
    ],
)
def test_always_is_the_narrowest_rule_and_covers_the_call_alone(
    tool: str, arguments: dict[str, str], rule: str | None
) -> None:
    call = Call.of(tool, arguments, "/p")
    assert narrowest_rule(call) == rule
    if rule is not None:
        again = Policy([parse_permissions({"mode": "ask", "allow": [rule]}, "user settings", is_own=True)])
        assert again.decide(call).effect == "allow"


@pytest.mark.parametrize(
    ("form", "section", "effect"),
    [
        ("decoded", {}, "ask"),
        ("decoded", {"allow": ["bash(git commit *)"]}, "allow"),
        ("decoded", {"mode": "read-only"}, "deny"),
        ("harmless", {}, "allow"),
        ("harmless", {"mode": "read-only"}, "allow"),
        ("harmless", {"ask": ["bash(git *)"]}, "ask"),
        ("harmless", {"deny": ["bash"]}, "deny"),
        ("opaque", {}, "ask"),
        ("opaque", {"allow": ["bash", "bash(*)", "*"]}, "ask"),
        ("opaque", {"deny": ["bash(git *)"]}, "deny"),
    ],
)
def test_the_form_of_a_command_says_which_rules_count(form: Any, section: dict[str, Any], effect: str) -> None:
    policy = Policy([parse_permissions(section, "user settings", is_own=True)])
    call = Call.of("bash", {}, "/p", lambda arguments: [Access("command", "git commit -m 'a; b'", form=form)])
    assert policy.decide(call).effect == effect


def test_always_is_no_rule_for_several_commands_or_for_one_that_is_not_decoded() -> None:
    one, other = Access("command", "make 'a b'", form="decoded"), Access("command", "ls", form="harmless")
    for accesses, rule in (([one], "bash(make 'a b')"), ([one, other], None), ([one._replace(form="opaque")], None)):
        call = Call.of("bash", {"command": "x"}, "/p", lambda arguments, given=accesses: given)
        assert narrowest_rule(call) == rule
