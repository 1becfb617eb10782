"""Look at what protects this machine: trust, permissions, the store, the sandbox, keys, file modes, ports, the network.

Every check reads; none changes anything. A plugin adds checks of its own with `amplifier_register_checkup`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from amplifier_core.errors import AmplifierError, StoreError

from ..paths import BUNDLE_FILES, data_home, find_home, find_obstacle, is_mapped, own_remedy, unusable_error
from .trust import VARIABLE, is_checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_core.plugins import Plugins

State = Literal["ok", "weak", "off"]
"""`weak` should be mended; `off` is a protection that is not in use."""
PROXY_ANSWERS = 2.0
"""Seconds for a proxy to accept a connection."""
LEAST_FREE = 16 * 1024 * 1024
"""Bytes: with fewer, a disk counts as full."""


class Finding(NamedTuple):
    """One fact about a protection, and what to do about it."""

    part: str
    state: State
    fact: str
    remedy: str = ""


def find_all(plugins: Plugins, folder: Path | None = None) -> list[Finding]:
    """Return the findings about this machine and a project's `folder` (default: the current one), part by part."""
    folder = folder or Path.cwd()
    files = list(check_files(folder))  # before a look at the store makes its folder private
    found = [*check_trust(), *check_permissions(folder), *check_store(plugins), *check_plugins(plugins)]
    if not any(each.part == "sandbox" for each in found):
        found.append(
            Finding(
                "sandbox",
                "off",
                "tools run in the process of their session, with your rights",
                "trust only bundles whose tools you know, or run amplifier in a container or as another user",
            )
        )
    found += [*check_keys(), *files, *check_ports(), *check_network(), *check_notifications(folder)]
    return [*found, *check_transports(plugins, folder)]


def check_trust() -> Iterator[Finding]:
    """Yield whether trust is asked for, and what has changed since it was given."""
    from .trust_ledger import Ledger, find_problem

    if not is_checked():
        yield Finding("trust", "weak", f"{VARIABLE}=1: any bundle runs its code unasked", f"unset {VARIABLE}")
    try:
        ledger = Ledger()
        places = ledger.places()
        away = {place: absence for place in places if (absence := find_obstacle(Path(place).parent))}
        changed = [place for place in places if os.path.exists(place) and find_problem(ledger, place) is not None]  # noqa: PTH110 - false on a dead mount
    except AmplifierError as error:
        yield Finding("trust", "weak", str(error))
        return
    for place, absence in away.items():
        remedy = f"bring its folder back, or take its trust back: amplifier untrust {place}"
        yield Finding("trust", "weak", f"{place} {absence}: nobody knows whether it has changed", remedy)
    for place in changed:
        yield Finding("trust", "ok", f"{place} has changed, and is asked for again", f"amplifier trust {place}")
    if is_checked():
        yield Finding("trust", "ok", f"code of bundles is asked for once; trusted: {len(places)}")


_PROBES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("commands run", "bash", {"command": "curl example.org"}),
    ("the network is used", "web_fetch", {"url": "https://example.org/"}),
    ("files outside of the project are written", "write_file", {"path": "/var/tmp/example"}),
    ("bundles by path are run", "delegate", {"agent": "./example/bundle.md"}),
    ("files that programs obey are written", "write_file", {"path": ".git/config"}),
    ("files with secrets are read", "read_file", {"path": ".env"}),
)
"""What a rule may have opened: a sentence about it, and a call for which it would be allowed."""


def check_permissions(folder: Path) -> Iterator[Finding]:
    """Yield what the settings allow without a question that is asked or refused by default."""
    from amplifier_core.permissions import PermissionGate

    from .policies import read_policy

    try:
        gate = PermissionGate(read_policy(folder), folder)
    except AmplifierError as error:
        yield Finding("permissions", "weak", f"nothing starts: {error}")
        return
    opened = False
    for what, tool, arguments in _PROBES:
        decision = gate.decide(tool, arguments)
        if decision.effect == "allow":
            opened = True
            place = f", {decision.rule.place}" if decision.rule is not None and decision.rule.place else ""
            yield Finding(
                "permissions", "weak", f"{what} unasked: {decision.reason}{place}", "narrow that rule to what you need"
            )
    if not opened:
        fact = "commands, the network and files outside of a project are asked for; protected files are refused"
        yield Finding("permissions", "ok", fact)


def check_store(plugins: Plugins) -> Iterator[Finding]:
    """Yield whether the store can be read, as far as a quick look tells, and written; `off` alone: it is not there."""
    from amplifier_core.cancellation import own_failure
    from amplifier_core.raised import describe_raised

    from ..sessions.storages import StorageUnsuitable, open_administration, open_transfer

    home = data_home()
    try:
        if not home.is_dir():
            yield Finding("store", "off", f"{home} is not there. It is made when the first session is stored")
            return
    except OSError as error:
        yield Finding("store", "weak", str(unusable_error(home, error)))
        return
    problems = []
    well = "the store can be read, and its disk has room"
    try:
        open_administration(plugins).probe()
    except StorageUnsuitable as error:
        yield Finding("store", "off", str(error))
        well = f"the disk of {home} has room"
    except BaseException as raised:  # of any storage
        failure = own_failure(raised)
        with suppress(Exception), closing(open_transfer(plugins)) as transfer:
            if transfer.is_empty():
                yield Finding("store", "off", str(failure))
                return
        remedy = "amplifier store check" if isinstance(failure, StoreError) else ""
        problems.append((describe_raised(failure), remedy))
    if not os.access(home, os.W_OK):
        problems.append((f"{home} cannot be written", "make it writable"))
    elif (free := shutil.disk_usage(home).free) < LEAST_FREE:
        problems.append((f"the disk of {home} is full: {free:,} bytes are free", "free some space"))
    for fact, remedy in problems:
        yield Finding("store", "weak", fact, remedy)
    if not problems:
        yield Finding("store", "ok", well)


def check_plugins(plugins: Plugins, only: str | None = None) -> Iterator[Finding]:
    """Yield the findings of the plugins, or of one check; a check that fails is one too."""
    checks = plugins.registry_of("checkup")
    for name in sorted(checks) if only is None else [only]:
        try:
            for each in checks.get(name)():
                yield Finding(str(each["part"]), each["state"], str(each["fact"]), str(each.get("remedy", "")))
        except Exception as error:  # it is the code of others
            yield Finding(name, "weak", f"the check '{name}' failed: {type(error).__name__}: {error}")


def check_keys() -> Iterator[Finding]:
    """Yield where the keys of providers are kept."""
    from ..settings.keys import keys_file, list_kept, open_keyring

    try:
        in_file = [name for name, place in list_kept().items() if place == "keys.json"]
    except AmplifierError as error:
        yield Finding("keys", "weak", str(error))
        return
    if in_file:
        remedy = "install a keyring that works here, and keep them again: amplifier auth login NAME"
        yield Finding("keys", "weak", f"{keys_file()} holds {', '.join(in_file)}, readable by your user", remedy)
    elif open_keyring() is None:
        yield Finding("keys", "off", "no keyring works here: keys come from the environment, or a private file")
    else:
        yield Finding("keys", "ok", "keys are kept in the system's keyring")


def check_files(folder: Path) -> Iterator[Finding]:
    """Yield the files of the data folder that others can open, and the project's files that others can change."""
    from ..settings.places import settings_files
    from .trust_ledger import FILE as TRUST

    home = data_home()
    try:
        with suppress(FileNotFoundError, NotADirectoryError):  # it is not made yet
            home.lstat()
    except OSError as error:
        yield Finding("files", "weak", str(unusable_error(home, error)))
        return
    top, person = folder.resolve(), find_home()
    holds_home = person is not None and person.resolve().is_relative_to(top)  # no command runs there
    if top in home.resolve().parents and not holds_home:
        fact = f"{home} lies in {folder}: tools without a sandbox run beside it, and no command runs under Landlock"
        yield Finding("files", "weak", fact, "move it to a folder outside, and set AMPLIFIER_HOME")
    private = [home, *sorted(each for each in home.glob("*") if each.is_file())] if home.is_dir() else []
    private = [path for path in private if path.name != "settings.yaml"]  # it holds no secret
    opened = [path for path in private if _mode(path) & 0o077]
    obeyed = {*(folder / name for name in BUNDLE_FILES), folder, *settings_files(folder).values()}
    changeable = [path for path in sorted(obeyed) if _mode(path) & 0o022 and not _mode(path) & stat.S_ISVTX]
    mine = {None, os.getuid(), *([_owner(home)] if is_mapped() else [])}
    strange = [path for path in sorted(obeyed) if _owner(path) not in {0, *mine}]
    closed = [path for path in (home, *_list_below(home, 3)) if _owner(path) not in mine]
    for path in opened:
        is_void = path.name == TRUST and _mode(path) & 0o022  # a `chmod` would make it count, whatever is in it
        remedy = "amplifier trust" if is_void else f"chmod go= {path}"
        yield Finding("files", "weak", f"{path} is open to others (mode {_mode(path):04o})", remedy)
    for path in changeable:
        yield Finding("files", "weak", f"others can change {path} (mode {_mode(path):04o})", f"chmod go-w {path}")
    for path in strange:
        yield Finding("files", "weak", f"{path} belongs to another user", f"use a folder of your own, not {path}")
    if closed:
        rest = f", and {len(closed) - 1} more of the data folder" if len(closed) > 1 else ""
        yield Finding("files", "weak", f"{closed[0]} belongs to another user{rest}", own_remedy())
    if not opened and not changeable and not strange and not closed:
        yield Finding("files", "ok", f"only you can open {home}, and change what amplifier obeys in {folder}")


def check_ports() -> Iterator[Finding]:
    """Yield the addresses that running background sessions listen at, as far as this system tells them."""
    from ..sessions.lock import running_owners

    try:
        owners = running_owners()
    except AmplifierError as error:
        yield Finding("ports", "weak", str(error))
        return
    if owners and not Path("/proc/net/tcp").exists():
        yield Finding("ports", "off", "this system does not tell who listens", "lsof -nP -iTCP -sTCP:LISTEN")
        return
    reachable = False
    for owner in owners:
        for address, port in sorted(_listening(int(owner.get("pid", 0)))):
            if not address.is_loopback:
                reachable = True
                fact = f"other machines reach process {owner.get('pid')} at {address} port {port}"
                yield Finding("ports", "weak", fact, "give its webhooks a secret_env, or host: 127.0.0.1")
    if not reachable:
        yield Finding("ports", "ok", "no background session listens to other machines")


def check_network() -> Iterator[Finding]:
    """Yield the proxies of the environment, tried just now, and whether its certificates can be used."""
    import socket
    import ssl

    from amplifier_core.network import (
        CERTIFICATES,
        OTHER_CERTIFICATES,
        NetworkMisconfigured,
        Proxy,
        certificates_misconfigured,
        read_proxies,
    )

    by_scheme = read_proxies().by_scheme
    if not by_scheme:
        yield Finding("network", "ok", "requests go without a proxy")
    for variable, address in dict.fromkeys(by_scheme.values()):
        try:
            proxy = Proxy.parse(variable, address)
        except NetworkMisconfigured as error:
            yield Finding("network", "weak", error.problem, error.remedy)
            continue
        try:
            socket.create_connection(proxy.address, PROXY_ANSWERS).close()
        except OSError as error:
            yield Finding("network", "weak", f"{proxy} does not answer ({error.strerror or error})", proxy.remedy)
        else:
            yield Finding("network", "ok", f"requests go through {proxy}, which answered just now")
    if file := os.environ.get(CERTIFICATES):
        try:
            ssl.create_default_context(cafile=file)
        except OSError as error:
            found = certificates_misconfigured(error)
            yield Finding("network", "weak", found.problem, found.remedy)
    else:
        for name in filter(os.environ.get, OTHER_CERTIFICATES):
            yield Finding("network", "off", f"{name} does not count here", f"name its file in {CERTIFICATES}, too")


def check_notifications(folder: Path) -> Iterator[Finding]:
    """Yield who is told when background sessions need a person, and whether its program is there."""
    from ..settings import read_settings
    from .trust import check_settings, without_project

    try:
        settings = read_settings(folder)
        if check_settings(settings, folder) is not None:
            settings = without_project(settings)
    except AmplifierError as error:
        yield Finding("notify", "weak", f"nobody is told: {error}")
        return
    entries = settings.get("notify") or []
    if not entries:
        remedy = "amplifier config set notify '[{on: [given_up, approval], desktop: true}]'"
        yield Finding("notify", "off", "nobody is told when a background session gives up an event or asks", remedy)
    for entry in entries:
        program = "notify-send" if entry.get("desktop") else next(iter(entry.get("command") or []), "")
        if program and shutil.which(program) is None:
            yield Finding(
                "notify", "weak", f"{program} is not installed: it tells nobody", "install it, or change notify"
            )
        else:
            yield Finding("notify", "ok", f"{program or 'a webhook'} is told of {', '.join(entry['on'])}")


def check_transports(plugins: Plugins, folder: Path) -> Iterator[Finding]:
    """Yield whether events reach other sites; nothing where no transport is set."""
    from ..settings import read_settings

    try:
        entries = read_settings(folder).get("transports") or []
    except AmplifierError:  # said of `notify` already
        return
    if entries:
        from ..transports.checkup import check_routes

        for state, fact, remedy in check_routes(entries, plugins):
            yield Finding("transports", "ok" if state == "ok" else "weak", fact, remedy)


def _list_below(folder: Path, levels: int) -> Iterator[Path]:
    """Yield what is in a folder, and in the folders in it, so many levels deep."""
    with suppress(OSError):
        for each in sorted(folder.iterdir()):
            yield each
            if levels > 1 and not each.is_symlink():
                yield from _list_below(each, levels - 1)


def _mode(path: Path) -> int:
    """Return the mode of a file or folder; 0 when it is missing, or a link."""
    try:
        found = path.lstat().st_mode
    except OSError:
        return 0
    return 0 if stat.S_ISLNK(found) else stat.S_IMODE(found)


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _listening(pid: int) -> set[tuple[Any, int]]:
    """Return the addresses and ports at which a process listens, from `/proc`."""
    inodes = set(_socket_inodes(pid))
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == "0A" and fields[9] in inodes:  # listening
                found.add(_parse_address(fields[1]))
    return found


def _socket_inodes(pid: int) -> Iterable[str]:
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        try:
            target = str(descriptor.readlink())
        except OSError:  # it is closed by now
            continue
        if match := re.fullmatch(r"socket:\[(\d+)\]", target):
            yield match[1]


def _parse_address(text: str) -> tuple[Any, int]:
    """Return the address and port of `0100007F:1F90`: words of four bytes, each in the machine's order."""
    import sys
    from ipaddress import ip_address

    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8)]
    return ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)), int(port, 16)


def dump(findings: Iterable[Finding]) -> list[Mapping[str, str | None]]:
    """Return findings as plain data; a missing remedy is None."""
    return [{**each._asdict(), "remedy": each.remedy or None} for each in findings]
