"""Show a person how far a run of a workflow is: its tree in place at a terminal, a line for each change elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING

from ..documents.safe_text import one_line, plain
from ..flows.description import describe_workflow, described_tasks, without_secrets
from ..flows.drawing import NOT_DONE, SIGNS, rows_of, title_of
from .running.terminal import holds_terminal, shows_styles, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.live import Live
    from rich.text import Text

    from ..flows.description import Plain
    from ..flows.drawing import Row
    from ..flows.journal import Entry
    from ..flows.tasks import Workflow

REFRESHES = 4
"""Drawings in a second."""
ROOM = 2
"""Rows of the terminal that the tree leaves free: one for the sum, and one for what follows."""
LONGEST = 400
"""Characters of a row."""
_STYLES = {"completed": "green", "failed": "red", "running": "cyan", "waiting": "yellow"}


class FlowView:
    """Shows the tasks of a run; `done` are the entries of an earlier part of it. A thread draws it anew."""

    def __init__(
        self,
        workflow: Workflow,
        done: Iterable[Entry] = (),
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._description = without_secrets(describe_workflow(workflow))
        self._quiet = quiet
        self._clock = clock
        self._began = clock()
        self._lock = Lock()
        self._running: dict[str, float] = {}
        """When each attempt at work began, by the key of its task."""
        self._attempts: dict[str, int] = {}
        self._lasted: dict[str, float] = {}
        """Seconds of the last attempt at each task that has ended, by its id."""
        self._states = {each.task: str(each.status) for each in done}
        """The status of the last entry of each task, by its id."""
        self._latest = {each.task: each.key for each in done}
        """The last key of each task."""
        self._rows = list(rows_of(self._description["steps"]))
        self._tasks = [each["id"] for each in described_tasks(self._description["steps"])]
        loops = (list(described_tasks(row.step["loop"])) for row in self._rows if "loop" in row.step)
        self._bodies = {tasks[0]["id"]: [each["id"] for each in tasks] for tasks in loops if tasks}
        """The tasks of each loop by the first of them."""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._quiet and _can_move():
            from rich.live import Live

            from .consoles import QuietCursor

            console = QuietCursor(file=sys.stderr, highlight=False)
            self._live = Live(self, console=console, refresh_per_second=REFRESHES, redirect_stdout=False)
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._running.clear()
        if self._live is not None:
            with suppress(OSError):  # the terminal was closed
                self._live.stop()
            self._live = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Take the tree off the terminal for a question, and draw it anew below the answer."""
        live = self._live
        if live is None:
            yield
            return
        live.transient = True
        live.stop()
        try:
            yield
        finally:
            live.transient = False
            live.start(refresh=True)

    def report(self, key: str, entry: Entry | None) -> None:
        """Show that an attempt at a task begins, or has ended with an entry."""
        with self._lock:
            is_new = key not in self._attempts
            if entry is None:
                self._begin(key)
            elif entry.status != "retried":  # it is at work until its next attempt
                began = self._running.pop(key, None)
                if began is not None:
                    self._lasted[entry.task] = self._clock() - began
                self._states[entry.task], self._latest[entry.task] = entry.status, key
        if self._live is None and not self._quiet and (is_new or entry is not None):
            tell(plain(f"{key}: {'begins' if entry is None else entry.status}"))

    def _begin(self, key: str) -> None:
        task, *iterations = key.split("#")
        self._attempts[key] = self._attempts.get(key, 0) + 1
        self._running[key] = self._clock()
        self._latest[task] = key
        for each in self._bodies.get(task, ()):  # what an earlier iteration did is to be done again
            if any(
                one != other for one, other in zip(iterations, self._latest.get(each, "").split("#")[1:], strict=False)
            ):
                self._states.pop(each, None)
                self._lasted.pop(each, None)

    # the tree

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        with self._lock:
            lines = list(self._draw(options.size.height - ROOM))
        yield from lines

    def _draw(self, room: int) -> Iterator[Text]:
        """Yield the rows; where the terminal is too low for them, those of running and failed tasks."""
        rows = self._rows
        states = self._states | {key.partition("#")[0]: "running" for key in self._running}
        if len(rows) > room:
            rows = [row._replace(margin="") for row in rows if states.get(row.step.get("id", "")) in _AT_WORK]
            rows = rows[-max(0, room) :]
        for row in rows:
            yield self._draw_row(row, states)
        yield self._draw_sum(states)

    def _draw_row(self, row: Row, states: dict[str, str]) -> Text:
        from rich.text import Text

        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{row.margin} " if row.margin else "", "dim")
        if "id" not in row.step:
            line.append(row.word, "dim").append(self._iteration_of(row.step), "cyan")
            return line.append(one_line(title_of(row.step), LONGEST), "dim")
        task = row.step["id"]
        state = states.get(task, "")
        style = _STYLES.get(state, "dim")
        line.append(f"{SIGNS.get(state, NOT_DONE)} ", style).append(row.word, "dim")
        line.append(task, "bold" if state == "running" else "").append(self._facts_of(task), style)
        return line.append(f" {one_line(title_of(row.step)[len(task) :], LONGEST)}", "dim")

    def _facts_of(self, task: str) -> str:
        """Return the seconds, the attempt and the iterations of a task."""
        own = {key: began for key, began in self._running.items() if key.partition("#")[0] == task}
        facts = []
        if own:
            facts.append(f"{self._clock() - min(own.values()):.0f} s")
            attempt = max(self._attempts[key] for key in own)
            facts += [f"attempt {attempt}"] if attempt > 1 else []
            facts += [f"{len(own)} at work"] if len(own) > 1 else []
        elif task in self._lasted:
            facts.append(f"{self._lasted[task]:.1f} s")
        return f" {', '.join(facts)}" if facts else ""

    def _iteration_of(self, step: Plain) -> str:
        """Return the present iteration of a loop."""
        if "loop" not in step:
            return ""
        first = next(described_tasks(step["loop"]), {"id": ""})["id"]
        return f"iteration {self._latest[first].rpartition('#')[2]}: " if first in self._latest else ""

    def _draw_sum(self, states: dict[str, str]) -> Text:
        from rich.text import Text

        found = [states.get(task, "") for task in self._tasks]
        over = sum(1 for state in found if state in ("completed", "skipped", "absent"))
        line = Text(f"{over} of {len(found)} done", no_wrap=True, overflow="ellipsis")
        for state in ("running", "waiting", "failed"):
            if state in found:
                line.append(f", {found.count(state)} {state}", _STYLES[state])
        return line.append(f", {self._clock() - self._began:.0f} s", "dim")


_AT_WORK = ("running", "waiting", "failed")


def _can_move() -> bool:
    """Return whether stderr is the terminal of a person, not of the shell beside it, and can draw a line again."""
    is_plain = os.environ.get("CI") or not os.environ.get("TERM") or not shows_styles(sys.stderr)
    return not is_plain and holds_terminal(sys.stderr)
