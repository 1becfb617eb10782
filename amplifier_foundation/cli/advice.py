"""Add the command that helps to an error of the kernel: the kernel knows no commands."""

from __future__ import annotations

from amplifier_core import errors

_BY_ERROR: tuple[tuple[type[errors.AmplifierError], str], ...] = (
    (errors.SessionNotFound, "See: amplifier session list --all"),
    (errors.SessionExists, "Or resume it with: amplifier run --resume {session_id}"),
    (errors.SpawnTimeout, "Continue with: amplifier run --resume {session_id}"),
    (errors.DeliveryNotFound, "See: amplifier trigger dead --all"),
)
"""The first match counts; names in braces are attributes of the error."""


def with_advice(error: errors.AmplifierError) -> str:
    """Return the text of an error, with the command that helps, if there is one."""
    if isinstance(error, errors.UnknownName):
        return f"{error}{_install_line(error.name)}{_find_setting(error)}"
    if isinstance(error, errors.NoProviderMounted):
        from ..sessions.failures import advise_on_providers

        return f"{error}. {advise_on_providers(error)}"
    from ..flows.errors import INVALID, FlowError

    if isinstance(error, FlowError) and error.code == INVALID:
        return str(error).removeprefix(f"{INVALID}: ")  # the code is for programs
    for kind, advice in _BY_ERROR:
        if isinstance(error, kind):
            return f"{error}. {advice.format_map(vars(error))}"
    return str(error)


def with_retry(text: str, delivery_id: str) -> str:
    """Return the text about a dead letter, with the command that tries it again."""
    return f"{text.rstrip('.')}. Try it again: amplifier trigger retry {delivery_id[:8]}"


def _install_line(name: str) -> str:
    """Return how to install one of the project's own packages; the package of any other name is never guessed."""
    from ..bundle.packages import requirement_of

    requirement = requirement_of(name)
    return f". Install it with: pip install {requirement}" if requirement else ""


def _find_setting(error: errors.UnknownName) -> str:
    """Return where a storage that nobody provides is chosen, and what takes it back."""
    if error.kind != "storage":
        return ""
    from ..settings import read_settings

    for layer in reversed(read_settings().layers):
        chosen = layer.values.get("storage")
        if (chosen.get("name") if isinstance(chosen, dict) else chosen) != error.name:
            continue
        if layer.positions:
            where = layer.positions.at(("storage",))
            return f". {where} chooses it; take that back with: amplifier config unset storage --scope {layer.source}"
        if layer.source == "environment":
            return ". AMPLIFIER_STORAGE chooses it: change or unset it"
    return ""
