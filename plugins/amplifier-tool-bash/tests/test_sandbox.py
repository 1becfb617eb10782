"""A sandbox is tried before it is used, and nothing runs without one unless the person says so."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_sandbox import choosing
from amplifier_sandbox.landlock import find_version
from amplifier_sandbox.protection import find_guarded
from amplifier_tool_bash import describe_sandbox
from tests.programs import require

needs_landlock = pytest.mark.skipif(find_version() == 0, reason="this kernel has no Landlock")


@pytest.fixture(autouse=True)
def _untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the results of self-tests."""
    monkeypatch.setattr(choosing, "_results", {})


def guard(coordinator: ModuleCoordinator, work: Path, *layers: dict[str, Any]) -> None:
    """Hold the coordinator to the person's own settings, and to those of a bundle."""
    policy = [parse_permissions(layer, f"layer {at}", is_own=at == 0) for at, layer in enumerate(layers)]
    coordinator.guard(PermissionGate(Policy(policy), work))


@pytest.fixture
async def in_landlock(mount_tools: Any, work: Path) -> Any:
    """Run a command in Landlock, as the person allows it where bubblewrap runs, too."""
    coordinator = await mount_tools(sandbox="landlock")
    guard(coordinator, work, {"allow": ["bash-unsandboxed(landlock)"]})
    return lambda command: coordinator.get("tools", "bash").execute({"command": command})


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run([require("git"), "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


@needs_landlock
async def test_a_sandbox_that_does_not_hold_is_not_used(mount_tools: Any, work: Path, fake_bwrap: Path) -> None:
    tool = (await mount_tools()).get("tools", "bash")
    first = await tool.execute({"command": "echo x >a"})
    assert first.error["message"] == "the sandbox does not hold here; call again, and you are asked first"
    assert not (work / "a").exists()
    assert {access.form for access in tool.accesses({"command": "ls"})} == {"decoded"}
    assert (await tool.execute({"command": "echo y"})).output["output"] == "y\n"
    missing = describe_sandbox()["missing"]["bubblewrap"]
    assert missing.startswith("its self-test failed: ")


async def test_where_no_sandbox_can_run_nothing_does(
    mount_tools: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    tool = (await mount_tools(sandbox="bubblewrap")).get("tools", "bash")
    result = await tool.execute({"command": "echo x >a"})
    assert result.error["type"] == "NoSandbox"
    assert "bubblewrap is not installed; install it with: apt-get install bubblewrap" in result.error["message"]
    assert not (work / "a").exists()


@pytest.mark.parametrize(
    ("layers", "runs"),
    [
        ([], False),
        ([{}], False),
        ([{"allow": ["*"]}], False),
        ([{"allow": ["bash"]}], False),
        ([{}, {"allow": ["bash-unsandboxed"]}], False),
        ([{"allow": ["bash-unsandboxed"]}], True),
        ([{"allow": ["bash-unsandboxed"]}, {"deny": ["bash-unsandboxed"]}], False),
    ],
)
async def test_only_the_person_turns_the_sandbox_off(
    mount_tools: Any, work: Path, outside: Path, layers: list[dict[str, Any]], runs: bool
) -> None:
    coordinator = await mount_tools(sandbox=False)  # `off` in YAML
    if layers:
        guard(coordinator, work, *layers)
    tool = coordinator.get("tools", "bash")
    result = await tool.execute({"command": f"echo x >{outside}/new"})
    assert result.success is runs
    assert (outside / "new").exists() is runs
    if not runs:
        assert "permissions: {allow: [bash-unsandboxed]}" in result.error["message"]
    assert {access.form for access in tool.accesses({"command": "ls"})} == {"decoded"}


@needs_landlock
@pytest.mark.parametrize(
    ("layers", "runs"),
    [
        ([{}], False),
        ([{}, {"allow": ["bash-unsandboxed(landlock)"]}], False),
        ([{"allow": ["bash-unsandboxed(landlock)"]}], True),
        ([{"allow": ["bash-unsandboxed"]}], True),
        ([{"allow": ["bash-unsandboxed"], "deny": ["bash-unsandboxed(landlock)"]}], False),
    ],
)
async def test_only_the_person_chooses_a_weaker_sandbox(
    mount_tools: Any, work: Path, layers: list[dict[str, Any]], runs: bool
) -> None:
    require("bwrap")
    coordinator = await mount_tools(sandbox="landlock")
    guard(coordinator, work, *layers)
    result = await coordinator.get("tools", "bash").execute({"command": "echo x"})
    assert result.success is runs
    if not runs:
        assert "`sandbox: landlock` holds less than bubblewrap, which runs here" in result.error["message"]
        assert 'permissions: {allow: ["bash-unsandboxed(landlock)"]}' in result.error["message"]


async def test_a_rule_for_a_weaker_sandbox_turns_none_off(mount_tools: Any, work: Path) -> None:
    coordinator = await mount_tools(sandbox="off")
    guard(coordinator, work, {"allow": ["bash-unsandboxed(landlock)"]})
    assert not (await coordinator.get("tools", "bash").execute({"command": "echo x"})).success


@needs_landlock
async def test_where_bubblewrap_is_missing_landlock_may_be_named(
    mount_tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    tool = (await mount_tools(sandbox="landlock")).get("tools", "bash")
    assert (await tool.execute({"command": "echo x"})).success


async def test_without_a_sandbox_a_commands_processes_end_too(mount_tools: Any, work: Path) -> None:
    coordinator = await mount_tools(sandbox="off", grace=0.1)
    guard(coordinator, work, {"allow": ["bash-unsandboxed"]})
    tool = coordinator.get("tools", "bash")
    left = await tool.execute({"command": "sleep 4713.1 & echo $!"})
    late = await tool.execute({"command": "trap '' TERM; echo $$; sleep 4713.2; sleep 4713.2", "timeout": 1})
    for result in (left, late):
        pid = int(result.output["output"].split()[0])  # bash may say "Killed" below
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            await asyncio.sleep(0.01)
    assert (late.output["status"], late.output["exit_code"]) == ("timed out", 137)


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("cat; wait; echo one; echo two >&2; exit 3", 3, "one\ntwo\n"),
        ("kill -TERM 0", 143, ""),
        ("trap 'echo told; exit' USR1; kill -USR1 0", 0, "told\n"),
        ("kill -SEGV $$", 139, ""),
    ],
)
async def test_without_a_sandbox_a_command_has_its_own_end(
    mount_tools: Any, work: Path, command: str, code: int, output: str
) -> None:
    coordinator = await mount_tools(sandbox="off")
    guard(coordinator, work, {"allow": ["bash-unsandboxed"]})
    result = await coordinator.get("tools", "bash").execute({"command": command})
    assert result.output == {"output": output, "exit_code": code, "status": "ended"}


async def test_the_folder_of_the_home_is_no_working_folder(
    mount_tools: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("bwrap")
    (work / "ann").mkdir()
    for home in (work, work / "ann"):
        monkeypatch.setenv("HOME", str(home))
        result = await (await mount_tools()).get("tools", "bash").execute({"command": "ls"})
        assert "holds your home; work in a folder of its own" in result.error["message"]


@pytest.mark.parametrize("home", [None, "/"])
@pytest.mark.parametrize("sandbox", ["bubblewrap", pytest.param("landlock", marks=needs_landlock)])
async def test_a_user_without_a_home_runs_commands_with_temporary_files_as_home(
    mount_tools: Any, work: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str, home: str | None
) -> None:
    if sandbox == "bubblewrap":
        require("bwrap")
    else:
        monkeypatch.setenv("PATH", "/nowhere")

    def know_nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", know_nobody)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    tool = (await mount_tools()).get("tools", "bash")
    result = await tool.execute({"command": '[ "$HOME" = "$TMPDIR" ] && echo x >~/a && echo "$(cat ~/a)" >made'})
    assert (result.success, result.output["exit_code"]) == (True, 0), result
    assert (work / "made").read_text() == "x\n"
    assert "opaque" in {access.form for access in tool.accesses({"command": "rm -r ~"})}


async def test_a_guarded_file_with_a_second_name_stops_everything(bash: Any, work: Path) -> None:
    (work / ".env").write_text("x")
    (work / "notes").hardlink_to(work / ".env")
    assert (await bash("cat notes")).error["message"].startswith(".env has another name (a hard link), and")


async def test_checkpoints_and_environments_of_nox_stop_nothing(bash: Any, work: Path) -> None:
    packages = work / ".nox" / "tests" / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "_virtualenv.pth").write_text("import _virtualenv\n")
    (work / "copy").hardlink_to(packages / "_virtualenv.pth")
    for number in range(700):
        (work / f"{number}.pth").touch()
    result = await bash("echo x >>0.pth && cat 0.pth")
    assert result.output["output"] == "x\n"
    assert find_guarded(str(work)).is_complete


async def test_a_rule_of_the_person_releases_a_guarded_file(bash: Any, coordinator: Any, work: Path) -> None:
    (work / ".env").write_text("A=1\n")
    (work / ".editorconfig").write_text("")
    command = "cat .env; echo x >>.editorconfig"
    guard(coordinator, work, {})
    assert "A=1" not in (await bash(command)).output["output"]
    guard(coordinator, work, {"allow": ["bash(.env)", "bash(.editorconfig)"]})
    assert (await bash(command)).output["output"] == "A=1\n"
    assert (work / ".editorconfig").read_text() == "x\n"
    guard(coordinator, work, {"allow": ["bash(.env)"]}, {"deny": ["bash(.env)"]})
    assert "A=1" not in (await bash(command)).output["output"]


@pytest.mark.parametrize(
    "path",
    [".ssh/id_rsa", ".ssh/work", ".gnupg/deep/x", ".aws/credentials", ".azure/a/b", ".kube/config", "sub/.aws/sso/x",
     ".vscode/.env", ".devcontainer/.env", ".github/workflows/.env", ".husky/a.pem", ".amplifier/keys.json"],
)  # fmt: skip
async def test_secrets_in_folders_that_hold_them_or_are_obeyed_are_empty(bash: Any, work: Path, path: str) -> None:
    secret = work / path
    secret.parent.mkdir(parents=True)
    secret.write_text("hunter2\n")
    result = await bash(f"grep -r hunter2 .; cat {path}; echo theirs >{path}; wc -c {path}")
    assert result.output["output"].endswith(f"0 {path}\n")
    assert "hunter2" not in result.output["output"]
    assert secret.read_text() == "hunter2\n"


@pytest.mark.parametrize(
    "path", [".hg/hgrc", ".jj/repo/config.toml", "sub/.config/fish/conf.d/x.fish", ".cargo/config"]
)
async def test_what_is_obeyed_by_its_name_and_those_above_is_read_only(bash: Any, work: Path, path: str) -> None:
    (work / path).parent.mkdir(parents=True)
    (work / path).write_text("mine\n")
    result = await bash(
        f"cat {path}; echo theirs >{path}; mkdir .hg/store .jj/repo/store; mv {Path(path).parts[0]} old"
    )
    assert result.output["output"].startswith("mine\n") and "Device or resource busy" in result.output["output"]
    assert (work / path).read_text() == "mine\n"


async def test_a_folder_that_is_obeyed_stays_read_only_around_its_secrets(bash: Any, work: Path) -> None:
    (work / ".github" / "workflows").mkdir(parents=True)
    (work / ".github" / "workflows" / ".env").write_text("A=1\n")
    result = await bash("echo x >.github/workflows/new.yml; mv .github/workflows .github/w; mv .github g")
    assert not (work / ".github" / "workflows" / "new.yml").exists()
    assert (work / ".github" / "workflows" / ".env").read_text() == "A=1\n"
    assert "warnings" not in result.output


async def test_a_rule_releases_a_secret_in_a_folder(bash: Any, coordinator: Any, work: Path) -> None:
    (work / ".aws").mkdir()
    (work / ".aws" / "config").write_text("region\n")
    (work / ".aws" / "credentials").write_text("hunter2\n")
    guard(coordinator, work, {"allow": ["bash(.aws/config)"]})
    assert (await bash("cat .aws/*")).output["output"] == "region\n"


async def test_a_new_folder_that_is_obeyed_is_named_once(bash: Any, work: Path) -> None:
    assert (await bash("mkdir .ssh; echo x >.ssh/id_rsa")).output["warnings"] == [".ssh is new: ssh obeys it"]


def test_the_inside_of_a_repository_is_not_walked(work: Path) -> None:
    (work / ".git" / "objects").mkdir(parents=True)
    (work / ".git" / "objects" / "id_rsa").touch()
    assert find_guarded(str(work)).secret == ()


async def test_the_permissions_of_a_session_decide_about_a_call(bash: Any, coordinator: Any, work: Path) -> None:
    guard(coordinator, work, {"deny": ["bash(rm *)"], "allow": ["bash(touch *)"]})

    async def effect(**arguments: Any) -> str:
        data = {"tool_name": "bash", "tool_input": arguments}
        return (await coordinator.hooks.emit("tool:pre", data)).action

    assert await effect(command="ls | head -5") == "continue"
    assert await effect(command="touch 'a b' && ls") == "continue"
    assert await effect(command=r"ls; \rm y") == "deny"
    assert await effect(command="make") == "ask_user"
    assert await effect(command="ls", network=True) == "ask_user"
    assert await effect(command="ls", cwd="..") == "deny"
    assert await effect(command="cat .env", cwd=".") == "deny"
    assert await effect(command=["ls"]) == "continue"
    assert (await coordinator.get("tools", "bash").execute({"command": ["ls"]})).error["type"] == "InvalidInput"
    assert (await bash("ls", disable_sandbox=True)).error["message"].startswith("unknown field 'disable_sandbox'")
    assert (await bash("ls", network=True)).error["message"].startswith("unknown field 'network'")


@pytest.mark.parametrize(("granted", "reached"), [(False, False), (True, True)])
async def test_a_granted_network_is_the_network(mount_tools: Any, granted: bool, reached: bool) -> None:
    require("bwrap")
    tool = (await mount_tools(sandbox="bubblewrap", network=True)).get("tools", "bash")
    assert [access.kind for access in tool.accesses({"command": "ls", "network": granted})].count("host") == granted
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = f"echo x >/dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        result = await tool.execute({"command": command, "network": granted})
    assert (result.output["exit_code"] == 0) is reached


async def test_a_granted_network_has_no_abstract_sockets(mount_tools: Any) -> None:
    require("bwrap")
    tool = (await mount_tools(sandbox="bubblewrap", network=True, readable=[sys.base_prefix])).get("tools", "bash")
    name = f"amplifier-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        command = f'{sys.base_prefix}/bin/python3 -I -c "{code}"'
        result = await tool.execute({"command": command, "network": True})
    assert "Address family not supported by protocol" in result.output["output"]


async def test_a_command_gets_no_locale_of_another_encoding(bash: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "zh_CN.GBK")
    monkeypatch.setenv("LC_ALL", "de_DE")
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    assert (await bash("printenv LANG LC_ALL LC_TIME")).output["output"] == "C.UTF-8\nde_DE.UTF-8\n"


# repositories


@pytest.mark.parametrize(
    "command",
    [
        "git init -q && git config core.fsmonitor ./x",
        "git init -q && git config alias.s '!./x'",
        "git init -q && printf '[include]\\n\\tpath = ../x\\n' >>.git/config",
        "git init -q && echo ./x >.git/hooks/pre-commit",
        "git init -q && ln -sfn ../x .git/hooks",
        "git init -q && echo ../x >.git/commondir",
        "git init -q && git remote add o ext::./x",
        "mkdir x && git init -q x && echo 'gitdir: x/.git' >.git",
        "git init -q sub && git -C sub config diff.external ./x && mv sub/.git .git",
    ],
)
async def test_a_new_repository_that_would_run_programs_is_moved_aside(bash: Any, work: Path, command: str) -> None:
    result = await bash(command)
    assert not (work / ".git").exists()
    [held] = work.glob(".git-held-*")
    assert f".git would run programs on your machine: it is now {held.name}" in result.output["warnings"]


async def test_what_a_command_in_the_background_plants_is_moved_aside_before_the_next_call(
    bash: Any, coordinator: ModuleCoordinator, work: Path
) -> None:
    os.mkfifo(work / "go")
    plant = "read -r line <go; git config core.fsmonitor ./x; echo planted; sleep 4713.3"
    one = {"id": (await bash(plant, background=True)).output["id"]}
    git(work, "init", "-q")  # by the person
    (work / ".envrc").touch()
    said = (await bash("echo on >go")).output["warnings"]
    assert sorted(said) == [".envrc is new: a shell obeys it", ".git is new: git obeys it"]
    while "planted" not in (await coordinator.get("tools", "bash_output").execute(one)).output["output"]:
        await asyncio.sleep(0.01)
    result = await bash("true")
    [held] = work.glob(".git-held-*")
    assert result.output["warnings"] == [f".git would run programs on your machine: it is now {held.name}"]


async def test_a_new_repository_with_plain_settings_stays_and_is_named(bash: Any, work: Path) -> None:
    result = await bash("git init -q && git remote add origin https://example.com/x.git && echo x >.envrc")
    assert sorted(result.output["warnings"]) == [".envrc is new: a shell obeys it", ".git is new: git obeys it"]
    assert git(work, "remote", "-v").startswith("origin\thttps://example.com/x.git")
    assert "warnings" not in (await bash("git status")).output


async def test_what_is_new_in_a_repository_and_obeyed_is_moved_aside(bash: Any, work: Path) -> None:
    git(work, "init", "-q")
    shutil.rmtree(work / ".git" / "hooks")
    result = await bash("mkdir .git/hooks; echo ./x >.git/hooks/pre-commit; echo /x >.git/commondir")
    assert len(result.output["warnings"]) == 2
    assert not (work / ".git" / "hooks").exists() and not (work / ".git" / "commondir").exists()
    assert git(work, "status", "--short") == ""


@pytest.mark.parametrize(
    "part",
    ["commondir", "config.worktree", "info/attributes", "remotes/o", "branches/b", "worktrees/w/commondir",
     "rebase-merge/git-rebase-todo"],
)  # fmt: skip
@pytest.mark.parametrize("is_there", [False, True])
async def test_nothing_that_git_obeys_is_planted_in_a_repository(
    bash: Any, work: Path, part: str, is_there: bool
) -> None:
    git(work, "init", "-q")
    planted, first = work / ".git" / part, work / ".git" / part.split("/")[0]
    shutil.rmtree(first, ignore_errors=True)
    if is_there:
        planted.parent.mkdir(exist_ok=True, parents=True)
        planted.write_text("exec mine\n")
    result = await bash(f"mkdir -p .git/{Path(part).parent}; echo 'exec theirs' >.git/{part}")
    if is_there:
        assert "Read-only file system" in result.output["output"]
        assert planted.read_text() == "exec mine\n"
    else:
        assert not first.exists()
        assert f"{first.relative_to(work)} is new, and git obeys it" in result.output["warnings"][0]


async def test_what_git_itself_leaves_in_a_repository_stays(bash: Any, work: Path) -> None:
    shell = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b; "
    begin = "for n in 1 2; do echo $n >f; git add f; git commit -qm $n; done; git checkout -qb o HEAD~; echo 3 >f; "
    await bash(f"git init -q; {shell}{begin} git commit -qam 3")
    result = await bash(f"{shell}git rebase master; git init -q")
    assert (work / ".git" / "rebase-merge").exists()
    assert "warnings" not in result.output
    result = await bash(f"{shell}echo 4 >f; git add f; GIT_EDITOR=true git rebase --continue; git worktree add -q w")
    assert not (work / ".git" / "rebase-merge").exists()
    assert (work / ".git" / "worktrees" / "w").exists()  # it is the pointer in `w` that is moved aside


@pytest.mark.parametrize(
    "command",
    ["git init -q --bare b; git -C b config core.fsmonitor ./x", "git init -q --bare b; echo ./x >b/hooks/post-update",
     "mkdir -p b/objects b/refs; git init -q g; cp g/.git/HEAD b; echo '[alias]' >b/config; echo 's = !x' >>b/config",
     "git init -q --bare objects/b; mkdir refs b; echo ../objects/b >b/commondir; cp objects/b/HEAD b",
     "git init -q --bare x; cp -r x/* .; git --git-dir=. config diff.external ./x; ln -s . b"],
)  # fmt: skip
async def test_a_new_bare_repository_that_would_run_programs_is_none_afterwards(
    bash: Any, work: Path, command: str
) -> None:
    result = await bash(command)
    assert not (work / "b" / "HEAD").exists()
    assert len(list((work / "b").glob("HEAD-held-*"))) == 1
    assert [text for text in result.output["warnings"] if "would run programs on your machine: its HEAD is now" in text]


async def test_a_bare_repository_that_is_there_is_guarded_when_it_runs_programs(bash: Any, work: Path) -> None:
    git(work, "init", "-q", "--bare", "plain")
    git(work, "init", "-q", "--bare", "mine")
    git(work / "mine", "config", "alias.mine", "!true")
    result = await bash("git -C mine config alias.mine '!false'; rm -r plain; git init -q --bare other")
    assert "Device or resource busy" in result.output["output"]
    assert "warnings" not in result.output
    assert not (work / "plain").exists()
    (work / "mine" / "hooks" / "post-update").write_text("mine")
    assert "Read-only" in (await bash("echo x >mine/hooks/post-update")).output["output"]


async def test_a_new_repository_of_a_submodule_that_would_run_programs_is_none_afterwards(
    bash: Any, work: Path
) -> None:
    git(work, "init", "-q")
    result = await bash("git init -q --bare .git/modules/s; git -C .git/modules/s config core.fsmonitor ./x")
    assert not (work / ".git" / "modules" / "s" / "HEAD").exists()
    assert result.output["warnings"][0].startswith(".git/modules/s would run programs on your machine")


@pytest.mark.parametrize("inner", ["", "sub"])
async def test_the_hooks_that_a_repository_names_are_guarded(bash: Any, work: Path, inner: str) -> None:
    top = work / inner
    (top / "tools" / "hooks").mkdir(parents=True)
    (top / "tools" / "hooks" / "pre-commit").write_text("old")
    git(top, "init", "-q")
    git(top, "config", "core.hooksPath", "tools/hooks")
    hooks = f"{inner}/tools/hooks".removeprefix("/")
    result = await bash(
        f"echo x >{hooks}/pre-commit; echo x >{hooks}/pre-push; mv {hooks} gone; echo x >{hooks}/../free"
    )
    assert (top / "tools" / "hooks" / "pre-commit").read_text() == "old"
    assert [each.name for each in (top / "tools" / "hooks").iterdir()] == ["pre-commit"]
    assert (top / "tools" / "free").exists()
    assert "warnings" not in result.output
    await bash(f"mv {hooks.rpartition('/')[0]} moved; mkdir -p {hooks}; echo ./x >{hooks}/pre-commit")
    assert (top / "tools" / "hooks" / "pre-commit").read_text() == "old"


async def test_the_hooks_of_a_repository_around_the_folder_are_guarded(bash: Any, work: Path) -> None:
    (work / "hooks").mkdir()
    git(work.parent, "init", "-q")
    git(work.parent, "config", "core.hooksPath", f"{work.name}/hooks")
    await bash("echo x >hooks/pre-commit")
    assert list((work / "hooks").iterdir()) == []


@pytest.mark.parametrize(("key", "value"), [("core.hooksPath", "dev/hooks"), ("include.path", "../dev/hooks")])
async def test_what_the_settings_of_a_repository_name_is_moved_aside_when_it_is_new(
    bash: Any, work: Path, key: str, value: str
) -> None:
    git(work, "init", "-q")
    git(work, "config", key, value)
    result = await bash("mkdir -p dev/hooks; echo x >dev/hooks/pre-commit")
    assert not (work / "dev" / "hooks").exists()
    assert result.output["warnings"][0].startswith("dev/hooks is new, and git obeys it: it is now dev/hooks-held-")


@pytest.mark.parametrize("planted", [".git", "pkg/.git"])
async def test_no_number_of_files_hides_a_new_repository(bash: Any, work: Path, planted: str) -> None:
    (work / "pkg").mkdir()
    (work / "pkg" / ".envrc").touch()
    command = f"mkdir {{1..20001}}; git init -q {Path(planted).parent}; echo '[alias] x = !x' >>{planted}/config"
    result = await bash(command)
    assert not (work / planted).exists()
    assert any(f"{planted} would run programs" in text for text in result.output["warnings"])
    assert any("too many files now" in text for text in result.output["warnings"])


async def test_a_link_with_a_guarded_name_is_looked_at(bash: Any, work: Path) -> None:
    (work / "bundle.md").symlink_to("other.md")
    plant = "git init -q e; git -C e config core.fsmonitor ./x; mkdir node_modules; mv e/.git node_modules/g; "
    result = await bash(f"{plant} ln -s node_modules/g .git; ln -s theirs .envrc")
    assert not (work / ".git").is_symlink()
    assert [text.partition(" on your")[0] for text in sorted(result.output["warnings"])] == [
        ".envrc is new: a shell obeys it", ".git would run programs",
    ]  # fmt: skip
    replaced = await bash("ln -sfn theirs bundle.md")
    assert replaced.output["warnings"] == ["bundle.md is new: amplifier obeys it"]


async def test_a_link_among_the_submodules_is_looked_at(bash: Any, work: Path) -> None:
    git(work, "init", "-q")
    plant = "git init -q e; git -C e config core.fsmonitor ./x; mkdir -p node_modules .git/modules; "
    await bash(f"{plant} mv e/.git node_modules/g; ln -s ../../node_modules/g .git/modules/s")
    assert not (work / ".git" / "modules" / "s" / "HEAD").exists()
    assert "done" in (await bash("echo done")).output["output"]


async def test_a_repository_below_is_guarded_too(bash: Any, work: Path) -> None:
    (work / "deep" / "sub").mkdir(parents=True)
    git(work / "deep" / "sub", "init", "-q")
    before = (work / "deep" / "sub" / ".git" / "config").read_text()
    result = await bash("cd deep/sub && git config core.fsmonitor ./x; mv .git g")
    assert result.output["output"].count("Device or resource busy") == 2
    assert (work / "deep" / "sub" / ".git" / "config").read_text() == before


@pytest.mark.parametrize(
    "path", ["pkg/bundle.md", "pkg/deep/.vscode/x", "pkg/.env", "pkg/.git/config", "pkg/.git/modules/m/n/config"]
)
async def test_a_folder_above_a_guarded_file_cannot_be_replaced(bash: Any, work: Path, path: str) -> None:
    (work / path).parent.mkdir(parents=True)
    (work / path).write_text("mine")
    for head in work.glob("pkg/.git/**/n"):
        (head / "HEAD").write_text("ref: refs/heads/main\n")
    for above in list(Path(path).parents)[:-1]:
        result = await bash(
            f"mv {above} {above}2; cp -r {above}2 {above}; echo theirs >{path}; echo moved >a; mv a pkg/a"
        )
        assert "Device or resource busy" in result.output["output"] or "Read-only" in result.output["output"]
        assert (work / path).read_text() == "mine"
        assert (work / "pkg" / "a").read_text() == "moved\n"


@needs_landlock
async def test_a_repository_in_the_place_of_a_moved_one_is_new(in_landlock: Any, work: Path) -> None:
    (work / "sub").mkdir()
    git(work / "sub", "init", "-q")
    git(work / "sub", "config", "alias.mine", "!true")
    moved = await in_landlock("mv sub old && mkdir sub && git init -q sub && git -C sub config core.fsmonitor ./x")
    assert not (work / "sub" / ".git").exists()
    assert [text.partition(" on your")[0] for text in moved.output["warnings"]] == ["sub/.git would run programs"]
    assert git(work / "old", "config", "alias.mine") == "!true\n"
    added = await in_landlock("mv old older && echo ../x >older/.git/commondir")
    assert not (work / "older" / ".git" / "commondir").exists()
    assert added.output["warnings"][0].startswith("older/.git/commondir is new, and git obeys it")


async def test_a_linked_worktree_is_read_and_a_forged_one_leads_nowhere(
    bash: Any, work: Path, tmp_path: Path, outside: Path
) -> None:
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first")
    work.rmdir()
    git(main, "worktree", "add", "-q", str(work))
    assert (await bash("git log --format=%s")).output["output"] == "first\n"
    (work / ".git").write_text(f"gitdir: {outside}\n")
    (outside / "gitdir").write_text("/elsewhere/.git\n")
    (outside / "commondir").write_text(".\n")
    assert "outside" not in (await bash(f"cat {outside}/secret")).output["output"].replace(str(outside), "")


async def test_a_repository_with_linked_hooks_is_read_only(bash: Any, work: Path) -> None:
    git(work, "init", "-q")
    shutil.move(work / ".git" / "hooks", work / "hooks")
    (work / ".git" / "hooks").symlink_to("../hooks")
    result = await bash("rm .git/hooks; git status --short")
    assert "Read-only file system" in result.output["output"]
    assert (work / ".git" / "hooks").is_symlink()


async def test_git_of_the_sandbox_runs_what_a_repository_names_inside(bash: Any, work: Path) -> None:
    git(work, "init", "-q")
    git(work, "config", "core.fsmonitor", f"touch {work}/ran /tmp/ran-{os.getpid()};:")
    await bash("git status")
    assert (work / "ran").exists()
    assert not Path(f"/tmp/ran-{os.getpid()}").exists()


# Landlock

LANDLOCKED = {
    "a file outside is written": "echo x >{outside}/new && echo ESCAPED",
    "a file outside is read": "cat {outside}/secret && echo ESCAPED",
    "a file outside is reached through a link": "ln -s {outside} l; cat l/secret && echo ESCAPED",
    "a file outside gets a second name": "ln {outside}/secret here && echo ESCAPED",
    "a file comes from outside": "mv {outside}/secret here && echo ESCAPED",
    "a key in the home is read": "cat {home}/key && echo ESCAPED",
    "environments are read": "cat /proc/{pid}/environ && echo ESCAPED",
    "a service is reached by TCP": "echo x >/dev/tcp/127.0.0.1/{tcp} && echo ESCAPED",
    "a service is reached by UDP": "echo x >/dev/udp/127.0.0.1/{tcp} && echo ESCAPED",
    "the system is written": "touch /usr/here && echo ESCAPED",
    "a program gets the rights of its owner": "cp /bin/true s && chmod u+s s && echo ESCAPED",
    "a device is made": "mknod d b 8 0 && echo ESCAPED",
    "a file gets another owner": "touch a && chown 12345 a && echo ESCAPED",
    "the time is set": "date -s 2001-01-01 && echo ESCAPED",
    "a device is read": "head -c 1 /dev/mem && echo ESCAPED",
}


@needs_landlock
@pytest.mark.parametrize("way", LANDLOCKED)
async def test_no_command_gets_out_of_landlock(
    way: str, in_landlock: Any, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "key").write_text("key\n")
    monkeypatch.setenv("HOME", str(home))
    with socket.create_server(("127.0.0.1", 0)) as server:
        facts = {"outside": outside, "home": home, "pid": os.getpid(), "tcp": server.getsockname()[1]}
        result = await in_landlock(LANDLOCKED[way].format(**facts))
    assert "ESCAPED" not in result.output["output"], result.output
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


@needs_landlock
async def test_under_landlock_ordinary_work_goes_on(in_landlock: Any, work: Path) -> None:
    command = "echo b >b; mkdir d; mv b d/c; cat d/c | sort; mktemp >/dev/null && echo $?; git init -q; ls -A ~; exit 3"
    result = await in_landlock(command)
    assert result.output["output"].splitlines()[:2] == ["b", "0"]
    assert (result.output["exit_code"], (work / "d" / "c").read_text()) == (3, "b\n")
