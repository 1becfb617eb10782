"""Run `amplifier docs`: list the pages that are shipped with the program, and print one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import amplifier_core
from amplifier_core.errors import UnknownName

from .app import json_option
from .completing import completes
from .output import console, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

KERNEL = Path(amplifier_core.__file__).parent
FOUNDATION = Path(__file__).parents[1]
FIRST = "first-session"
"""The page to begin with."""
REFERENCES = {"reference": FOUNDATION / "README.md", "authors": KERNEL / "README.md"}
"""The pages to look things up in: one for users, one for authors of packages."""


def find_pages() -> dict[str, Path]:
    """Return the file of each page by its name: those of users, those of authors, the references."""
    files = [path for folder in (FOUNDATION, KERNEL) for path in sorted((folder / "docs").glob("*.md"))]
    files.sort(key=lambda path: path.stem != FIRST)
    return {path.stem: path for path in files} | REFERENCES


@completes
def _complete_pages(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Complete the names of pages."""
    for name, path in find_pages().items():
        yield name, _title_of(path)


@click.command(epilog="Example: amplifier docs trigger")
@click.argument("page", required=False, shell_complete=_complete_pages)
@json_option
def docs(page: str | None, as_json: bool) -> None:
    """List the pages of the documentation, or print PAGE; each one can be followed from top to bottom."""
    pages = find_pages()
    if page is None:
        _list_pages(pages, as_json=as_json)
    elif page not in pages:
        raise UnknownName("page", page, pages)
    else:
        _print_page(page, pages[page].read_text(encoding="utf-8"), as_json=as_json)


def _list_pages(pages: dict[str, Path], *, as_json: bool) -> None:
    rows = [(name, _title_of(path), str(path)) for name, path in pages.items()]
    if as_json:
        print_json("docs.list/1", [dict(zip(("name", "title", "path"), row, strict=True)) for row in rows])
    else:
        print_table(("PAGE", "TITLE"), [row[:2] for row in rows], empty="No pages.", shrink=("TITLE",))


def _print_page(name: str, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json("docs.page/1", {"name": name, "text": text}, hide=str)
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        console().print(Markdown(text))
    else:
        click.echo(text, nl=False)


def _title_of(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").rstrip()
