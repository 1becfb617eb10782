"""Be a bridge: the process that talks to Ray for another one, which asks it for children like a zygote.

For each child it takes a *host*, a Ray actor, and carries bytes between the four sockets of the child and those of its
parent. A host serves one child at a time, and waits `IDLE` seconds for the next one. The end of the control socket ends
the bridge, its hosts and their children; so does its own end, however it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core import __version__
from amplifier_foundation.isolation.zygote import receive_descriptors
from amplifier_foundation.isolation.zygotes import Ends

from .cluster import LOCAL
from .host import WATCH, Host
from .leftovers import clear_away, end_leftovers, own_folder
from .pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT = 60.0
"""Seconds for Ray to answer."""
PATIENCE = 10.0
"""Seconds that a bridge without a cluster lives: those who ask meanwhile get the reason at once."""
PENDING = 15.0
"""Seconds that a session waits for a place on a node without a word."""
SILENT = 20.0
"""Seconds without an answer until a host is killed; one that runs has killed its session by then."""
DYING = 10.0
"""Seconds for Ray to kill a host, before its session counts as lost."""
AGAIN = 1.0
"""Seconds between two tries to reach a host."""
IDLE = 60.0
SHARED_MEMORY = 100 * 2**20
"""Bytes of shared memory of such a cluster: it carries no large objects."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class HostLost(Exception):
    """A host does not answer."""


def begin_bridge(control: str, asked: str) -> None:
    """Be a bridge until the process above is gone, to the end of the process."""
    os.environ.update(_QUIET)
    bridge = Bridge(socket.socket(fileno=int(control)), json.loads(asked))
    try:
        asyncio.run(bridge.serve())
        disconnect()
    finally:
        os._exit(0)  # without a wait for a thread that still waits for Ray


class Bridge:
    """The hosts of one process above."""

    def __init__(self, control: socket.socket, asked: dict[str, Any]) -> None:
        self._control = control
        self._asked = asked
        self._idle: dict[Any, asyncio.TimerHandle] = {}
        self._used: set[Any] = set()
        """The hosts that have begun a child before."""
        self._waiting: deque[asyncio.Future[Any]] = deque()
        """Those who wait for a host."""
        self._relays: set[asyncio.Task[None]] = set()
        self._retires = False
        self._ending = asyncio.Event()

    async def serve(self) -> None:
        """Carry children until the process above is gone."""
        loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[str] = loop.create_future()
        """Why there is no cluster, '' when there is one."""
        threading.Thread(target=self._connect, args=[loop], daemon=True).start()
        loop.call_later(CONNECT, self._report, f"Ray does not answer within {CONNECT:g} s")
        loop.add_reader(self._control, self._take_request)
        await self._ending.wait()
        for task in self._relays:
            task.cancel()

    def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        problem = ""
        try:
            connect(self._asked["address"])
        except BaseException as error:
            problem = describe(error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._report, problem)
        threading.Event().wait()  # the processes of a cluster of its own end with the thread that began them

    def _report(self, problem: str) -> None:
        if not self._connected.done():
            self._connected.set_result(problem)
            if problem:
                asyncio.get_running_loop().call_later(PATIENCE, self._ending.set)

    def _take_request(self) -> None:
        data, descriptors = receive_descriptors(self._control)
        if not data:
            self._ending.set()
            return
        request = json.loads(data)
        if request.get("retire"):
            self._retires = True
        else:
            sockets = [socket.socket(fileno=each) for each in descriptors]
            relay = asyncio.create_task(self._relay(sockets, request.get("preload") or []))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)
            relay.add_done_callback(lambda task: self._end_if_retired())
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        if self._retires and not self._relays:
            self._ending.set()

    async def _relay(self, sockets: Sequence[socket.socket], preload: list[str]) -> None:
        """Carry one child from its beginning to its end."""
        async with Pieces(sockets, (WATCH, b"K")) as own:
            gone: asyncio.Future[Any] = asyncio.ensure_future(own.killed.wait())
            try:
                await asyncio.wait([self._connected, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                if problem := self._connected.result():
                    _tell(own, failed=f"cannot be started: {problem}")
                else:
                    await self._run_child(own, preload, gone)
            finally:
                gone.cancel()

    async def _run_child(self, own: Pieces, preload: list[str], gone: asyncio.Future[Any]) -> None:
        from ray.exceptions import RayError

        host = None
        try:
            host = await self._begin_host(own, preload, gone)
            if host is not None:
                await _carry(own, host)
                self._keep(host)
        except* (RayError, HostLost, OSError) as errors:
            self._end_host(host)
            if errors.subgroup(HostLost) is not None:
                await asyncio.sleep(DYING)
            _tell(own, failed=f"{'was lost' if host is not None else 'cannot be started'}: {describe(errors)}")

    async def _begin_host(self, own: Pieces, preload: list[str], gone: asyncio.Future[Any]) -> Any:
        """Return a host that has begun a child, a free one or a new one; None when nobody waits for it any more.

        `gone` says so.
        """
        from ray.exceptions import RayError

        while (host := self._take_idle() or await self._start_host(own, gone)) is not None:
            is_new = host not in self._used
            self._used.add(host)
            try:
                await _ask(host.begin, __version__, preload)
            except (RayError, HostLost):
                self._end_host(host)
                if is_new:
                    raise
            except BaseException:
                self._end_host(host)
                raise
            else:
                return host
        return None

    async def _start_host(self, own: Pieces, gone: asyncio.Future[Any]) -> Any:
        """Return a new host, or one that has come free meanwhile; None when nobody waits for it any more."""
        import ray

        reserved = {"num_cpus": self._asked["cpus"], "resources": self._asked["resources"]}
        host: Any = ray.remote(Host).options(max_restarts=0, **reserved).remote()
        ready = asyncio.wrap_future(host.__ray_ready__.remote().future())
        free: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(free)
        try:
            await asyncio.wait({ready, gone, free}, timeout=PENDING, return_when=asyncio.FIRST_COMPLETED)
            if not (ready.done() or gone.done() or free.done()):
                what = {"CPU": reserved["num_cpus"], **reserved["resources"]}
                _tell(own, note=f"waits for a place on the Ray cluster with {json.dumps(what)}")
                await asyncio.wait({ready, gone, free}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_ready = ready.done()
            if free in self._waiting:
                self._waiting.remove(free)
            if not is_ready:
                ready.cancel()
                _kill(host)
        if free.done():
            if is_ready:
                self._keep(host)
            return free.result()
        return host if is_ready else None

    def _take_idle(self) -> Any:
        if not self._idle:
            return None
        host, timer = self._idle.popitem()
        timer.cancel()
        return host

    def _keep(self, host: Any) -> None:
        """Give a free host to who waits for one, or keep it for a while."""
        if self._waiting:
            self._waiting.popleft().set_result(host)
        else:
            self._idle[host] = asyncio.get_running_loop().call_later(IDLE, self._end_host, host)

    def _end_host(self, host: Any) -> None:
        self._idle.pop(host, None)
        self._used.discard(host)
        _kill(host)


async def _carry(own: Pieces, host: Any) -> None:
    """Carry bytes in both directions until the child is gone. Raises `ExceptionGroup`."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(_send(own, host))
        number, living = 0, set(range(len(Ends._fields)))
        while living:
            number += 1
            pieces = await _ask(host.read, number)
            own.give(pieces)
            await own.drain()
            living -= {each for each, data in pieces if not data}
        sending.cancel()


async def _send(own: Pieces, host: Any) -> None:
    number = 0
    while True:
        pieces = await own.take()
        number += 1
        await _ask(host.write, number, pieces)


async def _ask(method: Any, *arguments: Any) -> Any:
    """Return the answer of a host, asked again while Ray cannot reach it. Raises `RayError` and `HostLost`."""
    from ray.exceptions import ActorUnavailableError

    try:
        async with asyncio.timeout(SILENT):
            while True:
                try:
                    return await asyncio.wrap_future(method.remote(*arguments).future())
                except ActorUnavailableError:
                    await asyncio.sleep(AGAIN)
    except TimeoutError:
        raise HostLost(f"its node has not answered for {SILENT + DYING:g} s") from None


def _kill(host: Any) -> None:
    import ray

    if host is not None:
        with suppress(Exception):  # it is dead, or the cluster is
            ray.kill(host)


def _tell(own: Pieces, **said: str) -> None:
    """Say something about a child to its parent, as a zygote does."""
    own.give([(WATCH, json.dumps(said).encode() + b"\n")])


def connect(address: str) -> None:
    """Connect this process to a cluster; `local` begins one. Raises `ConnectionError`, and Ray's errors."""
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if not address:
        remedy = "start one with 'ray start --head', or set RAY_ADDRESS to HOST:PORT, or to 'local' for one of its own"
        raise ConnectionError(f"no Ray cluster is known; {remedy}")
    if address == LOCAL:
        end_leftovers()
        own_token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update(own_token)
        quiet |= {"include_dashboard": False, "object_store_memory": SHARED_MEMORY, "_temp_dir": str(own_folder())}
    elif ":" in address and "://" not in address:
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=10).close()  # Ray itself tries for minutes
    import ray

    ray.init(address=address, **quiet)


def disconnect() -> None:
    """End the hosts, and a cluster of its own."""
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
    clear_away(own_folder())


def describe(error: BaseException) -> str:
    """Return what is wrong in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    cause = getattr(error, "cause", None)  # the host's own error
    lines = [line.strip() for line in str(cause if isinstance(cause, Exception) else error).splitlines()]
    known = [line for line in lines if line and not line.startswith(("class_name:", "actor_id:", "pid:", "namespace:"))]
    return " ".join(known)[:500] or type(error).__name__
