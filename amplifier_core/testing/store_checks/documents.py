"""Check the documents of a store: changed together with events and deliveries, and found by their members."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...documents import Document, DocumentChange
from ...errors import DocumentConflict, SessionNotFound, StaleEpoch
from .deliveries import LATER, claim_from, emits, enqueue_to, newest
from .rules import collect_checks, refuses, require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from ...documents import DocumentSearch, DocumentStore
    from ...storage import DurableStore

    class Store(DurableStore, DocumentStore, Protocol):
        """A store with everything."""

    class Searching(DurableStore, DocumentSearch, Protocol):
        """A store that also finds documents by their words."""


def _change(key: str, data: dict[str, Any] | None, version: int = 0, project: str = "/p") -> DocumentChange:
    return DocumentChange(project, "things", key, data, version)


async def _keys(store: Store, **chosen: Any) -> list[str]:
    return [each.key for each in await store.documents("/p", "things", **chosen)]


async def _data(store: Store, *keys: str) -> list[Any]:
    found = [await store.document("/p", "things", key) for key in keys]
    return [None if each is None else each.data for each in found]


async def check_63_a_document_is_returned_as_it_was_written(store: Store) -> None:
    """In its project and collection alone, with the version and time of its last change."""
    require(await store.document("/p", "things", "a") is None, "document must return None before the first write")
    before = datetime.now(UTC) - timedelta(minutes=1)
    data = {"title": "Größe 🙂", "n": [1, None, 2.5, {"of": True}]}
    require(await store.write_documents([_change("a", data)]) == [], "a write without events must return none")
    first = await store.document("/p", "things", "a")
    require(first is not None and abs(first.updated - before) < timedelta(hours=1), "updated must be the time in UTC")
    require(first == Document("/p", "things", "a", data, 1, first.updated if first else before), f"not {first}")
    await store.write_documents([_change("a", {"title": "new"}, 1)])
    second = await store.document("/p", "things", "a")
    require(second is not None and (second.version, second.data) == (2, {"title": "new"}), "a change must replace data")
    for project, collection, key in (("/q", "things", "a"), ("/p", "others", "a"), ("/p", "things", "A")):
        require(await store.document(project, collection, key) is None, "a document must be of one place alone")
        require(await store.documents("/q", collection) == [], "documents must be those of one project")


async def check_64_a_change_of_another_version_is_refused(store: Store) -> None:
    """It changes nothing, and logs nothing."""
    await store.write_documents([_change("a", {"n": 1})])
    for change in (
        _change("a", {"n": 2}),
        _change("a", {"n": 2}, 2),
        _change("a", None),
        _change("a", None, 2),
        _change("new", {"n": 2}, 1),
        _change("new", None),
        _change("new", None, 1),
    ):
        attempt = store.write_documents([change], emits=emits("changed"))
        await refuses(attempt, DocumentConflict, f"a change of version {change.version} of {change.key!r}")
    require(await _data(store, "a", "new") == [{"n": 1}, None], "a refused change must not change a document")
    require(await store.events() == [], "a refused change must log no events")
    await store.write_documents([_change("a", {"n": 2}, 1)])
    require(await _data(store, "a") == [{"n": 2}], "a refused change must not change the version")


async def check_65_changes_are_made_together_or_not_at_all(store: Store) -> None:
    """In their order; the error names the document in the way."""
    await store.write_documents([_change("a", {"n": 1}), _change("b", {"n": 1})])
    changes = [_change("a", {"n": 2}, 1), _change("b", None, 1), _change("c", {"n": 2}), _change("b", {"n": 3}, 7)]
    try:
        await store.write_documents(changes, emits=emits("changed"))
    except DocumentConflict as conflict:
        require((conflict.collection, conflict.key) == ("things", "b"), "the error must name the document in the way")
    else:
        require(False, "a change of another version must be refused among others")
    require(await _data(store, "a", "b", "c") == [{"n": 1}, {"n": 1}, None], "changes must be made all or none")
    require(await store.events() == [], "a refused write must log no events")
    await store.write_documents([*changes[:3], _change("c", {"n": 3}, 1), _change("b", {"n": 4})])
    require(await _data(store, "a", "b", "c") == [{"n": 2}, {"n": 4}, {"n": 3}], "changes must be made in their order")


async def check_66_a_deleted_document_is_gone(store: Store) -> None:
    """Its key begins at version 1 again."""
    await store.write_documents([_change("a", {"n": 1}), _change("b", {"n": 1}), _change("a", None, 1)])
    require(await store.document("/p", "things", "a") is None, "document must return None for a deleted one")
    require(await _keys(store) == ["b"], "documents must leave out a deleted one")
    await store.write_documents([_change("a", {"n": 2})])
    again = await store.document("/p", "things", "a")
    require(again is not None and again.version == 1, "a document must be new after its deletion")


async def check_67_events_are_logged_with_the_changes(store: Store) -> None:
    """With sequences among those of all events."""
    first = await store.emit(emits("before")[0])
    sent = [replace(each, project="/p", source_session_id="s") for each in emits("changed", "told")]
    logged = await store.write_documents([_change("a", {"n": 1})], emits=sent)
    require([replace(each, sequence=None) for each in logged] == sent, "write_documents must return its events")
    require(await store.events() == [first, *logged], "write_documents must log its events, with their sequences")
    require(len(await store.write_documents([], emits=emits("alone"))) == 1, "events may be written without changes")


async def check_68_documents_are_listed_in_the_order_of_their_keys(store: Store) -> None:
    """Of the code points: a lone surrogate too; also in reverse, by a prefix, and up to a limit."""
    keys = ["\0", "a\0", "a/1", "a/10", "a/2", "b", "z", "é", "\ud7ff", "\udce9", "\uffff", "\uffff🙂", "🙂"]
    await store.write_documents([_change(key, {"n": number}) for number, key in enumerate(reversed(keys))])
    await store.write_documents([_change("a/3", {"n": 0}, project="/q")])
    require(await _keys(store) == keys, "documents must be in the order of the code points of their keys")
    require(await _keys(store, newest=True) == keys[::-1], "newest must give the reverse order")
    cases: tuple[tuple[dict[str, Any], Sequence[str]], ...] = (
        ({"limit": 2}, keys[:2]),
        ({"limit": 2, "newest": True}, keys[:-3:-1]),
        ({"limit": 0}, []),
        ({"limit": 99}, keys),
        ({"prefix": "a/"}, ["a/1", "a/10", "a/2"]),
        ({"prefix": "a/", "newest": True, "limit": 1}, ["a/2"]),
        ({"prefix": "\uffff"}, ["\uffff", "\uffff🙂"]),
        ({"prefix": "%"}, []),
    )
    for chosen, expected in cases:
        require(await _keys(store, **chosen) == list(expected), f"documents with {chosen}")


async def check_69_documents_are_found_by_their_members(store: Store) -> None:
    """By texts at the top level, each exactly; a limit counts those found."""
    state: Sequence[Any] = (
        "open",
        "OPEN",
        "open\0",
        "o\udce9",
        "🙂",
        ["open"],
        {"of": "open"},
        5,
        True,
        None,
        '["open"]',
    )
    changes = [_change(f"{number:02}", {"state": each, "of": "x"}) for number, each in enumerate(state)]
    other = [_change("20", {"of": {"state": "open"}}), _change("21", {"state": "open", "a.b": "open", "of": "y"})]
    await store.write_documents([*changes, *other])
    cases: tuple[tuple[dict[str, list[str]], list[str]], ...] = (
        ({"state": ["open"]}, ["00", "21"]),
        ({"state": ["open", "OPEN", "none"]}, ["00", "01", "21"]),
        ({"state": ["open\0"]}, ["02"]),
        ({"state": ["o\udce9", "🙂"]}, ["03", "04"]),
        ({"state": ["open"], "of": ["x"]}, ["00"]),
        ({"state": ['["open"]', "5", "true", "1", "null"]}, ["10"]),
        ({"a.b": ["open"]}, ["21"]),
        ({"state": []}, []),
        ({"none": ["open"]}, []),
    )
    for where, expected in cases:
        found = await _keys(store, where=where)
        require(found == expected, f"documents where {where}: {found}")
    listed = await _keys(store, where={"state": ["open", "OPEN"]}, newest=True, limit=2)
    require(listed == ["21", "01"], f"a limit must count the documents that are found: {listed}")
    require(await _keys(store, where={"state": ["open"]}, prefix="2") == ["21"], "where and prefix must both hold")


async def check_70_names_that_cannot_be_are_refused(store: Store) -> None:
    """And change nothing."""
    for key in ("", "k" * 257):
        await refuses(store.write_documents([_change("a", {}), _change(key, {})]), ValueError, f"a key {key[:3]!r}")
        await refuses(store.document("/p", "things", key), ValueError, f"document of a key {key[:3]!r}")
        of_collection = DocumentChange("/p", key, "a", {})
        await refuses(store.write_documents([of_collection]), ValueError, f"a collection {key[:3]!r}")
        await refuses(store.documents("/p", key), ValueError, f"documents of a collection {key[:3]!r}")
    for name in ('a"', "a\\", "a\n", "\0", "\udce9", ""):
        await refuses(store.documents("/p", "things", where={name: ["x"]}), ValueError, f"where with the name {name!r}")
    await refuses(store.documents("/p", "things", where={"a": "open"}), ValueError, "where with a text for a list")
    require(await _keys(store) == [], "a refused name must change nothing")
    await store.write_documents([_change("🙂" * 256, {"a": "x"})])
    require(await _keys(store, where={"a": ["x"]}) == ["🙂" * 256], "a key may have 256 characters")


async def check_71_data_is_json(store: Store) -> None:
    """Anything else is refused, and changes nothing."""
    for value in (object(), float("nan")):
        attempt = store.write_documents([_change("a", {}), _change("b", {"x": value})], emits=emits("changed"))
        try:
            await attempt
        except (TypeError, ValueError):
            continue
        require(False, f"data with {value!r} must be refused")
    require((await _keys(store), await store.events()) == ([], []), "refused data must change nothing")
    odd = {"a\0b": "\0", "\udce9": ["\udce9", "🙂"], "": {}}
    await store.write_documents([_change("a", odd)])
    require(await _data(store, "a") == [odd], "any text must be returned as it was written")


async def check_72_a_commit_changes_documents(store: Store) -> None:
    """Together with the delivery and the events; `dead_letter` too."""
    await enqueue_to(store)
    logged = await store.commit(await claim_from(store), emits=emits("done"), documents=[_change("a", {"n": 1})])
    require(await store.events() == logged and len(logged) == 1, "commit must log its events with its documents")
    require(await _data(store, "a") == [{"n": 1}], "commit must change the documents")
    await enqueue_to(store)
    changes = [_change("a", {"n": 2}, 1), _change("b", {"n": 2})]
    await store.dead_letter(await claim_from(store), reason="gave up", documents=changes)
    require(await _data(store, "a", "b") == [{"n": 2}, {"n": 2}], "dead_letter must change the documents")


async def check_73_a_commit_with_a_refused_change_leaves_nothing(store: Store) -> None:
    """Nor does one of a stale epoch, or of an unknown session."""
    await store.write_documents([_change("a", {"n": 1})])
    await enqueue_to(store)
    stale = await claim_from(store)
    claimed = await claim_from(store, LATER + timedelta(hours=1))
    changes = [_change("b", {"n": 2}), _change("a", {"n": 2}, 7)]
    commit = store.commit(claimed, emits=emits("a"), documents=changes)
    await refuses(commit, DocumentConflict, "commit with a change of another version")
    dead_letter = store.dead_letter(claimed, reason="r", emits=emits("a"), documents=changes)
    await refuses(dead_letter, DocumentConflict, "dead_letter with a change of another version")
    unknown = store.commit(claimed, session={"session_id": "nobody", "name": "x"}, documents=changes[:1])
    await refuses(unknown, SessionNotFound, "commit with an unknown session")
    for good in (changes[:1], changes):
        await refuses(store.commit(stale, emits=emits("a"), documents=good), StaleEpoch, "commit of a stale epoch")
    require(await newest(store) == claimed, "a refused commit must leave the delivery claimed")
    require(await store.events() == [], "a refused commit must log nothing")
    require(await _data(store, "a", "b") == [{"n": 1}, None], "a refused commit must change no document")
    await store.commit(claimed, documents=changes[:1])


async def check_74_of_concurrent_writers_one_wins(store: Store) -> None:
    """Each change is made once, with its event."""
    for version in range(3):
        writers = [
            store.write_documents([_change("a", {"by": number}, version)], emits=emits(f"{version}-{number}"))
            for number in range(8)
        ]
        outcomes = await asyncio.gather(*writers, return_exceptions=True)
        won = [number for number, each in enumerate(outcomes) if not isinstance(each, BaseException)]
        lost = [each for each in outcomes if isinstance(each, DocumentConflict)]
        require((len(won), len(lost)) == (1, 7), f"one of eight writers must win, and seven be refused: {outcomes}")
        require(await _data(store, "a") == [{"by": won[0]}], "the document must be that of the winner")
    require(len(await store.events()) == 3, "the events of refused writers must not be logged")


async def check_75_a_document_that_was_read_does_not_lead_into_the_store(store: Store) -> None:
    """Nor does one that was written."""
    data: dict[str, Any] = {"tags": []}
    await store.write_documents([_change("a", data)])
    data["tags"].append("written")
    read = await store.document("/p", "things", "a")
    require(read is not None and read.data == {"tags": []}, "what is written must not change afterwards")
    for each in (read, *await store.documents("/p", "things")):
        if each is not None:
            each.data["tags"].append("read")
    require(await _data(store, "a") == [{"tags": []}], "a document must not change through one that was read")


DOCUMENT_CHECKS = collect_checks(globals())


def _note(key: str, text: str, version: int = 0, **more: Any) -> DocumentChange:
    return DocumentChange("/p", "notes", key, {"text": text, **more}, version, ("text",))


async def _search(store: Searching, query: str, **chosen: Any) -> list[str]:
    return [each.document.key for each in await store.search_documents("/p", "notes", query, **chosen)]


async def check_76_documents_are_found_by_their_words(store: Searching) -> None:
    """Without regard to case, accents and punctuation; by the beginning of a longer word; each sign of some scripts."""
    require(await _search(store, "anything") == [], "a search before the first document must find none")
    texts = [
        "Die Größe der Straße",
        "max_depth=5, -no-cache",
        "Cafe\u0301 naïve",
        "全文検索のテスト",
        "a\0b \udce9 c🙂d",
    ]
    await store.write_documents([_note(f"{number}", text, title="elsewhere") for number, text in enumerate(texts)])
    cases = {
        "0": ("grosse", "STRASSE", "Größe!", "stra", "zzz der"),
        "1": ("max depth", "MAX", "5", "cache", "dep"),
        "2": ("CAFÉ", "café", "naive", "nai"),
        "3": ("検索", "全", "テスト"),
        "4": ("b", "c", "d\udce9"),
    }
    for key, queries in cases.items():
        for query in queries:
            require(await _search(store, query) == [key], f"a search for {query!r} must find {texts[int(key)]!r} alone")
    for query in ("elsewhere", "ax", "rasse", "di", "索検", "🙂", "", " ", "ca"):
        require(await _search(store, query) == [], f"a search for {query!r} must find nothing")


async def check_77_any_text_is_a_query(store: Searching) -> None:
    """Whatever means something in a language of queries is text here."""
    await store.write_documents([_note("a", "and or not near text")])
    odd = [
        '"',
        "'",
        '"text',
        "text*",
        "*",
        "^text",
        "text:",
        "-text",
        "+",
        "(text",
        "NEAR(text",
        "a AND",
        "NOT",
        "\\",
        ";",
    ]
    for query in [
        *odd,
        "text: (x OR",
        "{text} : a",
        "\0",
        "text\0",
        "\udce9",
        "%",
        "x" * 10_000,
        "text " * 10_000,
        "? ?1 :a",
    ]:
        found = await _search(store, query)
        wanted = any(word in query.lower() for word in ("text", "and", "not", "near"))
        require(found == (["a"] if wanted else []), f"a search for {query[:20]!r} found {found}")


async def check_78_the_best_document_comes_first(store: Searching) -> None:
    """Rare words say more than common ones, more words than fewer; then the document that was changed last."""
    texts = ["the deploy", "the key", "the rollback of the deploy", "the key", "the the the"]
    await store.write_documents([_note(f"{number}", text) for number, text in enumerate(texts)])
    await store.write_documents([_note("1", "the key", 1)])
    for query, expected in (
        ("how is the rollback done?", ["2", "1", "4", "3", "0"]),
        ("the deploy rollback", ["2", "0", "1", "4", "3"]),
        ("the key", ["1", "3", "4", "2", "0"]),
    ):
        found = await _search(store, query)
        require(found == expected, f"a search for {query!r} must find {expected}, not {found}")
        require(await _search(store, query, limit=2) == expected[:2], "a limit must keep the best documents")
    require(await _search(store, "the", limit=0) == [], "a limit of 0 must keep none")


async def check_79_a_search_finds_what_is_stored_now(store: Searching) -> None:
    """In its project and collection alone, and where a change asks for it."""
    await store.write_documents(
        [_note("a", "first"), replace(_note("a", "first"), project="/q"), _change("a", {"text": "first"})]
    )
    await refuses(store.write_documents([_note("b", "first"), _note("a", "x", 7)]), DocumentConflict, "another version")
    require(await _search(store, "first") == ["a"], "a search must find the documents of its collection alone")
    await store.write_documents([_note("a", "second", 1), _note("b", "second"), _note("b", "third", 1)])
    require(await _search(store, "first") == [], "a search must not find a text that was replaced")
    require(await _search(store, "second") == ["a"], "a search must find the new text")
    require(await _search(store, "third") == ["b"], "a search must find what one write has changed twice")
    await store.write_documents([replace(_note("a", "second", 2), searched=()), replace(_note("b", "", 2), data=None)])
    require(await _search(store, "second third") == [], "a search must not find what no change asks for, or is gone")
    await store.write_documents([_note("a", "fourth", 3, more="five"), _note("b", "fourth")])
    require(await _search(store, "fourth") == ["b", "a"], "a search must find what is there again")
    both = replace(_note("b", "fourth", 1, more="five", n=6), searched=("more", "n", "text", "none"))
    await store.write_documents([both])
    require(await _search(store, "five") == ["b"], "a search must look in the members that a change names")


async def check_80_a_match_has_the_document_and_a_line_of_its_text(store: Searching) -> None:
    """Around the first word that was found."""
    long = "before " * 100 + "\n\nthe  Größe\nof it " + "after " * 100
    await store.write_documents([_note("a", long), _note("b", "short")])
    [match] = await store.search_documents("/p", "notes", "grosse")
    require(match.document == await store.document("/p", "notes", "a"), "a match must have the document")
    require("the Größe of it after" in match.snippet, f"a snippet must be around the word: {match.snippet!r}")
    require(len(match.snippet) < 300, "a snippet must be short")
    [match] = await store.search_documents("/p", "notes", "SHORT")
    require(match.snippet == "short", "a snippet of a short text must be that text")


async def check_81_a_commit_changes_what_is_found(store: Searching) -> None:
    """A refused one does not."""
    await enqueue_to(store)
    claimed = await claim_from(store)
    refused = [_note("a", "first"), _note("b", "first", 7)]
    await refuses(store.commit(claimed, documents=refused), DocumentConflict, "commit with another version")
    require(await _search(store, "first") == [], "a refused commit must not change what is found")
    await store.commit(claimed, documents=[_note("a", "first")])
    require(await _search(store, "first") == ["a"], "commit must change what is found")
    await refuses(store.search_documents("/p", "", "x"), ValueError, "a search in a collection ''")


SEARCH_CHECKS = tuple(check for check in collect_checks(globals()) if check not in DOCUMENT_CHECKS)
