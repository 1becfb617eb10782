"""Be a zygote: a prepared process with one thread that forks a child for each job.

A fork of the parent itself would be unsafe: its threads hold locks at that moment, and its memory is large. Here one
thread runs, all common modules are imported, and the collector leaves their memory alone (`gc.freeze`), so the
children share it. The zygote reads no job and holds no secret but its environment.

Over its control socket come requests: `{"preload": [modules]}` as JSON, with four descriptors for the new child:
its link, its blocking link, its output, and a *watch* socket. The zygote writes to the watch socket
`{"pid": n, "fresh": reason}`, then `{"ended": status}`, and reads from it `P7;` (at most 7 processes below the child),
`G60;` (the child makes itself a control group, and all in it may use 60 CPU seconds; 0: any) and `K` (kill it with
everything below it). The end of a watch socket kills its child; the end of the control socket ends the zygote with all
children. After `{"retire": true}` the zygote ends with its last child.

Where a fork is unsafe, the zygote starts each child by a fresh interpreter, and watches it all the same (`fresh`).
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import re
import select
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from amplifier_core.entry_points import find_entry_points
from amplifier_core.frozen import compile_constructors

from ..paths import data_home
from .control_groups import Group, remove_stale
from .fresh import TASKS, count_threads, explain_fresh, start_interpreter
from .process_table import children_of, find_below, send_signal

if TYPE_CHECKING:
    from collections.abc import Iterable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MOST_DESCRIPTORS = 4
LOOK = 100
"""Milliseconds between two looks at the number of processes below the children."""
SWEEPS = 100
"""Most rounds to kill what is below a child; each round kills all that it finds."""


class Zygote:
    """The children of this process, by process id.

    `fresh` is the reason to start each of them by a fresh interpreter, '' to fork. `is_bare` says that nobody tells
    which processes there are: those of a child are its process group.
    """

    def __init__(self, control: socket.socket, fresh: str = "", *, is_bare: bool = False) -> None:
        self._control = control
        self._fresh = fresh
        self._life = os.pipe() if is_bare else None
        """The second end is open in this process alone."""
        self._watches: dict[int, socket.socket] = {}
        self._most: dict[int, int] = {}
        """The processes that a child may have below it, where that is bounded."""
        self._groups: dict[int, tuple[Group, int]] = {}
        """The control groups of children, with their CPU seconds; 0: any."""
        self._spent: list[Group] = []
        """Those of ended children that are still there."""
        self._reasons: dict[int, str] = {}
        self._preloaded: set[str] = set()
        self._retires = False
        self._looked = 0.0
        self._woken, self._wake = socket.socketpair()

    def serve(self) -> None:
        """Fork children until the parent is gone."""
        if self._life is None:
            _control_process(PR_SET_CHILD_SUBREAPER, 1)
        for each in (self._woken, self._wake):
            each.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        try:
            while self._turn() and not (self._retires and not self._watches):
                pass
        finally:
            for pid in list(self._watches):
                self._kill(pid)
            while self._watches:
                self._reap(0)
            self._remove_groups()

    def _turn(self) -> bool:
        """Wait for something to do, and do it; return whether the parent is there."""
        watched = {watch.fileno(): pid for pid, watch in self._watches.items()}
        poll = select.poll()
        for descriptor in (self._control.fileno(), self._woken.fileno(), *watched):
            poll.register(descriptor, select.POLLIN)
        is_bounded = bool(self._most or self._groups or self._spent)
        ready = {descriptor for descriptor, _ in poll.poll(LOOK if is_bounded else None)}
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        for descriptor in ready & watched.keys():
            self._listen(watched[descriptor])
        self._reap()
        if is_bounded and time.monotonic() > self._looked + LOOK / 1000:
            self._bound_processes()
            self._look_at_groups()
            self._looked = time.monotonic()
        return self._control.fileno() not in ready or self._take_request()

    def _take_request(self) -> bool:
        data, descriptors = receive_descriptors(self._control)
        if not data:
            return False
        request = json.loads(data)
        if request.get("retire"):
            self._retires = True
            return True
        own, blocking, output, watch = (socket.socket(fileno=each) for each in descriptors)
        try:
            problem = "" if self._fresh else self._preload(request.get("preload") or ())
            if not problem:
                pid = self._start_child(own, blocking, output, watch)
                self._watches[pid] = watch
                tell(watch, pid=pid, fresh=self._fresh)
        except OSError as error:
            problem = f"cannot be started: {error.strerror}"
        if problem:
            tell(watch, failed=problem)
        for each in (own, blocking, output, *([watch] if problem else [])):
            each.close()
        return True

    def _preload(self, modules: Any) -> str:
        """Import modules, so that all children share them; return the reason to do without."""
        fresh = [module for module in modules if module not in self._preloaded]
        if not fresh:
            return ""
        for module in fresh:
            self._preloaded.add(module)
            with suppress(BaseException):  # the child that needs it will fail with its error
                import_module(module)
            if threads := count_threads() - 1:
                return f"cannot be forked: importing '{module}' starts {threads} threads"
        prepare()
        return ""

    def _start_child(self, own: socket.socket, blocking: socket.socket, output: socket.socket, watch: Any) -> int:
        if self._fresh:
            return start_interpreter(own, blocking, output, self._life[0] if self._life else -1)
        pid = os.fork()
        if pid == 0:
            from .child import run_process

            others = (self._control, self._woken, self._wake, watch, *self._watches.values())
            run_process(own, blocking, partial(_leave_zygote, output, others))
        return pid

    def _listen(self, pid: int) -> None:
        """Do what the parent says of a child; kill the child when the parent is gone."""
        said = b"K"
        with suppress(OSError):
            said = self._watches[pid].recv(64) or said
        for number in re.findall(rb"P([0-9]+);", said) if self._life is None else ():
            self._most[pid] = int(number)
        for number in re.findall(rb"G([0-9]+);", said):
            if not self._groups:
                remove_stale()
            self._groups[pid] = Group(os.getpid(), pid), int(number)
        if b"K" in said:
            self._kill(pid)

    def _kill(self, pid: int, reason: str = "") -> None:
        """Kill a child with everything below it; its end is told when it is reaped."""
        if reason:
            self._reasons[pid] = reason
        if pid in self._groups:
            self._groups[pid][0].kill()
        if self._life is not None:
            send_signal(-pid, signal.SIGKILL)
            return
        send_signal(pid, signal.SIGSTOP)
        for _ in range(SWEEPS):  # a stopped process starts nothing; what is found is stopped at once
            below = find_below([pid])
            if not below:
                break
            for each in below:
                send_signal(each, signal.SIGKILL)
            self._reap_strays()
        send_signal(pid, signal.SIGKILL)

    def _reap(self, options: int = os.WNOHANG) -> None:
        """Tell the end of each child, and kill what it left behind: that is below this process now."""
        while True:
            try:
                pid, status = os.waitpid(-1, options)
            except ChildProcessError:
                break
            if pid == 0:
                break
            watch = self._watches.pop(pid, None)
            self._most.pop(pid, None)
            group, seconds = self._groups.pop(pid, (None, 0))
            reason = self._reasons.pop(pid, "")
            if group is not None:
                reason = reason or (group.find_reached(seconds) if status else "")
                self._spent.append(group)
            if watch is not None:
                if status:
                    self._kill_strays(pid)
                    self._remove_groups()
                tell(watch, ended=status, reason=reason)
                watch.close()
                if not status:  # it says that it has no children, and that is looked at while nobody waits
                    self._kill_strays(pid)
                    self._remove_groups()

    def _remove_groups(self) -> None:
        self._spent = [group for group in self._spent if not group.remove()]

    def _look_at_groups(self) -> None:
        """Kill children whose processes together reached a limit, and remove groups that were in use before."""
        for pid, (group, seconds) in list(self._groups.items()):
            if reason := group.find_reached(seconds):
                self._kill(pid, reason)
        self._remove_groups()

    def _kill_strays(self, ended: int) -> None:
        """Kill processes whose child has ended."""
        if self._life is not None:
            send_signal(-ended, signal.SIGKILL)
            return
        for _ in range(SWEEPS):
            strays = [pid for pid in children_of(os.getpid()) if pid not in self._watches]
            below = [*strays, *find_below(strays)]
            if not below:
                return
            for pid in below:
                send_signal(pid, signal.SIGKILL)
            self._reap_strays()

    def _reap_strays(self) -> None:
        for pid in children_of(os.getpid()):
            if pid not in self._watches:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue

    def _bound_processes(self) -> None:
        """Kill a child with more processes than it may have: the system limits those of a user, not of a session."""
        for pid, most in list(self._most.items()):
            if len(find_below([pid])) > most:
                self._kill(pid, "processes")


def prepare() -> None:
    """Do once what each child would do at first: import, find the modules, build the models of messages, compile."""
    from . import child  # noqa: F401 - the children share what it imports

    find_entry_points("amplifier.modules")
    data_home()  # imports platformdirs
    kinds: list[type[BaseModel]] = [BaseModel]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if not kind.__pydantic_complete__:
            with suppress(Exception):
                kind.model_rebuild()
    compile_constructors()
    gc.freeze()


def begin_zygote(control: str, way: str) -> None:
    """Be a zygote until the parent is gone; `way` is `fork`, or `fresh` or `bare` to do without forks."""
    if not TASKS.is_dir():
        way = "bare"
    fresh = explain_fresh()
    if way == "fork" and not fresh:
        prepare()
        fresh = explain_fresh()
    if way != "fork":
        fresh = fresh or "it was asked for"
    Zygote(socket.socket(fileno=int(control)), fresh, is_bare=way == "bare").serve()


def end_with_parent() -> None:
    """Have this process killed with its parent, and be the parent of what is left below it."""
    _control_process(PR_SET_PDEATHSIG, signal.SIGKILL)
    _control_process(PR_SET_CHILD_SUBREAPER, 1)


def _leave_zygote(output: socket.socket, others: Iterable[socket.socket]) -> None:
    """Have no part of the zygote in a fork of it."""
    end_with_parent()
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for each in others:
        each.close()
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()


def _control_process(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tell(watch: socket.socket, **said: Any) -> None:
    """Say something about a child to its parent."""
    with suppress(OSError):  # nobody waits any more
        watch.sendall(json.dumps(said).encode() + b"\n")


def receive_descriptors(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next request of a control socket with its descriptors; b"" at the end of the socket."""
    descriptors = array.array("i")
    room = socket.CMSG_LEN(MOST_DESCRIPTORS * descriptors.itemsize)
    data, ancillary, _, _ = control.recvmsg(65_536, room)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    for each in descriptors:
        os.set_inheritable(each, False)
    return data, list(descriptors)
