"""Emit the life of a bundle to the hooks of its session: `bundle:loaded`, `bundle:prepared`, `bundle:failed`.

A bundle is loaded and prepared before its session has hooks: both events follow the mounting of the session's modules.
`bundle:failed` reaches the hooks mounted before the failure, or those of the parent of a session never made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .sections import DEFAULT_SESSION, MODULE_LISTS

if TYPE_CHECKING:
    from amplifier_core.session import AmplifierSession

    from .model import Bundle

LOADED = "bundle:loaded"
PREPARED = "bundle:prepared"
FAILED = "bundle:failed"


async def emit_ready(session: AmplifierSession, bundle: Bundle) -> None:
    """Emit `bundle:loaded`, with files and warnings, and `bundle:prepared`, with the mounted modules by section."""
    hooks = session.coordinator.hooks
    if LOADED not in hooks.heard and PREPARED not in hooks.heard:
        return
    about = {"name": bundle.name, "version": bundle.version, "digest": bundle.digest}
    if hooks.has_handlers(LOADED):
        loaded = {"files": list(bundle.origins), "warnings": [str(problem) for problem in bundle.problems]}
        await hooks.emit(LOADED, {**about, **loaded})
    if not hooks.has_handlers(PREPARED):
        return
    plan: dict[str, Any] = session.config
    modules = {section: [entry.get("module") for entry in plan.get(section) or ()] for section in MODULE_LISTS}
    specs = {name: plan["session"][name] for name in DEFAULT_SESSION}
    mains = {name: spec.get("module") if isinstance(spec, dict) else spec for name, spec in specs.items()}
    await hooks.emit(PREPARED, {**about, **mains, **modules})


async def emit_failed(session: AmplifierSession, name: str, error: Exception) -> None:
    """Emit `bundle:failed` with the bundle's name or address to the failed `session`, or to its parent."""
    data = {"name": name, "error": str(error), "error_type": type(error).__name__}
    await session.coordinator.hooks.emit(FAILED, data)
