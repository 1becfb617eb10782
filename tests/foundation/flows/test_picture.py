"""The pictures of workflows: what they show of a run, hostile text, and texts that keep apart in a real browser."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

import amplifier_foundation
from amplifier_foundation.flows.description import describe_workflow
from amplifier_foundation.flows.drawing import draw_mermaid, draw_text
from amplifier_foundation.flows.errors import FlowError
from amplifier_foundation.flows.journal import Entry
from amplifier_foundation.flows.layout import Layout
from amplifier_foundation.flows.picture import draw_runs, draw_svg
from amplifier_foundation.flows.progress import sum_up
from amplifier_foundation.flows.tasks import Branch, ForEach, Loop, Parallel, Sequence, Step, Task, Workflow
from tests.programs import require

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

    from .conftest import MakeRun

pytestmark = pytest.mark.slow

HOSTILE = (
    '"]; start --> x\n<script>document.title="owned"</script> \\" end `a` {b} |c| %% & #quot; 漢字かな交じり文 \u202e'
)
LONG = "a-very-long-identifier-" + "x" * 41
STYLE = Path(amplifier_foundation.__file__).parent / "sessions" / "lineage_page" / "style.css"
MEASURING = """
const bad = [], texts = [...document.querySelectorAll("svg text")].map((text) => [text, text.getBBox()]);
const shared = (a, b, at, size) => Math.min(a[at] + a[size], b[at] + b[size]) - Math.max(a[at], b[at]);
texts.forEach(([text, box], index) => {
  for (const [other, next] of texts.slice(index + 1))
    if (shared(box, next, "x", "width") > 1 && shared(box, next, "y", "height") > 4) bad.push([text, other]);
  const task = text.closest(".task"), room = task && task.querySelector("rect").getBBox();
  if (task && (box.x < room.x || box.x + box.width > room.x + room.width)) bad.push([text, task]);
});
document.body.dataset.bad = bad.map((pair) => pair.map((each) => each.textContent).join(" / ")).join("; ") || "none";
document.body.dataset.texts = texts.length;
"""


def agent(name: str, fork: str | None = None, agent: str = "self", **options: Any) -> Task:
    return Task(name, agent=agent, prompt=name, fork=fork, **options)


def feature() -> Sequence:
    reviews = (agent(f"review{number}", "plan", "critic") for number in (1, 2))
    loop = Loop(Sequence(agent("mend", "build"), agent("verdict", "mend")), "verdict.done", 3)
    branch = Branch("verdict.done", agent("tell"), agent("regret", "plan"))
    return Sequence(agent("plan"), agent("build", "plan"), Parallel(agent("verify", "build"), *reviews), loop, branch)


def hostile() -> Sequence:
    inner = Sequence(Task("click", value=2), agent("d", "a2", HOSTILE, deps=("b",)), agent("d2", "d"), agent("d3", "d"))
    loop = Loop(Sequence(agent("a", LONG), agent("a2", LONG), Loop(Parallel(agent("b", "a"), inner), HOSTILE)), HOSTILE)
    branch = Branch(HOSTILE, Task("end", value=1), Sequence(agent("class", LONG), ForEach(HOSTILE, agent("style"))))
    many = Parallel(*(agent(f"p{number}", "a") for number in range(9)), agent("p9", "p0"))
    return Sequence(agent(LONG, agent=HOSTILE), loop, branch, many)


def draw(step: Step, *entries: Entry, **states: str) -> str:
    return draw_svg(describe_workflow(Workflow(HOSTILE, step)), sum_up(entries), states)


def groups(svg: str) -> dict[str, ElementTree.Element]:
    """Return the groups of the tasks in a picture by the names in them."""
    found = (each for each in ElementTree.fromstring(svg).iter("g") if "task" in each.get("class", "").split())
    return {next(text.text or "" for text in each.iter("text") if text.get("class") == "name"): each for each in found}


def texts(element: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in element.iter("text")]


def test_a_task_shows_its_state_by_class_and_sign_and_its_output_as_a_note() -> None:
    entries = [
        Entry("plan", "plan", "completed", "1. Write. " * 100, "run-plan-1", 2),
        Entry("build", "build", "failed", error={"message": "no room"}),
        Entry("mend#1", "mend", "completed"),
        Entry("mend#2", "mend", "completed"),
        Entry("loop:mend#1", "loop:mend#1", "chosen", output=False),
        Entry("loop:mend#2", "loop:mend#2", "chosen", output=True),
        Entry("branch:tell", "branch:tell", "chosen", output=True),
    ]
    svg = draw(feature(), *entries, verify="running", review1="waiting")
    found = groups(svg)
    signs = {name: (each.get("class", "").split()[1], texts(each)[0]) for name, each in found.items()}
    assert signs == {
        "plan": ("completed", "✓"),
        "build": ("failed", "✗"),
        "verify": ("running", "▶"),
        "review1": ("waiting", "?"),
        "review2": ("open", "·"),
        "mend": ("completed", "✓"),
        "verdict": ("open", "·"),
        "tell": ("open", "·"),
        "regret": ("absent", "-"),
    }
    assert texts(found["plan"])[1:] == ["plan", "agent self", "attempt 2"]
    assert texts(found["mend"])[1:] == ["mend", "agent self", "fork of build", "2 times"]
    assert found["plan"].get("data-session") == "run-plan-1"
    assert (found["plan"].findtext("title") or "").endswith("1. Write. …")
    assert "no room" in (found["build"].findtext("title") or "")
    assert {"loop, at most 3 times", "ended after iteration 2", "until verdict.done", "chosen: then"} <= set(
        texts(ElementTree.fromstring(svg))
    )


def test_an_iteration_that_failed_counts_unless_the_run_goes_on_without_it() -> None:
    entries = [Entry("a#1", "a", "failed"), Entry("a#2", "a", "completed")]
    for goes_on, expected in ((False, "failed"), (True, "completed")):
        each = ForEach("input.files", agent("a", continue_on_fail=goes_on))
        [group] = groups(draw(each, *entries)).values()
        assert group.get("class") == f"task {expected}"
        assert texts(group)[-1] == "2 times, 1 failed"
    again = [Entry("a#1", "a", "failed"), Entry("a#1", "a", "completed", attempts=2)]
    assert groups(draw(agent("a"), *again))["a"].get("class") == "task completed"


def test_every_fork_is_a_dashed_line_with_its_word_and_crosses_no_task() -> None:
    for step in (feature(), hostile()):
        layout = Layout(describe_workflow(Workflow("w", step))["steps"], lambda step, depth: [])
        tasks = [box for box in layout.boxes() if not box.columns]
        forks = 0
        for edge, points in layout.ways():
            forks += edge.kind == "fork"
            ends = {edge.source, edge.target}
            for (ax, ay), (bx, by) in pairwise(points):
                assert ax == bx or ay == by
                crossed = [
                    box.step["id"]
                    for box in tasks
                    if max(ax, bx) > box.x + 1 and min(ax, bx) < box.x + box.width - 1
                    and max(ay, by) > box.y + 1 and min(ay, by) < box.bottom - 1
                ]  # fmt: skip
                assert set(crossed) <= ends
        svg = draw(step)
        assert svg.count('class="fork"') == svg.count(">fork</text>") == forks


def test_hostile_text_is_text_in_every_picture() -> None:
    svg = draw(hostile(), Entry("d#1", "d", HOSTILE, HOSTILE, HOSTILE))  # type: ignore[arg-type]
    kinds = {each.tag for each in ElementTree.fromstring(svg).iter()}
    assert kinds == {"svg", "g", "title", "rect", "path", "text"}
    assert "\u202e" not in svg
    description = describe_workflow(Workflow(HOSTILE, hostile()))
    for line in draw_mermaid(description):
        for label in re.findall(r'"(.*?)"', line):
            assert not set(label.replace("<br/>", "")) & set('"<>[](){}|`%&')
    assert all("\n" not in line for line in draw_text({**description, "name": "w"}))


def test_a_secret_is_in_no_picture() -> None:
    key = "sk-" + "a1" * 20
    svg = draw(Loop(agent("a", agent=key), f"a == '{key}'"), Entry("a#1", "a", "completed", f"{'x' * 280} {key}"))
    assert "a1a1" not in svg


async def test_a_stored_run_is_drawn_and_one_of_an_older_version_is_not(run: MakeRun, store: DurableStore) -> None:
    done = await run(feature(), defaults={"goal": "x"})
    assert isinstance(done.error, FlowError)  # the verdict is no data
    record = await store.get(done.run_id)
    [(name, svg)] = (await draw_runs(store, await store.sessions())).items()
    assert name == done.run_id
    assert groups(svg)["plan"].get("data-session") == f"{name}-plan-1"
    await store.create(record.__class__("old", metadata=record.metadata))
    await store.append("old", [{"role": "user", "content": "Run work with {}"}], at=0)
    assert await draw_runs(store, [await store.get("old")]) == {}


@pytest.mark.parametrize("make", [feature, hostile])
def test_in_a_browser_no_text_covers_another_or_leaves_its_box(make: Any, tmp_path: Path) -> None:
    svg = draw(make(), Entry("a#1", "a", "failed", attempts=12), Entry("a#2", "a", "completed", attempts=3))
    page = tmp_path / "page.html"
    head = f'<!doctype html><meta charset="utf-8"><style>{STYLE.read_text(encoding="utf-8")}</style>'
    page.write_text(f"{head}<body>{svg}<script>{MEASURING}</script>", encoding="utf-8")
    command = [require("chromium"), "--headless", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.findall(r'data-(?:bad|texts)="([^"]*)"', shown) == ["none", str(svg.count("<text"))]
    assert "<title>owned" not in shown
