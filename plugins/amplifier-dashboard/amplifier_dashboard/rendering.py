"""Render templates: everything is escaped, secrets and what hides text are replaced, times are local in the browser."""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from amplifier_core.utils.command_secrets import redact_commands
from amplifier_core.utils.secrets import redact_text, redactor
from amplifier_foundation.documents.safe_text import plain
from amplifier_foundation.documents.times import format_time
from amplifier_foundation.operations.columns import shorten_home

from .links import background_path
from .states import show_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amplifier_foundation.sessions.usage import Usage

_redact: ContextVar[Callable[[str], str]] = ContextVar("redact", default=redact_text)
_root: ContextVar[str] = ContextVar("root", default="")
_OWN_PATHS = re.compile(r'="(?<=href="|tion=")(?=/(?!static/|[/~]))')  # `re` finds a literal soonest: it comes first


def use_root(root: str) -> None:
    """Let the links and forms of templates lead below a root, in this task and its own ones."""
    _root.set(root)


@cache
def environment() -> Environment:
    """Return the templates of the package; one of a misspelt name or value is an error."""
    made = Environment(
        loader=PackageLoader(str(__package__)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_hide,
    )
    made.filters.update(when=when, count=count)
    made.filters.update(state=show_state, folder=shorten_home, dollars=dollars, background=background_path)
    return made


def render(template: str, **values: Any) -> Markup:
    """Return a template with its values."""
    with _collecting_secrets():
        return _add_root(environment().get_template(template).render(values))


def render_block(template: str, block: str, values: Mapping[str, Any]) -> Markup:
    """Return one block of a template: an element that a view sends as a part."""
    found = environment().get_template(template)
    with _collecting_secrets():
        return _add_root("".join(found.blocks[block](found.new_context(dict(values)))))


def _add_root(text: str) -> Markup:
    """Return a rendered text with the root before each path of this server, unless it has one already."""
    return Markup(_OWN_PATHS.sub(f'="{_root.get()}', text))


@contextmanager
def _collecting_secrets() -> Iterator[None]:
    """Collect the known secrets once for all texts of a template."""
    before = _redact.set(redactor())
    try:
        yield
    finally:
        _redact.reset(before)


def _hide(value: Any) -> Any:
    return plain(redact_commands(value, _redact.get())) if type(value) is str else value


def when(moment: datetime | str | None) -> Markup:
    """Return a time as an element; a script shows it as people there write it."""
    if moment is None or moment == "":
        return Markup("<span>-</span>")
    text = moment if isinstance(moment, str) else format_time(moment.astimezone(UTC))
    return Markup('<time datetime="{0}">{0}</time>').format(escape(text))


def dollars(usage: Usage | None) -> str:
    """Return the cost of a usage; `-` without requests, `?` for an unknown cost."""
    from amplifier_foundation.sessions.costs import format_cost

    if usage is None or not usage.requests:
        return "-"
    return format_cost(usage) or "?"


def count(number: int | None) -> str:
    """Return a number as people read it; `?` is unknown."""
    return "?" if number is None else f"{number:,}"
