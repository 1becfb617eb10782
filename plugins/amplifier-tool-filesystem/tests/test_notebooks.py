"""Notebooks read as cells, and edited cell by cell."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy
from amplifier_core.permissions.policy import parse_permissions
from amplifier_tool_filesystem import mount

if TYPE_CHECKING:
    from pathlib import Path

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def notebook(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5, **more}


def code(source: Any, *outputs: Any, its_id: str = "c1", run: int | None = 3) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": run,
        "id": its_id,
        "metadata": {"tags": ["keep"]},
        "outputs": list(outputs),
        "source": source,
    }


def text(source: Any, its_id: str = "t1") -> dict[str, Any]:
    return {"cell_type": "markdown", "id": its_id, "metadata": {}, "source": source}


def stream(said: Any) -> dict[str, Any]:
    return {"name": "stdout", "output_type": "stream", "text": said}


def shows(**data: Any) -> dict[str, Any]:
    given = {name.replace("_", "/"): value for name, value in data.items()}
    return {"data": given, "metadata": {}, "output_type": "display_data"}


def write(work: Path, value: Any, name: str = "a.ipynb", **form: Any) -> Path:
    path = work / name
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, **form) + "\n", encoding="utf-8")
    return path


@pytest.fixture
async def tools(work: Path) -> Any:
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    await mount(coordinator)

    async def call(tool: str, **given: Any) -> Any:
        return await coordinator.get("tools", tool).execute({"file_path": "a.ipynb", **given})

    return call


# reading


async def test_cells_are_numbered_with_their_type_source_and_outputs(work: Path, tools: Any) -> None:
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mTraceback\x1b[0m", "E: v"]}
    write(work, notebook(text(["# Title\n", "more"]), code(["x = 1\n", "x"], stream(["a\n", "b"]), error)))
    result = await tools("read_file")
    assert result.output == {
        "file_path": "a.ipynb",
        "content": '--- cell 1: markdown id="t1"\n# Title\nmore\n--- cell 2: code id="c1" run=3\nx = 1\nx\n'
        "--- output of cell 2\na\nb\nTraceback\nE: v",
        "lines": 11,
        "cells": 2,
        "truncated": False,
    }
    assert result.content is None


async def test_images_of_outputs_are_images_and_say_so_in_the_text(work: Path, tools: Any) -> None:
    write(
        work,
        notebook(
            code(
                "plot()",
                shows(image_png=PIXEL + "\n", text_plain="<Figure>"),
                shows(image_png="%"),
                shows(image_png=PIXEL[:40]),
            )
        ),
    )
    result = await tools("read_file")
    assert "[image 1: image/png, 1 x 1]\n<Figure>\n[image: damaged]\n[image: damaged]" in result.output["content"]
    assert [block.source["data"] for block in result.content] == [PIXEL]


async def test_outputs_and_images_are_bounded(work: Path, tools: Any) -> None:
    outputs = [shows(image_png=PIXEL)] * 10
    write(work, notebook(code("a", stream("x" * 5_000)), code("b", *outputs, its_id="c2"), code("c", shows(x_y="z"))))
    result = await tools("read_file")
    assert "[1000 characters of output are left out]" in result.output["content"]
    size = len(base64.b64decode(PIXEL))
    assert result.output["content"].count(f"[image left out: image/png, 1 x 1, {size} bytes]") == 2
    assert (len(result.content), "[output: x/y]" in result.output["content"]) == (8, True)


async def test_offset_and_limit_count_cells(work: Path, tools: Any) -> None:
    write(work, notebook(*(text(f"cell {n}", f"t{n}") for n in range(1, 6))))
    output = (await tools("read_file", offset=2, limit=2)).output
    assert ["cell 2" in output["content"], "cell 3" in output["content"]] == [True, True]
    assert ("cell 4" in output["content"], output["cells"], output["truncated"]) == (False, 5, True)
    assert (await tools("read_file", offset=4)).output["truncated"] is False
    assert "it has 5 cells" in (await tools("read_file", offset=9)).error["message"]


@pytest.mark.parametrize(
    "value", [{"nbformat": 3, "worksheets": []}, {"cells": 1, "nbformat": 4}, ["x"], {"cells": [{}], "nbformat": 4}]
)
async def test_what_is_no_notebook_is_read_as_text(work: Path, tools: Any, value: Any) -> None:
    path = write(work, value)
    assert (await tools("read_file")).output["content"] == path.read_text()


# editing


async def test_a_replaced_cell_keeps_its_id_and_loses_its_outputs_and_nothing_else_changes(
    work: Path, tools: Any
) -> None:
    path = write(work, notebook(text("# ä\n"), code(["x = 1\n"], stream("1"))))
    before = path.read_text()
    result = await tools("edit_notebook", cell="c1", source="x = 2\nx")
    assert result.output == {
        "file_path": "a.ipynb",
        "bytes": path.stat().st_size,
        "cell": 2,
        "cell_type": "code",
        "cells": 2,
    }
    expected = json.loads(before)
    expected["cells"][1] |= {"source": ["x = 2\n", "x"], "outputs": [], "execution_count": None}
    assert path.read_text() == json.dumps(expected, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(("after", "place"), [(0, 0), ("0", 0), (1, 1), ("t1", 1), (2, 2)])
async def test_a_new_cell_comes_after_another_one(work: Path, tools: Any, after: Any, place: int) -> None:
    path = write(work, notebook(text("a"), code("b")))
    result = await tools("edit_notebook", cell=after, mode="insert", source="new", cell_type="markdown")
    assert result.output["cell"] == place + 1
    cells = json.loads(path.read_text())["cells"]
    assert (len(cells), cells[place]["source"], cells[place]["cell_type"]) == (3, ["new"], "markdown")
    assert len({cell["id"] for cell in cells}) == 3 and "outputs" not in cells[place]


async def test_a_cell_is_deleted(work: Path, tools: Any) -> None:
    path = write(work, notebook(text("a"), code("b")))
    assert (await tools("edit_notebook", cell=1, mode="delete")).output["cells"] == 1
    assert [cell["id"] for cell in json.loads(path.read_text())["cells"]] == ["c1"]


async def test_a_cell_changes_its_type(work: Path, tools: Any) -> None:
    path = write(work, notebook(code("b", stream("1"))))
    await tools("edit_notebook", cell=1, source="# b", cell_type="markdown")
    [cell] = json.loads(path.read_text())["cells"]
    assert (cell["cell_type"], cell["source"], cell.keys() & {"outputs", "execution_count"}) == (
        "markdown",
        "# b",
        set(),
    )


async def test_an_older_notebook_gets_no_ids(work: Path, tools: Any) -> None:
    path = write(work, notebook(nbformat_minor=4))
    await tools("edit_notebook", cell=0, mode="insert", source="x")
    assert "id" not in json.loads(path.read_text())["cells"][0]


@pytest.mark.parametrize(
    "form",
    [
        {"indent": 2},
        {"indent": "\t"},
        {"indent": None},
        {"indent": None, "separators": (",", ":")},
        {"indent": 4, "ensure_ascii": True},
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
async def test_the_form_of_the_file_stays(work: Path, tools: Any, form: dict[str, Any], end: str) -> None:
    dump = {"ensure_ascii": False, **form}
    value = notebook(text("ä"), code("b", its_id="c1"))
    (work / "a.ipynb").write_text(json.dumps(value, **dump) + end, encoding="utf-8")
    await tools("edit_notebook", cell="c1", source="c")
    value["cells"][1] |= {"source": "c", "outputs": [], "execution_count": None}
    assert (work / "a.ipynb").read_text(encoding="utf-8") == json.dumps(value, **dump) + end


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"cell": 3, "source": "x"}, "InvalidInput", "a.ipynb has no cell '3'; it has 2 cells. Read it"),
        ({"cell": 0, "source": "x"}, "InvalidInput", "a.ipynb has no cell '0'"),
        ({"cell": "nope", "mode": "delete"}, "InvalidInput", "a.ipynb has no cell 'nope'"),
        ({"cell": 1}, "InvalidInput", "'source' is missing; mode 'replace' needs it"),
        ({"cell": 1, "mode": "move"}, "InvalidInput", "'mode' must be one of replace, insert, delete, not 'move'"),
        (
            {"cell": 1, "source": "x", "cell_type": "sql"},
            "InvalidInput",
            "'cell_type' must be one of code, markdown, raw",
        ),
        ({"cell": True, "source": "x"}, "InvalidInput", "'cell' must be of type string, not bool"),
    ],
)
async def test_a_wrong_call_says_what_is_wrong(
    work: Path, tools: Any, given: dict[str, Any], kind: str, message: str
) -> None:
    path = write(work, notebook(text("a"), code("b")))
    before = path.read_bytes()
    error = (await tools("edit_notebook", **given)).error
    assert error["type"] == kind and error["message"].startswith(message)
    assert path.read_bytes() == before


async def test_a_rule_that_keeps_edit_file_from_a_notebook_keeps_its_cells_too(work: Path) -> None:
    path = write(work, notebook(text("a")))
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    coordinator.permissions = PermissionGate(Policy([parse_permissions({"deny": ["edit_file(*.ipynb)"]}, "x")]), work)
    await mount(coordinator)
    result = await coordinator.get("tools", "edit_notebook").execute({"file_path": "a.ipynb", "cell": 1, "source": "b"})
    assert result.error == {
        "type": "NotPermitted",
        "message": "a rule keeps edit_file from a.ipynb, and so edit_notebook",
    }
    assert "b" not in json.loads(path.read_text())["cells"][0]["source"]


async def test_what_is_no_notebook_is_not_edited(work: Path, tools: Any) -> None:
    write(work, {"nbformat": 3, "worksheets": []})
    error = (await tools("edit_notebook", cell=1, source="x")).error
    assert (error["type"], "is no valid notebook of nbformat 4" in error["message"]) == ("NotANotebook", True)


async def test_an_edit_of_the_text_of_a_notebook_points_to_its_cells(work: Path, tools: Any) -> None:
    write(work, notebook(code(["a\n", "b"])))
    error = (await tools("edit_file", old_string="a\nb", new_string="c")).error
    assert "cells of a notebook are changed with edit_notebook" in error["message"]
