"""Record the model traffic of sessions into a folder, and play it back: any session becomes a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .playing import Player
    from .recording import Recorder

__all__ = ["Player", "Recorder", "mount", "on_session_ready"]

__amplifier_module_type__ = "provider"

_ATTACH = "provider-replay.attach"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    unknown = sorted(config.keys() - {"record", "replay", "run_tools", "priority"})
    if unknown:
        raise ValueError(f"provider-replay: {unknown[0]}: unknown key; there are record, replay and run_tools")
    folders = [key for key in ("record", "replay") if key in config]
    if len(folders) != 1:
        raise ValueError("provider-replay: give the folder of the recording, as 'record' or as 'replay'")
    if not isinstance(config[folders[0]], str) or not config[folders[0]]:
        raise ValueError(f"provider-replay: {folders[0]}: must be the path of a folder")
    if not isinstance(config.get("run_tools", False), bool):
        raise ValueError("provider-replay: run_tools: must be true or false")


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    folder = {"type": "string", "minLength": 1}
    return {
        "type": "object",
        "properties": {
            "record": {**folder, "description": "Record the requests to all providers of the session there."},
            "replay": {**folder, "description": "Answer from the recording there."},
            "run_tools": {"type": "boolean", "description": "Run the tools instead of playing back their results."},
        },
        "oneOf": [{"required": ["record"]}, {"required": ["replay"]}],
        "additionalProperties": False,
    }


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Record the session's other providers, or play a recording back in their place.

    The folder is relative to the working folder. Raises `ValueError` for a configuration that cannot work, and
    `RecordingError` for an unreadable recording.
    """
    config = config or {}
    check_config(config)
    place = Path(coordinator.get_capability("session.working_dir") or "")
    folder = place / (config.get("record") or config["replay"])
    if "record" in config:
        from .recording import Recorder

        coordinator.register_capability(_ATTACH, Recorder(folder).attach)
        return
    from .playing import Player

    player = Player(folder, run_tools=config.get("run_tools", False))
    coordinator.register_capability(_ATTACH, player.attach)
    for name, provider in player.make_providers(coordinator).items():
        await coordinator.mount("providers", provider, name=name)


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    """Begin to record, or to play back, when all modules are mounted."""
    attach = coordinator.get_capability(_ATTACH)
    if attach is not None:
        attach(coordinator)


def __getattr__(name: str) -> object:
    if name == "Recorder":
        from .recording import Recorder

        return Recorder
    if name == "Player":
        from .playing import Player

        return Player
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
