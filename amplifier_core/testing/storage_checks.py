"""Check the contract of a small storage (`SessionStorage`) with numbered checks for its author to run.

    def test_the_contract(tmp_path):
        numbers = itertools.count()
        check_storage(lambda: MyStorage(tmp_path / str(next(numbers))))

Each check gets an empty storage. A broken rule raises `AssertionError` with a sentence naming the rule. Nothing here
needs a test runner; pytest can parametrise a test over `STORAGE_CHECKS`.
"""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from .crashes import crash_points
from .store_checks.rules import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage import SessionStorage

    Check = Callable[[SessionStorage], None]

METHODS = ("save", "load", "exists")
ODD_IDS = ("a/b", "a_b", "../a_b", ".", "A_B", "a b", "a%2Fb", "é")
"""Ids that are easily taken for each other, or for a path."""


def check_storage(open_storage: Callable[[], SessionStorage]) -> None:
    """Run every check on a new storage from `open_storage`. Raises `AssertionError`."""
    for check in STORAGE_CHECKS:
        try:
            check(open_storage())
        except AssertionError as broken:
            raise AssertionError(f"{getattr(check, '__name__', check)}: {broken}") from broken


def check_storage_kills(open_storage: Callable[[], SessionStorage], *, session_id: str = "killed") -> int:
    """Kill `save` at each of its steps on disk; return the number of steps. Raises `AssertionError`.

    `open_storage` opens the same storage each time. A session that is saved again is whole afterwards, the old one or
    the new one; a new one is whole, or is not there. The steps are those of `crash_points`.
    """
    old, new = _session("old"), _session("new")
    for before in (None, old):
        if before is not None:
            open_storage().save(session_id, *deepcopy(before))
            require(open_storage().exists(session_id), "a storage that is opened again must have what was saved")
        for step in crash_points(lambda: open_storage().save(session_id, *deepcopy(new))):
            storage = open_storage()
            kept = tuple(storage.load(session_id)) if storage.exists(session_id) else None
            what = "an earlier one" if before else "none"
            require(
                kept in (before, new),
                f"a kill in save, before its step {step} on disk, must leave the new session whole, or {what}; "
                "write another file, and rename it",
            )
            if kept == new and before is not None:
                storage.save(session_id, *deepcopy(before))
    return step


def check_01_a_storage_has_three_plain_methods(storage: SessionStorage) -> None:
    """None of them async: a caller would go on before anything was saved."""
    missing = [name for name in METHODS if not callable(getattr(storage, name, None))]
    require(not missing, f"a storage must have the methods {', '.join(METHODS)}; missing: {', '.join(missing)}")
    waiting = [name for name in METHODS if inspect.iscoroutinefunction(getattr(storage, name))]
    require(not waiting, f"a small storage is synchronous; these methods are async: {', '.join(waiting)}")


def check_02_a_session_is_loaded_as_it_was_saved(storage: SessionStorage) -> None:
    """With any JSON value."""
    transcript, metadata = _session("one")
    storage.save("one", deepcopy(transcript), deepcopy(metadata))
    _require_kept(storage, "one", transcript, metadata)


def check_03_an_empty_session_is_one(storage: SessionStorage) -> None:
    """A session without messages is stored like any other."""
    storage.save("empty", [], {})
    _require_kept(storage, "empty", [], {})


def check_04_an_unknown_session_is_not_found(storage: SessionStorage) -> None:
    """Neither before anything was saved nor after."""
    for saved in ("nothing", "another session"):
        require(storage.exists("nobody") is False, f"exists must return False for an unknown id when {saved} was saved")
        _require_not_found(storage, "nobody")
        storage.save("somebody", [], {})


def check_05_a_session_that_is_saved_again_is_replaced(storage: SessionStorage) -> None:
    """As a whole: nothing of the older one shines through."""
    storage.save("one", *_session("old"))
    transcript: list[dict[str, Any]] = [{"role": "user", "content": "shorter"}]
    storage.save("one", deepcopy(transcript), {"turns": 1})
    _require_kept(storage, "one", transcript, {"turns": 1})


def check_06_sessions_are_kept_apart(storage: SessionStorage) -> None:
    """Each has its own messages."""
    for number in range(20):
        storage.save(f"session-{number}", *_session(f"text {number}"))
    for number in range(20):
        _require_kept(storage, f"session-{number}", *_session(f"text {number}"))


def check_07_an_odd_id_is_refused_or_kept_apart_from_all_others(storage: SessionStorage) -> None:
    """A refusal is a `ValueError`, and leaves nothing behind."""
    taken = [session_id for session_id in ODD_IDS if _is_taken(storage, session_id)]
    for session_id in taken:
        _require_kept(storage, session_id, *_session(session_id))


def check_08_a_long_history_keeps_its_order(storage: SessionStorage) -> None:
    """A thousand messages."""
    transcript = [{"role": "user", "content": f"message {number}"} for number in range(1000)]
    storage.save("long", deepcopy(transcript), {})
    _require_kept(storage, "long", transcript, {})


def check_09_what_was_handed_over_is_not_shared(storage: SessionStorage) -> None:
    """A session may change its lists after `save`; the storage keeps their content at the time of the call."""
    transcript, metadata = _session("one")
    storage.save("one", transcript, metadata)
    transcript.append({"role": "user", "content": "later"})
    metadata["tags"].append("later")
    _require_kept(storage, "one", *_session("one"))
    loaded, about = storage.load("one")
    loaded.clear()
    about.clear()
    _require_kept(storage, "one", *_session("one"))


def _session(text: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a transcript and metadata with every kind of JSON value in them."""
    call = {"id": "c1", "tool": "read", "arguments": {"path": "ü/\N{PARTY POPPER}", "deep": [[1, -0.5, None], {}]}}
    transcript: list[dict[str, Any]] = [
        {"role": "user", "content": f"{text}\n\t\"quoted\" 'so' \\ \u2028"},
        {"role": "assistant", "content": [{"type": "text", "text": ""}], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "", "metadata": {"ok": True}},
    ]
    return transcript, {"name": text, "turns": 3, "cost": 0.25, "parent_id": None, "tags": [], "deep": {"a": {"b": 1}}}


def _is_taken(storage: SessionStorage, session_id: str) -> bool:
    try:
        storage.save(session_id, *_session(session_id))
    except ValueError:
        return False
    except Exception as error:
        raise AssertionError(
            f"save must take the id {session_id!r} or refuse it with ValueError, not {type(error).__name__}: {error}"
        ) from error
    return True


def _require_kept(
    storage: SessionStorage, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]
) -> None:
    require(storage.exists(session_id) is True, f"exists must return True for {session_id!r}, which was saved")
    try:
        kept: Any = storage.load(session_id)
    except LookupError as error:
        raise AssertionError(f"load must find {session_id!r}, which was saved: {error}") from error
    is_pair = isinstance(kept, tuple | list) and len(kept) == 2
    require(is_pair, f"load must return a pair, (transcript, metadata), not {kept!r}")
    loaded, about = kept
    require(loaded == transcript, f"load must return the transcript of {session_id!r} as it was saved last")
    require(about == metadata, f"load must return the metadata of {session_id!r} as it was saved last")


def _require_not_found(storage: SessionStorage, session_id: str) -> None:
    try:
        storage.load(session_id)
    except (LookupError, FileNotFoundError):
        return
    except Exception as error:
        raise AssertionError(
            f"load of an unknown id must raise LookupError or FileNotFoundError, not {type(error).__name__}"
        ) from error
    raise AssertionError("load of an unknown id must raise LookupError or FileNotFoundError")


STORAGE_CHECKS: tuple[Check, ...] = (
    check_01_a_storage_has_three_plain_methods,
    check_02_a_session_is_loaded_as_it_was_saved,
    check_03_an_empty_session_is_one,
    check_04_an_unknown_session_is_not_found,
    check_05_a_session_that_is_saved_again_is_replaced,
    check_06_sessions_are_kept_apart,
    check_07_an_odd_id_is_refused_or_kept_apart_from_all_others,
    check_08_a_long_history_keeps_its_order,
    check_09_what_was_handed_over_is_not_shared,
)
