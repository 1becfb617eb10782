"""Describe a workflow as plain data: pictures are drawn from it, runs store it, and its digest tells a change.

A step is a mapping with the keys of a bundle's `workflows:`. A function is its qualified name and a hash of its source;
without a source, of its bytecode: each Python has another one.
"""

from __future__ import annotations

import dis
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from hashlib import sha256
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeAlias

from amplifier_core.utils.secrets import redact_text

from .function_sources import hash_source
from .tasks import Branch, Loop, Parallel, Sequence, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_core.transcript import Message

    from .tasks import Step, Workflow

Plain: TypeAlias = dict[str, Any]
"""A workflow or a step as JSON."""
KEY = "workflow"
"""The member of a message's metadata with the description of the workflow: of the first, and where it has changed."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def describe_workflow(workflow: Workflow, *, by_bytecode: bool = False) -> Plain:
    """Return the name, the usual input and the steps of a workflow; what is as usual in a task is left out.

    Functions are described `by_bytecode` as in runs of earlier versions.
    """
    describe = _Describer(by_bytecode)
    steps = [describe.step(each) for each in _steps_in(workflow.step)]
    return {"name": workflow.name, "input": describe.value(workflow.input), "steps": steps}


def digest_of(description: Plain) -> str:
    """Return the SHA-256 of a description in hexadecimal: that of the same workflow is the same in every process."""
    return sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def has_digest(workflow: Workflow, digest: str) -> bool:
    """Return whether a workflow has a digest now, or had it for an earlier version."""
    return any(digest == digest_of(describe_workflow(workflow, by_bytecode=each)) for each in (False, True))


def without_secrets(description: Plain) -> Plain:
    """Return a description as it may be stored."""
    text = json.dumps(description)
    safe = redact_text(text)
    found: Plain = description if safe == text else json.loads(safe)
    return found


def find_description(messages: list[Message]) -> Plain | None:
    """Return the last description in the messages of a run; None: a run of an older version has none."""
    for message in reversed(messages):
        found = (message.get("metadata") or {}).get(KEY)
        if isinstance(found, dict) and isinstance(found.get("steps"), list):
            return found
    return None


def steps_below(step: Plain) -> list[tuple[str, list[Plain]]]:
    """Return the lists of steps in a step, each with a word for it: `then` and `else` in a branch."""
    if "if" in step:
        return [("then", step["then"]), *([("else", step["else"])] if "else" in step else [])]
    found: list[Plain] = next((step[key] for key in ("sequence", "parallel", "loop", "do") if key in step), [])
    return [("", found)]


def described_tasks(steps: list[Plain]) -> Iterator[Plain]:
    """Yield the tasks in described steps."""
    for step in steps:
        if "id" in step:
            yield step
        else:
            yield from described_tasks([each for _, below in steps_below(step) for each in below])


def certain_steps(steps: list[Plain]) -> Iterator[Plain]:
    """Yield the tasks, and the steps around others, that are done once whatever happens."""
    for step in steps:
        if "sequence" in step or "parallel" in step:
            yield from certain_steps(step.get("sequence") or step["parallel"])
        else:
            yield step


def tasks_before(task: Plain) -> list[str]:
    """Return the tasks that a described one depends on, each once."""
    named = (*task.get("depends_on", ()), *task.get("deps", ()), *task.get("needs", {}).values())
    return list(dict.fromkeys(named))


def _steps_in(step: Step) -> tuple[Step, ...]:
    return step.steps if isinstance(step, Sequence) else (step,)


class _Describer:
    """Describes what stands in a workflow; a function and a schema that several tasks share are described once."""

    def __init__(self, by_bytecode: bool) -> None:
        self._by_bytecode = by_bytecode
        self._known: dict[int, tuple[Any, Any]] = {}
        """What is described, by its `id`, with itself: it lives on, so its `id` stays its own."""

    def step(self, step: Step) -> Plain:
        if isinstance(step, Task):
            made: Any = type(step)
            own = ((name, getattr(step, name), usual) for name, usual in _defaults_of(made))
            kind = {} if made is Task else {"kind": made.__name__.lower()}
            unusual = (
                (name, value)
                for name, value, usual in own
                if value is not usual and (type(value) is not type(usual) or not value == usual)  # noqa: SIM201 - of any kind
            )
            return {**kind, **{name: self.value(value) for name, value in unusual}}
        if isinstance(step, Sequence):
            return {"sequence": self._steps(step)}
        if isinstance(step, Parallel):
            most = {} if step.max_concurrency is None else {"max_concurrency": step.max_concurrency}
            return {"parallel": [self.step(each) for each in step.steps], **most}
        if isinstance(step, Branch):
            otherwise = {} if step.otherwise is None else {"else": self._steps(step.otherwise)}
            return {"if": self.value(step.condition), "then": self._steps(step.then), **otherwise}
        if isinstance(step, Loop):
            limits = {"max_iterations": step.max_iterations, "on_max_reached": step.on_max_reached}
            return {"loop": self._steps(step.body), "until": self.value(step.until), **limits}
        most = {} if step.max_concurrency is None else {"max_concurrency": step.max_concurrency}
        return {"for_each": self.value(step.items), "do": self._steps(step.body), **most}

    def _steps(self, step: Step) -> list[Plain]:
        return [self.step(each) for each in _steps_in(step)]

    def value(self, value: Any) -> Any:
        """Return anything as JSON: text and numbers as they are, other objects as their text without addresses."""
        if value is None or isinstance(value, str | bool | int):
            return value
        if isinstance(value, float):
            return value if value - value == 0 else repr(value)  # JSON has no infinity
        if isinstance(value, Mapping):
            return {str(key): self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        if isinstance(value, set | frozenset):
            return sorted((self.value(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        if id(value) not in self._known:
            self._known[id(value)] = value, _name_of(value)  # within itself, it is its name
            self._known[id(value)] = value, self._describe(value)
        return self._known[id(value)][1]

    def _describe(self, value: Any) -> Any:
        if hasattr(value, "model_json_schema"):
            return self.value(value.model_json_schema())
        if not callable(value):
            return _ADDRESS.sub("", repr(value))
        told = json.dumps([self.value(part) for part in _parts_of(value, self._by_bytecode)])
        return {"function": _name_of(value), "code": sha256(told.encode()).hexdigest()[:16]}


def _parts_of(value: Any, by_bytecode: bool) -> list[Any]:
    """Return what the result of a callable depends on, and does not change by calls: its code, and values around it."""
    if isinstance(value, FunctionType):
        code, cells = value.__code__, value.__closure__ or ()
        kept = [
            _content(cell)
            for name, cell in zip(code.co_freevars, cells, strict=True)
            if name not in _names_assigned_by(code)
        ]
        source = None if by_bytecode else hash_source(value)
        return [source or list(_facts_of(code)), value.__defaults__, value.__kwdefaults__, kept]
    if isinstance(value, MethodType):
        return [value.__func__, type(value.__self__).__qualname__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    call = getattr(type(value), "__call__", None)  # noqa: B004 - the function itself is wanted
    if not isinstance(call, FunctionType):
        return []
    return [call, {name: _if_lasting(each) for name, each in getattr(value, "__dict__", {}).items()}]


@cache
def _defaults_of(kind: type[Task]) -> list[tuple[str, Any]]:
    """Return the fields of a kind of task with their usual values."""
    return [
        (each.name, each.default_factory() if each.default_factory is not MISSING else each.default)
        for each in fields(kind)
    ]


def _name_of(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _content(cell: Any) -> Any:
    try:
        return _if_lasting(cell.cell_contents)
    except ValueError:  # the variable has no value yet
        return None


def _if_lasting(value: Any) -> Any:
    """Return a value that cannot change between two runs; of another one, such as a list of results, the type."""
    if value is None or isinstance(value, str | bytes | int | float | tuple | frozenset) or callable(value):
        return value
    return type(value).__qualname__


@cache
def _names_assigned_by(code: CodeType) -> frozenset[str]:
    """Return the outer variables that a function assigns to."""
    found = dis.get_instructions(code)
    return frozenset(str(each.argval) for each in found if each.opname in ("STORE_DEREF", "DELETE_DEREF"))


def _facts_of(code: CodeType) -> Iterator[Any]:
    """Yield what a function does, without the place of its text; a frozen set has no order of its own."""
    yield from (code.co_code.hex(), code.co_names, code.co_varnames, code.co_argcount, code.co_kwonlyargcount)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield list(_facts_of(constant))
        else:
            yield sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)
