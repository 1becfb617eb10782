"""Write the user's own unit of systemd, and agent of launchd, for `amplifier up`."""

from __future__ import annotations

import os
import plistlib
import shlex
import sys
from pathlib import Path
from xml.parsers.expat import ExpatError

from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import is_printable

UNIT = "amplifier.service"
LABEL = "amplifier.up"
"""The name of the agent on macOS."""

STOPPING = 30
"""Seconds for the program to stop; running sessions get 8 of them."""

_HARDENING = """\
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={writable}
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077"""


@frozen
class Service:
    """The arguments of `amplifier up`, valid in any folder, and the writable folders."""

    bundles: tuple[str, ...]
    projects: tuple[str, ...]
    home: Path
    """The data folder."""
    home_is_chosen: bool
    """Whether `AMPLIFIER_HOME` names it."""
    python: str = sys.executable

    @property
    def program(self) -> tuple[str, ...]:
        """The command line."""
        return (self.python, "-P", "-m", "amplifier_foundation", "up", "--", *self.bundles)

    @property
    def environment_file(self) -> Path:
        """The file with its secrets, as `NAME=value` lines."""
        return self.home / "environment"


def systemd_folder() -> Path:
    """Return the folder of the user's own units. Raises `RuntimeError` for a user without a home."""
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(chosen) if chosen.startswith("/") else Path.home() / ".config"
    return base / "systemd" / "user"


def launchd_folder() -> Path:
    """Return the folder of the user's own agents. Raises `RuntimeError` for a user without a home."""
    return Path.home() / "Library" / "LaunchAgents"


def systemd_unit(service: Service) -> str:
    """Return the unit: of type `notify`, with a watchdog, restarted after a failure, with few permissions.

    It is never given up, as a disk may be full for a day. `/tmp` is shared with other programs: a data folder with a
    long path has its control socket there.
    """
    writable = dict.fromkeys((str(service.home), *service.projects, "/tmp", "/var/tmp"))
    chosen = f"Environment={_quote(f'AMPLIFIER_HOME={service.home}')}\n" if service.home_is_chosen else ""
    return f"""\
# Change what it may do with: systemctl --user edit {UNIT}
[Unit]
Description=amplifier: background sessions of AI agents
Documentation=man:systemd.service(5)
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={_command(service.program)}
ExecReload=kill -HUP $MAINPID
{chosen}EnvironmentFile=-{_literal(str(service.environment_file))}
WatchdogSec=60
TimeoutStartSec=180
TimeoutStopSec={STOPPING}
KillMode=mixed
Restart=on-failure
RestartSec=10
SuccessExitStatus=130 143
{_HARDENING.format(writable=" ".join(_quote(f"-{path}") for path in writable))}

[Install]
WantedBy=default.target
"""


def launchd_plist(service: Service) -> str:
    """Return the agent: started when its user logs in, and again when it fails."""
    log = str(service.home / "logs" / "up.log")
    program = (*service.program[:5], "--log", log, *service.program[5:])
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(program),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": STOPPING,
        "ProcessType": "Background",
        "Umask": 0o077,
        **({"EnvironmentVariables": {"AMPLIFIER_HOME": str(service.home)}} if service.home_is_chosen else {}),
    }
    return plistlib.dumps(agent).decode()


def bundles_of(text: str) -> tuple[str, ...]:
    """Return the bundles that a unit or an agent of `amplifier` runs; none where that cannot be told."""
    try:
        if text.startswith("<?xml"):
            words = [str(each) for each in plistlib.loads(text.encode())["ProgramArguments"]]
        else:
            [line] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
            words = [each.replace("$$", "$").replace("%%", "%") for each in shlex.split(line)]
        return tuple(words[words.index("--") + 1 :])
    except (ValueError, KeyError, ExpatError):
        return ()


def _command(words: tuple[str, ...]) -> str:
    """Return a command line; in all but its first word, `$` begins a variable."""
    first, *rest = words
    return " ".join([_quote(first), *(_quote(word).replace("$", "$$") for word in rest)])


def _quote(text: str) -> str:
    """Return `text` as one quoted word of a unit."""
    escaped = _literal(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    """Return `text` with the specifiers of units escaped. Raises `ValueError` for a line break."""
    if not is_printable(text):
        raise ValueError(f"{text!r} cannot stand in a unit: give the folder another name")
    return text.replace("%", "%%")
