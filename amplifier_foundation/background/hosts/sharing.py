"""Give the background sessions of a process their part in the work of several hosts."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from amplifier_core.clock import SystemClock
from amplifier_core.frozen import slotted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from amplifier_core.shared_stores import SharedStore
    from amplifier_core.storage import SessionStore

    from ...bundle.model import Bundle
    from .leading import Leadership
    from .member import Member

ALONE = 30.0
"""Seconds after which others need not wait any more for a process that is gone."""
LOOK_EVERY = 0.05

logger = logging.getLogger(__name__)


@slotted
class Share:
    """The part of the background sessions of one bundle; without a `leadership`, their triggers run elsewhere."""

    member: Member
    leadership: Leadership | None = None


def shared_store(store: SessionStore) -> SharedStore | None:
    """Return a store that several hosts share as one; None for any other."""
    if not hasattr(store, "fenced"):  # most stores: the contract is not even imported
        return None
    from amplifier_core.shared_stores import SharedStore

    return store if isinstance(store, SharedStore) else None


@asynccontextmanager
async def alone(store: SessionStore, name: str) -> AsyncIterator[None]:
    """Let one process of all hosts be in the block of that name at a time; on the store of one host, wait for nobody.

    Raises `StoreUnavailable`.
    """
    if (shared := shared_store(store)) is None:
        yield
        return
    from ...sessions.presence import this_process

    while (lease := await shared.lead(name, owner=this_process(), lease=ALONE)) is None:
        await SystemClock().sleep(LOOK_EVERY)
    try:
        yield
    finally:
        await shared.resign(lease)


def shared_name(store: SharedStore, project: str) -> str:
    """Return the name of a project on all hosts: its folder may have another path elsewhere."""
    return str(getattr(store, "shared_name", str)(project))


@asynccontextmanager
async def joining(
    store: SharedStore, role: str, bundles: Collection[Bundle], projects: Collection[str]
) -> AsyncIterator[Member]:
    """Be one of the hosts while the block runs. Raises `StoreUnavailable`."""
    from ...settings import read_settings
    from .member import Member, describe_process, taking_part

    facts = describe_process({bundle.name: bundle.digest for bundle in bundles}, projects)
    member = Member(store, role, float(read_settings().get("hosts.lease")), facts=facts)
    async with taking_part(member, projects):
        for text in await store.left_behind() if hasattr(store, "left_behind") else ():
            logger.warning("%s", text)
        yield member


@asynccontextmanager
async def sharing(member: Member | None, bundle: Bundle, project: str) -> AsyncIterator[Share | None]:
    """Give the part of one bundle while the block runs: `up` may lead its triggers, workers leave them to others."""
    from ..tasks import keep_beside  # not at import: lists ask for the store alone

    if member is None:
        yield None
    elif member.role == "worker":
        yield Share(member)
    else:
        from .leading import Leadership

        leadership = Leadership.of_triggers(member, project, bundle.name, bundle.digest)
        async with keep_beside(leadership.run, leadership.name, member.report_problem):
            yield Share(member, leadership)
