"""What a person sees while background sessions run: a line for everything that happens, and the state below it."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..lineage import describe_event
from .output import console

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from rich.console import Console, RenderableType
    from rich.text import Text

    from amplifier_core.session import AmplifierSession

    from ..background.lane import Activity

_MARKS = {
    "armed": ("◦", "dim"),
    "accepted": ("●", "blue"),
    "refused": ("✗", "yellow"),
    "started": ("▶", "cyan"),
    "completed": ("✓", "green"),
    "retried": ("↻", "yellow"),
    "dead": ("✗", "red"),
    "trigger_failed": ("!", "red"),
    "failed": ("!", "red"),
    "tool": (" ", "dim"),
    "emitted": ("↳", "magenta"),
}


class RunView:
    """Shows activities as they come; on a terminal, a line a background session stands below."""

    def __init__(self, out: Console | None = None, *, quiet: bool = False) -> None:
        self.out = out or console()
        self.handled: Counter[str] = Counter()
        self._quiet = quiet
        self._states: dict[str, str] = {}
        self._stack = ExitStack()
        self._refresh: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self.out.is_terminal and not self._quiet:
            from rich.live import Live

            live = Live(self._footer(), console=self.out, transient=True, auto_refresh=False)
            self._stack.enter_context(live)
            self._refresh = lambda: live.update(self._footer(), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._refresh = lambda: None

    def __call__(self, activity: Activity) -> None:
        """Show one activity."""
        shows = getattr(self, f"_on_{activity.kind}", None)
        if shows is not None:
            shows(activity.lane, **activity.facts)
        self._refresh()

    def say(self, kind: str, lane: str, text: str) -> None:
        """Print one line."""
        from rich.text import Text

        if self._quiet:
            return
        mark, style = _MARKS[kind]
        line = Text.assemble((time.strftime("%H:%M:%S"), "dim"), " ", (mark, style), " ", (f"{lane:<12}", "bold"), " ")
        line.append(text, style if kind in ("tool", "dead", "refused", "trigger_failed", "failed") else "")
        self.out.print(line)

    def note(self, text: str) -> None:
        """Print what the person who watches does or should know."""
        from rich.text import Text

        if not self._quiet:
            self.out.print(Text(text, style="bold yellow"))

    def _on_armed(self, lane: str, trigger: str) -> None:
        self._states[lane] = "waiting"
        self.say("armed", lane, f"{trigger} is armed")

    def _on_accepted(self, lane: str, event: Any, **facts: Any) -> None:
        self.say("accepted", lane, describe_event(event))

    def _on_refused(self, lane: str, event: Any, reason: str, **facts: Any) -> None:
        self.say("refused", lane, f"{describe_event(event)}: {reason}")

    def _on_started(self, lane: str, delivery: Any, resumed: bool) -> None:
        self._states[lane] = f"working in {delivery.session_id}"
        self.say("started", lane, f"session {delivery.session_id}{' goes on where it was cut' if resumed else ''}")

    def _on_session(self, lane: str, session: AmplifierSession) -> None:
        async def on_tool(event: str, data: dict[str, Any]) -> None:
            self.say("tool", lane, f"→ {data.get('tool_name')} {_brief(data.get('tool_input'))}")
            self._refresh()

        session.coordinator.hooks.register("tool:pre", on_tool, priority=1_000, name="run-view")

    def _on_completed(self, lane: str, outcome: Any, emitted: list[Any], **facts: Any) -> None:
        self.handled[lane] += 1
        self._states[lane] = "waiting"
        self.say("completed", lane, f"{_first_line(outcome.output)} ({outcome.duration:.2f} s)")
        for event in emitted:
            if not event.name.startswith("session:"):
                self.say("emitted", lane, f"emitted {event.name}")

    def _on_retried(self, lane: str, reason: str, delay: float, **facts: Any) -> None:
        self._states[lane] = "backing off"
        self.say("retried", lane, f"{_first_line(reason)}; tried again in {delay:.1f} s")

    def _on_dead(self, lane: str, reason: str, **facts: Any) -> None:
        self._states[lane] = "waiting"
        self.say("dead", lane, f"given up: {_first_line(reason)}")

    def _on_trigger_failed(self, lane: str, trigger: str, error: str, restarts: bool) -> None:
        self._states[lane] = "backing off" if restarts else "failed"
        self.say("trigger_failed", lane, f"{trigger}: {_first_line(error)}{'; restarted' if restarts else ''}")

    def _on_failed(self, lane: str, reason: str) -> None:
        self._states[lane] = "failed"
        self.say("failed", lane, f"stopped working: {_first_line(reason)}")

    def _footer(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        return Group(Text(), *(self._state_line(lane, state) for lane, state in self._states.items()))

    def _state_line(self, lane: str, state: str) -> Text:
        from rich.text import Text

        return Text.assemble(
            "  ",
            (f"{lane:<12}", "bold"),
            f" {self.handled[lane]:>4} handled  ",
            (state, "cyan" if state != "waiting" else "dim"),
        )


def _brief(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    text = " ".join(f"{key}={str(each).splitlines()[0] if str(each) else ''}" for key, each in value.items())
    return text if len(text) <= 80 else text[:77] + "…"


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "(no answer)"
    return line if len(line) <= 110 else line[:107] + "…"
