"""Run `amplifier flow`: workflows of a bundle, and their runs."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.durations import seconds_of
from amplifier_core.errors import SessionConflict

from ..cli import Verbs, exits
from ..documents.safe_text import one_line, plain
from ..operations.running import status_elsewhere, wake
from ..operations.runs import fork_run, list_runs, read_entries, record_run, resume_event_run
from ..sessions.presence import status_of
from .app import (
    bundle_option,
    json_option,
    load_bundle_at,
    person,
    plugins_of,
    projects_here,
    read_settings_here,
    storage_plugins,
    trust_option,
    use_inbox,
    use_store,
)
from .completing import complete_flows, complete_runs
from .flow_answers import RunNotFound, answer_at, find_run, tell_waiting
from .loops import run_in_loop
from .output import print_json, print_table, timestamp
from .own_stdout import divert_stdout
from .running.terminal import tell
from .trusting import Asking

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore, SessionRecord, SessionStore

    from ..bundle.model import Bundle
    from ..flows.runs import RunResult
    from ..flows.tasks import Workflow

_VERBS = {
    "run": ("flow:run", "Run a workflow of a bundle."),
    "resume": ("flow:resume", "Run the rest of a run that was cut, or has failed."),
    "approve": ("flow_answers:approve", "Allow what a run waits for."),
    "deny": ("flow_answers:deny", "Refuse what a run waits for."),
    "cancel": ("flow_answers:cancel", "End a run that runs or waits."),
    "fork": ("flow:fork", "Fork a run before a task; resume runs the rest."),
    "list": ("flow:list_", "List the runs of this project."),
    "show": ("flow:show", "Show how far a run is, and its outputs."),
    "graph": ("flow:graph", "Draw a workflow, or a run."),
}
accept_option = click.option("--accept", is_flag=True, help="Go on although the bundle has changed.")


@click.group(cls=Verbs, lazy=_VERBS)
def flow() -> None:
    """Run workflows: tasks of agents in order, side by side and in loops, that fork each other's sessions."""


@click.command(epilog="Example: amplifier flow run release --input version=1.2")
@click.argument("name", required=False, shell_complete=complete_flows)
@bundle_option
@click.option("--input", "-i", "given", metavar="NAME=VALUE", multiple=True, help="An input; a value may be JSON.")
@trust_option
@json_option
@click.pass_context
@run_in_loop
async def run(
    ctx: click.Context, name: str | None, bundle_path: str | None, given: tuple[str, ...], trusts: bool, as_json: bool
) -> None:
    """Run the workflow NAME of a bundle, or its only one, and print the outputs of its tasks.

    Each finished task is durable. Ctrl-C, a kill or a failure leaves a run that `amplifier flow resume` goes on with.
    Without a terminal to ask at, a run that needs an approval ends with exit code 3: answer with `amplifier flow
    approve`, and resume it.
    """
    from ..flows.reading import find_workflow

    plugins = plugins_of(ctx)
    asking = Asking(plugins, trusts)
    bundle = await load_bundle_at(bundle_path, plugins, asking=asking)
    workflow = find_workflow(bundle, name)
    inputs = _read_inputs(given, workflow, bundle)
    async with use_inbox(plugins) as store:
        ctx.exit(await _run(ctx, workflow, bundle, store, plugins, inputs, as_json=as_json))


@click.command(epilog="Example: amplifier flow resume last")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@accept_option
@trust_option
@json_option
@click.pass_context
@run_in_loop
async def resume(ctx: click.Context, run_id: str, accept: bool, trusts: bool, as_json: bool) -> None:
    """Run the rest of a run; what is done is not done again. A run of a background session goes on in amplifier up."""
    plugins = plugins_of(ctx)
    async with use_inbox(plugins) as store:
        record = await find_run(store, run_id)
        if record.event_id is not None:
            delivery = await resume_event_run(store, person(), record)
            place = delivery.project, delivery.queue
            runs = wake(*place) or await status_elsewhere(store, *place) != ""
            if as_json:
                facts = {"run": record.session_id, "status": "running" if runs else "pending"}
                print_json("flow.run/1", {**facts, "outputs": {}, "error": None, "waiting": []})
            else:
                how = ", with the bundle as it is there: --accept changes nothing" if accept else ""
                click.echo(f"{record.session_id} goes on {'now' if runs else 'at the next: amplifier up'}{how}")
            return
        workflow, bundle = await _load(record, plugins, Asking(plugins, trusts))
        if bundle.digest != record.bundle_digest and not accept:
            text = f"the bundle of run {record.session_id} has changed since. Go on with its present version: --accept"
            if record.status == "completed":
                text = f"the run {record.session_id} is completed. Run what its changed bundle adds with: --accept"
            raise SessionConflict(record.session_id, text)
        await record_run(store, person(), "flow.resume", record)
        ctx.exit(await _run(ctx, workflow, bundle, store, plugins, {}, record, accept=accept, as_json=as_json))


async def _run(
    ctx: click.Context,
    workflow: Workflow,
    bundle: Bundle,
    store: DurableStore,
    plugins: Plugins,
    given: dict[str, Any],
    record: SessionRecord | None = None,
    *,
    accept: bool = False,
    as_json: bool,
) -> int:
    from ..bundle.overrides import DAY
    from ..flows.errors import DENIED
    from ..flows.journal import WAITING
    from ..flows.runs import run_workflow
    from .flow_view import FlowView
    from .running.terminal import own_terminal

    terminal = own_terminal()
    while True:
        done = await read_entries(store, record) if record is not None else []
        view = FlowView(workflow, [each for each in done if each.status != WAITING], quiet=ctx.obj["quiet"])
        with view, divert_stdout():
            result = await run_workflow(
                workflow,
                bundle,
                store,
                plugins,
                given,
                resume=record.session_id if record is not None else None,
                accept=accept,
                tell=view.report,
                approval_timeout=seconds_of(read_settings_here().get("approvals.timeout")) or DAY,
            )
        if terminal is None or not result.questions:
            break
        await answer_at(terminal, store, result.questions)
        record = await store.get(result.run_id)
    with suppress(BrokenPipeError):  # nobody reads it, and the exit code stays that of the run
        _print(result, as_json=as_json)
    if result.status == "waiting":
        tell_waiting(result.run_id, result.questions)
        return exits.WAITING
    if result.status == "cancelled":
        tell(f"amplifier: {plain(str(result.error))}")
        return exits.CANCELLED
    if result.error is not None:
        remedy = f"Go on with: amplifier flow resume {result.run_id}"
        if result.error.code == DENIED:
            remedy = f"Ask anew with a fork: amplifier flow fork {result.run_id} --at {result.error.task}"
        tell(f"amplifier: {plain(str(result.error)).rstrip('.')}. {remedy}")
        return exits.FAILED
    return exits.OK


def _print(result: RunResult, *, as_json: bool) -> None:
    if as_json:
        from ..flows.asking import task_of

        error = result.error.to_dict() if result.error is not None else None
        waiting = [{"id": each.id, "task": task_of(each), "question": each.question} for each in result.questions]
        facts = {"run": result.run_id, "status": result.status, "outputs": dict(result.outputs), "error": error}
        print_json("flow.run/1", {**facts, "waiting": waiting})
        return
    for task, output in result.outputs.items():
        click.echo(plain(f"{task}: {_show(output)}"))


@click.command(epilog="Example: amplifier flow fork last --at review")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.option("--at", "task", metavar="TASK", required=True, help="The first task that is run again.")
@json_option
@click.pass_context
@run_in_loop
async def fork(ctx: click.Context, run_id: str, task: str, as_json: bool) -> None:
    """Fork a run: the fork shares everything before TASK, and the run itself never changes."""
    plugins = plugins_of(ctx)
    async with use_store(plugins) as store:
        record = await fork_run(store, person(), await find_run(store, run_id), task, plugins)
    if as_json:
        print_json("flow.fork/1", {"run": record.session_id, "fork_of": record.fork_of})
        return
    click.echo(record.session_id)
    click.echo(f"Run the rest: amplifier flow resume {record.session_id}", err=True)


@click.command("list", epilog="Example: amplifier flow list")
@click.option("--all", "everywhere", is_flag=True, help="Include the runs of all folders.")
@json_option
@click.pass_context
@run_in_loop
async def list_(ctx: click.Context, everywhere: bool, as_json: bool) -> None:
    """List the runs of this project, the last changed first."""
    async with use_store(storage_plugins(ctx)) as store:
        found = await list_runs(store, None if everywhere else projects_here())
    rows = [
        [each.session_id, each.metadata["flow"]["name"], status_of(each), timestamp(each.updated)] for each in found
    ]
    if as_json:
        names = ("run", "workflow", "status", "updated")
        print_json("flow.list/1", [dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        ("RUN", "WORKFLOW", "STATUS", "UPDATED"),
        rows,
        empty="No workflow has run here yet.",
        shrink=("WORKFLOW",),
        leave_out=("UPDATED", "WORKFLOW", "STATUS"),
    )


@click.command(epilog="Example: amplifier flow show last")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@json_option
@click.pass_context
@run_in_loop
async def show(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """Show each task of a run that has ended or waits: its status, its session, and its output or its error."""
    async with use_store(storage_plugins(ctx)) as store:
        record = await find_run(store, run_id)
        entries = await read_entries(store, record)
    if as_json:
        told = [{name: getattr(each, name) for name in each.__dataclass_fields__} for each in entries]
        print_json("flow.show/1", {"run": record.session_id, "status": status_of(record), "tasks": told})
        return
    said = [_show(each.output) if each.error is None else str(each.error.get("message")) for each in entries]
    rows = [
        [each.key, each.status, str(each.attempts or "-"), each.session or "-", one_line(text, 60)]
        for each, text in zip(entries, said, strict=True)
    ]
    print_table(
        ("TASK", "STATUS", "ATTEMPT", "SESSION", "OUTPUT"),
        rows,
        empty="Nothing of it is done yet.",
        shrink=("OUTPUT",),
        leave_out=("ATTEMPT", "OUTPUT", "SESSION", "STATUS"),
    )


@click.command(epilog="Example: amplifier flow graph last --format mermaid")
@click.argument("what", metavar="[NAME|RUN]", required=False, shell_complete=complete_runs)
@bundle_option
@click.option("--format", "shape", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
@trust_option
@json_option
@click.pass_context
@run_in_loop
async def graph(
    ctx: click.Context, what: str | None, bundle_path: str | None, shape: str, trusts: bool, as_json: bool
) -> None:
    """Draw a workflow of the bundle, or a run with what is done."""
    from ..flows.description import describe_workflow, described_tasks, find_description, tasks_before
    from ..flows.drawing import draw_mermaid, draw_text
    from ..flows.progress import count_items
    from ..flows.reading import find_workflow

    plugins = plugins_of(ctx)
    states: dict[str, str] = {}
    items: dict[str, tuple[int, int]] = {}
    async with use_store(plugins) as store:
        record = await _find_run_if_any(store, what) if what and bundle_path is None else None
        if record is not None:
            description = find_description(await store.read(record.session_id))
            if description is None:  # the run of an older version
                description = describe_workflow((await _load(record, plugins, Asking(plugins, trusts)))[0])
            entries = list(await read_entries(store, record))
            if record.status != "completed":
                items = count_items(description, entries, record.metadata["flow"]["input"])
            at_work = "running" if status_of(record) == "running" else ""
            states = {
                each.task: at_work if each.task in items and each.status in ("completed", "skipped") else each.status
                for each in entries
            }
        else:
            bundle = await load_bundle_at(bundle_path, plugins, asking=Asking(plugins, trusts))
            description = describe_workflow(find_workflow(bundle, what))
    if as_json:
        tasks = [
            {
                "id": each["id"],
                "agent": each.get("agent"),
                "fork": each.get("fork"),
                "before": tasks_before(each),
                "status": states.get(each["id"]) or None,
            }
            for each in described_tasks(description["steps"])
        ]
        print_json("flow.graph/1", {"workflow": description["name"], "tasks": tasks})
        return
    for line in (draw_mermaid if shape == "mermaid" else draw_text)(description, states, items):
        click.echo(plain(line))


async def _load(record: SessionRecord, plugins: Plugins, asking: Asking) -> tuple[Workflow, Bundle]:
    """Return the workflow of a run, and its bundle."""
    from ..flows.reading import find_workflow

    bundle = await load_bundle_at(record.bundle_source or None, plugins, asking=asking)
    return find_workflow(bundle, record.metadata["flow"]["name"]), bundle


async def _find_run_if_any(store: SessionStore, text: str) -> SessionRecord | None:
    """Return the run with this id; None: the text is the name of a workflow."""
    try:
        return await find_run(store, text)
    except (RunNotFound, SessionConflict):
        return None


def _read_inputs(given: tuple[str, ...], workflow: Workflow, bundle: Bundle) -> dict[str, Any]:
    """Return the inputs of the command line. Raises `click.UsageError`, also for one that has no use."""
    from ..bundle.workflow_inputs import inputs_in
    from ..documents.problems import did_you_mean

    inputs: dict[str, Any] = {}
    known = {*workflow.input, *(each for _, each in inputs_in(bundle.workflows[workflow.name]))}
    for each in given:
        name, separator, text = each.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--input {each}: write NAME=VALUE")
        if name not in known and "" not in known:  # a text with all inputs takes any
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            hint = did_you_mean(name, known) or f"; {has}"
            raise click.UsageError(f"the workflow '{workflow.name}' has no input '{name}'{hint}")
        try:
            inputs[name] = json.loads(text)
        except ValueError:
            inputs[name] = text
    return inputs


def _show(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
