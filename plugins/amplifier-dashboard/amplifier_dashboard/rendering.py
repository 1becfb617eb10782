"""Render templates: everything is escaped, known secrets are hidden, times are local in the browser."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from amplifier_core.utils.secrets import redact_text
from amplifier_foundation.documents.times import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    return made


def render(template: str, **values: Any) -> Markup:
    """Return a template with its values."""
    return Markup(environment().get_template(template).render(values))


def render_block(template: str, block: str, values: Mapping[str, Any]) -> Markup:
    """Return one block of a template: an element that a view sends as a part."""
    found = environment().get_template(template)
    return Markup("".join(found.blocks[block](found.new_context(dict(values)))))


def _hide(value: Any) -> Any:
    return redact_text(value) if type(value) is str else value


def when(moment: datetime | str | None) -> Markup:
    """Return a time as an element; a script shows it as people there write it."""
    if moment is None or moment == "":
        return Markup("<span>-</span>")
    text = moment if isinstance(moment, str) else format_time(moment.astimezone(UTC))
    return Markup('<time datetime="{0}">{0}</time>').format(escape(text))


def count(number: int | None) -> str:
    """Return a number as people read it; `?` is unknown."""
    return "?" if number is None else f"{number:,}"
