"""Run `amplifier bundle show` and `tree`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...cli import exits
from ...operations.loading import find_left_out_here, known_bundles
from ..app import choose_bundle, json_option, plugins_of, read_bundle_at, read_settings_here
from ..completing import complete_bundles
from ..output import console, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from ...bundle.includes import IncludedBundle
    from ...bundle.model import Bundle
    from ...settings import Settings

LONGEST = 100
"""Characters of a value in a table."""


@click.command(epilog="Example: amplifier bundle show team --section providers")
@click.argument("bundle", required=False, shell_complete=complete_bundles)
@click.option("--section", metavar="NAME", help="Show this section only: session, tools, …")
@json_option
@click.pass_context
def show(ctx: click.Context, bundle: str | None, section: str | None, as_json: bool) -> None:
    """Show every value of BUNDLE (default: bundle.md here), with its includes and the overrides of settings.

    Each value comes with its file, line and column; secrets are hidden.
    """
    from amplifier_core.utils.secrets import redact_all

    from ...bundle.origins import SHOWN, section_of
    from ...documents.positions import show_file

    if section is not None and section not in SHOWN:
        raise click.UsageError(f"there is no section '{section}'; there are: {', '.join(SHOWN)}")
    settings = read_settings_here()
    loaded = read_bundle_at(bundle, plugins_of(ctx), settings)
    rows = [row for row in _rows(loaded, settings) if section in (None, row[0].partition(".")[0].partition("[")[0])]
    about: dict[str, Any] = {
        "name": loaded.name,
        "version": loaded.version,
        "description": loaded.description,
        "digest": loaded.digest,
        "files": {show_file(Path(file)): digest for file, digest in loaded.origins.items()},
    }
    prompts = _list_prompts(loaded)
    if as_json:
        sections = {name: section_of(loaded, name) for name in SHOWN if section in (None, name)}
        plan = redact_all({name: value for name, value in sections.items() if value})
        origins = {key: origin for key, _, origin in rows if origin}
        data = {**about, "plan": plan, "instruction": redact_all(loaded.instruction), "origins": origins}
        for kind in ("skill", "command"):
            data[f"{kind}s"] = {name: text for label, name, text in prompts if label == kind}
        print_json("bundle.show/1", data)
        return
    lines = [(label, about[label]) for label in ("name", "version", "description", "digest")]
    lines += [("file", f"{file} {digest[:12]}") for file, digest in about["files"].items()]
    lines.append(("instruction", _text(redact_all(loaded.instruction) or "")))
    lines += [(kind, _text(f"{'/' if kind == 'command' else ''}{name}: {text}")) for kind, name, text in prompts]
    out = console()
    for label, value in lines:
        if value:
            out.print(f"[bold]{label:11}[/] ", end="")
            out.print(value, markup=False)
    out.print()
    print_table(
        ("KEY", "VALUE", "FROM"),
        ((key, _text(value), origin) for key, value, origin in rows),
        empty=f"The section '{section}' is empty." if section else "It has no values.",
        shrink=("VALUE", "FROM"),
        leave_out=("FROM",),
    )


def _list_prompts(bundle: Bundle) -> list[tuple[str, str, str]]:
    """Return the kind, the name and the description of each skill and command of a bundle."""
    from amplifier_core.utils.secrets import redact_text

    from ...bundle.sections import PROMPT_TOOL

    if not bundle.has_tool(PROMPT_TOOL):
        return []
    from ...bundle.prompt_folders import read_bundle_prompts

    return [(each.kind, each.name, redact_text(each.description)) for each in read_bundle_prompts(bundle)[0]]


def _rows(bundle: Bundle, settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Yield the key, the public value and the place of each value; a value made by a program has no place ('')."""
    from amplifier_core.utils.secrets import redact_all

    from ...bundle.origins import SHOWN, section_of, values
    from ...bundle.overrides import overriding
    from ...documents.positions import format_path

    shown = redact_all({section: section_of(bundle, section) for section in SHOWN})
    for path, _, place in values(bundle):
        setting = overriding(bundle, path, settings.get("overrides"))
        where = settings.origin(("overrides", *setting)) if setting else place
        value: Any = shown
        for part in path:
            if not isinstance(value, dict | list):  # everything below a secret is that secret
                break
            value = value[part]  # type: ignore[index]
        yield format_path(path), value, "" if where is None else str(where)


def _text(value: Any) -> str:
    """Return a value on one line, cut if it is long."""
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split()) if text != '""' else text
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


@click.command(epilog="Example: amplifier bundle tree team")
@click.argument("bundle", required=False, shell_complete=complete_bundles)
@json_option
@click.pass_context
def tree(ctx: click.Context, bundle: str | None, as_json: bool) -> None:
    """Show the includes of BUNDLE (default: bundle.md here), and theirs; later ones win.

    A bundle included twice is marked and drawn once. The exit code is 4 when a bundle cannot be read.
    """
    from rich.tree import Tree

    from ...bundle.includes import include_tree

    settings = read_settings_here()
    plugins, source = plugins_of(ctx), choose_bundle(bundle, settings)
    names = known_bundles(plugins, settings)
    root = include_tree(source, registry=names, leave_out=find_left_out_here(source, plugins, names))
    if as_json:
        print_json("bundle.tree/1", root.as_dict())
    else:
        drawn = Tree(_line(root, root=True), guide_style="dim")
        waiting = [(drawn, root)]
        while waiting:
            branch, node = waiting.pop()
            waiting.extend((branch.add(_line(each)), each) for each in node.includes)
        console().print(drawn)
    if not root.is_whole():
        ctx.exit(exits.USAGE)


def _line(node: IncludedBundle, *, root: bool = False) -> Text:
    from rich.text import Text

    from ...documents.local_paths import is_path
    from ...sources import redact_uris

    line = Text.assemble((node.name or redact_uris(node.source), "bold"))
    if node.version:
        line.append(f" {node.version}", "dim")
    if node.name and node.source != node.name and not (root or is_path(node.source)):
        line.append(f"  {redact_uris(node.source)}")
    if node.file:
        line.append(f"  {node.file}", "dim")
    if node.repeated:
        line.append("  included above", "yellow")
    if node.problem:
        line.append(f"  {' '.join(node.problem.split())}", "red")
    return line
