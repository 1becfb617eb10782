"""Check the queries of a store with `SessionQueries`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...session_queries import SessionQueries
from ...storage import SessionRecord, SessionStore
from .rules import collect_checks, require

if TYPE_CHECKING:
    from collections.abc import Sequence


class Queried(SessionStore, SessionQueries, Protocol):
    """A store that these checks are for."""


def _ids(records: Sequence[SessionRecord]) -> list[str]:
    return [each.session_id for each in records]


async def check_151_sessions_below_one_are_found(store: Queried) -> None:
    """A fork stands below its source, whoever has made it, and any other session below its parent."""
    made = [
        SessionRecord("root", project="/p"),
        SessionRecord("child", parent_id="root", project="/p"),
        SessionRecord("woken", parent_id="child", project="/other", event_id="e"),
        SessionRecord("beside", parent_id="root", project="/p"),
        SessionRecord("fork", parent_id="beside", fork_of="child", fork_at=0),
        SessionRecord("own", parent_id="child", fork_of="child", fork_at=0),
        SessionRecord("deep", parent_id="fork"),
    ]
    stored = {each.session_id: await store.create(each) for each in made}
    cases = {
        "root": {"child", "woken", "beside", "fork", "own", "deep"},
        "child": {"woken", "fork", "own", "deep"},
        "beside": set(),
        "fork": {"deep"},
        "deep": set(),
        "nobody": set(),
    }
    for above, expected in cases.items():
        found = await store.sessions_below(above)
        require(len(found) == len(expected), f"sessions_below must return each session once: {_ids(found)}")
        require(set(_ids(found)) == expected, f"below '{above}' must be {sorted(expected)}, not {_ids(found)}")
        require(all(each == stored[each.session_id] for each in found), "sessions_below must return whole records")
        places = [above, *_ids(found)]
        require(
            all(places.index(each.fork_of or each.parent_id or "") < places.index(each.session_id) for each in found),
            f"sessions_below must return those above first: {_ids(found)}",
        )
    few = await store.sessions_below("root", limit=3)
    require(_ids(few) == _ids(await store.sessions_below("root"))[:3], f"a limit must cut the list: {_ids(few)}")
    await store.delete("child")
    require(
        _ids(await store.sessions_below("root")) == ["beside"], "nothing may stand below a deleted session's parent"
    )


async def check_152_sessions_with_a_member_are_found(store: Queried) -> None:
    """A member is a key of the metadata itself, whatever its value."""
    metadata: dict[str, dict[str, Any]] = {
        "one": {"flow": {"name": "release"}},
        "none": {"other": {"flow": 1}, "text": '"flow":', "flows": 1},
        "two": {"x": 1, "flow": None},
        "far": {"flow": 1},
    }
    for session_id, members in metadata.items():
        project = "/other" if session_id == "far" else "/p"
        await store.create(SessionRecord(session_id, project=project, metadata=members))
    await store.update("one", name="changed")
    newest = await store.sessions()
    every = [each for each in newest if "flow" in metadata[each.session_id]]
    require(
        await store.sessions_with("flow") == every, "sessions_with must return whole records, the last updated first"
    )
    found = await store.sessions_with("flow", project="/p")
    require(_ids(found) == ["one", "two"], f"sessions_with must keep to its project: {_ids(found)}")
    require(_ids(await store.sessions_with("flow", project="/p", limit=1)) == ["one"], "a limit must cut the list")
    require(await store.sessions_with("nothing") == [], "sessions_with must return none without the member")


QUERY_CHECKS = collect_checks(globals())
