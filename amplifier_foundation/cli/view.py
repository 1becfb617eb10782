"""What a person sees while background sessions run: a line for everything that happens, and a table below it."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..lineage import describe_event
from .output import console, timestamp
from .running.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from rich.console import Console, RenderableType
    from rich.text import Text

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DeliveryState, Tally

    from ..background.lane import Activity
    from ..bundles.model import Bundle

LINE = 110
"""Characters of an answer or a reason that are shown."""
WIDE = 100
"""Columns of a terminal where the table has room for the triggers."""

MARKS = {
    "armed": ("◦", "dim"),
    "accepted": ("●", "blue"),
    "refused": ("✗", "yellow"),
    "skipped": ("✗", "yellow"),
    "started": ("▶", "cyan"),
    "completed": ("✓", "green"),
    "retried": ("↻", "yellow"),
    "dead": ("✗", "red"),
    "trigger_failed": ("!", "red"),
    "store_failed": ("!", "red"),
    "failed": ("!", "red"),
    "running": ("◦", "dim"),
    "tool": (" ", "dim"),
    "emitted": ("↳", "magenta"),
}
"""The sign and the colour of everything that is told."""
STRIKING = ("tool", "dead", "refused", "skipped", "trigger_failed", "store_failed", "failed")
"""What is coloured to the end of its line."""

_STATE_OF: dict[str, DeliveryState] = {"waiting": "pending", "done": "done", "dead": "dead"}
"""The state of the deliveries that each figure of the table counts."""
_STATES = {"running": "green", "backing_off": "yellow", "stopping": "yellow", "failed": "red"}


@dataclass(slots=True)
class Row:
    """How one background session fares."""

    name: str
    triggers: list[str] = field(default_factory=list)
    state: str = "starting"
    reason: str = ""
    working: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STATE_OF, 0))
    last: tuple[str, str, str] | None = None
    """What came of the last event: when, as which kind of happening, and in words."""


class RunView:
    """Shows activities as they come; on a terminal, a table of the background sessions stands below."""

    def __init__(self, out: Console | None = None, *, quiet: bool = False, dated: bool = False) -> None:
        """With `dated`, lines begin with the whole time in UTC, as a file wants it that is kept."""
        self.out = out or console()
        self.changed = True
        """Whether something happened since `tally`."""
        self._quiet = quiet
        self._dated = dated
        self._rows: dict[tuple[str, str], Row] = {}
        self._stack = ExitStack()
        self._refresh: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self.is_live:
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
        shows = getattr(self, f"_on_{activity.kind}", None)
        if shows is not None:
            shows(self._row(activity), **activity.facts)
        if activity.kind == "state" and activity.facts["status"] == "stopped":
            self._rows.pop((activity.project, activity.key), None)
        self._redraw()

    @property
    def is_live(self) -> bool:
        """Whether somebody sees the table."""
        return self.out.is_terminal and not self._quiet

    def expect(self, bundle: Bundle, project: str) -> None:
        """Show from now on what `bundle` declares, before it has begun."""
        from ..background.lane import lane_key

        for config in bundle.background_sessions:
            if config.start_on_parent_start:
                self._rows[project, lane_key(bundle.name, config.name)] = Row(config.name)
        self._redraw()

    def tally(self, tallies: Iterable[Tally], at_work: Mapping[tuple[str, str], Iterable[str]]) -> None:
        """Show these figures, and the sessions at work by project and lane: who only watches does not know of all."""
        self.changed = False
        for key, row in self._rows.items():
            row.counts = dict.fromkeys(_STATE_OF, 0)
            row.working = set(at_work.get(key, ()))
        for tally in tallies:
            counted = self._rows.get((tally.project, tally.lane), Row(tally.lane))
            for name, state in _STATE_OF.items():
                counted.counts[name] += tally.counts.get(state, 0)
        self._redraw()

    def say(self, kind: str, lane: str, text: str) -> None:
        """Print one line."""
        from rich.text import Text

        mark, style = MARKS[kind]
        line = Text.assemble((self._now(), "dim"), " ", (mark, style), " ", (f"{lane:<12}", "bold"), " ")
        line.append(text, style if kind in STRIKING else "")
        self._print(line)

    def note(self, text: str) -> None:
        """Print what the person who watches does or should know."""
        from rich.text import Text

        self._print(Text(f"{self._now()} {text}" if self._dated else text, style="bold yellow"))

    def _print(self, line: Text) -> None:
        if self._quiet:
            return
        try:
            self.out.print(line)
        except (OSError, SystemExit):  # nobody reads it any more, where rich exits: what runs goes on
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

    def _row(self, activity: Activity) -> Row:
        return self._rows.setdefault((activity.project, activity.key), Row(activity.lane))

    def _result(self, row: Row, kind: str, text: str) -> None:
        row.last = (time.strftime("%H:%M:%S"), kind, text)
        if kind in ("dead", "completed"):
            row.counts["dead" if kind == "dead" else "done"] += 1

    def _on_state(self, row: Row, status: str, reason: str) -> None:
        if row.state == "backing_off" and status == "running":
            self.say("running", row.name, "goes on")
        row.state, row.reason = status, reason

    def _on_armed(self, row: Row, trigger: str) -> None:
        row.triggers.append(trigger)
        self.say("armed", row.name, f"{trigger} is armed")

    def _on_accepted(self, row: Row, event: Any, **facts: Any) -> None:
        row.counts["waiting"] += 1
        self.say("accepted", row.name, describe(event))

    def _on_refused(self, row: Row, event: Any, reason: str, **facts: Any) -> None:
        self.say("refused", row.name, f"{describe(event)}: {one_line(reason, LINE)}")

    def _on_started(self, row: Row, delivery: Any, resumed: bool) -> None:
        row.working.add(delivery.session_id)
        row.counts["waiting"] = max(0, row.counts["waiting"] - 1)
        self.say("started", row.name, f"session {delivery.session_id}{' goes on where it was cut' if resumed else ''}")

    def _on_session(self, row: Row, session: AmplifierSession) -> None:
        async def on_tool(event: str, data: dict[str, Any]) -> None:
            self.say("tool", row.name, f"→ {data.get('tool_name')} {_brief(data.get('tool_input'))}")
            self._redraw()

        session.coordinator.hooks.register("tool:pre", on_tool, priority=1_000, name="run-view")

    def _on_completed(self, row: Row, delivery: Any, outcome: Any, emitted: list[Any]) -> None:
        row.working.discard(delivery.session_id)
        answer = first_line(outcome.output)
        self._result(row, "completed", answer)
        self.say("completed", row.name, f"{answer} ({outcome.duration:.2f} s)")
        for event in emitted:
            if not event.name.startswith("session:"):
                self.say("emitted", row.name, f"emitted {event.name}")

    def _on_retried(self, row: Row, delivery: Any, reason: str, delay: float) -> None:
        row.working.discard(delivery.session_id)
        row.counts["waiting"] += 1
        text = f"{first_line(reason)}; tried again in {delay:.1f} s"
        self._result(row, "retried", text)
        self.say("retried", row.name, text)

    def _on_dead(self, row: Row, delivery: Any, reason: str) -> None:
        row.working.discard(delivery.session_id)
        text = f"given up: {first_line(reason)}"
        self._result(row, "dead", text)
        self.say("dead", row.name, text)

    def _on_trigger_failed(self, row: Row, trigger: str, error: str, restarts: bool) -> None:
        if trigger in row.triggers:
            row.triggers.remove(trigger)
        self.say("trigger_failed", row.name, f"{trigger}: {first_line(error)}{'; restarted' if restarts else ''}")

    def _on_store_failed(self, row: Row, error: str) -> None:
        if row.last is None or row.last[2] != first_line(error):  # each worker tells it each second
            self._result(row, "store_failed", first_line(error))
            self.say("store_failed", row.name, first_line(error))

    def _on_failed(self, row: Row, reason: str) -> None:
        self.say("failed", row.name, f"stopped working: {first_line(reason)}")

    def _table(self) -> RenderableType:
        """Return the state of everything; short enough for the height of the terminal, as wide as that is."""
        from rich.padding import Padding
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        table.add_column("session", style="bold", no_wrap=True)
        table.add_column("state", no_wrap=True)
        if self.out.width >= WIDE:
            table.add_column("triggers", style="dim", no_wrap=True)
        for heading in ("waiting", "at work", "done", "dead"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("last result", ratio=1, no_wrap=True, overflow="ellipsis")
        for row in self._rows.values():
            table.add_row(*_cells(row, triggers=self.out.width >= WIDE))
        return Padding(table, (1, 0, 0, 0)) if self._rows else ""


def _cells(row: Row, *, triggers: bool) -> list[str | Text]:
    from rich.text import Text

    state = Text(row.state.replace("_", " "), style=_STATES.get(row.state, "dim"))
    if row.reason:
        state.append(f": {one_line(row.reason, 40)}")
    woken_by = ", ".join(sorted({each.removeprefix("trigger-") for each in row.triggers})) or "-"
    return [
        row.name,
        state,
        *([one_line(woken_by, 40)] if triggers else []),
        _count(row.counts["waiting"], "yellow"),
        _count(len(row.working), "cyan"),
        _count(row.counts["done"], "green"),
        _count(row.counts["dead"], "red"),
        _last(row),
    ]


def _count(count: int, style: str) -> Text:
    from rich.text import Text

    return Text(f"{count:,}", style=style if count else "dim")


def _last(row: Row) -> Text:
    from rich.text import Text

    if row.last is None:
        return Text("-", style="dim")
    when, kind, text = row.last
    return Text.assemble((when, "dim"), " ", MARKS[kind], f" {text}")


def describe(event: Any) -> str:
    """Return in a few words what happened, as a terminal may show it."""
    return one_line(describe_event(event), LINE)


def first_line(text: str) -> str:
    """Return the first line of an answer or a reason, as a terminal may show it."""
    lines = text.strip().splitlines()
    return one_line(lines[0], LINE) if lines else "(no answer)"


def _brief(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    text = " ".join(f"{key}={str(each).splitlines()[0] if str(each) else ''}" for key, each in value.items())
    return one_line(text, 80)
