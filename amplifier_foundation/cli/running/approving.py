"""Ask the person at the terminal the questions of a session."""

from __future__ import annotations

import asyncio
import os
import select
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal

from amplifier_core.approval import ApprovalTimeoutError

from ...documents.safe_text import exact, one_line, plain
from ...spawning.turn_facts import asking
from .terminal import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
    from amplifier_core.session import AmplifierSession

MOST_LINES = 60
"""Lines of a question."""
LONGEST_ANSWER = 40
"""Characters of an answer that is named because it is none."""
AGAIN = b"a"
"""What a waiting question is told to show itself again; everything else ends it."""
REGISTER = "approval.register_provider"
"""The capability of a module that asks through an `ApprovalProvider`."""


class _NoAnswer(Exception):
    """The terminal was closed, or the question was withdrawn."""


class Approvals:
    """Asks at `terminal`, one question of all sessions at a time; None: there is no person, the default counts.

    The default also counts after a timeout. `unanswered` lists the questions denied because there was no person.
    `pause` takes everything that moves off the terminal; nobody else reads it in a block of `alone`.
    """

    tells_who = True
    """Its questions name the asking session by themselves."""

    def __init__(
        self,
        terminal: str | None,
        pause: Callable[[], None],
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.unanswered: list[str] = []
        self._pause = pause
        self._alone = alone
        self._terminal = terminal
        self._who = ""
        self._turn = asyncio.Lock()
        self._wake: int | None = None

    @property
    def shows_previews(self) -> bool:
        """Whether there is a person to show to what a call would change."""
        return self._terminal is not None

    def attach(self, session: AmplifierSession, name: str) -> None:
        """Answer for a session, also to modules that ask through an `ApprovalProvider`."""
        self._who = f"{name} ({session.session_id})"
        register = session.coordinator.get_capability(REGISTER)
        if register is not None:
            register(_Provider(self))

    def give_up(self) -> None:
        """Deny the current question: the person wants the turn to stop."""
        self._tell_reader(b"x")

    def show_again(self) -> None:
        """Show the current question again, if there is one: something else was on the screen."""
        self._tell_reader(AGAIN)

    def _tell_reader(self, what: bytes) -> None:
        if self._wake is not None:
            with suppress(BrokenPipeError):  # it has ended, and the loop has not heard of it yet
                os.write(self._wake, what)

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float | None,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the chosen option. Raises `ApprovalTimeoutError` when nobody answers in time."""
        who = asking.get() or self._who
        async with self._turn:
            self._pause()
            if self._terminal is None:
                return self._answer_alone(who, prompt, options, default)
            try:
                with self._alone():
                    return await self._ask(self._terminal, who, prompt, options, timeout, default)
            except _NoAnswer:
                tell("no answer: denied")
                return _option(options, "deny")
            except TimeoutError:
                tell(f"no answer in {timeout:g} s: {_option(options, default)}")
                raise ApprovalTimeoutError(prompt) from None

    def _answer_alone(self, who: str, prompt: str, options: list[str], default: str) -> str:
        if default != "allow":
            self.unanswered.append(prompt)
            tell(f"amplifier: {plain(who)} asks: {plain(prompt)}\namplifier: there is no terminal to answer at: denied")
        return _option(options, default)

    async def _ask(
        self, terminal: str, who: str, prompt: str, options: list[str], seconds: float | None, default: str
    ) -> str:
        usual = _option(options, default)
        lines = prompt.splitlines()
        if (left := len(lines) - MOST_LINES) > 1:
            prompt = "\n".join([*lines[:MOST_LINES], f"… {left} more lines"])
        listed = "".join(f"  [{number}] {plain(option)}" for number, option in enumerate(options, 1))
        limit = f", {seconds:g} s" if seconds else ""
        question = f"\n? {plain(who)} asks: {exact(prompt)}\n{listed}   (Enter: {plain(usual)}{limit}) "
        ends, remark = time.monotonic() + seconds if seconds else None, ""
        while True:
            line = (await self._line(terminal, question, remark, ends)).strip()
            chosen = chosen_option(line, options) if line else usual
            if chosen is not None:
                return chosen
            remark = f"  '{one_line(line, LONGEST_ANSWER)}' names none of these, or several:{listed}? "

    async def _line(self, terminal: str, question: str, remark: str, ends: float | None) -> str:
        reading, self._wake = os.pipe()
        work = asyncio.to_thread(_read_line, terminal, question, remark, reading, ends)
        try:
            return await asyncio.shield(work)
        finally:
            os.close(self._wake)  # ends the read, also after a cancellation
            self._wake = None


def _read_line(terminal: str, question: str, remark: str, wake: int, ends: float | None) -> str:
    """Ask at a terminal and return the line; text typed before the question does not count.

    `remark` stands below a question that is on the screen. Who sees it no more gets the question again.
    """
    import termios

    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        asked = remark or question
        while asked:
            termios.tcflush(descriptor, termios.TCIFLUSH)
            os.write(descriptor, asked.encode())
            left = None if ends is None else max(0.0, ends - time.monotonic())
            ready, _, _ = select.select([descriptor, wake], [], [], left)
            asked = question if wake in ready and os.read(wake, 1) == AGAIN else ""
        if not ready:
            termios.tcflush(descriptor, termios.TCIFLUSH)
            os.write(descriptor, b"\n")
            raise TimeoutError
        line = os.read(descriptor, 4096) if wake not in ready else b""
        if not line:
            os.write(descriptor, b"\n")
            raise _NoAnswer
        return line.decode(errors="replace")
    finally:
        os.close(descriptor)
        os.close(wake)


def _option(options: list[str], word: str) -> str:
    """Return the option that begins with `word` (allow or deny), or the word itself."""
    return next((option for option in options if option.lower().split()[:1] == [word]), word)


def chosen_option(line: str, options: list[str]) -> str | None:
    """Return the option of a line by number, text, or first letters; None for none, or for several."""
    said = line.strip().lower()
    if said.isascii() and said.isdigit():
        return options[int(said) - 1] if 1 <= int(said) <= len(options) else None
    exact = [option for option in options if option.lower() == said]
    found = exact or [option for option in options if option.lower().startswith(said)]
    if not found and said in ("y", "yes"):
        found = [option for option in options if option.lower() == "allow"]
    if not found and said in ("n", "no"):
        found = [option for option in options if option.lower() == "deny"]
    return found[0] if len(found) == 1 else None


class _Provider:
    """Answers an `ApprovalRequest`."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        """Put the request to the person as a question."""
        from amplifier_core.interfaces import ApprovalResponse

        try:
            details = "".join(f"\n  {key}: {value}" for key, value in request.details.items())
            question = f"{request.tool_name}: {request.action} (risk: {request.risk_level}){details}"
            answer = await self._approvals.request_approval(question, ["Allow", "Deny"], request.timeout, "deny")
        except ApprovalTimeoutError:
            return ApprovalResponse(approved=False, reason="nobody answered in time")
        return ApprovalResponse(approved=answer == "Allow", reason=None if answer == "Allow" else "denied")
