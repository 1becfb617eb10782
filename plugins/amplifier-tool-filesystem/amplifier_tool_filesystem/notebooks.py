"""Read and edit Jupyter notebooks (nbformat 4), cell by cell."""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from .failures import FileToolError, InvalidInput
from .images import LONGEST_SIDE, Reply, find_media_type, make_block, measure
from .reading import cut_json, json_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .folder import InnerPath

LONGEST_OUTPUT = 4_000
"""Characters of the outputs of one cell."""
MOST_IMAGES = 8
KINDS = ("code", "markdown", "raw")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def is_notebook(path: InnerPath) -> bool:
    """Return whether the name of a file is that of a notebook."""
    return bool(path.parts) and path.name.endswith(".ipynb")


def parse_notebook(text: str) -> dict[str, Any] | None:
    """Return a notebook; None for a text that is none of nbformat 4."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("nbformat") != 4 or not isinstance(found.get("cells"), list):
        return None
    cells = found["cells"]
    is_whole = all(isinstance(cell, dict) and cell.get("cell_type") in KINDS and "source" in cell for cell in cells)
    return found if is_whole else None


def show_notebook(
    notebook: dict[str, Any], path: InnerPath, offset: int, limit: int | None, max_bytes: int, max_image_bytes: int
) -> Reply:
    """Return the cells from number `offset` on, at most `limit`, as text, with the images of their outputs.

    Of more than `max_bytes` as JSON, the first whole cells are shown; `truncated` if there are more.
    """
    cells, page = notebook["cells"], Page(max_image_bytes)
    if offset > 1 and offset > len(cells):
        raise InvalidInput(f"offset {offset} is past the last cell of {path}; it has {len(cells)} cells")
    shown, left, count = list[str](), max_bytes, 0
    for number, cell in enumerate(cells[offset - 1 :][:limit], offset):
        data = page.show_cell(number, cell).encode("utf-8", "replace")
        if json_size(data) > left:
            if not count:
                shown.append(cut_json(data, max_bytes).decode("utf-8", "ignore"))
            break
        left, count = left - json_size(data + b"\n"), count + 1
        shown.append(data.decode())
    content = "\n".join(shown)
    output = {"file_path": str(path), "content": content, "lines": content.count("\n") + bool(content)}
    return Reply({**output, "cells": len(cells), "truncated": offset - 1 + count < len(cells)}, page.images)


class Page:
    """Shows cells as text, and collects the images of their outputs."""

    def __init__(self, max_image_bytes: int) -> None:
        self.images: list[dict[str, Any]] = []
        self._max_image_bytes = max_image_bytes

    def show_cell(self, number: int, cell: dict[str, Any]) -> str:
        """Return a cell with its number, type, id, source and outputs."""
        facts = [f'id="{cell["id"]}"'] if isinstance(cell.get("id"), str) else []
        if cell.get("execution_count"):
            facts.append(f"run={cell['execution_count']}")
        lines = [" ".join([f"--- cell {number}: {cell['cell_type']}", *facts]), _join(cell["source"])]
        outputs = "\n".join(self._show_outputs(cell.get("outputs")))
        if len(outputs) > LONGEST_OUTPUT:
            missing = len(outputs) - LONGEST_OUTPUT
            outputs = f"{outputs[:LONGEST_OUTPUT]}\n[{missing} characters of output are left out]"
        return "\n".join([*lines, *([f"--- output of cell {number}", outputs] if outputs else [])])

    def _show_outputs(self, outputs: Any) -> Iterator[str]:
        for output in outputs if isinstance(outputs, list) else ():
            if not isinstance(output, dict):
                continue
            if output.get("output_type") == "stream":
                yield _join(output.get("text", ""))
            elif output.get("output_type") == "error":
                trace = output.get("traceback")
                text = "\n".join(map(str, trace)) if isinstance(trace, list) else ""
                yield _COLOURS.sub("", text) or f"{output.get('ename')}: {output.get('evalue')}"
            elif isinstance(data := output.get("data"), dict):
                yield from self._show_data(data)

    def _show_data(self, data: dict[str, Any]) -> Iterator[str]:
        """Yield the text of one output, or what there is to say about its image."""
        kind = next((each for each in _IMAGES if each in data), None)
        if kind is not None:
            yield self._take_image("".join(_join(data[kind]).split()))
        if "text/plain" in data:
            yield _join(data["text/plain"])
        elif kind is None:
            yield f"[output: {', '.join(map(str, data))}]"

    def _take_image(self, text: str) -> str:
        """Add an image in base64, and return what stands for it in the text."""
        try:
            data = b64decode(text, validate=True)
        except ValueError:
            return "[image: damaged]"
        media_type = find_media_type(data)
        size = measure(data, media_type) if media_type is not None else None
        if media_type is None or size is None:
            return "[image: damaged]"
        facts = f"{media_type}, {size[0]} x {size[1]}"
        if len(data) > self._max_image_bytes or len(self.images) == MOST_IMAGES or max(size) > LONGEST_SIDE:
            return f"[image left out: {facts}, {len(data)} bytes]"
        self.images.append(make_block(media_type, text))
        return f"[image {len(self.images)}: {facts}]"


def _join(source: Any) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def edit_notebook(text: str, path: InnerPath, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the text of a notebook with one cell replaced, inserted or deleted, and facts about that cell.

    The indent, the escapes and the end of the file stay. Raises `FileToolError` for what is no notebook of nbformat 4.
    """
    notebook = parse_notebook(text)
    if notebook is None:
        raise FileToolError(
            "NotANotebook", f"{path} is no valid notebook of nbformat 4; change its text with edit_file"
        )
    cells, mode = notebook["cells"], given["mode"]
    index = find_cell(cells, given["cell"], path, is_insertion=mode == "insert")
    if mode == "delete":
        gone = cells.pop(index)
        return _dump_like(text, notebook), {"cell": index + 1, "cell_type": gone["cell_type"], "cells": len(cells)}
    if "source" not in given:
        raise InvalidInput(f"'source' is missing; mode '{mode}' needs it")
    if mode == "insert":
        kind = given.get("cell_type") or "code"
        cell = make_cell(notebook, kind, given["source"])
        cells.insert(index, cell)
    else:
        cell = replace_cell(cells[index], given)
        cells[index] = cell
    return _dump_like(text, notebook), {"cell": index + 1, "cell_type": cell["cell_type"], "cells": len(cells)}


def find_cell(cells: list[dict[str, Any]], wanted: str, path: InnerPath, *, is_insertion: bool) -> int:
    """Return the index of a cell by its id or number; for an insertion, that of the place after it."""
    for index, cell in enumerate(cells):
        if cell.get("id") == wanted:
            return index + is_insertion
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 9 else -1
    if not (0 if is_insertion else 1) <= number <= len(cells):
        raise InvalidInput(
            f"{path} has no cell '{wanted}'; it has {len(cells)} cells. Read it for their numbers and ids"
        )
    return number - (not is_insertion)


def replace_cell(cell: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return a cell with another source; the outputs of the earlier one are gone."""
    kind = given.get("cell_type") or cell["cell_type"]
    kept = {name: value for name, value in cell.items() if name not in ("outputs", "execution_count", "attachments")}
    if kind == cell["cell_type"] and "attachments" in cell:
        kept["attachments"] = cell["attachments"]
    is_text = isinstance(cell["source"], str)
    kept |= {"cell_type": kind, "source": given["source"] if is_text else given["source"].splitlines(keepends=True)}
    # The order of the members stays as nbformat writes it: by name.
    return dict(sorted((kept | _runs(kind)).items())) if list(cell) == sorted(cell) else kept | _runs(kind)


def make_cell(notebook: dict[str, Any], kind: str, source: str) -> dict[str, Any]:
    """Return a new cell, with an id where the notebook has ids."""
    cell = {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True), **_runs(kind)}
    if notebook.get("nbformat_minor", 0) >= 5:
        known = {each.get("id") for each in notebook["cells"]}
        cell["id"] = next(each for each in iter(lambda: secrets.token_hex(4), "") if each not in known)
    return dict(sorted(cell.items()))


def _runs(kind: str) -> dict[str, Any]:
    """Return the members of a code cell that has not run."""
    return {"execution_count": None, "outputs": []} if kind == "code" else {}


def _dump_like(text: str, notebook: dict[str, Any]) -> str:
    """Return a notebook as JSON in the form of an earlier text."""
    found = re.match(r"\s*\{[ \t]*\r?\n([ \t]+)", text)
    separators = None if found or '": ' in text[:200] else (",", ":")
    dumped = json.dumps(
        notebook,
        indent=found[1] if found else None,
        ensure_ascii=text.isascii() and re.search(r"\\u[0-9a-fA-F]{4}", text) is not None,
        separators=separators,
    )
    if "\r\n" in text:
        dumped = dumped.replace("\n", "\r\n")
    return dumped + text[len(text.rstrip()) :]
