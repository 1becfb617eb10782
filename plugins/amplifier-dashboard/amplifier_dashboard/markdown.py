"""Render Markdown of models as safe HTML: no markup of the text, no images, no styles, no links that run code."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from amplifier_core.utils.secrets import redact_text
from amplifier_foundation.documents.safe_text import plain

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST = 40_000
"""Characters of a text that is read as Markdown; a longer one is shown as it is."""


def render_markdown(text: str) -> Markup:
    """Return a text as HTML, without known secrets."""
    return convert(plain(redact_text(text)))


@lru_cache(maxsize=2_000)
def convert(text: str) -> Markup:
    """Return Markdown without secrets as HTML."""
    if len(text) > LONGEST:
        return Markup('<p class="plain">{}</p>').format(text)
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        token.attrs.pop("style", None)  # of the cells of tables; the page's policy forbids them
        for inner in token.children or ():
            if inner.type == "link_open":
                inner.attrs |= {"target": "_blank", "rel": "noopener noreferrer"}
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("js-default", {"html": False, "linkify": False, "breaks": True}).disable("image")
