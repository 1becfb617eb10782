"""Record a run with the package `amplifier-provider-replay`, and play a recording back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amplifier_core.errors import UnknownName

from ..app import find_own_bundle, load_bundle_at, plugins_of, read_settings_here, require_runnable
from .approving import Approvals
from .showing import Display

if TYPE_CHECKING:
    from amplifier_core.session import AmplifierSession

    from ...bundle.model import Bundle
    from ...spawning.conversation import Conversation

PACKAGE = "provider-replay"


def find_package() -> Any:
    """Return the module of the package. Raises `UnknownName` when it is not installed."""
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.loader import GROUP

    for entry in find_entry_points(GROUP, PACKAGE):
        return sys.modules[entry.load().__module__]
    raise UnknownName("module", PACKAGE, [])


class RunRecorder:
    """Records the turns of one run, and the sessions below its session."""

    def __init__(self, folder: Path, bundle: Bundle, *, resumed: str | None = None) -> None:
        if resumed is None and any(folder.glob("*.jsonl")):
            raise click.UsageError(f"{folder} holds a recording already; name another folder, or --resume its session")
        source = bundle.source_path
        place = os.path.relpath(source, folder) if source is not None else ""
        self._recorder = find_package().Recorder(folder, place)
        self._resumed = resumed

    def attach(self, session: AmplifierSession) -> None:
        """Record a session; the resumed one continues its own file."""
        self._recorder.attach(session, is_resumed=session.session_id == self._resumed)

    def begin_turn(self, session_id: str, prompt: str) -> None:
        """Record the prompt of a turn."""
        self._recorder.note_turn(session_id, prompt)

    def end_turn(self, result: dict[str, Any]) -> None:
        """Record the result of a turn, as a view gets it."""
        self._recorder.note_outcome(result["session_id"], result["status"], result["output"], result["error"])


class Options(NamedTuple):
    """The options of a replay."""

    bundle: str | None
    run_tools: bool


async def replay(ctx: click.Context, folder: Path, options: Options) -> list[dict[str, Any]]:
    """Take the turns of a recording in a new session that nobody stores; return the result of each.

    Raises the errors of the package for an unreadable recording and for a difference.
    """
    import tempfile

    from ...sessions.storages import open_store
    from ...spawning.conversation import open_conversation

    player, plugins = find_package().Player(folder, run_tools=options.run_tools), plugins_of(ctx)
    place = _bundle_of(folder, player, options)
    bundle = await load_bundle_at(place, plugins) if place is not None else _make_bundle()
    bundle.providers = [{"module": PACKAGE, "config": {"replay": str(folder), "run_tools": options.run_tools}}]
    require_runnable(bundle, plugins)
    with tempfile.TemporaryDirectory(prefix="amplifier-replay-") as scratch:
        store = open_store(plugins, path=Path(scratch) / "amplifier.db")
        try:
            async with open_conversation(
                bundle,
                store,
                plugins,
                approval_system=Approvals(None, lambda: None),
                display_system=Display(quiet=bool(ctx.obj["quiet"])),
                attach=player.attach,
            ) as conversation:
                turns = enumerate(player.top.turns)
                results = [await _replay_turn(conversation, player, number, prompt) for number, prompt in turns]
            player.check_end()
        finally:
            await store.close()
    return results


def _bundle_of(folder: Path, player: Any, options: Options) -> str | None:
    """Return the wanted bundle, else the recorded one, else that of this project; None: the session had no file.

    A recording by a module of the bundle does not tell it: None. One without a bundle has an empty text.
    """
    recorded = player.top.header.get("bundle")
    if options.bundle or recorded is None:
        return options.bundle or find_own_bundle(read_settings_here())
    return os.path.normpath(folder / recorded) if recorded else None


def _make_bundle() -> Bundle:
    """Return the bundle of `amplifier init`, as `run` has it in a folder without one."""
    from ...bundle.first_provider import Choice
    from ...bundle.overrides import override_modules
    from ...bundle.starter import first_bundle

    bundle = first_bundle("session", Choice(PACKAGE, {}, ""), Path.cwd())
    override_modules(bundle, read_settings_here().get("overrides"), Path.cwd())
    return bundle


async def _replay_turn(conversation: Conversation, player: Any, number: int, prompt: str) -> dict[str, Any]:
    session = conversation.session
    result: dict[str, Any] = {"prompt": prompt, "status": "failed", "output": "", "error": None}
    try:
        turn = await conversation.say(prompt)
        result |= {"status": turn.status, "output": turn.output, "error": turn.error}
    except Exception as error:
        if player.drift is not None:
            raise player.drift from None
        result["error"] = str(error)
    working_dir = str(session.coordinator.get_capability("session.working_dir") or "")
    player.check_outcome(number, result["status"], result["output"], working_dir)
    return {**result, "usage": conversation.usage.to_dict()}
