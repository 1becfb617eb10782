"""`amplifier bundle show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..app import json_option, plugins_of, settings_here
from ..output import console, print_json, print_table
from .loading import bundle_as_it_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...bundles.model import Bundle
    from ...bundles.positions import KeyPath
    from ...settings import Settings

LONGEST = 100
"""Characters of a value that a table shows."""


class Row(NamedTuple):
    """One value as it may be shown, and where it stands; the latter is empty for what a program made."""

    key: str
    value: Any
    origin: str


@click.command()
@click.argument("bundle", required=False)
@click.option("--section", metavar="NAME", help="This section alone: session, tools, …")
@json_option
@click.pass_context
def show(ctx: click.Context, bundle: str | None, section: str | None, as_json: bool) -> None:
    """Show what BUNDLE (default: bundle.md here) says, with all that it includes and what settings put over it.

    Each value is told with the file, line and column that it comes from; secrets are not shown.
    """
    from ...bundles.layers import SECTIONS

    if section is not None and section not in SECTIONS:
        raise click.UsageError(f"there is no section '{section}'; there are: {', '.join(SECTIONS)}")
    settings = settings_here()
    loaded = bundle_as_it_runs(bundle, plugins_of(ctx), settings)
    rows = [row for row in _rows(loaded, settings) if section in (None, _section_of(row.key))]
    if as_json:
        print_json("bundle.show/1", _as_json(loaded, rows, section))
        return
    _print_about(loaded)
    print_table(
        ("KEY", "VALUE", "FROM"),
        ((row.key, _text(row.value), row.origin) for row in rows),
        empty=f"It says nothing in '{section}'." if section else "It says nothing more.",
    )


def _rows(bundle: Bundle, settings: Settings) -> Iterator[Row]:
    from ...bundles.layers import SECTIONS, section_of, values
    from ...bundles.overrides import overriding
    from ...bundles.positions import format_path
    from ...bundles.secrets import public

    shown = public({section: section_of(bundle, section) for section in SECTIONS})
    for path, _, place in values(bundle):
        setting = overriding(bundle, path, settings.get("overrides"))
        where = settings.origin(("overrides", *setting)) if setting else place
        yield Row(format_path(path), _at(shown, path), "" if where is None else str(where))


def _at(value: Any, path: KeyPath) -> Any:
    for part in path:
        if not isinstance(value, dict | list):  # what lies below a secret is that secret
            break
        value = value[part]  # type: ignore[index]
    return value


def _section_of(key: str) -> str:
    return key.partition(".")[0].partition("[")[0]


def _as_json(bundle: Bundle, rows: list[Row], section: str | None) -> dict[str, Any]:
    from ...bundles.layers import SECTIONS, section_of
    from ...bundles.secrets import public

    sections = {name: section_of(bundle, name) for name in SECTIONS if section in (None, name)}
    return {
        **_about(bundle),
        "plan": public({name: value for name, value in sections.items() if value}),
        "instruction": public(bundle.instruction),
        "origins": {row.key: row.origin for row in rows if row.origin},
    }


def _about(bundle: Bundle) -> dict[str, Any]:
    from ...bundles.positions import show_file

    files = {show_file(Path(file)): digest for file, digest in bundle.origins.items()}
    about = {"name": bundle.name, "version": bundle.version, "description": bundle.description}
    return {**about, "digest": bundle.digest, "files": files}


def _print_about(bundle: Bundle) -> None:
    from ...bundles.secrets import public

    out = console()
    about = _about(bundle)
    lines = [(label, about[label]) for label in ("name", "version", "description", "digest")]
    lines += [("file", f"{file} {digest[:12]}") for file, digest in about["files"].items()]
    lines.append(("says", _text(public(bundle.instruction) or "")))
    for label, value in lines:
        if value:
            out.print(f"[bold]{label:11}[/] ", end="")
            out.print(value, markup=False)
    out.print()


def _text(value: Any) -> str:
    """Return a value on one line, cut if it is long."""
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split()) if text != '""' else text
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
