"""Make text of pages. HTML is converted in a process of its own: a page can be made to take any time and memory."""

from __future__ import annotations

import codecs
import re
import sys
from typing import TYPE_CHECKING
from unicodedata import category

from .failures import FetchError

if TYPE_CHECKING:
    from .fetching import Fetched

LONGEST = 10_000_000
"""Characters of a text."""
DEEPEST = 100
"""Elements in each other that are converted: what is deeper would grow with each of them."""
MEMORY, SECONDS = 1024**3, 60
"""Bytes and processor seconds of the process that converts a page."""
HTML = ("text/html", "application/xhtml+xml")
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXT = re.compile(
    r"text/.*|application/(?:.*[+.-])?(?:json|xml|yaml|javascript|ecmascript|toml|sql|x-sh|x-ndjson)|.*\+(?:json|xml)"
)
_CHARSET = re.compile(
    rb"""<(?:meta[^>]{0,200}charset|\?xml[^>]{0,200}encoding)\s*=\s*["']?\s*([\w:.-]{1,40})""", re.IGNORECASE
)
_CODEC = re.compile(
    r"utf-?(?:8|16|32)(?:-?[bl]e)?(?:-sig)?|ascii|(?:iso8859|latin|cp|mac|koi8|gb|euc|big5|shift|iso2022|tis|hz)[\w-]*"
)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_SHOWN_FORMATS = "\u200c\u200d"
"""Characters without width that words of some languages need."""
_CHILD = "import sys; sys.path[:0] = sys.argv[2:]; from amplifier_tool_web.texts import main; main(sys.argv[1])"


async def make_text(page: Fetched, kind: str) -> str:
    """Return the text of a page of the media type `kind`. Raises `FetchError` for a page without text."""
    if kind not in HTML and kind != "" and not _TEXT.fullmatch(kind):
        remedy = "look for the same as a web page" if kind == "application/pdf" else "only text and images can be read"
        raise FetchError("UnsupportedType", f"{page.url.shown} is {kind[:100]} ({len(page.body)} bytes); {remedy}")
    if not page.body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in page.body[:8192]:
        raise FetchError("UnsupportedType", f"{page.url.shown} is a binary file ({len(page.body)} bytes)")
    text = await decode(page)
    if kind in HTML or (kind == "" and re.match(r"\s*<(?:!doctype html|html)", text, re.IGNORECASE)):
        text = await convert_html(text, str(page.url))
    return drop_hidden(text)


async def decode(page: Fetched) -> str:
    """Return the text in the charset that its marks, its header or itself names; else in the one it looks like."""
    import asyncio

    mark = next((name for begin, name in _MARKS if page.body.startswith(begin)), None)
    declared = re.search(r"charset\s*=\s*[\"']?([\w:.-]{1,40})", page.content_type, re.IGNORECASE)
    inside = _CHARSET.search(page.body[:4096])
    for name in (mark, declared and declared[1], inside and inside[1].decode("ascii")):
        if codec := _find_codec(name):
            return page.body.decode(codec, "replace")
    try:
        return page.body.decode("utf-8")
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        best = (await asyncio.to_thread(from_bytes, page.body[:32_768])).best()
        return page.body.decode(_find_codec(best.encoding if best is not None else None) or "utf-8", "replace")


def _find_codec(name: str | None) -> str | None:
    """Return the codec of a charset; None for one that is unknown, or no charset of pages (`punycode`, `hex`)."""
    try:
        codec = codecs.lookup(name or "").name
    except LookupError:
        return None
    if not _CODEC.fullmatch(codec):
        return None
    return "cp1252" if codec in ("iso8859-1", "ascii") else codec  # as browsers do


def drop_hidden(text: str) -> str:
    """Return a text without characters that do not show: a model would read what no person sees."""
    text = text[:LONGEST].replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.isprintable():
        return text
    hidden = {each for each in set(text) if category(each) in ("Cc", "Cf", "Cn", "Co", "Cs") and each not in "\n\t"}
    return text.translate(dict.fromkeys(map(ord, hidden - set(_SHOWN_FORMATS))))


async def convert_html(html: str, url: str) -> str:
    """Return HTML as Markdown, by a child process; a cancellation kills it. Raises `FetchError`."""
    import asyncio
    from importlib.util import find_spec
    from pathlib import Path

    packages = [Path(__file__).parent.parent]
    packages += [Path(str(spec.origin)).parent.parent for spec in map(find_spec, ("html_to_markdown",)) if spec]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _CHILD, url, *map(str, packages)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    try:
        text, _ = await child.communicate(html.encode("utf-8", "replace"))
    finally:
        if child.returncode is None:
            child.kill()
            await child.communicate()
    if child.returncode:
        raise FetchError("Unreadable", "the page cannot be made text: it takes too much time or memory")
    return text.decode("utf-8", "replace")


def main(url: str) -> None:
    """Run in the child: read HTML from stdin, and write Markdown with whole links to stdout."""
    import resource

    for limit, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (most, most))
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    options = ConversionOptions(
        base_url=url, extract_metadata=False, preprocessing=PreprocessingOptions(enabled=False), max_depth=DEEPEST
    )
    converted = convert(sys.stdin.read(), options)
    sys.stdout.write(re.sub(r"\(data:[^)\s]*\)", "(data:…)", converted.content or "")[:LONGEST])
    if any("depth limit" in each.message for each in converted.warnings):
        sys.stdout.write(
            f"\n[Parts of the page are missing: they stand in more than {DEEPEST} elements, one in the other.]"
        )
