"""Implement what `amplifier_core.shared_stores.SharedStore` has about hosts: a part of `PostgresStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.ids import BEFORE_HOST
from amplifier_core.shared_stores import Lease, Presence, host_of

from .deliveries import encode_events, indexed, span, state_of
from .part import Part
from .rows import number_events
from .values import dumps, loads, moment, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from amplifier_core.events import SessionEvent

_LEASES = "SELECT name, owner, epoch, until FROM @.leases WHERE until > @.clock() ORDER BY name"
_OWN_TRIGGERS = "SELECT DISTINCT project, trigger FROM @.trigger_states WHERE right(trigger, length(%(end)s)) = %(end)s"
_WITHIN = "(project = %(path)s OR (project >= %(from)s AND project < %(to)s))"  # '0' follows '/'
_UNDER = f"""SELECT (SELECT count(*) FROM @.sessions WHERE {_WITHIN}),
    (SELECT count(*) FROM @.deliveries WHERE state IN ('pending', 'claimed') AND {_WITHIN})"""
_PROCESSES = "SELECT process, host, started, seen, facts FROM @.processes ORDER BY started, process"


class PostgresHosts(Part):
    """The methods of a store about time, leases, processes and hints."""

    async def now(self) -> datetime:
        """Return the time of the server's clock."""
        [(now,)] = await self._runner.rows("SELECT @.clock()")
        return moment(now)

    def shared_name(self, project: str) -> str:
        """Return the name of a project on all hosts: its path may be another one elsewhere."""
        return self._runner.projects.to_stored(project)

    async def left_behind(self) -> list[str]:
        """Return, in words, what was stored under the paths of folders before they got their names in `projects`."""
        found = []
        for name, folder in self._runner.pool.settings.projects.items():
            within = {"path": folder.rstrip("/"), "from": f"{folder.rstrip('/')}/", "to": f"{folder.rstrip('/')}0"}
            [(sessions, waiting)] = await self._runner.rows(_UNDER, within)
            if sessions or waiting:
                found.append(
                    f"sessions ({sessions}) and waiting events ({waiting}) of {folder} were stored before `projects` "
                    f"named it {name}, and are not found under that name. To reach them, take it out of `projects`"
                )
        return found

    async def lead(self, name: str, *, owner: str, lease: float) -> Lease | None:
        """Take a free name, or extend the own lease."""
        given = {"name": plain(name), "owner": plain(owner), "lease": span(lease)}
        taken = await self._runner.write("lead", given)
        return None if taken is None else Lease(name, owner, taken[0], moment(taken[1]))

    async def resign(self, lease: Lease) -> None:
        """Free the name; its next lease has a new epoch, whoever takes it."""
        await self._runner.write(
            "resign", {"name": plain(lease.name), "owner": plain(lease.owner), "epoch": lease.epoch}
        )

    async def leases(self) -> list[Lease]:
        """Return the leases that hold."""
        rows = await self._runner.rows(_LEASES)
        return [Lease(unplain(name), unplain(owner), epoch, moment(until)) for name, owner, epoch, until in rows]

    async def present(self, process: str, facts: Mapping[str, Any]) -> None:
        """Record a sign of this process and its facts."""
        stored = _convert(facts, self._runner.projects.to_stored)
        given = {"process": plain(process), "host": plain(host_of(process)), "facts": dumps(stored, "facts")}
        await self._runner.write("present", given)

    async def absent(self, process: str) -> None:
        """Forget this process."""
        await self._runner.write("absent", {"process": plain(process)})

    async def processes(self) -> list[Presence]:
        """Return every process that is not forgotten."""
        to_local = self._runner.projects.to_local
        return [
            Presence(unplain(process), unplain(host), moment(started), moment(seen), _convert(loads(facts), to_local))
            for process, host, started, seen, facts in await self._runner.rows(_PROCESSES)
        ]

    async def adopt(self, host: str, by: str) -> int:
        """Give the deliveries of a host that are not done to the host `by`; forget what its own triggers have seen."""
        adopted = int(await self._runner.write("adopt", {"host": plain(host), "by": plain(by)}))
        for project, trigger in await self._runner.rows(_OWN_TRIGGERS, {"end": plain(f"{BEFORE_HOST}{host}")}):
            nothing = state_of({}, merge=False)
            await self._runner.write("save_state", {"project": project, "trigger": trigger, "state": nothing})
        return adopted

    async def reserve(self, project: str, name: str, limit: int, period: float) -> float:
        """Take the first place of a rate that keeps `limit` within any `period` seconds. Raises `ValueError`."""
        if limit < 1:
            raise ValueError(f"a rate of {limit} has no places")
        given = self._encode({"project": project, "name": name, "limit": limit}) | {"period": span(period)}
        return int(await self._runner.write("reserve", given)) / 1_000_000

    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        """Append an event of another site to the log once."""
        events = encode_events([event], self._runner.projects)
        given = {"origin": indexed(origin, "origin"), "id": indexed(event.event_id, "event_id"), "events": events}
        sequences = await self._runner.write("receive", given)
        return None if sequences is None else number_events([event], sequences)[0]

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told`, in a thread of the store, after another store object has stored something."""
        return self._runner.hints.listen(told)


def _convert(facts: Mapping[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    """Return the facts of a process with other names of its projects."""
    found = dict(facts)
    if "projects" in facts:
        found["projects"] = [name(each) for each in facts["projects"]]
    if "states" in facts:
        found["states"] = {name(project): states for project, states in facts["states"].items()}
    return found
