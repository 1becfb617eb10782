"""Run `amplifier bundle explain`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..app import json_option
from ..output import print_json

if TYPE_CHECKING:
    from collections.abc import Collection


@click.command(epilog="Example: amplifier bundle explain background_sessions.worktree")
@click.argument("key")
@json_option
def explain(key: str, as_json: bool) -> None:
    """Explain KEY of a bundle: what it means, takes and defaults to, where it stands, and an example.

    KEY is a path, such as background_sessions.worktree, or its end where that is enough: worktree.
    """
    import yaml

    from ...bundle.key_help import explain_keys

    known = explain_keys()
    found = known[find_key(key, known)]
    below = [path for path in known if path.rpartition(".")[0] == found.path]
    if as_json:
        print_json("bundle.explain/1", {**asdict(found), "where": found.where, "below": below})
        return
    click.echo(f"{found.path}: {found.type}")
    if found.description:
        click.echo(found.description)
    click.echo()
    for label, text in (
        ("stands in", found.where or "the front matter"),
        ("default", "" if found.default is None else json.dumps(found.default)),
        ("one of", ", ".join(json.dumps(each) for each in found.allowed)),
        ("keys", ", ".join(path.rpartition(".")[2] for path in below)),
    ):
        if text:
            click.echo(f"{label + ':':11}{text}")
    click.echo(f"\n{yaml.safe_dump(found.example, sort_keys=False).rstrip()}")


def find_key(text: str, known: Collection[str]) -> str:
    """Return the path of a key, or the only one that ends so; of several, the least deep one if it is alone.

    Raises `click.UsageError` with the candidates, or with the nearest path.
    """
    from difflib import get_close_matches

    text = text.replace("[]", "").strip(".")
    if text in known:
        return text
    ending = [path for path in known if path.endswith(f".{text}")]
    outside = [path for path in ending if not path.startswith("agents.")]
    if len(ending) == 1 or len(outside) == 1:
        return (outside or ending)[0]
    if ending:
        raise click.UsageError(f"'{text}' is the end of several keys: {', '.join(ending)}")
    names = {path.rpartition(".")[2] for path in known} if "." not in text else set(known)
    close = get_close_matches(text, sorted(names), n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ". All keys: amplifier bundle schema"
    raise click.UsageError(f"no bundle has a key '{text}'{hint}")
