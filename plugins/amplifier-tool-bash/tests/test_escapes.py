"""Ways out of the sandbox, tried in a real one. A way that works prints ESCAPED, or leaves a trace outside."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Callable

SHELL = {
    "a file outside is written": "echo x >{outside}/new",
    "a file outside is overwritten": "echo x >{outside}/secret",
    "a file outside is read": "cat {outside}/secret && echo ESCAPED",
    "a file outside is read by a relative path": "cat ../outside/secret && echo ESCAPED",
    "a file outside is read through a link": "ln -s {outside} away; cat away/secret && echo ESCAPED",
    "a file outside gets a second name": "ln {outside}/secret here && echo ESCAPED",
    "a file outside loses its mode": "chmod 777 {outside}/secret && echo ESCAPED",
    "a key in the home is read": "cat {home}/.ssh/id_rsa && echo ESCAPED",
    "the home is written": "echo x >>{home}/.bashrc",
    "the system is written": "touch /usr/here && echo ESCAPED; touch /etc/here && ls {root}/etc/here",
    "git's settings are written": "echo x >>.git/config && echo ESCAPED",
    "git's settings are replaced": "echo x >c; mv -f c .git/config && echo ESCAPED",
    "git's settings are deleted": "rm -f .git/config && echo ESCAPED",
    "a hook is added": "echo x >.git/hooks/post-commit && echo ESCAPED",
    "the hooks are moved": "mv .git/hooks .git/h && echo ESCAPED",
    "the repository is moved": "mv .git g && echo ESCAPED",
    "git's settings get a second name": "ln .git/config c && echo x >>c && echo ESCAPED",
    "the bundle is written": "echo x >>bundle.md && echo ESCAPED",
    "the bundle is moved": "mv bundle.md b && echo ESCAPED",
    "the settings are written": "echo x >.amplifier/settings.yaml && echo ESCAPED",
    "a secret of the folder is read": "grep -r hunter2 . && echo ESCAPED",
    "environments are read": "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep CANARY && echo ESCAPED",
    "the environment is inherited": "env | grep CANARY && echo ESCAPED",
    "files are reached through a process": "cat /proc/[0-9]*/root{outside}/secret && echo ESCAPED",
    "the folder above is reached through a process": "cat /proc/self/cwd/../outside/secret && echo ESCAPED",
    "open files are inherited": "cat /proc/self/fd/*/secret && echo ESCAPED",
    "the kernel's settings are written": (
        "cd /proc/sys/kernel; cat core_pattern >/tmp/same; cat /tmp/same >core_pattern && echo ESCAPED"
    ),
    "the kernel is told to act": "echo h >/proc/sysrq-trigger && echo ESCAPED",
    "another process is signalled": "kill -0 {pid} && echo ESCAPED",
    "another process is seen": "test -e /proc/{pid} && echo ESCAPED",
    "a service is reached by TCP": "echo x >/dev/tcp/127.0.0.1/{tcp} && echo ESCAPED",
    "a service is reached by UDP": "echo x >/dev/udp/127.0.0.1/{udp}",
    "sockets of services are there": 'test -n "$(ls -A /run /var 2>/dev/null | grep -v :)" && echo ESCAPED',
    "shared memory is written": "echo x >/dev/shm/amplifier-{pid}; ls {root}/dev/shm/amplifier-{pid}",
    "devices are there": "ls /dev | grep -E '^(mem|kmem|kmsg|port|sd|vd|nvme|loop|kvm|fuse|vsock)' && echo ESCAPED",
    "a device is made": "mknod d b 8 0 && echo ESCAPED",
    "a folder is mounted": "mount -t tmpfs x /mnt && echo ESCAPED; mount --bind / src && echo ESCAPED",
    "a mount is undone": "umount .git/config && echo ESCAPED; umount -l .git && echo ESCAPED",
    "a user namespace is made": "unshare -Ur true && echo ESCAPED",
    "another namespace is entered": "nsenter -t 1 -m -n true && echo ESCAPED",
    "a program gets the rights of its owner": (
        "cp /bin/true s; chmod u+s s && echo ESCAPED; chmod 2755 s && echo ESCAPED"
    ),
    "the time is set": "date -s 2001-01-01 && echo ESCAPED",
    "the kernel's log is read": "dmesg >log && grep . log && echo ESCAPED",
    "links and renames race": (
        "for n in {{1..60}}; do ln -sfn {outside} l; (echo x >l/new) & mv -T l m; rm -f m; done; wait"
    ),
    "names of the repository race": (
        "for n in {{1..60}}; do mv -T .git g & mv -T g .git & done; wait; test -e g && echo ESCAPED"
    ),
    "a process goes on": "setsid nohup sleep 4712.{pid} >/dev/null 2>&1 & disown",
}
PYTHON = {
    "a Unix socket is opened": "socket.socket(socket.AF_UNIX).connect('{work}/service')",
    "an abstract socket is opened": "socket.socket(socket.AF_UNIX).connect('\\0amplifier-{pid}')",
    "a socket of the virtual machine is opened": "socket.socket(40, socket.SOCK_STREAM)",
    "a packet socket is opened": "socket.socket(17, socket.SOCK_RAW)",
    "a raw socket is opened": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "text is put into a terminal": "fcntl.ioctl(0, 0x5412, b'x')",
    "a process is traced": "call(101, 0, 0, 0, 0)",
    "memory of a process is read": "call(310, 1, 0, 0, 0, 0, 0)",
    "a ring of system calls is made": "call(425, 1, 0)",
    "a program is put into the kernel": "call(321, 0, 0, 0)",
    "a keyring is read": "call(250, 0, -3, 1)",
    "a key is kept": "call(248, b'user', b'x', b'x', 1, -4)",
    "a file is opened by its handle": "call(304, 3, 0, 0)",
    "a file of another process is taken": "call(438, 3, 0, 0)",
    "the second numbers of system calls work": "call(0x40000000 + 39)",
    "the root is changed": "os.chroot('.')",
    "the user is changed": "os.setuid(12345)",
    "a set-user-id file is created": "os.close(os.open('s', os.O_CREAT | os.O_WRONLY, 0o4755))",
    "the kernel is asked for its log": "call(103, 3, 0, 0)",
}
PRELUDE = """
import ctypes, fcntl, os, socket
def call(*numbers):
    if ctypes.CDLL(None, use_errno=True).syscall(*numbers) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
try:
    {body}
    print("ESCAPED")
except OSError as error:
    print("blocked:", error.errno)
"""


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of every file below a folder."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a person with a key."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("key\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CANARY", "canary")
    return home


@pytest.fixture
def project(work: Path) -> Path:
    """A working folder with everything that is guarded."""
    subprocess.run([require("git"), "init", "-q", str(work)], check=True)
    (work / "bundle.md").write_text("---\nbundle: {name: x}\n---\n")
    (work / ".amplifier").mkdir()
    (work / ".amplifier" / "settings.yaml").write_text("{}\n")
    (work / "src").mkdir()
    (work / "src" / ".env").write_text("PASSWORD=hunter2\n")
    return work


@pytest.fixture
def guarded(project: Path, home: Path, outside: Path) -> Callable[[], list[Any]]:
    """Return what no command may change."""
    guarded = [project / ".git" / "hooks", project / ".amplifier", home, outside]

    def look() -> list[Any]:
        config = (project / ".git" / "config").read_bytes(), (project / "bundle.md").read_bytes()
        return [config, *map(snapshot, guarded)]

    return look


@pytest.mark.parametrize("way", SHELL)
async def test_no_command_gets_out(
    way: str, project: Path, home: Path, outside: Path, guarded: Callable[[], list[Any]], mount_tools: Any
) -> None:
    require("bwrap")
    directory = os.open(outside, os.O_RDONLY)
    os.set_inheritable(directory, True)
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        facts = {"outside": outside, "home": home, "root": "/proc/1/root", "pid": os.getpid()}
        command = SHELL[way].format(**facts, tcp=tcp.getsockname()[1], udp=udp.getsockname()[1])
        before = guarded()
        tool = (await mount_tools(sandbox="bubblewrap")).get("tools", "bash")
        result = await tool.execute({"command": command, "timeout": 60})
        with pytest.raises(BlockingIOError):
            udp.recv(1)
    os.close(directory)
    assert "ESCAPED" not in result.output["output"], result.output
    assert guarded() == before
    assert not Path(f"/dev/shm/amplifier-{os.getpid()}").exists()
    assert subprocess.run(["pgrep", "-f", f"sleep 4712.{os.getpid()}"], capture_output=True).stdout == b""


@pytest.mark.parametrize("way", PYTHON)
async def test_no_system_call_gets_out(way: str, project: Path, home: Path, mount_tools: Any) -> None:
    require("bwrap")
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract:
        os.chdir(project)  # the name of a socket is short
        named.bind("service")
        named.listen()
        abstract.bind(f"\0amplifier-{os.getpid()}")
        abstract.listen()
        body = PYTHON[way].format(work=project, pid=os.getpid()).replace(f"{project}/", "")
        script = PRELUDE.replace("{body}", body)
        tool = (await mount_tools(sandbox="bubblewrap", readable=[sys.base_prefix])).get("tools", "bash")
        command = f"{sys.base_prefix}/bin/python3 -I -c {shlex.quote(script)}"
        result = await tool.execute({"command": command, "timeout": 60})
    assert result.output["output"].startswith("blocked: "), result.output
    if "call(" in body or "ioctl" in body:
        assert result.output["output"] == "blocked: 1\n"  # by the filter, not by wrong arguments


async def test_what_is_allowed_works(project: Path, home: Path, mount_tools: Any) -> None:
    require("bwrap")
    tool = (await mount_tools(sandbox="bubblewrap")).get("tools", "bash")
    command = (
        "echo a >a && git add a && GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@d GIT_AUTHOR_NAME=c GIT_AUTHOR_EMAIL=c@d "
        "git commit -qm a && git log --oneline | wc -l && mktemp >/dev/null && echo x >/dev/shm/y && chmod 755 a && "
        "sort <a"
    )
    result = await tool.execute({"command": command, "timeout": 60})
    assert (result.output["output"], result.output["exit_code"]) == ("1\na\n", 0)
