"""Define the contracts of views and acts, and find them by their paths.

A view reads a `Page`: elements by their ids (`parts`), and lists that only grow (`feeds`). The page in the browser gets
a part again when it differs, and the new entries of a feed. So a view has one function for the first answer and for all
updates. An act changes something and returns a `Reply`; views show the change by themselves.
"""

from __future__ import annotations

from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from markupsafe import Markup

    from .desk import Desk

VIEWS = (
    "overview",
    "event_log",
    "background",
    "firing",
    "deliveries",
    "sessions",
    "session",
    "session_trace",
    "session_files",
    "talk",
    "lineage",
    "flows",
    "approvals",
    "dead_letters",
    "timers",
    "cost",
    "hosts",
    "bundles",
    "search",
)
"""The modules of `views`; each has `VIEWS` and `ACTS`."""


@frozen
class Place:
    """What is asked for: the variables of the path, and the query."""

    path: str
    variables: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def with_query(self, changes: Mapping[str, str]) -> str:
        """Return the address of this place with other values in its query; an empty one is left out."""
        from urllib.parse import urlencode

        kept = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{self.path}?{urlencode(kept)}" if kept else self.path

    def number(self, name: str, default: int) -> int:
        """Return a number of the query; one that is none is the default."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


@frozen
class Entry:
    """One entry of a feed: its number, larger than those before it, and its element."""

    number: int
    html: Markup


@frozen
class Feed:
    """A list that only grows, in the element with an id.

    `since(number)` returns the entries above a number, in their order. `keep` bounds the entries in the browser.
    """

    since: Callable[[int], Awaitable[Sequence[Entry]]]
    keep: int = 200


@frozen
class Page:
    """A view as it is now.

    Each part is one whole element with its id. `template` places parts and feeds; it gets them by their ids.
    `stream` yields parts (id, element) that come between two changes of the store, such as text while it is written.
    """

    title: str
    template: str
    parts: Mapping[str, Markup]
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    stream: Callable[[], AsyncIterator[tuple[str, Markup]]] | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    """What the template gets besides; it does not change while the page is shown."""
    nonce: str = ""
    """Lets style elements with it in; '' lets none in. Scripts get it from the template."""


@frozen
class Reply:
    """What an act did, in a sentence, and the page to go to; '' stays."""

    said: str
    to: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What a script of the page gets besides."""


ReadPage: TypeAlias = "Callable[[Desk, Place], Awaitable[Page]]"
DoAct: TypeAlias = "Callable[[Desk, Place, Mapping[str, str]], Awaitable[Reply]]"


@frozen
class Badge:
    """The number beside an entry of the navigation, and what it counts: "waiting for an answer"."""

    read: Callable[[Desk], Awaitable[int]]
    what: str
    in_title: bool = False
    """Whether the titles of all pages begin with it: "(3) Overview"."""


@frozen
class View:
    """A page at a path, such as `/sessions/{session_id}`; `label` and `key` make it an entry of the navigation."""

    path: str
    read: ReadPage
    label: str = ""
    key: str = ""
    badge: Badge | None = None


@frozen
class Act:
    """What a form of a page does when it is sent to a path.

    `changes` is False for an act without effects: it is allowed to readers.
    """

    path: str
    do: DoAct
    changes: bool = True


def find_views() -> list[View]:
    """Return all views, in the order of the navigation."""
    return [view for name in VIEWS for view in import_module(f"{__package__}.views.{name}").VIEWS]


def find_acts() -> list[Act]:
    """Return all acts."""
    return [act for name in VIEWS for act in import_module(f"{__package__}.views.{name}").ACTS]
