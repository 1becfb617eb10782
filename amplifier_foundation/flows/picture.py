"""Draw a described workflow as SVG, with what a run has done: for a page without scripts or other files."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from amplifier_core.permissions.hidden import replace_unprintable
from amplifier_core.storage import Inbox
from amplifier_core.utils.secrets import redact_text

from ..sessions.held import held_of
from .asking import task_of
from .description import described_tasks, find_description, without_secrets
from .drawing import NOT_DONE, SIGNS, title_of
from .journal import KEY as FLOW
from .journal import Entry
from .layout import LINE, PAD, RETURN, SIGN, Layout, cut, measure
from .progress import count_items, sum_up, text_of
from .runs import read_questions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core.storage import SessionRecord, SessionStore

    from .description import Plain
    from .layout import Box, Column, Point
    from .progress import Progress

WORDS = 300
"""Characters of an output in the note of a task."""
SPLIT = 42
"""Distance of the line to the columns of a frame from their tops."""
LONGEST = 2_000
"""Characters of an output that are looked at."""


async def draw_runs(store: SessionStore, records: Sequence[SessionRecord]) -> dict[str, str]:
    """Return the pictures of the runs among sessions, by their ids; a run of an older version has none."""
    pictures = {}
    for record in records:
        if FLOW not in record.metadata or "task" in record.metadata:
            continue
        messages = await store.read(record.session_id)
        description = find_description(messages)
        if description is None:
            continue
        entries = [entry for message in messages if (entry := Entry.of_message(message)) is not None]
        mine = [each for each in records if each.metadata.get(FLOW) == record.session_id]
        asked = await read_questions(store, record) if isinstance(store, Inbox) else []
        waiting = [str(each.metadata["task"]) for each in mine if held_of(each.metadata)]
        waiting += filter(None, map(task_of, asked))
        running = [str(each.metadata["task"]) for each in mine if each.status == "running"]
        progress, left = sum_up(entries), {}
        if record.status != "completed":
            left = count_items(description, entries, record.metadata[FLOW]["input"])
        states = {task: "" for task in left if not progress[task].failed}
        states |= {key.partition("#")[0]: "waiting" for key in waiting}
        states |= {key.partition("#")[0]: "running" for key in running}
        pictures[record.session_id] = draw_svg(description, progress, states)
    return pictures


def draw_svg(
    description: Plain, progress: Mapping[str, Progress] | None = None, states: Mapping[str, str] | None = None
) -> str:
    """Return the picture of a workflow. The group of a task has its status as a class, and its session as data.

    `states` has the status of unfinished tasks by id: `running`, `waiting`.
    """
    return "".join(_Picture(without_secrets(description), progress or {}, states or {}).parts())


class _Picture:
    def __init__(self, description: Plain, progress: Mapping[str, Progress], states: Mapping[str, str]) -> None:
        self._progress = progress
        self._states = states
        self._name = description["name"]
        self._absent: set[str] = set()
        """Tasks of the branches that were not taken."""
        self._layout = Layout(description["steps"], self._notes)

    def parts(self) -> Iterator[str]:
        """Yield the text of the picture: lines first, so that boxes cover them."""
        layout = self._layout
        size = f'width="{layout.width:.0f}" height="{layout.height:.0f}"'
        box = f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}"'
        yield f'<svg class="flow" {size} {box} role="group" aria-label="{_safe(f"Workflow {self._name}")}">'
        boxes = list(layout.boxes())
        for each in boxes:
            if each.columns:
                yield from self._frame(each)
        for column in layout.columns():
            yield from _order(column)
        for edge, points in layout.ways():
            yield f"<g><title>{_safe(f'{edge.target}: {edge.kind} of {edge.source}')}</title>"
            yield from _arrow(edge.kind, points)
            if edge.kind == "fork":
                yield _text(points[-1][0] + 6, points[-1][1] - 8, "fork", "word")
            yield "</g>"
        for each in boxes:
            if not each.columns:
                yield from self._task(each)
        yield "</svg>"

    # what is known of a step

    def _status(self, task: Plain) -> str:
        name = task["id"]
        known = self._progress.get(name)
        if name in self._states or known is None:
            return self._states.get(name, "absent" if name in self._absent else "")
        return "failed" if known.failed and not task.get("continue_on_fail") else known.last.status

    def _decision(self, kind: str, step: Plain, depth: int) -> Progress | None:
        first = next(described_tasks([step]), None)
        return self._progress.get(f"{kind}:{first['id'] if first else ''}{'#' * depth}")

    def _notes(self, step: Plain, depth: int) -> list[str]:
        """Return the lines below the text of a step: what it forks, and how often it was done."""
        if "id" in step:
            known = self._progress.get(step["id"])
            facts = [f"{known.count} times"] if known is not None and known.count > 1 else []
            facts += [f"{known.failed} failed"] if known is not None and known.failed and known.count > 1 else []
            facts += [f"attempt {known.last.attempts}"] if known is not None and known.last.attempts > 1 else []
            return [
                *([f"fork of {cut(step['fork'], 22)}"] if "fork" in step else []),
                *filter(None, [", ".join(facts)]),
            ]
        if "loop" in step and (known := self._decision("loop", step, depth + 1)) is not None:
            which = f"iteration {known.last.key.rpartition('#')[2]}"
            return [f"ended after {which}" if known.last.output else f"{which} is done"]
        if "if" in step and (known := self._decision("branch", step, depth)) is not None:
            taken, left = ("then", "else") if known.last.output else ("else", "then")
            self._absent |= {task["id"] for task in described_tasks(step.get(left, []))}
            return [f"chosen: {taken}"]
        return []

    # what is drawn

    def _task(self, box: Box) -> Iterator[str]:
        task = box.step["id"]
        status, known = self._status(box.step), self._progress.get(task)
        session = f' data-session="{_safe(known.last.session)}"' if known is not None and known.last.session else ""
        yield f'<g class="task {_safe(status or "open")}"{session}><title>{_safe(self._tooltip(box.step))}</title>'
        yield _rect(box, 7)
        yield _text(box.x + 15, box.y + 22, SIGNS.get(status, NOT_DONE), "sign", "middle")
        for number, line in enumerate(box.lines):
            yield _text(box.x + 28, box.y + LINE * (number + 1) + 4, line, "" if number else "name")
        yield "</g>"

    def _tooltip(self, task: Plain) -> str:
        known, told = self._progress.get(task["id"]), ""
        if known is not None and known.last.error is not None:
            told = str(known.last.error.get("message", ""))
        elif known is not None and known.last.output is not None:
            told = text_of(known.last.output)
        told = redact_text(told[:LONGEST]) if told else ""  # before it is cut: half of a secret is not recognised
        words = told if len(told) <= WORDS else f"{told[:WORDS]}…"
        return "\n".join(filter(None, (title_of(task), self._status(task) or "not done", words)))

    def _frame(self, box: Box) -> Iterator[str]:
        kind = next(key for key in ("parallel", "if", "loop", "for_each", "sequence") if key in box.step)
        yield f'<g class="frame {kind}"><title>{_safe(title_of(box.step))}</title>'
        yield _rect(box, 11)
        for number, line in enumerate(box.lines):
            yield _text(box.x + PAD, box.y + LINE * (number + 1) + 2, line, "title")
        right = box.x + box.width - PAD
        for number, row in enumerate(box.rows):
            top, last = row[0].y - SPLIT, right if len(box.rows) > 1 else row[-1].middle
            yield f'<path class="order" d="M{row[0].middle:.1f} {top:.1f}H{last:.1f}"/>'
            if number:
                yield f'<path class="order" d="M{right:.1f} {top:.1f}V{box.columns[0].y - SPLIT:.1f}"/>'
        for column, word in zip(box.columns, box.words, strict=True):
            yield from _arrow("order", [(column.middle, column.y - SPLIT), (column.middle, column.y)])
            if word:
                yield _text(column.middle, column.y - SPLIT - 5, word, "word", "middle")
        if box.foot:
            yield from self._foot(box)
        yield "</g>"

    def _foot(self, box: Box) -> Iterator[str]:
        """Draw the condition at the end of a loop, and the arrow back to its beginning."""
        width = max(measure(line) for line in box.foot) * SIGN + 2 * PAD
        [column] = box.columns
        x, y, height = column.middle - width / 2, box.end, len(box.foot) * LINE + 8
        yield from _arrow("order", [(column.middle, column.y + column.height), (column.middle, y)])
        size = f'width="{width:.1f}" height="{height:.1f}" rx="{height / 2}"'
        yield f'<rect class="test" x="{x:.1f}" y="{y:.1f}" {size}/>'
        for number, line in enumerate(box.foot):
            yield _text(column.middle, y + LINE * number + 16, line, "test", "middle")
        right, middle, top = box.x + box.width - RETURN / 2, y + height / 2, column.y - SPLIT + 8
        back = [(x + width, middle), (right, middle), (right, top), (column.middle, top)]
        yield from _arrow("order", back)
        yield _text(right, top - 5, "again", "word", "end")


def _order(column: Column) -> Iterator[str]:
    for above, below in zip(column.boxes, column.boxes[1:], strict=False):
        yield from _arrow("order", [(above.middle, above.bottom), (below.middle, below.y)])


def _arrow(kind: str, points: list[Point]) -> Iterator[str]:
    """Draw a line through points, with a head at its end."""
    (fx, fy), (x, y) = points[-2:]
    path = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
    yield f'<path class="{kind}" d="M{path}"/>'
    if fx == x:
        back = 7 if y > fy else -7
        yield f'<path class="{kind} head" d="M{x - 4:.1f} {y - back:.1f}h8L{x:.1f} {y:.1f}z"/>'
    else:
        back = 7 if x > fx else -7
        yield f'<path class="{kind} head" d="M{x - back:.1f} {y - 4:.1f}v8L{x:.1f} {y:.1f}z"/>'


def _rect(box: Box, radius: int) -> str:
    size = f'width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius}"'
    return f'<rect x="{box.x:.1f}" y="{box.y:.1f}" {size}/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "") -> str:
    """Draw a line of text; letters of other scripts, whose width is not known, are fitted to their room."""
    fit = (
        ""
        if text.isascii() or len(text) < 3
        else f' textLength="{measure(text) * SIGN:.1f}" lengthAdjust="spacingAndGlyphs"'
    )
    anchor = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{anchor}{fit}>{_safe(text)}</text>'


def _safe(text: Any) -> str:
    """Return text without markup, and without characters that hide or turn other ones."""
    return escape(replace_unprintable(str(text), lambda each: each if each == "\n" else " "))
