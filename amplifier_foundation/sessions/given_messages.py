"""Note the messages that a context with messages of its own is given: it may forget, change and show others."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from amplifier_core.session import AmplifierSession
    from amplifier_core.transcript import Message

logger = logging.getLogger(__name__)


class GivenMessages:
    """The messages of one context that are not stored yet, noted from `listen` on.

    These are what its `add_message` and its `set_messages` get. Until one of them is called, they are those behind the
    last stored one in its history: it may get its messages in a way of its own.
    """

    def __init__(self, session: AmplifierSession) -> None:
        self._session = session
        self.waiting: list[Message] = []
        """Those that were given since the last `forget`."""
        self._is_given = False
        self._read = 0
        """How many of those that wait the last `read` has seen."""
        self._stored = 0
        """The number of stored messages in its history."""
        self._last: Message | None = None
        """The last one of these."""

    async def listen(self, context: Any, stored: int) -> None:
        """Note what `context` is given from now on; `stored` messages are in the store."""
        from ..bundle.prepared import INSTRUCTION

        history = await self._session.history()
        if len(history) < stored:
            spec = self._session.config["session"]["context"]
            name = spec.get("module") if isinstance(spec, dict) else spec
            kept = f"keeps {len(history)} of the {stored} messages that it was given"
            logger.warning("context '%s' %s: the stored ones stay, and the new ones follow", name, kept)
        more = history.since(stored)  # of a resumed session, a context may show what nobody has said
        self.waiting += [each for each in more if not stored or INSTRUCTION in (each.get("metadata") or ())]
        self._note_place(history[: min(len(history), stored)])
        is_within = ContextVar("is_within", default=False)

        def noting(call: Callable[..., Any], follows_known: bool) -> Callable[..., Any]:
            async def call_and_note(*given: Any, **named: Any) -> Any:
                if is_within.get():  # the context gives itself parts of a message
                    return await call(*given, **named)
                token, self._is_given = is_within.set(True), True
                try:
                    got = given[0] if given else next(iter(named.values()))
                    new = await self._find_following(got) if follows_known else [got]
                    answer = await call(*given, **named)
                finally:
                    is_within.reset(token)
                self.waiting += map(copy_message, new)
                return answer

            return call_and_note

        replace_methods(
            context,
            add_message=noting(context.add_message, follows_known=False),
            set_messages=noting(context.set_messages, follows_known=True),
        )

    async def read(self) -> tuple[list[Message], Sequence[Message]]:
        """Return the messages to be stored, and the history in which they were found by their place."""
        self._read = len(self.waiting)  # more may come while these are stored
        if self._is_given:
            return list(self.waiting), []
        history = list(await self._session.history())
        start = self._stored if self._last is None else end_of(self._last, history, self._stored) or 0
        return history[start:], history

    def forget(self, history: Sequence[Message]) -> None:
        """Forget the messages of the last `read`, with its history: they are stored."""
        del self.waiting[: self._read]
        if history:
            self._note_place(history)

    def _note_place(self, history: Sequence[Message]) -> None:
        self._stored, self._last = len(history), history[-1] if history else None

    async def _find_following(self, messages: Iterable[Message]) -> list[Message]:
        """Return the messages of a new history behind the last one of before; a history without that has none."""
        known, new = list(await self._session.history()), list(messages)
        if not known:
            return [] if self._stored or self.waiting else new
        end = end_of(known[-1], new, len(known))
        return [] if end is None else new[end:]


def copy_message(given: Any) -> Message:
    """Return a copy of a message, of one that is a model as a dict."""
    dump = getattr(given, "model_dump", None)
    return {**given} if dump is None else dump(mode="json", exclude_none=True)


def end_of(last: Message, messages: Sequence[Message], place: int) -> int | None:
    """Return the place behind `last` in messages where it was the one before `place`; None if it is gone."""
    if messages[place - 1 : place] == [last]:
        return place
    return next((end for end in range(len(messages), 0, -1) if messages[end - 1] == last), None)


def replace_methods(module: Any, **methods: Callable[..., Any]) -> None:
    """Set methods of one object, also of one that takes no attributes, as by `__slots__` or as a frozen dataclass."""
    kind = type(module)
    try:
        for name, method in methods.items():
            object.__setattr__(module, name, method)
    except (AttributeError, TypeError):
        named = {name: staticmethod(method) for name, method in methods.items()}
        members = {"__slots__": (), "__module__": kind.__module__, **named}
        object.__setattr__(module, "__class__", type(kind.__name__, (kind,), members))
