"""Plugins: what is taken, what is refused, and when each is asked."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import awaited_hooks, time_limits
from amplifier_core.errors import AmplifierError, ForkRefused, NameTaken, PluginError, PluginLoadFailed, UnknownName
from amplifier_core.hook_data import ForkRequest, ForkResult, SpawnOutcome, SpawnRequest
from amplifier_core.hookspecs import hookimpl
from amplifier_core.plugins import PluginRow, Plugins
from amplifier_core.raised import find_place

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = ForkRequest("parent", "child", 3)
RESULT = ForkResult("parent", "child", 3)


@pytest.fixture
def plugins() -> Plugins:
    return Plugins()


def offering(kind: str, name: str, factory: Any = object) -> Any:
    """Return a plugin that offers one thing."""

    def offer(self: Any, register: Any) -> None:
        register(name, factory)

    return type("Offering", (), {f"amplifier_register_{kind}": hookimpl(offer)})()


def watching(seen: list[str], name: str, error: BaseException | None = None) -> Any:
    """Return a plugin that notes its name before and after a fork, and raises `error` then."""

    class Watching:
        @hookimpl
        async def amplifier_before_fork(self, request: ForkRequest) -> None:
            seen.append(f"{name} before")
            if error is not None:
                raise error

        @hookimpl
        async def amplifier_after_fork(self, result: ForkResult) -> None:
            seen.append(f"{name} after")
            if error is not None:
                raise error

    return Watching()


# names


@pytest.mark.parametrize("kind", ["trigger", "storage", "runner"])
def test_what_a_plugin_offers_is_found_by_its_name(plugins: Plugins, kind: str) -> None:
    factory = object()
    row = plugins.register(offering(kind, f"{kind}-x", factory), name="own")
    registry = getattr(plugins, f"{kind}s")
    assert registry.get(f"{kind}-x") is factory
    assert (list(registry), f"{kind}-x" in registry, "other" in registry) == ([f"{kind}-x"], True, False)
    assert row == PluginRow("own", "this program", "", "own", offers=[f"{kind}-x"])
    assert plugins.rows == [row]


def test_one_plugin_may_offer_many_things_of_every_kind(plugins: Plugins) -> None:
    class Everything:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-b", object)
            register("trigger-a", object)

        @hookimpl
        def amplifier_register_runner(self, register: Any) -> None:
            register("runner-a", object)

    assert plugins.register(Everything(), name="all").offers == ["runner-a", "trigger-b", "trigger-a"]
    assert plugins.offers_of("all") == {"runner": ["runner-a"], "trigger": ["trigger-b", "trigger-a"]}
    assert plugins.offers_of("absent") == {}
    assert list(plugins.triggers) == ["trigger-a", "trigger-b"]


def test_an_unknown_name_answers_with_the_nearest_one_and_guesses_no_package(plugins: Plugins) -> None:
    plugins.register(offering("trigger", "trigger-timer"))
    with pytest.raises(UnknownName) as unknown:
        plugins.triggers.get("trigger-tiner")
    assert (
        str(unknown.value) == "unknown trigger 'trigger-tiner'; did you mean 'trigger-timer'? Installed: trigger-timer"
    )


def test_a_name_taken_twice_names_both_owners_now_and_at_every_use(plugins: Plugins) -> None:
    text = "trigger 'trigger-x' is registered by both dist-one 1.0 and dist-two 2.0"
    plugins.register(offering("trigger", "trigger-x"), row=PluginRow("one", "dist-one", "1.0", "one"), name="one")
    with pytest.raises(NameTaken, match=text):
        plugins.register(offering("trigger", "trigger-x"), row=PluginRow("two", "dist-two", "2.0", "two"), name="two")
    for _ in range(2):
        with pytest.raises(NameTaken, match=text):
            plugins.triggers.get("trigger-x")


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
def test_of_two_that_offer_one_name_the_plugin_named_so_keeps_it_in_every_order(
    plugins: Plugins, order: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    offered = {"x": dict, "y": list}
    rows = {name: PluginRow(name, f"dist-{name}", "1.0", name) for name in order}
    taken = "runner 'x' is registered by both dist-x 1.0 and dist-y 1.0; the first is used"
    for name in order:
        try:
            plugins.register(offering("runner", "x", offered[name]), name, rows[name])
        except NameTaken as error:
            assert (name, str(error).partition(". ")[0]) == ("y", taken)
    assert plugins.runners.get("x") is dict
    assert (rows["x"].status, plugins.offers_of("x")) == ("loaded", {"runner": ["x"]})
    assert (plugins.offers_of("y"), rows["y"].offers) == ({}, [])
    if order[0] == "y":
        assert (rows["y"].status, rows["y"].error.partition(". ")[0]) == ("failed", f"NameTaken: {taken}")
        assert [text.partition(". ")[0] for text in caplog.messages] == [taken]


def test_two_plugins_of_one_name_are_an_error_and_the_first_stays(plugins: Plugins) -> None:
    plugins.register(
        offering("trigger", "trigger-x"), name="same", row=PluginRow("same", "dist-one", "1.0", "one:plugin")
    )
    with pytest.raises(NameTaken, match="plugin 'same' is registered by both dist-one 1.0 and dist-two 2.0"):
        plugins.register(object(), name="same", row=PluginRow("same", "dist-two", "2.0", "two:plugin"))
    assert "trigger-x" in plugins.triggers
    assert [row.dist for row in plugins.rows] == ["dist-one"]


async def test_plugins_without_one_share_the_others_and_no_later_one() -> None:
    told: list[str] = []

    class Told:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register(f"trigger-{self.name}", object)

        @hookimpl
        async def amplifier_after_trigger(self, delivery: Any) -> None:
            told.append(self.name)

    plugins = Plugins()
    for name in ("kept", "watch"):
        plugins.register(Told(name), name)
    rest = plugins.without("watch")
    rest.register(Told("late"), "late")
    delivery: Any = object()
    await rest.after_trigger(delivery)
    await plugins.after_trigger(delivery)
    assert told == ["late", "kept", "watch", "kept"]  # the last registered first
    assert [row.name for row in rest.rows] == ["kept", "late"]
    assert "trigger-kept" in rest.triggers


async def test_a_plugin_that_shares_a_refused_one_s_name_is_still_asked(plugins: Plugins) -> None:
    seen: list[str] = []
    plugins.register(watching(seen, "first"), name="same")
    with pytest.raises(NameTaken):
        plugins.register(watching(seen, "second"), name="same")
    await plugins.before_fork(REQUEST)
    assert seen == ["first before"]


def test_one_object_is_taken_once(plugins: Plugins) -> None:
    plugin = offering("trigger", "trigger-x")
    plugins.register(plugin, name="one")
    with pytest.raises(PluginLoadFailed, match="plugin 'two' of this program was not loaded: it is registered already"):
        plugins.register(plugin, name="two")
    assert [row.name for row in plugins.rows] == ["one"]


def test_two_sets_of_plugins_do_not_know_each_other(plugins: Plugins) -> None:
    plugins.register(offering("trigger", "trigger-x"))
    assert list(Plugins().triggers) == []


# what is refused


def with_hook(name: str, function: Callable[..., Any]) -> Any:
    return type("Wrong", (), {name: function})()


def awaited() -> Callable[..., Any]:
    async def function(self: Any) -> None:
        pass

    return function


def plain() -> Callable[..., Any]:
    return lambda self: None


def generator() -> Callable[..., Any]:
    def function(self: Any, register: Any) -> Any:
        yield

    return function


@pytest.mark.parametrize(
    ("plugin", "cause"),
    [
        (
            with_hook("amplifier_befor_fork", hookimpl(awaited())),
            "no hook 'amplifier_befor_fork' (did you mean 'amplifier_before_fork'?)",
        ),
        (with_hook("amplifier_dance", hookimpl(plain())), "no hook 'amplifier_dance'"),
        (
            with_hook("amplifier_before_fork", hookimpl(plain())),
            "amplifier_before_fork must be declared 'async def'",
        ),
        (
            with_hook("amplifier_register_trigger", hookimpl(awaited())),
            "amplifier_register_trigger must not be declared 'async def'",
        ),
        (with_hook("amplifier_register_trigger", hookimpl(lambda self, register, stranger: None)), "stranger"),
        (
            with_hook("amplifier_before_fork", awaited()),
            "amplifier_before_fork is not marked with @hookimpl",
        ),
        (
            with_hook("amplifier_register_trigger", hookimpl(wrapper=True)(generator())),
            "amplifier_register_trigger must not be a wrapper",
        ),
        (
            with_hook("amplifier_register_trigger", hookimpl(hookwrapper=True)(generator())),
            "amplifier_register_trigger must not be a wrapper",
        ),
        (
            with_hook("other", hookimpl(specname="amplifier_befor_fork")(awaited())),
            "no hook 'amplifier_befor_fork' (did you mean 'amplifier_before_fork'?)",
        ),
    ],
)
async def test_a_hook_that_cannot_work_is_refused_with_its_cause(plugins: Plugins, plugin: Any, cause: str) -> None:
    with pytest.raises(PluginLoadFailed) as refusal:
        plugins.register(plugin, name="wrong", row=PluginRow("wrong", "dist", "1.0", "wrong"))
    assert cause in refusal.value.cause
    assert str(refusal.value).startswith("plugin 'wrong' of dist 1.0 was not loaded: ")
    assert "\n" not in str(refusal.value)
    assert plugins.rows == []
    await plugins.before_fork(REQUEST)


def test_a_wrong_name_that_was_refused_is_never_suggested(plugins: Plugins) -> None:
    for _ in range(2):
        with pytest.raises(PluginLoadFailed, match="did you mean 'amplifier_after_fork'"):
            plugins.register(with_hook("amplifier_aftr_fork", hookimpl(awaited())), name="wrong")


async def test_a_refused_plugin_may_come_again_when_it_is_mended(plugins: Plugins) -> None:
    seen: list[str] = []
    with pytest.raises(PluginLoadFailed):
        plugins.register(with_hook("amplifier_before_fork", hookimpl(plain())), name="own")
    plugins.register(watching(seen, "own"), name="own")
    await plugins.before_fork(REQUEST)
    assert seen == ["own before"]


async def test_a_plugin_whose_offer_fails_is_not_asked_later(plugins: Plugins) -> None:
    class Half:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            raise OSError("no such device")

        @hookimpl
        async def amplifier_before_fork(self, request: ForkRequest) -> None:
            raise AssertionError("must not be asked")

    with pytest.raises(PluginLoadFailed, match="OSError: no such device"):
        plugins.register(Half())
    await plugins.before_fork(REQUEST)


async def test_a_hook_may_be_implemented_under_another_name_and_with_fewer_arguments(plugins: Plugins) -> None:
    seen: list[str] = []

    class Own:
        @hookimpl(specname="amplifier_register_trigger")
        def offers(self, register: Any) -> None:
            register("trigger-own", object)

        @hookimpl(specname="amplifier_before_fork")
        async def asked(self) -> None:
            seen.append("asked")

    assert plugins.register(Own()).offers == ["trigger-own"]
    await plugins.before_fork(REQUEST)
    assert seen == ["asked"]


# moments


async def test_plugins_are_awaited_one_after_the_other_the_last_registered_first(plugins: Plugins) -> None:
    seen: list[str] = []
    for name in ("one", "two", "three"):
        plugins.register(watching(seen, name), name=name)
    await plugins.before_fork(REQUEST)
    await plugins.after_fork(RESULT)
    assert seen == ["three before", "two before", "one before", "three after", "two after", "one after"]


async def test_one_plugin_has_ended_before_the_next_begins(plugins: Plugins) -> None:
    import asyncio

    order: list[str] = []

    def slow(name: str) -> Any:
        class Slow:
            @hookimpl
            async def amplifier_before_fork(self, request: ForkRequest) -> None:
                order.append(f"{name} begins")
                await asyncio.sleep(0)
                order.append(f"{name} ends")

        return Slow()

    plugins.register(slow("a"), name="a")
    plugins.register(slow("b"), name="b")
    await plugins.before_fork(REQUEST)
    assert order == ["b begins", "b ends", "a begins", "a ends"]


async def test_a_refusal_reaches_the_caller_as_it_is_and_names_its_plugin(plugins: Plugins) -> None:
    seen: list[str] = []
    refusal = ForkRefused("parent", "too deep")
    plugins.register(watching(seen, "never asked"), name="never")
    plugins.register(watching(seen, "guard", refusal), name="guard")
    with pytest.raises(ForkRefused) as refused:
        await plugins.before_fork(REQUEST)
    assert refused.value is refusal
    assert refused.value.__notes__ == ["in plugin 'guard' (amplifier_before_fork)"]
    assert seen == ["guard before"]


async def test_a_plugin_that_breaks_before_something_happens_is_named_in_the_error(plugins: Plugins) -> None:
    plugins.register(watching([], "bad", KeyError("limit")), name="bad")
    with pytest.raises(PluginError, match="plugin 'bad' failed in amplifier_before_fork: KeyError: 'limit'") as failure:
        await plugins.before_fork(REQUEST)
    assert isinstance(failure.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [ValueError("broken"), AmplifierError("refused too late")], ids=repr)
async def test_what_fails_afterwards_is_logged_with_its_plugin_and_changes_nothing(
    plugins: Plugins, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    seen: list[str] = []
    plugins.register(watching(seen, "good"), name="good")
    plugins.register(watching(seen, "bad", error), name="bad")
    await plugins.after_fork(RESULT)
    assert seen == ["bad after", "good after"]
    said = str(error) if isinstance(error, AmplifierError) else f"ValueError: {error} ({find_place(error)})"
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, f"plugin 'bad' failed in amplifier_after_fork: {said}")
    ]


BADLY = [
    (SystemExit(4), r"{place}: it called exit\(4\), which a module may not do"),
    (KeyboardInterrupt(), "{place}: it raised KeyboardInterrupt, which a module may not do"),
    (asyncio.CancelledError(), "{place}: it raised CancelledError, and nobody has cancelled its work"),
]


@pytest.mark.parametrize(("error", "told"), BADLY, ids=repr)
async def test_a_hook_that_exits_or_cancels_itself_has_failed_and_its_plugin_is_named(
    plugins: Plugins, caplog: pytest.LogCaptureFixture, error: BaseException, told: str
) -> None:
    seen: list[str] = []
    plugins.register(watching(seen, "good"), name="good")
    plugins.register(watching(seen, "bad", error), name="bad")
    await plugins.after_fork(RESULT)
    with pytest.raises(PluginError) as failure:
        await plugins.before_fork(REQUEST)
    assert seen == ["bad after", "good after", "bad before"]
    told = told.replace("{place}", f"{re.escape(__file__)}, line [0-9]+")
    assert re.fullmatch(f"plugin 'bad' failed in amplifier_after_fork: {told}", caplog.messages[0])
    assert re.fullmatch(f"plugin 'bad' failed in amplifier_before_fork: {told}", str(failure.value))


async def test_a_hook_that_cancels_itself_while_its_task_ends_has_failed_as_well(plugins: Plugins) -> None:
    seen: list[str] = []
    plugins.register(watching(seen, "good"), name="good")
    plugins.register(watching(seen, "bad", asyncio.CancelledError()), name="bad")

    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await plugins.after_fork(RESULT)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert seen == ["bad after", "good after"]


@pytest.mark.parametrize("answer", [None, ValueError("in its place")], ids=repr)
async def test_a_cancellation_from_outside_ends_a_hook_and_its_caller(plugins: Plugins, answer: Any) -> None:
    inside, seen = asyncio.Event(), list[str]()

    class Waiting:
        @hookimpl
        async def amplifier_after_fork(self, result: ForkResult) -> None:
            inside.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if answer is not None:
                    raise answer from None
                raise

    plugins.register(watching(seen, "not told"), name="good")
    plugins.register(Waiting(), name="waiting")
    task = asyncio.ensure_future(plugins.after_fork(RESULT))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == []


async def test_a_hook_that_never_returns_is_named_and_given_up(
    plugins: Plugins, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("BEFORE_TIME_LIMIT", "AFTER_TIME_LIMIT"):
        monkeypatch.setattr(awaited_hooks, limit, 0.02)
    monkeypatch.setattr(time_limits, "NOTICE_AFTER", 0.01)
    seen: list[str] = []

    class Stuck:
        @hookimpl
        async def amplifier_before_fork(self, request: ForkRequest) -> None:
            await asyncio.Event().wait()

        @hookimpl
        async def amplifier_after_fork(self, result: ForkResult) -> None:
            await asyncio.Event().wait()

    plugins.register(watching(seen, "good"), name="good")
    plugins.register(Stuck(), name="stuck")
    with pytest.raises(PluginError, match="plugin .stuck. failed in amplifier_before_fork: .* took longer than 0.02 s"):
        await plugins.before_fork(REQUEST)
    await plugins.after_fork(RESULT)
    assert seen == ["good after"]
    asked, observes, failed = caplog.messages
    assert asked == "waiting for plugin 'stuck': its amplifier_before_fork is given up after 0.02 s"
    assert observes == "waiting for plugin 'stuck': its amplifier_after_fork is given up after 0.02 s"
    assert "plugin 'stuck' failed in amplifier_after_fork: TimeoutError: its amplifier_after_fork took" in failed


async def test_every_moment_reaches_its_hook_with_what_happened(plugins: Plugins) -> None:
    seen: list[tuple[str, Any]] = []

    class All:
        @hookimpl
        async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
            seen.append(("before_spawn", request))

        @hookimpl
        async def amplifier_after_spawn(self, result: SpawnOutcome) -> None:
            seen.append(("after_spawn", result))

        @hookimpl
        async def amplifier_before_trigger(self, event: Any) -> None:
            seen.append(("before_trigger", event))

        @hookimpl
        async def amplifier_after_trigger(self, delivery: Any) -> None:
            seen.append(("after_trigger", delivery))

    plugins.register(All())
    for moment in ("before_spawn", "after_spawn", "before_trigger", "after_trigger"):
        await getattr(plugins, moment)(f"value of {moment}")
    assert seen == [(moment, f"value of {moment}") for moment, _ in seen]
    assert [moment for moment, _ in seen] == ["before_spawn", "after_spawn", "before_trigger", "after_trigger"]
