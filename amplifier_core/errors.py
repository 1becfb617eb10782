"""Define the errors of amplifier.

    AmplifierError
    ├── PluginError
    │   ├── PluginLoadFailed (ImportError)
    │   ├── PluginRefused (PermissionError)
    │   ├── NameTaken (ValueError)
    │   └── UnknownName (LookupError)
    ├── SessionError
    │   ├── InvalidSessionId (ValueError)
    │   ├── SessionNotFound (LookupError)
    │   ├── SessionExists (ValueError)
    │   ├── SessionConflict (RuntimeError)
    │   ├── RefusalError (PermissionError)
    │   │   ├── ForkRefused
    │   │   └── SpawnRefused
    │   ├── SpawnTimeout (TimeoutError)
    │   ├── AnswerUnfinished (RuntimeError)
    │   ├── NoProviderMounted (RuntimeError)
    │   ├── SessionProcessEnded (RuntimeError)
    │   ├── LimitReached (RuntimeError)
    │   └── BudgetExceeded (RuntimeError)
    ├── StoreError (OSError)
    │   ├── StoreUnavailable
    │   ├── StoreDamaged
    │   ├── StoreConflict
    │   ├── BackupNotFound (LookupError)
    │   └── QueueFull
    ├── StaleEpoch (RuntimeError)
    ├── DeliveryNotFound (LookupError)
    ├── DeliveryConflict (RuntimeError)
    ├── DocumentConflict (RuntimeError)
    ├── CommandFailed (RuntimeError)
    ├── CommandMissing (LookupError)
    ├── TriggerError (RuntimeError)
    │   └── TriggerConfigError (ValueError)
    └── BundleError
        ├── BundleNotFoundError (LookupError)
        ├── BundleLoadError (ValueError)
        ├── BundleValidationError (ValueError)
        └── BundleDependencyError (ValueError)

A class is named by a state (`SessionNotFound`, `NameTaken`) or ends in `Error`; a base class always ends in `Error`.
Each error is also a built-in error for callers to catch, carries its facts as attributes and builds its own message.
Messages name no command of a program: the program adds its own remedy. The errors of models are a tree of their own:
`amplifier_core.llm_errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from decimal import Decimal
    from pathlib import Path


class AmplifierError(Exception):
    """Base of every error below; its text is one line, with the remedy if there is one."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy the text and the facts as they are, also to another process: `__init__` builds both from others."""
        return type(self).__new__, (type(self), *self.args), {**self.__dict__, "args": self.args}


class PluginError(AmplifierError):
    """A plugin is at fault, or a name that a plugin should register."""


class PluginLoadFailed(PluginError, ImportError):
    """An installed plugin could not be loaded."""

    def __init__(self, plugin: str, dist: str, version: str, cause: str) -> None:
        self.plugin, self.dist, self.version, self.cause = plugin, dist, version, cause
        super().__init__(
            f"plugin '{plugin}' of {f'{dist} {version}'.strip()} was not loaded: {cause}. "
            f"Update or remove {dist}, or start with AMPLIFIER_BLOCK_PLUGINS={plugin}"
        )


class PluginRefused(PluginError, PermissionError):
    """The user or the project refuses to have a plugin or module loaded; `is_fault`: because something is wrong."""

    def __init__(self, name: str, dist: str, cause: str, *, is_fault: bool = False) -> None:
        self.name, self.dist, self.cause, self.is_fault = name, dist, cause, is_fault
        super().__init__(f"'{name}' of {dist} is not loaded: {cause}")


class NameTaken(PluginError, ValueError):
    """Two distributions registered the same name, or one did twice; with `first_counts`, the name is the first's."""

    def __init__(self, kind: str, name: str, owners: tuple[str, str], *, first_counts: bool = False) -> None:
        self.kind, self.name, self.owners = kind, name, owners
        first, second = owners
        is_of_both = kind in ("module", "command", "plugin")  # to block a plugin by its name blocks both
        blocking = "" if is_of_both else ", or block its plugin with AMPLIFIER_BLOCK_PLUGINS"
        use = "the first is used" if first_counts or kind == "plugin" else "neither is used"
        text = f"by both {first} and {second}; {use}. Uninstall one of them{blocking}"
        if first == second:
            text = f"twice by {first}, and is not used. Update or remove it{blocking}"
        super().__init__(f"{kind} '{name}' is registered {text}")


class UnknownName(PluginError, LookupError):
    """No installed package provides this name; or no agent has it. The name of a missing package is never guessed."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        from difflib import get_close_matches  # rarely needed, and not free

        short = {each.removeprefix(f"{kind}-"): each for each in self.known}  # a shared prefix makes any two similar
        close = get_close_matches(name.removeprefix(f"{kind}-"), short, n=1)
        hint = f"; did you mean '{short[close[0]]}'?" if close else "."
        label = "There are" if kind == "agent" else "Installed"
        super().__init__(f"unknown {kind} '{name}'{hint} {label}: {', '.join(self.known) or 'none'}")


class SessionError(AmplifierError):
    """One session is at fault: `session_id`."""

    def __init__(self, session_id: str, message: str) -> None:
        self.session_id = session_id
        super().__init__(message)


class InvalidSessionId(SessionError, ValueError):
    """The text is not a session id; raised before it reaches a path, a query or a log."""

    def __init__(self, session_id: object) -> None:
        shown = repr(session_id) if len(repr(session_id)) <= 60 else repr(session_id)[:57] + "..."
        super().__init__(
            str(session_id),
            f"not a session id: {shown}. Use 1 to 128 letters, digits, '-' or '_', beginning with a letter or digit",
        )


class SessionNotFound(SessionError, LookupError):
    """No stored session has this id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id, f"no session '{session_id}'")


class SessionExists(SessionError, ValueError):
    """Another session has this id already."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id, f"session '{session_id}' exists already; choose another id")


class SessionConflict(SessionError, RuntimeError):
    """Another process or task wrote this session, or owns this work, first."""


class RefusalError(SessionError, PermissionError):
    """A plugin refused a step of a session, by default for now: a delivery of a background session is postponed.

    With `not_before` (aware), until then at least; with `final` it is dropped. Raises `ValueError` without a zone.
    """

    act = "act of"

    def __init__(
        self, session_id: str, reason: str, *, not_before: datetime | None = None, final: bool = False
    ) -> None:
        if not_before is not None and not_before.tzinfo is None:
            raise ValueError(f"not_before must have a time zone: {not_before}")
        self.reason, self.not_before, self.final = reason, not_before, final
        until = " for good" if final else f" until {not_before.isoformat()}" if not_before else ""
        super().__init__(session_id, f"{self.act} session '{session_id}' refused{until}: {reason}")


class ForkRefused(RefusalError):
    """A plugin refused a fork in `amplifier_before_fork`; `session_id` is the source, `ForkRequest.source_id`."""

    act = "fork of"


class SpawnRefused(RefusalError):
    """A plugin refused a spawn in `amplifier_before_spawn`; `session_id` spawns, `SpawnRequest.parent_id`."""

    act = "spawn from"


class SpawnTimeout(SessionError, TimeoutError):
    """A spawned session ran past its time limit; `partial` is the text of its last answer by then, '' for none.

    A session with a store keeps its messages and can be resumed by its id.
    """

    def __init__(self, session_id: str, seconds: float, partial: str = "") -> None:
        self.seconds, self.partial = seconds, partial
        super().__init__(session_id, f"session '{session_id}' was stopped after {seconds:g} s")


class AnswerUnfinished(SessionError, RuntimeError):
    """A model ended its answer early: `finish_reason` says why, as `length`, `refusal`, `broken_off` or `empty`.

    `partial` is its text so far. Resumed without a prompt, the session goes on from there.
    """

    def __init__(self, session_id: str, finish_reason: str, partial: str = "") -> None:
        self.finish_reason, self.partial = finish_reason, partial
        cause = {
            "length": "the answer is cut: it is as long as the model may answer (length). Allow more output in the "
            "provider's configuration, or ask for less",
            "context_length": "the answer is cut: the context of the model is full (context_length). Limit the history",
            "refusal": "the model refused to answer (refusal). Ask in other words, or another model",
            "empty": "the model gave no answer, and its provider does not say why (empty)",
            "content_filter": "the service held the answer back (content_filter). Ask in other words",
            "broken_off": "the service broke the answer off (broken_off). Try again",
        }.get(finish_reason, f"the answer is unfinished ({finish_reason})")
        super().__init__(session_id, f"session '{session_id}': {cause}")


class NoProviderMounted(SessionError, RuntimeError):
    """A session has no model to ask; `causes` says why, of each provider of its plan, `lacks_key` if one has no key."""

    def __init__(self, session_id: str, causes: Iterable[str] = (), *, lacks_key: bool = False) -> None:
        self.causes, self.lacks_key = tuple(causes), lacks_key
        told = f" ({'; '.join(self.causes)})" if self.causes else ""
        super().__init__(session_id, f"No providers mounted{told}")


class SessionProcessEnded(SessionError, RuntimeError):
    """The process of a session ended before its session; `cause` says how, `said` is the end of its redacted output."""

    def __init__(self, session_id: str, cause: str, said: str = "") -> None:
        self.cause, self.said = cause, said
        tail = f". It said last: {said}" if said else ""
        super().__init__(session_id, f"the process of session '{session_id}' {cause}{tail}")


class LimitReached(SessionError, RuntimeError):
    """The process of a session reached one of its limits; `name` is its key in `session: {limits: …}`."""

    def __init__(self, session_id: str, name: str, limit: str) -> None:
        self.name, self.limit = name, limit
        reached = f"session '{session_id}' reached its limit of {limit}"
        super().__init__(session_id, f"{reached}. Allow more in the bundle: 'session: {{limits: {{{name}: …}}}}'")


class BudgetExceeded(SessionError, RuntimeError):
    """A budget is spent; `limit` and `spent` count its `unit`: `usd`, `tokens`, `turns` or `seconds`.

    `scope` tells whose budget it is: of the `session` alone, of its `tree` (with the sessions below it), of all
    attempts at its `task`, or of all sessions of its `bundle` or of its `background session`. A daily budget goes on at
    `until`; None: it is spent for good. `key` names its place in the bundle.
    """

    def __init__(
        self,
        session_id: str,
        limit: Decimal,
        spent: Decimal,
        *,
        unit: str = "usd",
        scope: str = "tree",
        key: str = "spawn: {max_cost_usd: …}",
        until: datetime | None = None,
    ) -> None:
        self.limit, self.spent, self.unit, self.scope, self.key, self.until = limit, spent, unit, scope, key, until
        whose = {
            "session": f"session '{session_id}'",
            "tree": f"session '{session_id}' and those below it",
            "task": f"session '{session_id}' and the other attempts at its task",
            "bundle": f"session '{session_id}': the sessions of its bundle",
            "background session": f"session '{session_id}': the sessions of its background session",
        }[scope]
        amounts = f"cost ${spent} of ${limit}" if unit == "usd" else f"used {spent:,} of {limit:,} {unit}"
        today = f" today, until {until:%Y-%m-%dT%H:%M:%SZ}" if until is not None else ""
        super().__init__(
            session_id,
            f"{whose} {amounts}{today}, and no request begins beyond that. Allow more in the bundle: '{key}'",
        )


class StoreError(AmplifierError, OSError):
    """The store cannot perform an operation; `path` names its file, `needs_person`: it stays so until a person acts."""

    def __init__(self, path: Path | str, message: str, *, needs_person: bool = False) -> None:
        self.path, self.needs_person = str(path), needs_person
        super().__init__(f"{path}: {message}")


class StoreUnavailable(StoreError):
    """The store cannot be opened or written now: permissions, a full disk, a lock."""


class StoreDamaged(StoreError):
    """The store's file is damaged: its content is not what was written."""


class StoreConflict(StoreError):
    """The store cannot be used, copied or filled: a newer version wrote it, or it holds anything else."""


class BackupNotFound(StoreError, LookupError):
    """The store has no backup, or none of this name."""


class QueueFull(StoreError):
    """As many events wait in a queue as may wait; a caller of a trigger is to try again in `retry_after` seconds."""

    def __init__(self, queue: str, most: int, retry_after: int = 60) -> None:
        self.retry_after = retry_after
        self.problem = f"{most} events wait, as many as max_waiting allows"
        super().__init__(queue, self.problem)


class StaleEpoch(AmplifierError, RuntimeError):
    """A worker wrote for a delivery that another worker has claimed since, or a leader whose lease is over."""

    def __init__(self, delivery_id: str, epoch: int, kind: str = "delivery") -> None:
        self.delivery_id, self.epoch = delivery_id, epoch
        super().__init__(f"{kind} {delivery_id} was taken over by another worker (epoch {epoch} is over)")


class DeliveryNotFound(AmplifierError, LookupError):
    """No stored delivery has this id."""

    def __init__(self, delivery_id: str) -> None:
        self.delivery_id = delivery_id
        super().__init__(f"no delivery '{delivery_id}'")


class DeliveryConflict(AmplifierError, RuntimeError):
    """The `state` of a delivery does not allow the operation."""

    def __init__(self, delivery_id: str, state: str, what: str) -> None:
        self.delivery_id, self.state = delivery_id, state
        super().__init__(f"delivery '{delivery_id}' is {state}: it cannot be {what}")


class DocumentConflict(AmplifierError, RuntimeError):
    """Another writer changed the document first, or it is there, or gone, against what a change expected."""

    def __init__(self, collection: str, key: str) -> None:
        self.collection, self.key = collection, key
        super().__init__(f"document '{key}' of '{collection}' was changed meanwhile; read it again")


class CommandFailed(AmplifierError, RuntimeError):
    """A slash command of the module `source` makes no prompt."""

    def __init__(self, command: str, source: str, reason: str) -> None:
        self.command, self.source, self.reason = command, source, reason
        super().__init__(f"/{command} of {source} failed: {reason}")


class CommandMissing(AmplifierError, LookupError):
    """No module offers a slash command, and the module `source` does not say what it offers."""

    def __init__(self, command: str, source: str, reason: str) -> None:
        self.command, self.source, self.reason = command, source, reason
        super().__init__(
            f"no command /{command} is known, and the commands of {source} are missing: {reason}. "
            "Try again; a prompt that is no command begins with another character"
        )


class TriggerError(AmplifierError, RuntimeError):
    """The trigger `trigger` failed while it watched."""

    def __init__(self, trigger: str, message: str) -> None:
        self.trigger = trigger
        super().__init__(f"{trigger}: {message}")


class TriggerConfigError(TriggerError, ValueError):
    """A trigger's configuration cannot work; `key` is the offending key, or '' for the whole.

    `others` are the errors of other keys.
    """

    def __init__(self, trigger: str, key: str, message: str, others: Iterable[TriggerConfigError] = ()) -> None:
        self.key, self.others = key, tuple(others)
        super().__init__(trigger, f"{key}: {message}" if key else message)


class BundleError(AmplifierError):
    """A bundle is at fault."""


class BundleNotFoundError(BundleError, LookupError):
    """The named place holds no bundle."""


class BundleLoadError(BundleError, ValueError):
    """The bundle's file could not be read or parsed."""


class BundleValidationError(BundleError, ValueError):
    """The bundle's content is wrong."""


class BundleDependencyError(BundleError, ValueError):
    """Bundles include each other in a circle, or an included one is missing."""
