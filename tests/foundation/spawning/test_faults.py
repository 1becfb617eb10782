"""Children that fail, never end, or are ended: what is told of each, what is stored, and that nothing is left over."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, SessionExists, SpawnRequest, SpawnTimeout, StoreUnavailable, hookimpl
from amplifier_core.module_sources import ModuleNotFoundError
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import EventRouter, PreparedBundle, spawn_bundle
from amplifier_foundation.sessions.history import open_calls
from amplifier_foundation.spawning.family import Family

MakeBundle = Callable[..., PreparedBundle]
Parent = AmplifierSession


def traces(parent: Parent) -> dict[str, Any]:
    """Return all that a child could leave behind in its process and with its parent."""
    coordinator = parent.coordinator
    return {
        "tasks": len(asyncio.all_tasks()),
        "path": list(sys.path),
        "handlers": coordinator.hooks.list_handlers(),
        "contributors": {channel: len(callbacks) for channel, callbacks in coordinator.channels.items()},
        "mounted": coordinator.to_dict()["mounted"],
        "stops": len(coordinator.cancellation._children),
        "running": Family.of(parent).running,
        "cleanups": len(coordinator._cleanup_fns),
    }


@pytest.fixture
async def before(parent: Parent, make_bundle: MakeBundle) -> dict[str, Any]:
    """What the first child left behind: what its parent keeps of all of them."""
    await spawn_bundle(make_bundle(), "first", parent)
    return traces(parent)


class Troubled:
    """A store whose methods do something before they do their work."""

    def __init__(self, store: DurableStore, **before: Callable[[], None]) -> None:
        self._store = store
        self._before = before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in self._before:
            return method

        async def troubled(*args: Any, **kwargs: Any) -> Any:
            self._before[name]()
            return await method(*args, **kwargs)

        return troubled


# a child that raises


async def told_of(store: DurableStore) -> list[tuple[str, str]]:
    return [(event.name, str(event.data.get("error"))) for event in await store.events()]


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        pytest.param(
            {"session": {"orchestrator": {"module": "loop-gone"}}},
            "RuntimeError: Cannot initialize without orchestrator",
            id="resolver",
        ),
        pytest.param(
            {"session": {"context": {"module": "context-own", "config": {"fails": True}}}, "instruction": "Be kind."},
            "OSError: broken prompt",
            id="system prompt",
        ),
        pytest.param(
            {"session": {"orchestrator": {"module": "loop-own", "config": {"fails": True}}}},
            "OSError: broken loop",
            id="orchestrator",
        ),
        pytest.param({"providers": [{"module": "provider-faulty"}]}, "OSError: broken provider", id="provider"),
        pytest.param({"inherit_providers": False}, "NoProviderMounted: No providers mounted", id="no provider"),
    ],
)
async def test_what_a_child_cannot_do_without_is_raised_stored_and_told_once(
    sections: dict[str, Any],
    error: str,
    parent: Parent,
    before: dict[str, Any],
    make_bundle: MakeBundle,
    store: DurableStore,
    router: EventRouter,
    words: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "loop-gone.py").touch()
    for spec in [*sections.get("session", {}).values(), *sections.get("providers", ())]:
        spec.setdefault("source", f"./{spec['module']}.py")
    options = {"inherit_providers": sections.pop("inherit_providers", True)}
    kind, _, text = error.partition(": ")
    child = make_bundle(**sections)
    (tmp_path / "loop-gone.py").unlink()
    with pytest.raises(Exception, match=text) as caught:
        await spawn_bundle(
            child,
            "hello",
            parent,
            session_id="broken",
            session_storage=store,
            event_router=router,
            **options,
        )
    assert type(caught.value).__name__ == kind
    stored = f"{text}. Add one under 'providers' of the bundle" if kind == "NoProviderMounted" else error
    record = await store.get("broken")
    assert (record.status, stored in str(record.error)) == ("failed", True)
    [(name, told)] = await told_of(store)
    assert (name, stored in told) == ("session:error", True)
    assert traces(parent) == before


@pytest.mark.parametrize("at", ["mount", "ready", "tool", "provider:request", "session:end", "cleanup"])
async def test_what_a_child_can_do_without_is_left_out_and_it_completes(
    at: str,
    parent: Parent,
    before: dict[str, Any],
    make_bundle: MakeBundle,
    store: DurableStore,
    router: EventRouter,
    words: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = make_bundle(providers=words.calls("faulty"), tools=[words.entry("tool-faulty", at=at)])
    result = await spawn_bundle(child, "hello", parent, session_storage=store, event_router=router)
    wanted = "unknown tool 'faulty'" if at == "mount" else "broken tool"
    assert (result.status, wanted in result.output) == ("completed", True)
    assert (await store.get(result.session_id)).status == "completed"
    assert [name for name, _ in await told_of(store)] == ["session:completed"]
    logged = {"mount": "broken mount", "cleanup": "broken cleanup", "tool": "broken readiness"}
    assert logged.get(at, "broken") in caplog.text
    assert traces(parent) == before


@pytest.mark.parametrize("method", ["append", "update"])
async def test_what_cannot_be_stored_is_raised_and_told_all_the_same(
    method: str, parent: Parent, before: dict[str, Any], make_bundle: MakeBundle, store: DurableStore
) -> None:
    def fail() -> None:
        raise StoreUnavailable("here", "the disk is full")

    router = EventRouter()
    news = router.subscribe(["session:*"])
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await spawn_bundle(
            make_bundle(),
            "hello",
            parent,
            session_storage=Troubled(store, **{method: fail}),
            event_router=router,
        )
    event = await anext(news)
    assert (event.name, news.lag) == ("session:error" if method == "append" else "session:completed", 0)
    assert traces(parent) == before


async def test_a_failing_child_does_not_take_its_siblings(parent: Parent, make_bundle: MakeBundle, words: Any) -> None:
    broken, sound = make_bundle(providers=[words.entry("provider-faulty")]), make_bundle()
    bundles = [sound, broken, sound]
    results = await asyncio.gather(*(spawn_bundle(each, "hello", parent) for each in bundles), return_exceptions=True)
    assert [getattr(result, "status", type(result).__name__) for result in results] == [
        "completed",
        "OSError",
        "completed",
    ]


# an id that is taken


async def test_of_two_children_of_one_id_at_once_one_is_refused(
    parent: Parent, before: dict[str, Any], make_bundle: MakeBundle, store: DurableStore, words: Any
) -> None:
    async with await make_bundle("other", providers=words.playbook()).create_session() as other:
        for parents in ((parent, parent), (parent, other)):
            results = await asyncio.gather(
                *(
                    spawn_bundle(make_bundle(), "hello", each, session_id=f"twin-{other is parents[1]}",
                                 session_storage=store)
                    for each in parents
                ),
                return_exceptions=True,
            )  # fmt: skip
            assert sorted(type(result).__name__ for result in results) == ["SessionExists", "SpawnResult"]
    assert len(await store.sessions()) == 2
    assert Family.of(parent).tree.spawned <= 4
    assert traces(parent) == before


async def test_a_session_that_runs_cannot_be_resumed(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, words: Any
) -> None:
    slow: Any = {"session_id": "slow", "session_storage": store}
    handle = await spawn_bundle(make_bundle(providers=words.slow), "hello", parent, background=True, **slow)
    with pytest.raises(SessionExists):
        await spawn_bundle(make_bundle(), "hello", parent, resume=True, **slow)
    await handle.cancel(immediate=True)
    assert handle.status == "cancelled"


# a child that never ends


@pytest.mark.parametrize("endless", [True, "polite"])
@pytest.mark.parametrize("own", [True, False])
async def test_a_child_that_never_ends_is_asked_to_stop_and_then_cut(
    own: bool, endless: bool | str, make_bundle: MakeBundle, store: DurableStore, words: Any
) -> None:
    limits = {} if own else {"timeout": 0.02}
    async with await make_bundle("parent", providers=words.playbook(), spawn=limits).create_session() as parent:
        child = make_bundle(session={"orchestrator": words.entry("loop-own", endless=endless)})
        with pytest.raises(SpawnTimeout, match="endless' was stopped after 0.02 s"):
            await spawn_bundle(
                child, "hello", parent, session_id="endless", session_storage=store, timeout=0.02 if own else None
            )
        assert traces(parent)["running"] == []
    assert (await store.get("endless")).status == "failed"
    said = [message["content"] for message in await store.read("endless")]
    assert said == (["hello", "done"] if endless == "polite" else ["hello"])


# a parent that ends first


async def test_a_parent_that_ends_takes_its_children_with_it(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, router: EventRouter, watched: Any, words: Any,
    until: Any,
) -> None:  # fmt: skip
    tasks = len(asyncio.all_tasks())
    below = {"below": {"description": "Slow.", "providers": words.slow}}
    nested = make_bundle(
        providers=words.calls("delegate", agent="below", instruction="go"),
        tools=[{"module": "tool-delegate"}],
        agents=below,
    )
    options: Any = {"session_storage": store, "event_router": router}
    bundles = [make_bundle(providers=words.slow), make_bundle(providers=words.slow), nested]
    gathered = asyncio.gather(
        *(spawn_bundle(each, "go", parent, **options) for each in bundles), return_exceptions=True
    )
    handles = [await spawn_bundle(each, "go", parent, background=True, **options) for each in bundles]
    await until(lambda: len(watched.children) == 8)
    await parent.cleanup()
    assert all(isinstance(result, asyncio.CancelledError) for result in await gathered)
    assert {handle.status for handle in handles} == {"cancelled"}
    records = await store.sessions()
    assert [record.status for record in records] == ["cancelled"] * 8
    assert all(child.ended_at is not None for child in watched.children)
    assert sorted(event.source_session_id or "" for event in await store.events()) == sorted(
        record.session_id for record in records
    )
    assert len(asyncio.all_tasks()) == tasks


async def test_a_parent_that_ends_at_once_stores_even_a_child_that_has_not_begun(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, router: EventRouter
) -> None:
    handle = await spawn_bundle(
        make_bundle(), "hello", parent, background=True, session_storage=store, event_router=router
    )
    await parent.cleanup()
    assert handle.status == "cancelled"
    assert (await store.get(handle.session_id)).status == "cancelled"
    assert [name for name, _ in await told_of(store)] == ["session:error"]


# a parent that is cancelled


class Resolver:
    """Finds no module, and does something when it is asked for one."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    async def async_resolve(self, module_id: str, source_hint: Any = None) -> Any:
        self._act()
        await asyncio.sleep(0)
        raise ModuleNotFoundError(module_id)


@pytest.mark.parametrize(
    ("phase", "status", "said"),
    [
        ("before_spawn", None, 0),
        ("create", "cancelled", 0),
        ("initialize", "cancelled", 0),
        ("provider:request", "cancelled", 1),
        ("tool:pre", "cancelled", 3),
        ("update", "completed", 4),
    ],
)
async def test_a_parent_that_is_cancelled_leaves_a_child_that_is_stored_and_told(
    phase: str,
    status: str | None,
    said: int,
    parent: Parent,
    before: dict[str, Any],
    make_bundle: MakeBundle,
    store: DurableStore,
    router: EventRouter,
    plugins: Plugins,
    watched: Any,
    words: Any,
) -> None:
    def cancel() -> None:
        spawning.cancel()

    class Cancelling:
        @hookimpl
        async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
            if phase == "before_spawn":
                cancel()
                await asyncio.sleep(0)

    plugins.register(Cancelling(), "cancelling")
    watched.at[phase] = cancel
    child = make_bundle(providers=words.calls("probe"), tools=[words.entry("tool-probe")])
    if phase == "provider:request":
        child = make_bundle(providers=words.slow)
    if phase == "initialize":
        child = PreparedBundle(child.mount_plan, Resolver(cancel), child.bundle)
    spawning = asyncio.ensure_future(
        spawn_bundle(
            child,
            "hello",
            parent,
            session_id="cut",
            session_storage=Troubled(store, **{phase: cancel}),
            event_router=router,
            plugins=plugins,
        )
    )
    with pytest.raises(asyncio.CancelledError):
        await spawning
    assert [record.status for record in await store.sessions()] == ([status] if status else [])
    events = {"completed": ["session:completed"], "cancelled": ["session:error"]}
    assert [name for name, _ in await told_of(store)] == events.get(str(status), [])
    if status is not None:
        stored = await store.read("cut")
        assert (len(stored), open_calls(stored)) == (said, [])
    assert traces(parent) == before


# many children


async def test_hundreds_of_children_leave_nothing_behind(
    parent: Parent, before: dict[str, Any], make_bundle: MakeBundle
) -> None:
    prepared = make_bundle()
    for _ in range(3):
        await asyncio.gather(*(spawn_bundle(prepared, "hello", parent, session_name="counted") for _ in range(100)))
    gc.collect()
    assert traces(parent) == before
    alive = [each for each in gc.get_objects() if isinstance(each, AmplifierSession)]
    assert [each for each in alive if each.session_id.startswith("counted")] == []
    assert parent.children == []
