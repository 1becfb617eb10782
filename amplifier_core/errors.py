"""Everything amplifier raises on purpose.

    AmplifierError
    ├── PluginError
    │   ├── PluginLoadFailed (ImportError)
    │   ├── NameTaken (ValueError)
    │   └── UnknownName (LookupError)
    ├── SessionError
    │   ├── InvalidSessionId (ValueError)
    │   ├── SessionNotFound (LookupError)
    │   ├── SessionExists (ValueError)
    │   ├── SessionConflict (RuntimeError)
    │   ├── ForkRefused (PermissionError)
    │   ├── SpawnRefused (PermissionError)
    │   └── SpawnTimeout (TimeoutError)
    ├── StoreError (OSError)
    │   ├── StoreUnavailable
    │   └── StoreDamaged
    ├── StaleEpoch (RuntimeError)
    ├── DeliveryNotFound (LookupError)
    ├── DeliveryConflict (RuntimeError)
    ├── TriggerError (RuntimeError)
    │   └── TriggerConfigError (ValueError)
    └── BundleError
        ├── BundleNotFoundError (LookupError)
        ├── BundleLoadError (ValueError)
        ├── BundleValidationError (ValueError)
        └── BundleDependencyError (ValueError)

Each error is also the built-in that a caller would catch, carries its facts as attributes and builds its own message.
A model's errors are a tree of their own: `amplifier_core.llm_errors`.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class AmplifierError(Exception):
    """Base of every error below; its text is one line that says what to do."""


class PluginError(AmplifierError):
    """A plugin, or a name that a plugin should have registered, is at fault."""


class PluginLoadFailed(PluginError, ImportError):
    """An installed plugin could not be loaded."""

    def __init__(self, plugin: str, dist: str, version: str, cause: str) -> None:
        self.plugin, self.dist, self.version, self.cause = plugin, dist, version, cause
        super().__init__(
            f"plugin '{plugin}' of {f'{dist} {version}'.strip()} was not loaded: {cause}. "
            f"Update or remove {dist}, or start with AMPLIFIER_BLOCK_PLUGINS={plugin}"
        )


class NameTaken(PluginError, ValueError):
    """Two distributions registered the same name."""

    def __init__(self, kind: str, name: str, owners: tuple[str, str]) -> None:
        self.kind, self.name, self.owners = kind, name, owners
        first, second = owners
        blocking = "" if kind == "module" else ", or block its plugin with AMPLIFIER_BLOCK_PLUGINS"
        super().__init__(f"{kind} '{name}' is registered by both {first} and {second}. Uninstall one of them{blocking}")


class UnknownName(PluginError, LookupError):
    """A trigger, storage, runner or module was asked for that nothing installed provides; or an agent that is none."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        close = get_close_matches(name, self.known, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else "."
        there_are = ", ".join(self.known) or "none"
        remedy = f"Installed: {there_are}. Install it with: pip install amplifier-{name}"
        super().__init__(f"unknown {kind} '{name}'{hint} {f'There are: {there_are}' if kind == 'agent' else remedy}")


class SessionError(AmplifierError):
    """One session is at fault; `session_id` says which."""

    def __init__(self, session_id: str, message: str) -> None:
        self.session_id = session_id
        super().__init__(message)


class InvalidSessionId(SessionError, ValueError):
    """The text cannot name a session; raised before it reaches a path, a query or a log."""

    def __init__(self, session_id: object) -> None:
        shown = repr(session_id) if len(repr(session_id)) <= 60 else repr(session_id)[:57] + "..."
        super().__init__(
            str(session_id),
            f"not a session id: {shown}. Use 1 to 128 letters, digits, '-' or '_', beginning with a letter or digit",
        )


class SessionNotFound(SessionError, LookupError):
    """No stored session has this id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id, f"no session '{session_id}'. See: amplifier session list --all")


class SessionExists(SessionError, ValueError):
    """A session of this id is stored already."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id, f"session '{session_id}' exists already. Resume it with --resume, or choose another id"
        )


class SessionConflict(SessionError, RuntimeError):
    """Somebody else wrote this session, or owns this work, first."""


class ForkRefused(SessionError, PermissionError):
    """A plugin refused a fork in `amplifier_before_fork`."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.reason = reason
        super().__init__(session_id, f"fork of session '{session_id}' refused: {reason}")


class SpawnRefused(SessionError, PermissionError):
    """A plugin refused a spawn in `amplifier_before_spawn`."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.reason = reason
        super().__init__(session_id, f"spawn from session '{session_id}' refused: {reason}")


class SpawnTimeout(SessionError, TimeoutError):
    """A spawned session ran past its time limit; what it did so far is stored."""

    def __init__(self, session_id: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            session_id,
            f"session '{session_id}' was stopped after {seconds:g} s. Go on with: amplifier run --resume {session_id}",
        )


class StoreError(AmplifierError, OSError):
    """The store cannot do what was asked; `path` says which file."""

    def __init__(self, path: Path | str, message: str) -> None:
        self.path = str(path)
        super().__init__(f"{path}: {message}")


class StoreUnavailable(StoreError):
    """The store cannot be opened or written now: permissions, a full disk, a lock."""


class StoreDamaged(StoreError):
    """The store's file is not what was written."""


class StaleEpoch(AmplifierError, RuntimeError):
    """A worker tried to commit a delivery that was given to another one since."""

    def __init__(self, delivery_id: str, epoch: int) -> None:
        self.delivery_id, self.epoch = delivery_id, epoch
        super().__init__(f"delivery {delivery_id} was taken over by another worker (epoch {epoch} is over)")


class DeliveryNotFound(AmplifierError, LookupError):
    """No stored delivery has this id."""

    def __init__(self, delivery_id: str) -> None:
        self.delivery_id = delivery_id
        super().__init__(f"no delivery '{delivery_id}'. See: amplifier trigger dead")


class DeliveryConflict(AmplifierError, RuntimeError):
    """A delivery is not in a state in which this can be done with it; `state` says which one it is in."""

    def __init__(self, delivery_id: str, state: str, what: str) -> None:
        self.delivery_id, self.state = delivery_id, state
        super().__init__(f"delivery '{delivery_id}' is {state}: it cannot be {what}")


class TriggerError(AmplifierError, RuntimeError):
    """A trigger failed while it watched; `trigger` says which."""

    def __init__(self, trigger: str, message: str) -> None:
        self.trigger = trigger
        super().__init__(f"{trigger}: {message}")


class TriggerConfigError(TriggerError, ValueError):
    """A trigger's configuration cannot work; `key` is the offending key, or '' for the whole.

    `others` are errors of other keys that were found with it.
    """

    def __init__(self, trigger: str, key: str, message: str, others: Iterable[TriggerConfigError] = ()) -> None:
        self.key, self.others = key, tuple(others)
        super().__init__(trigger, f"{key}: {message}" if key else message)


class BundleError(AmplifierError):
    """A bundle is at fault."""


class BundleNotFoundError(BundleError, LookupError):
    """Nothing is at the place that was named."""


class BundleLoadError(BundleError, ValueError):
    """The bundle's file could not be read or parsed."""


class BundleValidationError(BundleError, ValueError):
    """The bundle was read, and what it says is wrong."""


class BundleDependencyError(BundleError, ValueError):
    """Bundles include each other in a circle, or one that is included is missing."""
