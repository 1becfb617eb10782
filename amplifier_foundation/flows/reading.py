"""Read the `workflows:` of a bundle.

workflows:
  feature:
    input: {goal: a better README}
    steps:
      - {id: plan, agent: planner, prompt: "Plan {input.goal}"}
      - {id: build, agent: coder, fork: plan, prompt: Do it.}
      - parallel:
          - {id: test, agent: coder, fork: build, prompt: Test it.}
          - {id: critic, agent: self, fork: plan, prompt: Was the plan good?}
      - loop:
          - {id: review, agent: self, fork: build, prompt: "Is it done?", output_schema: {type: object}}
        until: review.done
      - {if: review.done, then: [{id: tell, agent: self, prompt: Tell it.}]}
      - {approval: publish, question: "Publish {plan}?", deps: plan, on_deny: continue}
      - {for_each: input.files, do: [{id: read, agent: self, prompt: "Read {item}"}]}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..bundle.budget_config import BudgetConfig
from ..documents.fields import Seconds
from .errors import INVALID, FlowError, UnknownWorkflow
from .graph import Graph
from .tasks import Approval, Branch, ForEach, Loop, Parallel, RetryPolicy, Sequence, Task, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..bundle.model import Bundle
    from .tasks import Step

Names = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Form(BaseModel):
    """The common part of all steps."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PolicyForm(Form):
    """The pauses between attempts."""

    first: Seconds = 1.0
    factor: float = Field(default=2.0, ge=1, le=100)
    longest: Seconds = 60.0


class WaitingForm(Form):
    """What tasks and approvals wait for."""

    depends_on: Names = []
    deps: Names = []
    needs: dict[str, str] = {}
    skip_if: str | None = None

    def read(self) -> dict[str, Any]:
        """Return the values as those of a task."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return given | {name: tuple(given[name]) for name in ("depends_on", "deps")}


class ApprovalForm(WaitingForm):
    """One question to a person."""

    id: str = Field(alias="approval")
    question: str = ""
    on_deny: Literal["fail", "continue"] = "fail"


class TaskForm(WaitingForm):
    """One task."""

    id: str
    agent: str | None = None
    prompt: str = ""
    value: Any = None
    fork: str | None = None
    output_schema: dict[str, Any] | None = None
    retries: int = 2
    max_schema_retries: int = 2
    retry_policy: PolicyForm = PolicyForm()
    timeout: Seconds | None = None
    continue_on_fail: bool = False
    cache: bool = False
    needs_approval: bool | str = False
    budget: BudgetConfig | None = None
    runner: str | None = None

    def make(self) -> Task:
        """Return the task. Raises `FlowError`."""
        if self.agent is None and "value" not in self.model_fields_set:
            raise FlowError(INVALID, "it has neither an agent nor a value", self.id)
        budget = self.budget.model_dump(exclude_none=True) if self.budget is not None else None
        policy = RetryPolicy(**self.retry_policy.model_dump())
        return Task(**{**self.read(), "retry_policy": policy, "budget": budget})


class ParallelForm(Form):
    """Steps side by side."""

    parallel: list[Any] = Field(min_length=1)
    max_concurrency: int | None = Field(default=None, ge=1)


class SequenceForm(Form):
    """Steps one after the other."""

    sequence: list[Any] = Field(min_length=1)


class LoopForm(Form):
    """Steps again and again."""

    loop: list[Any] = Field(min_length=1)
    until: str
    max_iterations: int = Field(default=10, ge=1, le=10_000)
    on_max_reached: Literal["fail", "continue"] = "fail"


class BranchForm(Form):
    """One of two lists of steps."""

    condition: str = Field(alias="if")
    then: list[Any] = Field(min_length=1)
    otherwise: list[Any] = Field(default=[], alias="else")


class ForEachForm(Form):
    """Steps for each item of a list."""

    items: str | list[Any] = Field(alias="for_each")
    do: list[Any] = Field(min_length=1)
    max_concurrency: int | None = Field(default=None, ge=1)


class WorkflowForm(Form):
    """One workflow."""

    description: str = ""
    input: dict[str, Any] = {}
    steps: list[Any] = Field(min_length=1)


_FORMS: dict[str, type[Form]] = {
    "id": TaskForm,
    "approval": ApprovalForm,
    "parallel": ParallelForm,
    "sequence": SequenceForm,
    "loop": LoopForm,
    "if": BranchForm,
    "for_each": ForEachForm,
}


def find_workflow(bundle: Bundle, name: str | None = None) -> Workflow:
    """Return a checked workflow of a bundle by its name; None: its only one. Raises `FlowError`, `UnknownWorkflow`."""
    section = bundle.workflows
    known = list(section) if isinstance(section, dict) else []
    if not known:
        raise UnknownWorkflow(f"the bundle {bundle.name} declares no workflows")
    if name is None and len(known) > 1:
        raise FlowError(INVALID, f"the bundle has several workflows; name one of {', '.join(known)}")
    chosen = known[0] if name is None else name
    if chosen not in known:
        from difflib import get_close_matches

        close = get_close_matches(chosen, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"it has {', '.join(known)}"
        raise UnknownWorkflow(f"the bundle {bundle.name} has no workflow '{chosen}'; {hint}")
    return read_workflow(str(chosen), section[chosen])


def read_workflow(name: str, section: Any) -> Workflow:
    """Return a checked workflow from its section. Raises `FlowError` with the place of what is wrong."""
    place = f"workflows.{name}"
    form = _check(WorkflowForm, section, place)
    workflow = Workflow(name, _read_steps(form.steps, f"{place}.steps"), form.input)
    Graph(workflow)
    return workflow


def _read_steps(steps: list[Any], place: str) -> Step:
    read = [_read_step(step, f"{place}[{number}]") for number, step in enumerate(steps)]
    return read[0] if len(read) == 1 else Sequence(*read)


def _read_step(step: Any, place: str) -> Step:
    if not isinstance(step, dict):
        raise FlowError(INVALID, f"{place}: a step is a mapping, not {type(step).__name__}")
    kinds = [kind for kind in _FORMS if kind in step]
    if len(kinds) != 1:
        found = f"it has {' and '.join(kinds)}" if kinds else "it has none"
        raise FlowError(INVALID, f"{place}: a step has one of {', '.join(_FORMS)}; {found}")
    return _MAKERS[kinds[0]](_check(_FORMS[kinds[0]], step, place), place)


def _make_branch(form: Any, place: str) -> Step:
    otherwise = _read_steps(form.otherwise, f"{place}.else") if form.otherwise else None
    return Branch(form.condition, _read_steps(form.then, f"{place}.then"), otherwise)


def _make_parallel(form: Any, place: str) -> Step:
    steps = [_read_step(step, f"{place}.parallel[{number}]") for number, step in enumerate(form.parallel)]
    return Parallel(*steps, max_concurrency=form.max_concurrency)


def _make_each(form: Any, place: str) -> Step:
    items = form.items if isinstance(form.items, str) else tuple(form.items)
    return ForEach(items, _read_steps(form.do, f"{place}.do"), form.max_concurrency)


_MAKERS: dict[str, Callable[[Any, str], Step]] = {
    "id": lambda form, place: form.make(),
    "approval": lambda form, place: Approval(**form.read()),
    "parallel": _make_parallel,
    "sequence": lambda form, place: _read_steps(form.sequence, f"{place}.sequence"),
    "loop": lambda form, place: Loop(
        _read_steps(form.loop, f"{place}.loop"), form.until, form.max_iterations, form.on_max_reached
    ),
    "if": _make_branch,
    "for_each": _make_each,
}


def _check(form: type[Form], section: Any, place: str) -> Any:
    try:
        return form.model_validate(section)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            from difflib import get_close_matches

            from ..documents.validation import fields_of, type_at

            known = list(fields_of(type_at(form, problem["loc"][:-1])))
            close = get_close_matches(str(problem["loc"][-1]), known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise FlowError(INVALID, f"{place}{f'.{key}' if key else ''}: {message}") from None
