"""Keep fetched bundles to their own folders, and to public addresses.

A stranger wrote them: home folders, absolute paths and the servers of this machine are none of their business. A bundle
in a folder of the person may name all of that.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..documents.local_paths import is_path, leaves, local_path
from ..documents.positions import Place, show_file
from ..documents.problems import Problem, error_at
from ..paths import fetched_root, is_personal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents.document import Document
    from ..documents.positions import KeyPath
    from .model import Bundle

REMEDY = "a fetched bundle may not. To let it, copy the bundle into a folder of your own"
_ABSOLUTE = re.compile(r"/|\\|[A-Za-z]:[\\/]")
_TIGHTENING = re.compile(r"deny|denied|exclude|ignore|forbid|block")
"""Parts of the names of keys that name a path in order not to reach it."""
_FOLDER_KEYS = frozenset({"cwd", "namespace_root", "working_dir", "working_directory"})


def find_strays(document: Document, base: Path | None) -> Iterator[Problem]:
    """Yield the places of a fetched document that reach for what is not its own; none of any other document."""
    root = fetched_root(base)
    if root is None or base is None:
        return
    for path, text in _find_texts(document.data, ()):
        reason = describe_reach(text) if _names_place(path, text) else ""
        if not reason and _is_own_path(path, text) and leaves(root, local_path(text, base)[0]):
            reason = f"leads out of the fetched folder {show_file(root)}"
        if reason:
            yield error_at(document.positions.at(path), "AMP118", f"{reason}: {REMEDY}")
        if path[-1] == "instruction":
            yield from _find_stray_mentions(text, document.path)
    yield from _find_stray_mentions(document.body, document.path)


def find_borrowed(bundle: Bundle) -> Iterator[Problem]:
    """Yield the places of fetched bundles, below one of the person's, that name files in the person's folder."""
    personal = {name for name, root in bundle.source_base_paths.items() if is_personal(root)}
    for layer in bundle.layers or [bundle]:
        if fetched_root(layer.base_path) is None or not personal:
            continue
        references: list[tuple[tuple[str, ...], str]] = []
        references += [(("context", name), text) for name, text in layer._pending_context.items()]
        references += [(("agents", name), text) for name, text in layer._pending_agents.items()]
        instructions = [layer.instruction, *(each.get("instruction") for each in layer.agents.values())]
        references += [(("instruction",), each[1:]) for text in instructions for each in _mentions_in(text or "")]
        for path, reference in references:
            if reference.partition(":")[0] in personal:
                place = layer.places.get(path) or Place(f"bundle '{layer.name}'", path=".".join(path))
                yield error_at(place, "AMP118", f"'{reference}' is a file of the bundle that includes it: {REMEDY}")


def _mentions_in(text: str) -> list[str]:
    if "@" not in text:
        return []
    from ..mentions import parse_mentions

    return parse_mentions(text)


def _find_stray_mentions(text: str, file: Path | None) -> Iterator[Problem]:
    from amplifier_core.permissions import is_secret

    from .mention_check import find_mention

    for mention in _mentions_in(text):
        reason = describe_reach(mention[1:])
        if not reason and is_secret(mention[1:]):
            reason = "its name says that it holds secrets"
        if reason:
            place = find_mention(mention, file) if file is not None else Place("instruction")
            yield error_at(place, "AMP118", f"{mention}: {reason}: {REMEDY}")


def describe_reach(text: str) -> str:
    """Return what a path or an address in a fetched bundle reaches for that is not its own; `` for nothing."""
    name = text.strip().lower()
    if name == "~" or name.startswith(("~/", "~\\")) or re.match(r"~[\w.-]+/", name):
        return "reaches for a home folder"
    if name.startswith(("file:", "git+file:", "zip+file:")):
        return "reaches for a file of this machine"
    if "://" in name:
        return "reaches for this machine or its own network" if _is_internal(name) else ""
    return "reaches for an absolute path" if _ABSOLUTE.match(name) else ""


def _is_internal(url: str) -> bool:
    from amplifier_core.permissions import is_internal_host

    try:
        return is_internal_host(urlsplit(url).hostname or "")
    except ValueError:  # no address at all: nothing can fetch it
        return False


def _find_texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _find_texts(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _find_texts(each, (*path, number))
    elif isinstance(value, str):
        yield path, value


def _names_place(path: KeyPath, text: str) -> bool:
    """Return whether a text names a place: by its section or key, or in a configuration by its form."""
    key = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
    if path[:1] == ("includes",) or "context" in path or key in ("source", *_FOLDER_KEYS) or key.endswith("_source"):
        return True
    if key == "bundle" and "background_sessions" in path:
        return True
    if "config" not in path or _TIGHTENING.search(key.lower()) or "\n" in text:
        return False
    # The first folder of an absolute path is here; the path of a web address seldom begins so.
    return not text.startswith("/") or Path("/", *text.split("/")[1:2]).exists()


def _is_own_path(path: KeyPath, text: str) -> bool:
    """Return whether a text is a relative path of a part of the bundle, `..` included."""
    is_part = path[:1] == ("includes",) or (path[-1] == "bundle" and "background_sessions" in path)
    return (is_part or path == ("bundle", "namespace_root")) and is_path(text) and text.startswith(("./", "../"))
