"""Show the bundles of this machine, and edit their files."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from difflib import unified_diff
from heapq import merge
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup, escape

from amplifier_core.errors import AmplifierError, BundleError
from amplifier_foundation.documents.document import reading_unsaved
from amplifier_foundation.documents.positions import show_file
from amplifier_foundation.documents.problems import has_errors
from amplifier_foundation.operations.acting import Actor
from amplifier_foundation.operations.bundle_texts import read_bundle_text, save_bundle_text, validate_text
from amplifier_foundation.operations.loading import known_bundles, load_to_look, read_trusted_settings
from amplifier_foundation.operations.simulating import plan_timers

from ..completion import collect_keys
from ..known_bundles import find_known_bundle, find_known_bundles
from ..pages import Act, Page, Reply, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_foundation.bundle.model import Bundle
    from amplifier_foundation.operations.simulating import Plan

    from ..desk import Desk
    from ..known_bundles import KnownBundle
    from ..pages import Place

LIST, EDITOR = "bundles.html", "bundle_editor.html"
AHEAD = timedelta(days=7)
FIRES = 50
"""Fires of one trigger that a simulation shows."""


async def bundles(desk: Desk, place: Place) -> Page:
    """Return the bundles that this machine knows."""
    known = await find_known_bundles(desk)
    return Page("Bundles", LIST, {"bundles": render_block(LIST, "bundles", {"bundles": known, "link": edit_link})})


def edit_link(path: Path | str) -> str:
    """Return the address of the editor for a bundle's file."""
    return f"/bundles/edit?path={quote(str(path), safe='/')}"


async def editor(desk: Desk, place: Place) -> Page:
    """Return the text of a bundle's file; `disk` tells when somebody else changes it."""
    known = await _known(desk, place)
    text = await asyncio.to_thread(read_bundle_text, known.path)
    nonce = secrets.token_urlsafe(16)
    facts = {
        "path": str(known.path),
        "query": f"?path={quote(str(known.path), safe='/')}",
        "text": Markup(escape(text.text)),
        "digest": text.digest,
        "nonce": nonce,
    }
    disk = render_block(EDITOR, "disk", {"digest": text.digest, "known": known})
    return Page(known.path.name, EDITOR, {"disk": disk}, facts=facts, nonce=nonce)


async def _known(desk: Desk, place: Place) -> KnownBundle:
    return await find_known_bundle(desk, place.query.get("path", ""))


async def save(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Replace the file's text, if it is still what was read."""
    known, text = await _known(desk, place), form.get("text", "")
    actor = Actor(desk.person, "dashboard")
    saved = await save_bundle_text(desk.store, actor, known.path, text, form.get("digest", ""))
    try:
        said = await asyncio.to_thread(describe_effect, desk.plugins, known, text)
    except AmplifierError as error:  # of settings, or of what is trusted: the text is saved all the same
        said = str(error)
    return Reply(f"{known.path.name} is saved. {said}", facts={"digest": saved.digest})


def describe_effect(plugins: Plugins, known: KnownBundle, text: str) -> str:
    """Return what a saved text does, or what it waits for."""
    if has_errors(validate_text(known.path, text, plugins)):
        return "It has errors: what runs goes on with the text before."
    takes = "the running `up` takes it over now" if known.projects else "the next `amplifier up` uses it"
    remedy = find_missing_trust(plugins, known.path)
    return f"It is not trusted yet: {remedy}; then {takes}." if remedy else f"{takes[0].upper()}{takes[1:]}."


def find_missing_trust(plugins: Plugins, path: Path) -> str:
    """Return the command that trusts a file as it is now; '' when it may run."""
    from amplifier_foundation.bundle.registry import BundleRegistry
    from amplifier_foundation.security.trust import NotTrusted, load_trusted, target_of

    settings, _ = read_trusted_settings(path.parent)
    installed = BundleRegistry(plugins=plugins).folders_of_packages()
    try:
        load_trusted(path, names=known_bundles(plugins, settings), installed=installed, fetches=False)
    except NotTrusted as error:
        return f"amplifier trust {shlex.quote(target_of(error.place))}"
    except BundleError:  # such as an include that is not fetched: the process that loads it says so
        return ""
    return ""


async def validate(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Check a text that is not saved; the reply has the problems with line and column."""
    known = await _known(desk, place)
    problems = await asyncio.to_thread(validate_text, known.path, form.get("text", ""), desk.plugins)
    own = show_file(known.path)
    shown = [{**asdict(each), "is_here": each.file == own} for each in problems]
    errors = sum(each.severity == "error" for each in problems)
    html = render_block(EDITOR, "problems", {"problems": shown})
    return Reply(f"{errors} errors, {len(problems) - errors} warnings", facts={"problems": shown, "html": html})


async def compare(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Show how a text differs from the file as it is now."""
    known = await _known(desk, place)
    disk = await asyncio.to_thread(read_bundle_text, known.path)
    mine = form.get("text", "").replace("\r\n", "\n")
    theirs = disk.text.replace("\r\n", "\n")
    lines = list(unified_diff(theirs.splitlines(), mine.splitlines(), "in the file", "here", lineterm=""))
    html = render_block(EDITOR, "difference", {"lines": lines})
    return Reply("", facts={"digest": disk.digest, "text": theirs, "html": html, "differs": bool(lines)})


async def simulate(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Show when the timers of a text that is not saved would fire in the next days; nothing runs."""
    known = await _known(desk, place)
    bundle = await asyncio.to_thread(load_unsaved, known.path, form.get("text", ""), desk.plugins)
    start = datetime.now(UTC)
    plans = await plan_timers(bundle, desk.plugins, desk.store, start, start + AHEAD, FIRES)
    html = render_block(
        EDITOR, "plan", {"days": group_by_day(plans), "plans": plans, "more": [p for p in plans if p.more]}
    )
    return Reply("", facts={"html": html})


def load_unsaved(path: Path, text: str, plugins: Plugins) -> Bundle:
    """Load a bundle whose file would have this text; nothing of it runs. Raises `BundleError`."""
    settings, _ = read_trusted_settings(path.parent)
    with reading_unsaved(path, text):
        return load_to_look(str(path), plugins, settings, path.parent)


def group_by_day(plans: list[Plan]) -> dict[str, list[dict[str, Any]]]:
    """Return the fires of all triggers by their days, each in its time zone."""
    days: dict[str, list[dict[str, Any]]] = {}
    for row in merge(*(plan.rows() for plan in plans), key=lambda row: row["at"]):
        local = datetime.fromisoformat(row["local"])
        days.setdefault(f"{local:%a %Y-%m-%d}", []).append({**row, "time": f"{local:%H:%M:%S %z}"})
    return days


async def keys(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Return what the editor proposes."""
    return Reply("", facts=await asyncio.to_thread(collect_keys, desk.plugins))


VIEWS = [View("/bundles", bundles, label="Bundles", key="b"), View("/bundles/edit", editor)]
ACTS = [
    Act("/bundles/edit", save),
    Act("/bundles/validate", validate, changes=False),
    Act("/bundles/compare", compare, changes=False),
    Act("/bundles/simulate", simulate, changes=False),
    Act("/bundles/keys", keys, changes=False),
]
