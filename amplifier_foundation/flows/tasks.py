"""Define what a workflow is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from amplifier_core.frozen import frozen

Inputs: TypeAlias = Mapping[str, Any]
"""What a prompt, a condition and a function see: `input`, the outputs of the tasks they name, `item`, `iteration`."""
Prompt: TypeAlias = str | Callable[[Inputs], str]
"""Text with `{names}` of inputs, or a function of them."""
Test: TypeAlias = str | Callable[[Inputs], bool]
"""A condition of `amplifier_core.conditions` on the inputs, or a function of them."""


@frozen
class RetryPolicy:
    """Pauses between attempts: `first` seconds, then `factor` times the last, at most `longest`; jittered."""

    first: float = 1.0
    factor: float = 2.0
    longest: float = 60.0


@frozen
class Task:
    """One piece of work: with `agent` its turn, with `compute` a function of the inputs, else the `value`.

    `agent` names an agent of the bundle, `self` the bundle itself. `fork` names the task with whose session this one
    begins. `depends_on` are tasks that come before; the outputs of `deps`, and those of `needs` by other names, are
    inputs besides. `output_schema` is a pydantic model or a JSON Schema for the answer. `retries` are further attempts
    after a failure that may pass; `max_schema_retries` corrections of an answer within one attempt. `timeout` is in
    seconds. `needs_approval` has a person asked before it: `True`, or the question. With `cache`, the answer of an
    agent is taken from an earlier run that asked the same. `budget` limits what all its attempts may use, with the keys
    of the section `budget` of a bundle.
    """

    id: str
    agent: str | None = None
    prompt: Prompt = ""
    compute: Callable[[Inputs], Any | Awaitable[Any]] | None = None
    value: Any = None
    fork: str | None = None
    depends_on: tuple[str, ...] = ()
    deps: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    output_schema: Any = None
    skip_if: Test | None = None
    retries: int = 2
    max_schema_retries: int = 2
    retry_policy: RetryPolicy = RetryPolicy()
    timeout: float | None = None
    continue_on_fail: bool = False
    cache: bool = False
    needs_approval: bool | Prompt = False
    budget: Mapping[str, Any] | None = None
    runner: str | None = None

    @property
    def before(self) -> tuple[str, ...]:
        """The tasks that come before, each once."""
        return tuple(dict.fromkeys((*self.depends_on, *self.deps, *self.needs.values())))


@frozen
class Approval(Task):
    """A question to a person. Its output has `approved`, and what was `said`.

    After a denial the run fails, or goes on (`continue`) for a condition to look at the output.
    """

    question: Prompt = ""
    on_deny: Literal["fail", "continue"] = "fail"


class Sequence:
    """Steps one after the other."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps


class Parallel:
    """Steps side by side, at most `max_concurrency` at a time (None: all)."""

    def __init__(self, *steps: Step, max_concurrency: int | None = None) -> None:
        self.steps = steps
        self.max_concurrency = max_concurrency


@frozen
class Branch:
    """One of two steps."""

    condition: Test
    then: Step
    otherwise: Step | None = None


@frozen
class Loop:
    """A step again and again until the condition holds after it; each iteration sees its own outputs.

    After `max_iterations` without that, the run fails, or goes on with the last outputs (`continue`).
    """

    body: Step
    until: Test
    max_iterations: int = 10
    on_max_reached: Literal["fail", "continue"] = "fail"


@frozen
class ForEach:
    """A step for each item of a list, side by side; `item` is an input of it.

    `items` is the list, the dotted path of one in the inputs, or a function of them.
    """

    items: str | tuple[Any, ...] | Callable[[Inputs], Any]
    body: Step
    max_concurrency: int | None = None


Step: TypeAlias = Task | Sequence | Parallel | Branch | Loop | ForEach


@frozen
class Workflow:
    """A named step. `input` has the inputs that a run has unless it is given others."""

    name: str
    step: Step
    input: Mapping[str, Any] = field(default_factory=dict)
