"""Show a person running background sessions: a line for each activity, and a live table below."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.utils.command_secrets import redact_commands
from amplifier_core.utils.secrets import redact_all, redact_text

from ..background.keys import tag_of
from ..documents.safe_text import one_line
from ..operations.columns import add_counts, cell, columns_of, new_row, reset_counts
from ..operations.history import LINE, REASON, describe, describe_denial, first_line
from .advice import with_retry
from .output import PlainLines, output_of, timestamp
from .work_lines import WorkLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from rich.console import Console, RenderableType
    from rich.text import Text

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DeliveryCounts

    from ..background.approvals import Approval
    from ..background.state import Activity
    from ..bundle.model import Bundle
    from ..operations.columns import Column, Row

WIDE = 100
"""Width of a terminal with room for the triggers in the table."""

MARKS = {
    "armed": ("◦", "dim"),
    "accepted": ("●", "blue"),
    "refused": ("✗", "yellow"),
    "skipped": ("⊘", "dim"),
    "cancelled": ("✗", "yellow"),
    "started": ("▶", "cyan"),
    "completed": ("✓", "green"),
    "retried": ("↻", "yellow"),
    "postponed": ("↻", "yellow"),
    "held": ("?", "yellow"),
    "dead": ("✗", "red"),
    "trigger_failed": ("!", "red"),
    "store_failed": ("!", "red"),
    "stalled": ("!", "yellow"),
    "failed": ("!", "red"),
    "running": ("◦", "dim"),
    "tool": (" ", "dim"),
    "emitted": ("↳", "magenta"),
    "acted": ("◆", "cyan"),
}
"""The sign and the colour of each kind of line."""
STRIKING = ("tool", "held", "dead", "refused", "trigger_failed", "store_failed", "stalled", "failed")
"""The kinds with colour up to the end of the line."""

_STATES = {"running": "green", "paused": "yellow", "degraded": "yellow", "stopping": "yellow", "failed": "red"}


class RunView:
    """Prints activities as they come; a terminal also gets a table of the background sessions below them."""

    def __init__(self, out: Console | PlainLines | None = None, *, quiet: bool = False, dated: bool = False) -> None:
        """With `dated`, lines begin with date and time in UTC, for a log file."""
        self.out = out or output_of(sys.stdout)
        self.changed = True
        """Whether an activity came after the last `show_counts`."""
        self.shows_tools = True
        """Whether tool calls are printed."""
        self.hint = ""
        """A line below the live table."""
        self._quiet = quiet
        self._dated = dated
        self._rows: dict[tuple[str, str], Row] = {}
        self._results: dict[str, tuple[str, str, str]] = {}
        """The last result of each background session, by its queue: time, kind and text."""
        self._held: dict[str, list[str]] = {}
        """The ids of approvals by the delivery that waits for them."""
        self._work = WorkLines()
        self._stack = ExitStack()
        self._refresh: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self.is_live and not isinstance(self.out, PlainLines):
            from rich.live import Live

            live = Live(self._table(), console=self.out, transient=True, auto_refresh=False)
            self._stack.enter_context(live)
            self._refresh = lambda: live.update(self._table(), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._refresh = lambda: None
        with suppress(OSError):  # the terminal was closed
            self._stack.close()

    def __call__(self, activity: Activity) -> None:
        """Show one activity."""
        self.changed = True
        key = activity.project, activity.queue
        on_activity = getattr(self, f"_on_{activity.kind}", None)
        if on_activity is not None:
            on_activity(self._rows.setdefault(key, new_row(*key, state="starting")), **activity.facts)
        if activity.kind == "state" and activity.facts == {"status": "stopped", "reason": ""}:
            self._rows.pop(key, None)
        self._redraw()

    @property
    def is_live(self) -> bool:
        """Whether a terminal shows the table."""
        return self.out.is_terminal and not self._quiet

    def expect(self, bundle: Bundle, project: str) -> None:
        """Show the background sessions of `bundle` from now on, before they start."""
        from ..background.keys import queue_key

        for config in bundle.background_sessions:
            if config.start_on_parent_start:
                key = project, queue_key(bundle.name, config.name)
                self._rows[key] = new_row(*key, state="starting")
        self._redraw()

    def show_counts(
        self,
        delivery_counts: Iterable[DeliveryCounts],
        at_work: Mapping[tuple[str, str], Iterable[str]],
        approvals: Iterable[Approval] | None = None,
    ) -> None:
        """Show the counts of the store and the sessions at work, by project and queue; other processes change them.

        `approvals` are all that the store has.
        """
        self.changed = False
        if approvals is not None:
            waiting = [each for each in approvals if each.state == "pending"]
            for key, row in self._rows.items():
                row["approvals"] = [each.id for each in waiting if (each.project, each.queue) == key]
        for key, row in self._rows.items():
            reset_counts(row)
            row["at_work"] = [{"session_id": each} for each in at_work.get(key, ())]
        for each in delivery_counts:
            if (each.project, each.queue) in self._rows:
                add_counts(self._rows[each.project, each.queue], each)
        self._redraw()

    def say(self, kind: str, queue: str, text: str, session_id: str | None = None) -> None:
        """Print one line; that of a session has the end of its id, to tell it from others beside it."""
        mark, style = MARKS[kind]
        self._print(
            (f"{self._now()} ", "dim"),
            (f"{mark} ", style),
            (f"{queue:<12} ", "bold"),
            (f"{tag_of(session_id)} " if session_id else "", "dim"),
            (redact_commands(text), style if kind in STRIKING else ""),
        )

    def note(self, text: str) -> None:
        """Print a line for the person at the terminal."""
        text = redact_commands(text)
        self._print((f"{self._now()} {text}" if self._dated else text, "bold yellow"))

    def _print(self, *parts: tuple[str, str]) -> None:
        """Print texts with their styles as one line."""
        if self._quiet:
            return
        try:
            if isinstance(self.out, PlainLines):
                self.out.print("".join(text for text, _ in parts))
            else:
                from rich.text import Text

                self.out.print(Text.assemble(*parts))
        except (OSError, SystemExit):  # the reader is gone, and rich would exit: the background sessions go on
            self._quiet = True
            self._refresh = lambda: None

    def _redraw(self) -> None:
        try:
            self._refresh()
        except OSError:
            self._refresh = lambda: None

    def _now(self) -> str:
        from datetime import UTC, datetime

        return timestamp(datetime.now(UTC)) if self._dated else time.strftime("%H:%M:%S")

    def tick(self) -> None:
        """Let a second pass: the sessions at work are shown with their time."""
        if self._work:
            self._redraw()

    def show_details(self, statuses: Sequence[Mapping[str, Any]]) -> None:
        """Print what `get_status` says of each background session, and what its last result was."""
        for status in statuses:
            cause = f": {one_line(status['reason'], LINE)}" if status["reason"] else ""
            self.note(f"{status['name']}: {status['status']}{cause}")
            facts = {
                "next try": status["next_try"],
                "last event": status["last_trigger"],
                "refused": status["refused"],
                "postponed": status["postponed"],
                "given up": status["given_up"],
                "at work": ", ".join(status["running"]),
            }
            told = [f"{name} {value}" for name, value in facts.items() if value]
            self.note(f"  {'; '.join(told) or 'nothing happened yet'}")

    def _is_at_work(self, row: Row, delivery: Any) -> bool:
        """Return whether a session was begun for a delivery: until then, it counts as waiting."""
        return any(each["session_id"] == delivery.session_id for each in row["at_work"])

    def _finish(self, row: Row, delivery: Any, kind: str, text: str, line: str = "") -> None:
        """Take a delivery's session from the work of a row, and show the result."""
        row["at_work"] = [each for each in row["at_work"] if each["session_id"] != delivery.session_id]
        self._work.end(str(delivery.session_id))
        self._show_result(row, kind, text, line, delivery.session_id)

    def _show_result(self, row: Row, kind: str, text: str, line: str = "", session_id: str | None = None) -> None:
        self._results[row["queue"]] = time.strftime("%H:%M:%S"), kind, text
        self.say(kind, row["background_session"], line or text, session_id)

    def _on_state(self, row: Row, status: str, reason: str) -> None:
        if row["state"] in ("degraded", "paused") and status == "running":
            self.say("running", row["background_session"], "continues")
        row["state"], row["reason"] = status, reason

    def _on_armed(self, row: Row, module: str, url: str = "", **facts: Any) -> None:
        row["triggers"].append(module)
        self.say("armed", row["background_session"], f"{module} is armed{f' at {url}' if url else ''}")

    def _on_accepted(self, row: Row, event: Any, **facts: Any) -> None:
        row["waiting"] += 1
        self.say("accepted", row["background_session"], describe(event))

    def _on_refused(self, row: Row, event: Any, reason: str, **facts: Any) -> None:
        row["dropped"] += 1  # reported once a minute: see `_on_refusals`

    def _on_refusals(self, row: Row, count: int, text: str, event: Any) -> None:
        said = f"{describe(event)}: {text}" if count == 1 else text
        self.say("refused", row["background_session"], one_line(said, 2 * LINE))

    def _on_postponed(self, row: Row, delivery: Any, reason: str, until: datetime | None) -> None:
        row["waiting"] += self._is_at_work(row, delivery)
        short = delivery.delivery_id[:8]
        advice = f"See: amplifier why {short}; discard it: amplifier trigger drop {short}"
        how = f"postponed until {timestamp(until)}" if until is not None else "its queue waits"
        said = f"{first_line(reason, REASON)}; {how}. {advice}"
        self._finish(row, delivery, "postponed", said)

    def _on_started(self, row: Row, delivery: Any, resumed: bool) -> None:
        row["at_work"].append({"session_id": delivery.session_id})
        self._work.begin(str(delivery.session_id), row["background_session"])
        row["waiting"] = max(0, row["waiting"] - 1)
        answered = self._held.pop(delivery.delivery_id, ())
        row["approvals"] = [each for each in row["approvals"] if each not in answered]
        text = f"session {delivery.session_id}{' continues after an interruption' if resumed else ''}"
        self.say("started", row["background_session"], text, delivery.session_id)

    def _on_session(self, row: Row, session: AmplifierSession) -> None:
        import asyncio  # not at import: `amplifier logs` needs no event loop

        def on_tool(event: str, data: dict[str, Any]) -> None:
            given = redact_all(data.get("tool_input"))
            pairs = given.items() if isinstance(given, dict) else ()
            text = " ".join(f"{key}={(str(each).splitlines() or [''])[0]}" for key, each in pairs)
            line = f"→ {data.get('tool_name')} {one_line(text, 80)}"
            with suppress(RuntimeError):  # the loop is closed: the session was given up
                loop.call_soon_threadsafe(show, line)

        def on_error(event: str, data: dict[str, Any]) -> None:
            error = data.get("error")
            if isinstance(error, dict) and error.get("type") == "Denied":  # as loops name a refusal
                line = describe_denial(data.get("tool_name"), redact_text(str(error.get("msg"))))
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(show, line)

        def show(line: str) -> None:
            self._work.note(session.session_id, line)
            if self.shows_tools:
                self.say("tool", row["background_session"], line, session.session_id)
            self._redraw()

        loop = asyncio.get_running_loop()  # that of the view; the session's may be another
        observers = {"tool:pre": on_tool, "tool:error": on_error}
        session.coordinator.hooks.observe(observers, priority=1_000, name="run-view")

    def _on_completed(self, row: Row, delivery: Any, outcome: Any, emitted: list[Any], worktree: str) -> None:
        row["done"] += 1
        answer = first_line(outcome.output)
        done = f"; {one_line(worktree, LINE)}" if worktree else ""
        self._finish(row, delivery, "completed", answer, f"{answer} ({outcome.duration:.2f} s){done}")
        for event in emitted:
            if not event.name.startswith("session:"):
                self.say("emitted", row["background_session"], f"emitted {event.name}")

    def _on_held(self, row: Row, delivery: Any, questions: Sequence[Any], until: datetime) -> None:
        row["waiting"] += self._is_at_work(row, delivery)
        self._held[delivery.delivery_id] = [each.id for each in questions]
        row["approvals"] = sorted({*row["approvals"], *self._held[delivery.delivery_id]})
        for each in questions:
            text = f"{one_line(each.question, LINE, redact_commands)}. Answer with: amplifier approvals show {each.id}"
            self._finish(row, delivery, "held", "waits for approval", text)

    def _on_retried(self, row: Row, delivery: Any, reason: str, delay: float) -> None:
        row["waiting"] += self._is_at_work(row, delivery)
        self._finish(row, delivery, "retried", f"{first_line(reason, REASON)}; next attempt in {delay:.1f} s")

    def _on_dead(self, row: Row, delivery: Any, reason: str) -> None:
        row["dead"] += 1
        text = f"given up: {first_line(reason, REASON)}"
        self._finish(row, delivery, "dead", text, with_retry(text, delivery.delivery_id))

    def _on_cancelled(self, row: Row, delivery: Any, reason: str) -> None:
        self._finish(row, delivery, "cancelled", first_line(reason))

    def _on_skipped(self, row: Row, delivery: Any, reason: str) -> None:
        if not self._is_at_work(row, delivery):
            row["waiting"] = max(0, row["waiting"] - 1)
        row["dropped"] += 1
        self._finish(row, delivery, "skipped", first_line(reason))

    def _on_trigger_failed(
        self, row: Row, module: str, error: str, next_try: datetime | None = None, **facts: Any
    ) -> None:
        if module in row["triggers"]:
            row["triggers"].remove(module)
        text = f"{module}: {first_line(error)}{f'; next try at {timestamp(next_try)}' if next_try else ''}"
        self.say("trigger_failed", row["background_session"], text)

    def _on_store_failed(self, row: Row, error: str) -> None:
        if self._results.get(row["queue"], ("", "", ""))[2] != first_line(error):  # each worker reports it each second
            self._show_result(row, "store_failed", first_line(error))

    def _on_stalled(self, row: Row, text: str) -> None:
        self.say("stalled", row["background_session"], one_line(text, 2 * LINE))

    def _on_unversioned(self, row: Row, text: str) -> None:
        self.say("armed", row["background_session"], one_line(text, 2 * LINE))

    def _on_failed(self, row: Row, reason: str) -> None:
        self.say("failed", row["background_session"], f"failed: {first_line(reason)}")

    def _table(self) -> RenderableType:
        """Return the table of all background sessions, as wide as the terminal."""
        from rich.console import Group
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        rows = list(self._rows.values())
        columns = [column for column in columns_of("up") if column.at_terminal(rows)]
        columns = [column for column in columns if column.key != "triggers" or self.out.width >= WIDE]
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        for column in columns:
            table.add_column(column.heading.lower(), justify="right" if column.style else "left", no_wrap=True)
        table.add_column("last result", ratio=1, no_wrap=True, overflow="ellipsis")
        for row in rows:
            table.add_row(*(self._cell(column, row) for column in columns), self._last(row))
        below = (*self._work.lines(self.out.width), Text(self.hint, style="dim"))
        return Padding(Group(table, *below), (1, 0, 0, 0)) if rows else ""

    def _cell(self, column: Column, row: Row) -> Text:
        """Return a cell of the live table: short names, and numbers in colour."""
        from rich.text import Text

        if column.style:
            value = row[column.key]
            count = value if isinstance(value, int) else len(value)
            return Text(f"{count:,}", style=column.style if count else "dim")
        if column.key == "queue":
            return Text(row["background_session"], style="bold")
        text = Text(one_line(cell(column, row, timestamp), 50), style="dim" if column.key == "triggers" else "")
        if column.key == "state":
            text.stylize(_STATES.get(row["state"], "dim"), 0, len(row["state"]))
        return text

    def _last(self, row: Row) -> Text:
        from rich.text import Text

        if row["queue"] not in self._results:
            return Text("-", style="dim")
        when, kind, text = self._results[row["queue"]]
        return Text.assemble((when, "dim"), " ", MARKS[kind], f" {text}")
