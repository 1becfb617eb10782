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


@lru_cache(maxsize=2_000)
def render_markdown(text: str) -> Markup:
    """Return a text as HTML, without known secrets."""
    text = plain(redact_text(text))
    if len(text) > LONGEST:
        return Markup('<p class="plain">{}</p>').format(text)
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        token.attrs.pop("style", None)  # of the cells of tables; the page's policy forbids them
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("js-default", {"html": False, "linkify": False, "breaks": True}).disable("image")
    parser.add_render_rule("link_open", _open_link)
    return parser


def _open_link(self, tokens, index, options, env):  # type: ignore[no-untyped-def]  # the library's own signature
    tokens[index].attrs |= {"target": "_blank", "rel": "noopener noreferrer"}
    return self.renderToken(tokens, index, options, env)
